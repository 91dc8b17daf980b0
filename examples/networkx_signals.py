r"""
Signals on a networkx graph
===========================

A signal is read from the nodes, filtered, and written back. A Laplacian is built from the graph as it is. The filter
keeps the k lowest frequencies of a signal, :math:`y = U_k U_k^\top x`: here a noisy opinion of the members of a karate
club, which split in two along its slowest frequency.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import krylow as kl
from krylow.integrations.networkx import get_signal, set_signal

G = nx.karate_club_graph()
club = {node: 1.0 if name == "Mr. Hi" else -1.0 for node, name in G.nodes(data="club")}
noise = np.random.default_rng(0).normal(0, 2.0, len(G))
nx.set_node_attributes(G, {node: club[node] + noise[i] for i, node in enumerate(G)}, "opinion")

L = kl.laplacian(G, kind="normalized")
set_signal(G, "smooth", kl.lowpass(L, get_signal(G, "opinion"), k=2))
for name in ("opinion", "smooth"):
    right = sum(np.sign(value) == club[node] for node, value in G.nodes(data=name))
    print(f"{name}: the sign names the club of {right} of {len(G)} members")

# %%
places = nx.spring_layout(G, seed=1)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for ax, name in zip(axes, ("opinion", "smooth"), strict=True):
    values = get_signal(G, name)
    ends = np.quantile(np.abs(values), 0.9)
    nx.draw_networkx(
        G, places, ax=ax, node_color=values, cmap="coolwarm", vmin=-ends, vmax=ends, node_size=90,
        edge_color="lightgray", with_labels=False,
    )  # fmt: skip
    ax.set(title=name, frame_on=False)
plt.show()
