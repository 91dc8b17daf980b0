"""A name in code style on a page, such as `krylow.lowpass`, links to its place in the API.

Pages stay plain Markdown, and a name that the package does not have is a warning. ``kl.`` is short for ``krylow.``.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

NAME = re.compile(r"(?:krylow|kl)((?:\.[A-Za-z_]\w*)+)(?:\(.*\))?")


class CodeLinks(SphinxTransform):
    """Make references of code that names something of krylow."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        if self.env.docname.startswith(("gallery/", "log")):
            return
        for literal in list(self.document.findall(nodes.literal)):
            match = NAME.fullmatch(literal.astext())
            if match is None or isinstance(literal.parent, nodes.reference | addnodes.pending_xref):
                continue
            reference = addnodes.pending_xref(
                "", literal.deepcopy(), refdomain="py", reftype="obj", reftarget="krylow" + match[1], refwarn=True
            )
            reference["refdoc"] = self.env.docname
            reference.source, reference.line = literal.source, literal.line
            literal.replace_self(reference)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(CodeLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
