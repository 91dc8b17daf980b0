"""``.. modules:: krylow.refine`` documents every module of a package, so that none is forgotten when one is added.

What the package itself exports is documented under the package's own name, and left out here; so is a module that goes
by the name of an exported function.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Modules(SphinxDirective):
    """A section for each public module of the package, in alphabetical order."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        package = import_module(self.arguments[0])
        exported = getattr(package, "__all__", ())
        text = []
        for found in pkgutil.iter_modules(package.__path__):
            if found.ispkg or found.name.startswith("_") or found.name in exported:
                continue
            name = f"{package.__name__}.{found.name}"
            here = [member for member in vars(import_module(name)) if member in exported]
            exclude = [f"   :exclude-members: {', '.join(here)}"] if here else []
            text += [name, "~" * len(name), "", f".. automodule:: {name}", *exclude, ""]
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
