r"""
Denoising a signal on a graph
=============================

A signal that varies slowly over a graph lies almost wholly in its lowest frequencies; noise lies in all of them alike.
Keeping the k lowest of n frequencies keeps the signal and a part k / n of the noise. The graph here joins 2000 random
points in the unit square to their nearest neighbours, as sensors in a field would be.

:math:`y = U_k U_k^\top x` is computed without the eigendecomposition, and comes with a certificate.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import kneighbors_graph

import krylow as kl

rng = np.random.default_rng(0)
points = rng.random((2000, 2))
W = kneighbors_graph(points, 8, mode="connectivity")
W = W.maximum(W.T)  # an edge where either is a neighbour of the other

clean = np.sin(3 * np.pi * points[:, 0]) * np.cos(2 * np.pi * points[:, 1])
noisy = clean + rng.normal(0, 0.7, len(points))

# %%
# One subspace serves every signal on the graph.
L = kl.laplacian(W)
sub = kl.subspace(L, k=40)
denoised = sub.project(noisy)
print(f"{sub.method}: {sub.status.name.lower()}, error at most {float(sub.error_bound):.1e}")
for name, signal in (("noisy", noisy), ("low-pass", denoised)):
    print(f"{name}: mean squared error {np.mean((signal - clean) ** 2):.4f}")

# %%
fig, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained", sharex=True, sharey=True)
for ax, signal, title in zip(
    axes, (clean, noisy, denoised), ("clean", "noisy", "its 40 lowest frequencies"), strict=True
):
    dots = ax.scatter(*points.T, c=signal, s=5, cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])
fig.colorbar(dots, ax=axes, shrink=0.8)
plt.show()

# %%
# How many frequencies to keep is a trade: too few lose the signal, too many let the noise in.
ks = [5, 10, 20, 40, 80, 160, 320]
U = kl.subspace(L, k=max(ks)).basis.numpy()  # columns are sorted by frequency, so that one basis holds all k
errors = [np.mean((U[:, :k] @ (U[:, :k].T @ noisy) - clean) ** 2) for k in ks]
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.loglog(ks, errors, "o-", label="low-pass")
ax.axhline(np.mean((noisy - clean) ** 2), color="gray", ls="--", label="noisy")
ax.set(xlabel="k, kept frequencies", ylabel="mean squared error", xticks=ks, xticklabels=ks)
ax.minorticks_off()
ax.legend()
plt.show()
