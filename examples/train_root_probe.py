r"""
Training a root probe for a family of graphs
============================================

Where graphs of one kind come again and again, a filter can be learned for them. ``RootProbe`` is a polynomial of a
fixed number of products, :math:`v_1 \propto \prod_i (I - L / r_i) z`, whose roots :math:`r_i` start as Chebyshev's and
are trained on the subspace error. Here it is trained on block models of 100 nodes, kept where it is best on validation
graphs, saved, and compared on test graphs with thick-restart Lanczos at the same number of products and basis vectors.

The gain of learning is real and small; `what is learned, and what it costs <../what-is-learned.html>`_ has all of it.
Roots do not transfer to other kinds of graphs, and a certificate says so when they do not fit.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import krylow as kl
from krylow.data import load_family
from krylow.krylov.restart import Restart, thick_restart
from krylow.testing import laplacian_matrix, lowest
from krylow.training import Recipe, train_network

torch.set_num_threads(1)  # the tensors are tiny: more threads are slower
K = 6
family = load_family("sbm", seed=0, dtype=torch.float64)

# %%
# A network of 2K roots and 2K basis vectors: 4K products in all. ``reorthogonalize`` applies the roots as shifts of
# implicit restarts, which keeps the basis orthonormal however sharp the filter is.
net = kl.nn.UnrolledLanczos(K, 2 * K, kl.nn.RootProbe(2 * K), init=0.0, reorthogonalize=True).double()
trained = train_network(net, family, Recipe(epochs=12, lr=0.01))
print({name: trained.card[name] for name in ("untrained_validation_error", "validation_error", "best_epoch")})

# %%
# Saved and loaded, the network is a file of a few kilobytes that says what it is; nothing in it is executed.
path = Path(tempfile.mkdtemp()) / "roots.safetensors"
trained.net.save(path, card=trained.card)
net = kl.load(path)

# %%
# On the test graphs, with fresh random vectors:
L = kl.laplacian(family.test)
U = lowest(laplacian_matrix(family.test), K)[1]


def error(basis):
    return float(kl.metrics.subspace_error(basis, U).mean())


learned, thick = [], []
for seed in range(10):
    z = torch.randn(*L.batch_shape, L.n, 1, dtype=L.dtype, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        answer = net(L, z=z)
        learned.append(error(answer.basis))
    thick.append(error(thick_restart(L, z, K, Restart(2 * K, answer.products, recheck=False)).X[..., :K]))
print(f"{answer.products} products, {2 * K} basis vectors; mean error on the test graphs:")
print(f"learned roots {sum(learned) / 10:.3f}, thick restart {sum(thick) / 10:.3f}")

# %%
# What was learned: the filter's response over the spectrum, before (Chebyshev's roots of an interval) and after. The
# learned roots cover the part where most dropped frequencies are, and begin lower. The few at the top they leave to
# the Lanczos steps that follow, which find isolated frequencies by themselves.
scale = torch.diagonal(laplacian_matrix(family.train), dim1=-2, dim2=-1).mean()
frequencies = torch.linalg.eigvalsh(laplacian_matrix(family.train)) / scale
lam = torch.linspace(0, 2.5, 400, dtype=torch.float64)
first = kl.nn.RootProbe(2 * K).double()
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
with torch.no_grad():
    ax.semilogy(lam, first.response(lam).abs(), color="tab:gray", label="Chebyshev's roots, untrained")
    ax.semilogy(lam, net.probe.response(lam).abs(), color="tab:orange", label="learned roots")
for part, name, color in ((slice(0, K), "kept", "tab:blue"), (slice(K, None), "dropped", "tab:red")):
    values = frequencies[:, part].flatten()
    ax.plot(values, torch.full_like(values, 2e-7), "|", color=color, alpha=0.25, ms=9)
    ax.plot([], [], "|", color=color, ms=9, label=f"{name} frequencies")
ax.set(ylim=(1e-7, 30), xlabel="frequency / mean degree", ylabel="|response|", title="A filter learned for a family")
ax.legend(ncols=2, fontsize="small")
plt.show()
