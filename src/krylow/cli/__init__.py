"""The command line: one module a command, each of which imports what it needs when it runs.

So ``krylow --help`` is there at once. A new command is a module here with ``@app.command()``, named below.
"""

from krylow.cli import bench, filter, info, report, reproduce, subspace, train
from krylow.cli.app import app, run

__all__ = ["app", "bench", "filter", "info", "main", "report", "reproduce", "subspace", "train"]


def main() -> None:
    """Run the command line."""
    run()
