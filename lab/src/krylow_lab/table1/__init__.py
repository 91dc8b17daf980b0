"""The paper's Table 1: trained as written, taken apart, and set beside what the same products can do."""

from krylow_lab.table1.plan import FULL, PAPER, REDUCED
from krylow_lab.table1.render import render_markdown

__all__ = ["FULL", "PAPER", "REDUCED", "render_markdown"]
