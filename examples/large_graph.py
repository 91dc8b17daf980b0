r"""
One large graph
===============

20,000 points on a sphere, each joined to its nearest neighbours. The lowest frequencies of that graph come in groups of
1, 3 and 5, as those of a sphere do: within a group the vectors are arbitrary, the space they span is not. A Krylov
space of one vector holds one copy of each; the methods for large graphs work on blocks, and find all.

Nothing of size n by n is ever made: the graph stays sparse, and the answer is a basis of n by k, with the products and
sweeps it cost, and an estimate of its error (a proof takes a dense factorisation, for graphs of up to 2048 nodes).
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import kneighbors_graph

import krylow as kl

points = np.random.default_rng(0).standard_normal((20_000, 3))
points /= np.linalg.norm(points, axis=1, keepdims=True)
W = kneighbors_graph(points, 10, mode="connectivity")
W = W.maximum(W.T)
L = kl.laplacian(W)
print(f"{L.n} nodes, {W.nnz // 2} edges")

# %%
start = time.perf_counter()
sub = kl.subspace(L, k=9)
print(f"{sub.method}: {time.perf_counter() - start:.1f} s, {sub.products} products, {sub.passes} sweeps")
print(f"why: {sub.why}")
print(f"{sub.status.name.lower()}, error at most {float(sub.error_bound):.1e}, proved: {sub.certificate.proved}")

# %%
# A field on the sphere, seen through noise, and its 9 lowest frequencies.
x, y, z = points.T
field = 0.6 * z + 1.2 * x * z
noisy = field + np.random.default_rng(1).normal(0, 0.5, len(field))
smooth = sub.project(noisy)
print(f"mean squared error: noisy {np.mean((noisy - field) ** 2):.4f}, low-pass {np.mean((smooth - field) ** 2):.4f}")

fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
front = y < 0
for ax, signal, title in zip(axes[:2], (noisy, smooth), ("noisy", "its 9 lowest frequencies"), strict=True):
    ax.scatter(x[front], z[front], c=signal[front], s=1, cmap="RdBu_r", vmin=-1, vmax=1, rasterized=True)
    ax.set(title=title, aspect="equal", xticks=[], yticks=[], frame_on=False)
group = np.repeat([0, 1, 2], [1, 3, 5])
axes[2].bar(np.arange(1, 10), sub.ritz_values.numpy(), color=[f"C{g}" for g in group])
axes[2].set(title="frequencies: 1 + 3 + 5", xlabel="index")
plt.show()
