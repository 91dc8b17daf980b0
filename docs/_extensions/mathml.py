r"""Formulas as MathML, written when the pages are built: no script, no fonts, nothing fetched by whoever reads them.

The translation is docutils' own. ``\tag{11}`` becomes a number at the margin and an anchor ``#eq-11``.
"""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
#: Sizes of brackets and kinds of spacing, which docutils does not know and browsers choose themselves.
SIZES = re.compile(r"\\([bB]igg?[lrm]?|mathrel|mathbin)(?![A-Za-z])")
BRACE = re.compile(r"<mo>([{}|])</mo>")
TAG = re.compile(r"\\tag\{([^}]*)\}")


def translate(node: nodes.Element, *, block: bool) -> str:
    """Return the node's formula as MathML; one that cannot be translated is a warning, and stands as it was."""
    source = SIZES.sub("", TAG.sub("", node.astext()))
    try:
        found = tex2mathml(source, as_block=block)
    except MathError as error:
        logger.warning("formula %r: %s", source, error, location=node)
        return f"<code>{html.escape(source)}</code>"
    if "cases" in source:
        return found
    return BRACE.sub(r'<mo stretchy="false">\1</mo>', found)  # as docutils does for round brackets


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(translate(node, block=False))
    raise nodes.SkipNode


def display(self: Any, node: nodes.math_block) -> None:
    tag = TAG.search(node.astext())
    number = f'<a class="number" href="#eq-{tag[1]}">({tag[1]})</a>' if tag else ""
    anchor = f' id="eq-{tag[1]}"' if tag else ""
    self.body.append(f'<div class="formula"{anchor}>{translate(node, block=True)}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
