"""A graph as one HTML page: its low frequencies, a signal before and after the filter, and how good the answer is.

The page holds its style, script and data, and asks nothing of a network. Of a large graph it draws a random part of the
nodes and edges, and says so; all numbers on it are of the whole graph.
"""

from krylow.view.page import Picture, page

__all__ = ["Picture", "page"]
