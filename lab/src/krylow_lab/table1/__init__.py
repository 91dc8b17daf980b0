"""The paper's Table 1: trained as written, part by part, and compared with what the same products can do."""

from krylow_lab.table1.plan import FULL, PAPER, REDUCED
from krylow_lab.table1.render import render_markdown

__all__ = ["FULL", "PAPER", "REDUCED", "render_markdown"]
