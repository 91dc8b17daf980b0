"""The command line: modules of commands, each of which imports what it needs when it runs, so that help is immediate.

A new command is a function with ``@app.command()`` in a module named here; those of another distribution are modules
named by an entry point of the group ``krylow.commands``.
"""

from importlib.metadata import entry_points

from krylow.cli import encode, filter, info, shard, train, view
from krylow.cli.app import app, errors, run

__all__ = ["app", "encode", "filter", "info", "main", "shard", "train", "view"]


def main() -> None:
    """Run the command line."""
    for command in entry_points(group="krylow.commands"):
        try:
            command.load()  # the module adds its commands to the application
        except Exception as error:
            errors.print(f"warning: the commands of {command.value} cannot be loaded: {error}", markup=False)
    run()
