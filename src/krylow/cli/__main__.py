"""``python -m krylow.cli``."""

from krylow.cli import main

main()
