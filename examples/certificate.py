r"""
A certificate on graphs that are hard
=====================================

A Krylov method never sees what its start vector does not hold: a second copy of an eigenvalue, another component. Its
own residuals then look perfect, and the answer is wrong. krylow's certificate does not trust the method. It proves,
by a Cholesky factorisation, how low an eigenvalue outside the answer can be, and says in a word what it found.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import krylow as kl
from krylow.testing import block_diagonal, complete, cycle, laplacian_matrix, lowest, random_graph

# %%
# **Two components.** Two equal complete graphs: the frequency 0 comes twice, and the two lowest vectors are constant on
# a part each. From one random vector Lanczos finds one of them, and a wrong vector beside it, with residuals of 0.
L = kl.laplacian(block_diagonal(complete(4), complete(4)))
for method in ("lanczos", "thick_restart", "chebyshev"):
    sub = kl.subspace(L, k=2, method=method)
    print(f"{method:14s} {sub.status.name:10s} largest residual {float(sub.residuals.max()):.0e}")
print(kl.subspace(L, k=2, method="lanczos").status.advice)

# %%
# **No gap.** On a ring every frequency but the first comes in a pair; k = 2 cuts through one, and there is no such
# thing as *the* subspace. That is a property of the question, and every method says so.
ring = kl.laplacian(cycle(30))
for k in (2, 3):
    print(f"ring, k = {k}:", *(kl.subspace(ring, k=k, method=m).status.name for m in ("exact", "thick_restart")))

# %%
# **How sharp is the bound?** On block models of 100 nodes, the proved bound of the squared subspace error beside the
# true error, for Lanczos of more and more steps. The true error needs the eigendecomposition; the bound does not.
graphs = kl.data.sbm(num_graphs=40, n=100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
L, U = kl.laplacian(graphs), lowest(laplacian_matrix(graphs), 4)[1]
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ratios = []
for m in (20, 25, 30, 35):
    sub = kl.subspace(L, k=4, method="lanczos", m=m, tol=1e-9)  # the bound is sharpened down to tol
    error, bound = kl.metrics.subspace_error(sub.basis, U), sub.error_bound
    seen = bound < 1  # the others say nothing yet, and say that
    ratios.append((bound / error)[seen])
    ax.loglog(
        error[seen], bound[seen], "o", ms=4, alpha=0.7, label=f"{m} steps: {int(seen.sum())} of {len(seen)} bounded"
    )
low, high = ax.get_xlim()
ax.plot([low, high], [low, high], color="gray", lw=1)
ax.set(xlabel="true error", ylabel="proved bound", title="Above the line, and close to it")
ax.legend(fontsize="small")
plt.show()
ratios = np.concatenate(ratios)
print(f"bound / error: at least {ratios.min():.2f}, median {np.median(ratios):.2f}")

# %%
# A basis that somebody else computed is certified in the same way.
from krylow.certificate import certify

L = kl.laplacian(random_graph(50, seed=1))
found = certify(
    L, torch.linalg.qr(torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
)
print("a random basis:", kl.Status(int(found.statuses)).name, float(found.error_bound))
