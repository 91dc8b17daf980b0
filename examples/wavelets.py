r"""
Heat, wavelets and the spectrum
===============================

A filter multiplies each frequency of a signal by its response, :math:`y = U g(\Lambda) U^\top x`. Here one impulse on
a graph of sensors is diffused by the heat kernel, and a signal is taken apart by a tight frame whose filters are placed
by the graph's own spectral density.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.neighbors import kneighbors_graph

import krylow as kl
from krylow import responses

rng = np.random.default_rng(0)
points = rng.random((1500, 2))
W = kneighbors_graph(points, 8, mode="connectivity")
L = kl.laplacian(W.maximum(W.T))
impulse = np.zeros(len(points))
impulse[np.linalg.norm(points - 0.5, axis=1).argmin()] = 1.0

# %%
# One call filters by several responses: they share the products with the Laplacian.
times = [1.0, 5.0, 25.0]
found = kl.filtered(L, impulse, [responses.Heat(t) for t in times], tol=1e-6)
print(
    f"{found.method} of degree {found.degree}: {found.products} products, error at most {found.error_bound.max():.1e}"
)
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained", sharex=True, sharey=True)
for ax, t, y in zip(axes, times, found.signal.T, strict=True):
    dots = ax.scatter(*points.T, c=np.log10(np.maximum(y, 1e-8)), s=5, cmap="magma")
    ax.set(title=f"time {t:g}", aspect="equal", xticks=[], yticks=[])
fig.colorbar(dots, ax=axes, shrink=0.8, label="log10 of the heat")
plt.show()

# %%
# The density of the frequencies, and windows over the spectrum: evenly spaced, or each for as many frequencies.
density = kl.spectral_density(L)
fig, axes = plt.subplots(2, 1, figsize=(7, 4.5), layout="constrained", sharex=True)
for ax, adapted in zip(axes, (False, True), strict=True):
    bank = responses.Hann(6, adapted=adapted).on(L)
    ax.fill_between(density.grid, density.density / density.density.max(), color="lightgray", label="density")
    ax.plot(density.grid, bank(density.grid))
    ax.set(title="adapted to the density" if adapted else "evenly spaced")
axes[-1].set(xlabel="frequency")
plt.show()

# %%
# A tight frame keeps energy, and its coefficients hold the whole signal.
bank = responses.Hann(6, adapted=True)
smooth = np.sin(3 * np.pi * points[:, 0]) + 0.3 * rng.normal(size=len(points))
c = bank.analyze(L, smooth, tol=1e-4)
again = bank.synthesize(L, c, tol=1e-4)
print(f"energy of the signal {np.sum(smooth**2):.1f}, of its coefficients {np.sum(c**2):.1f}")
print(f"largest difference after synthesis {np.abs(again - smooth).max():.1e}")

# %%
# The time of a diffusion is learned from what it does, by gradients through the filter.
layer = kl.nn.SpectralFilter(responses.Heat(1.0))
x = torch.from_numpy(rng.normal(size=(len(points), 5)))
target = kl.filter(L, x, responses.Heat(3.0))
optimizer = torch.optim.Adam(layer.parameters(), lr=0.2)
for _ in range(40):
    optimizer.zero_grad()
    (layer(x, L) - target).square().mean().backward()
    optimizer.step()
print(f"learned time {float(layer.response.tau.detach()):.2f}, the true one is 3")
