r"""The methods, each a short recipe of start, refinement and extraction on an operator.

===============  ==========================  =======================================  ==========================
method           start                       refine                                   extract
===============  ==========================  =======================================  ==========================
exact            -                           -                                        eigh of L
lanczos          Gaussian vector             m classical steps, reorthogonalised      Ritz
unrolled         learned probe               m relaxed steps, learned gammas          symmetrised relaxed T_m
thick_restart    Gaussian block              restarted within a basis limit           Rayleigh-Ritz
chebyshev        Gaussian block              Chebyshev filter, adaptive interval      Rayleigh-Ritz
multilevel       a coarser graph's answer    smoothing and coarse corrections         Rayleigh-Ritz
lobpcg           Gaussian block              scipy's LOBPCG; large: our own           Rayleigh-Ritz
shift_invert     Gaussian vector             Lanczos on (L + shift I)^-1              Rayleigh-Ritz
===============  ==========================  =======================================  ==========================

"chebyshev", "multilevel", "lobpcg" and "shift_invert" of one large graph are in :mod:`krylow.large`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike

import torch

from krylow import counting, large
from krylow._checks import InputError
from krylow.answers import Options, refined, result
from krylow.certify import Subspace
from krylow.extract import ritz
from krylow.floor import lifted_dense
from krylow.linalg.eigenspace import lowest_eigenspace
from krylow.linalg.eigh import eigh, lowest_eigenpairs
from krylow.linalg.implicit import attach_gradient
from krylow.operators import DenseOperator, FunctionOperator, Operator, SparseOperator
from krylow.refine.chebyshev import chebyshev_subspace
from krylow.refine.lanczos import lanczos
from krylow.refine.lobpcg import lobpcg
from krylow.refine.progress import Watch
from krylow.refine.ritz import Ritz
from krylow.refine.shift_invert import shift_invert
from krylow.refine.thick_restart import thick_restart
from krylow.start.gaussian import gaussian

#: Refinements stop at this part of tol by their own estimate, so that the certificate, which is stricter, agrees.
SAFETY = 0.25


def _exact(L: Operator, k: int, options: Options) -> Subspace:
    dense = lifted_dense(L)
    more = min(k + 1, L.n)  # one eigenvalue beyond the cut, for the gap
    if torch.is_grad_enabled() and dense.requires_grad:
        values, vectors = lowest_eigenspace(dense, k)
    else:
        values, vectors = lowest_eigenpairs(dense, more)
    following = values[..., k] if more > k else torch.full_like(values[..., 0], torch.inf)
    return result(L, vectors[..., :k], values[..., :k], 0, 0, following=following.detach(), exact=True)


def _lanczos(L: Operator, k: int, options: Options) -> Subspace:
    m = options.m or min(L.n, max(2 * k, 20))
    products, passes = L.products, L.passes
    z = gaussian(L, 1, generator=options.generator)
    theta, basis, following = ritz(lanczos(L, z, m, reorthogonalize=True), k)
    why = f"{m} steps from one random vector"
    return result(L, basis, theta, L.products - products, L.passes - passes, why, following=following)


def _unrolled(L: Operator, k: int, options: Options) -> Subspace:
    from krylow import nn

    net = options.weights
    if net is None:
        found = nn.UnrolledLanczos(k, options.m)(L, generator=options.generator)
        return replace(found, why=f"an untrained network, since no weights were given; {found.why}")
    if isinstance(net, (str, PathLike)):
        net = nn.load(net)
    if not isinstance(net, nn.UnrolledLanczos):
        raise InputError(
            f"weights must be a network (krylow.nn.UnrolledLanczos), its name or its file, got {type(net).__name__}."
        )
    if (net.k, net.m) != (k, options.m or net.m):
        raise InputError(f"the network was trained for k={net.k}, m={net.m}, got k={k}, m={options.m}.")
    return net(L, generator=options.generator)


def _thick_restart(L: Operator, k: int, options: Options) -> Subspace:
    block = 1 if not isinstance(L, DenseOperator) else max(1, min(8, k))
    basis_size = options.m or max(2 * k, k + 24, 4 * block)
    if basis_size >= L.n:  # nothing has to be restarted: do not, however few nodes some graph of a batch has
        basis_size = max(basis_size, 2 * k, k + 24, 4 * block)
    basis_size = max(basis_size, k + 2 * block)
    least = -(-k // block) * block
    if options.max_products is not None and options.max_products < least:
        raise InputError(
            f'max_products of method="thick_restart" must be at least {least}, since a basis of k = {k} vectors takes '
            f"as many (blocks of {block}), got {options.max_products}."
        )

    def run(A: Operator) -> Ritz:
        X = gaussian(A, block, generator=options.generator)
        limit = options.max_products or max(200 * basis_size, 20 * A.n)
        return thick_restart(
            A,
            X,
            k,
            basis_size=basis_size,
            tol=SAFETY * options.tol,
            max_products=limit,
            generator=options.generator,
            watch=Watch(A, SAFETY * options.tol, options.callback),
        )

    return refined(L, k, run, f"a basis of at most {basis_size} vectors")


def _chebyshev(L: Operator, k: int, options: Options) -> Subspace:
    width = min(int(L.sizes.min()), options.m or k + max(4, k // 3))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
    if large.is_large(L, k):
        return large.chebyshev(L, k, options)

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 4000 * width
        watch = Watch(A, SAFETY * options.tol, options.callback)
        return chebyshev_subspace(A, X, k, tol=SAFETY * options.tol, max_products=limit, watch=watch)

    return refined(L, k, run, f"a filtered block of {width} vectors")


def _multilevel(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, FunctionOperator):
        raise InputError('method="multilevel" joins nodes of L, so its entries must be known, got a function.')
    if not large.is_large(L, k):
        return replace(_exact(L, k, options), why=f"{L.n} nodes are few enough to be the coarsest level")
    return large.multilevel(L, k, options)


def _lobpcg(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, SparseOperator) and large.is_large(L, k):
        return large.lobpcg(L, k, options)
    width = min(int(L.sizes.min()), options.m or k + max(2, k // 5))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 2000 * width
        watch = Watch(A, SAFETY * options.tol, options.callback)
        return lobpcg(A, X, k, tol=SAFETY * options.tol, max_products=limit, watch=watch)

    return refined(L, k, run, f"scipy's LOBPCG on a block of {width} vectors")


def _shift_invert(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, SparseOperator) and large.is_large(L, k, large.FACTORISED):
        return large.shift_invert(L, k, options)
    basis_size = max(options.m or 0, 2 * k, k + 16)

    def run(A: Operator) -> Ritz:
        return shift_invert(
            A,
            gaussian(A, 1, generator=options.generator),
            k,
            basis_size=basis_size,
            tol=SAFETY * options.tol,
            max_products=options.max_products or 200 * basis_size,
            generator=options.generator,
        )

    return refined(L, k, run, f"a factorisation, then a basis of at most {basis_size} vectors")


def up_to(L: Operator, cutoff: float, method: str, options: Options) -> Subspace:
    """Keep every Ritz value up to the cutoff: all at once if that is exact; counted first in a large graph."""
    if method == "exact":
        return _exact_up_to(L, cutoff)
    with torch.no_grad():
        if counting.is_counted(L) and method not in ("lanczos", "unrolled"):
            counted = counting.up_to(L, cutoff, method, RECIPES[method], options)
        else:
            counted = _cut(_grown(L, cutoff, method, options), cutoff)
    if counted is None:
        return replace(_exact_up_to(L, cutoff), why="decomposed, since the cutoff keeps over a quarter of all")
    found = counted
    if not (torch.is_grad_enabled() and L.requires_grad):
        return found
    # The gradient is that of the space that was kept, not of the larger one that was computed.
    if method in ("lanczos", "unrolled"):
        raise InputError(f'method="{method}" has no gradient at a cutoff: pass k, or use method="exact".')
    within = found.ritz_values.isfinite()
    theta = torch.where(within, found.ritz_values, torch.zeros_like(found.ritz_values))
    return replace(found, basis=attach_gradient(L, found.basis, theta) * within[..., None, :])


def _exact_up_to(L: Operator, cutoff: float) -> Subspace:
    dense = lifted_dense(L)
    values, _ = eigh(dense)
    real = torch.arange(L.n, device=L.device) < L.sizes[..., None]
    kept = ((values <= cutoff) & real).sum(-1)
    k = max(1, int(kept.max()))
    _, basis = lowest_eigenspace(dense, k, kept)
    return _cut(result(L, basis, torch.where(real, values, torch.inf), 0, 0), cutoff, exact=True)


def _grown(L: Operator, cutoff: float, method: str, options: Options) -> Subspace:
    """Return the answer for a k that is doubled until the last Ritz value of every graph is above the cutoff."""
    smallest = int(L.sizes.min())
    k = min(8, smallest)
    found = RECIPES[method](L, k, options)
    while k < smallest and bool((found.ritz_values[..., -1] <= cutoff).any()):
        k = min(2 * k, smallest)
        found = RECIPES[method](L, k, options)
    if bool(((found.ritz_values[..., -1] <= cutoff) & (L.sizes > k)).any()):
        raise InputError(
            f"the cutoff must keep at most as many frequencies as the smallest graph has nodes, {smallest}, got "
            f'{cutoff}, which keeps more in a larger one: use method="exact", or filter the graphs apart.'
        )
    return found


def _cut(found: Subspace, cutoff: float, *, exact: bool = False) -> Subspace:
    """Drop what is above the cutoff; columns that only some graphs of a batch keep are zero in the others."""
    theta = found.ritz_values
    kept = (theta <= cutoff).sum(-1)
    k = max(1, int(kept.max()))
    within = torch.arange(k, device=theta.device) < kept[..., None]
    beyond = torch.cat([theta.detach(), torch.full_like(theta.detach()[..., :1], torch.inf)], dim=-1)
    return replace(
        found,
        basis=found.basis[..., :k] * within[..., None, :],
        ritz_values=torch.where(within, theta[..., :k], torch.full_like(theta[..., :k], torch.inf)),
        following=torch.take_along_dim(beyond, kept[..., None], dim=-1)[..., 0],
        following_residual=None,
        evidence=None,
        exact=exact,
        cutoff=cutoff,
        kept=kept,
    )


RECIPES: dict[str, Callable[[Operator, int, Options], Subspace]] = {
    "exact": _exact,
    "lanczos": _lanczos,
    "unrolled": _unrolled,
    "thick_restart": _thick_restart,
    "chebyshev": _chebyshev,
    "multilevel": _multilevel,
    "lobpcg": _lobpcg,
    "shift_invert": _shift_invert,
}
METHODS = tuple(RECIPES)
