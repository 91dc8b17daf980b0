"""The command line: one module a command, each of which imports what it needs when it runs.

So ``krylow --help`` is there at once. A new command is a module here with ``@app.command()``, named below; those of
another distribution are modules named by an entry point of the group ``krylow.commands``.
"""

from importlib.metadata import entry_points

from krylow.cli import filter, info, subspace, train
from krylow.cli.app import app, errors, run

__all__ = ["app", "filter", "info", "main", "subspace", "train"]


def main() -> None:
    """Run the command line."""
    for command in entry_points(group="krylow.commands"):
        try:
            command.load()  # the module adds its commands to the application
        except Exception as error:
            errors.print(f"warning: the commands of {command.value} cannot be loaded: {error}", markup=False)
    run()
