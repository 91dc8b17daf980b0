"""The paper's Table 2: pair classification with low-pass attention, with the controls that the paper lacks."""

from krylow_lab.table2.plan import PAPER, PROTOCOL_A, PROTOCOL_B, QUICK
from krylow_lab.table2.render import render_markdown

__all__ = ["PAPER", "PROTOCOL_A", "PROTOCOL_B", "QUICK", "render_markdown"]
