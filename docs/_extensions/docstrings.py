r"""Docstrings write formulas as Markdown does, ``$\alpha$``; here Sphinx learns to read that.

Before a docstring is parsed, each formula is replaced by as many copies of a private character as it is long, so that
nothing in it is taken for markup and tables keep their columns; afterwards the character becomes the formula.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.nodes import make_refnode

PRIVATE = 0xF0000
COLON = "\ue000"
DISPLAY = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"(?<![\\$`])\$(?!\s)([^$]+?)(?<!\s)\$(?!\d)", re.DOTALL)
RUN = re.compile(r"([\U000F0000-\U000FFFFD])\1*(?:\s+\1+)*")

_formulas: list[str] = []


def keep_sentences(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep what stands before a colon in an attribute's sentence from being a type, and |x| from being a reference."""
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(": ", COLON + " ").replace("|", r"\|")


def hide(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn display formulas into directives, and hide the inline ones."""
    text = "\n".join(lines).replace(COLON, ":")
    text = DISPLAY.sub(_directive, text)
    text = INLINE.sub(_hidden, text)
    lines[:] = text.split("\n")


def _directive(match: re.Match[str]) -> str:
    start = match.string.rfind("\n", 0, match.start()) + 1
    indent = re.match(r"\s*", match.string[start:])[0]
    body = "\n".join(f"{indent}   {line.strip()}" for line in match[1].strip().split("\n"))
    return f"\n\n{indent}.. math::\n\n{body}\n\n{indent}"


def _hidden(match: re.Match[str]) -> str:
    _formulas.append(" ".join(match[1].split()))
    return re.sub(r"\S", chr(PRIVATE + len(_formulas) - 1), match[0])


def find_unique(app: Sphinx, env: Any, node: nodes.Element, content: nodes.Element) -> nodes.Node | None:
    """Resolve a short name, such as ``METHODS`` in the docstring of a function, where only one object goes by it."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    found = domain.find_obj(env, None, None, node["reftarget"], None, searchmode=1)
    places = {(entry.docname, entry.node_id): name for name, entry in found}
    if len(places) != 1:
        return None
    ((docname, anchor), name) = next(iter(places.items()))
    return make_refnode(app.builder, node["refdoc"], docname, anchor, [content], name)


class Formulas(SphinxTransform):
    """Put the hidden formulas back, as formulas."""

    default_priority = 100

    def apply(self, **kwargs: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            if not RUN.search(text):
                continue
            parts: list[nodes.Node] = []
            end = 0
            for found in RUN.finditer(text):
                formula = _formulas[ord(found[1]) - PRIVATE]
                parts += [nodes.Text(text[end : found.start()]), nodes.math(formula, formula)]
                end = found.end()
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", keep_sentences, priority=100)
    app.connect("autodoc-process-docstring", hide, priority=900)
    app.connect("missing-reference", find_unique)
    app.add_transform(Formulas)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
