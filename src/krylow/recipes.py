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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow.certify import Subspace
from krylow.extract import ritz
from krylow.floor import PROOF_LIMIT, lifted_dense
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.eigenspace import lowest_eigenspace
from krylow.linalg.eigh import eigh, lowest_eigenpairs
from krylow.linalg.implicit import attach_gradient
from krylow.operators import DenseOperator, FunctionOperator, Operator, SparseOperator
from krylow.operators.ordering import reordered_if_it_pays
from krylow.refine.chebyshev import chebyshev_subspace, filtered_subspace
from krylow.refine.lanczos import lanczos
from krylow.refine.lobpcg import lobpcg
from krylow.refine.multilevel import multilevel_subspace
from krylow.refine.preconditioned import preconditioned_subspace
from krylow.refine.progress import Callback, Watch
from krylow.refine.ritz import Evidence, Ritz
from krylow.refine.shift_invert import large_shift_invert, shift_invert
from krylow.refine.thick_restart import thick_restart
from krylow.start.gaussian import gaussian

#: Refinements stop at this part of tol by their own estimate, so that the certificate, which is stricter, agrees.
SAFETY = 0.25

#: Least guards of a block whose errors a coarser graph corrects.
GUARDS = 3


@dataclass(frozen=True)
class Options:
    """The options of every method, checked once."""

    tol: float = 1e-3
    m: int | None = None
    generator: torch.Generator | None = None
    weights: Any = None
    max_products: int | None = None
    callback: Callback | None = None


def _exact(L: Operator, k: int, options: Options) -> Subspace:
    dense = lifted_dense(L)
    more = min(k + 1, L.n)  # one eigenvalue beyond the cut, for the gap
    if torch.is_grad_enabled() and dense.requires_grad:
        values, vectors = lowest_eigenspace(dense, k)
    else:
        values, vectors = lowest_eigenpairs(dense, more)
    following = values[..., k] if more > k else torch.full_like(values[..., 0], torch.inf)
    return _result(L, vectors[..., :k], values[..., :k], 0, 0, following=following.detach(), exact=True)


def _lanczos(L: Operator, k: int, options: Options) -> Subspace:
    m = options.m or min(L.n, max(2 * k, 20))
    products, passes = L.products, L.passes
    z = gaussian(L, 1, generator=options.generator)
    theta, basis, following = ritz(lanczos(L, z, m, reorthogonalize=True), k)
    why = f"{m} steps from one random vector"
    return _result(L, basis, theta, L.products - products, L.passes - passes, why, following=following)


def _unrolled(L: Operator, k: int, options: Options) -> Subspace:
    from krylow import nn

    net = options.weights
    if net is None:
        found = nn.UnrolledLanczos(k, options.m)(L, generator=options.generator)
        return replace(found, why=f"an untrained network, since no weights were given; {found.why}")
    if not isinstance(net, torch.nn.Module):
        net = nn.load(net)
    if (net.k, net.m) != (k, options.m or net.m):
        raise InputError(f"the network was trained for k={net.k}, m={net.m}, got k={k}, m={options.m}.")
    return net(L, generator=options.generator)


def _thick_restart(L: Operator, k: int, options: Options) -> Subspace:
    block = 1 if not isinstance(L, DenseOperator) else max(1, min(8, k))
    basis_size = options.m or max(2 * k, k + 24, 4 * block)
    basis_size = max(basis_size, k + 2 * block)

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

    return _refined(L, k, run, f"a basis of at most {basis_size} vectors")


def _chebyshev(L: Operator, k: int, options: Options) -> Subspace:
    width = min(int(L.sizes.min()), options.m or k + max(4, k // 3))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")
    if _is_large(L, k):
        return _large_chebyshev(L, k, options)

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 4000 * width
        watch = Watch(A, SAFETY * options.tol, options.callback)
        return chebyshev_subspace(A, X, k, tol=SAFETY * options.tol, max_products=limit, watch=watch)

    return _refined(L, k, run, f"a filtered block of {width} vectors")


def _is_large(L: Operator, k: int) -> bool:
    """Return whether L is one graph beyond the size whose certificate is proved, of which k is a small part."""
    return not L.batch_shape and L.n > PROOF_LIMIT and 4 * k <= L.n


def _large_chebyshev(L: Operator, k: int, options: Options) -> Subspace:
    width = _block_width(L, k, options)

    def run(A: Operator, null: NullSpace | None) -> Ritz:
        X = gaussian(A, width, generator=options.generator, dtype=torch.float32)
        limit = options.max_products or 4000 * width
        watch = Watch(A, options.tol, options.callback)
        return filtered_subspace(A, X, k, tol=options.tol, max_products=limit, watch=watch)

    return _large(L, k, run, f"a filtered block of {width} vectors")


def _multilevel(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, FunctionOperator):
        raise InputError('method="multilevel" joins nodes of L, so its entries must be known, got a function.')
    if L.batch_shape or not _is_large(L, k):
        return replace(_exact(L, k, options), why=f"{L.n} nodes are few enough to be the coarsest level")
    width = _block_width(L, k, options, least=GUARDS)

    def run(A: Operator, null: NullSpace | None) -> Ritz:
        S = A if isinstance(A, SparseOperator) else _sparse(A)
        vector = torch.ones(A.n, dtype=torch.float64, device=A.device)
        if null is not None and null.count:
            vector = torch.where(null.vector != 0, null.vector * A.n**0.5, vector)
        pairs = multilevel_subspace(
            S,
            vector,
            k,
            width,
            tol=options.tol,
            max_products=options.max_products or 4000 * width,
            generator=options.generator or torch.Generator(device=A.device).manual_seed(0),
            watch=Watch(S, options.tol, options.callback),
        )
        if S is not A:
            A.products += S.products
            A.passes += S.passes
        return pairs

    return _large(L, k, run, f"coarser graphs, then a block of {width} vectors")


def _block_width(L: Operator, k: int, options: Options, least: int | None = None) -> int:
    """Return the width of a large graph's block, a multiple of eight columns with at least so many guards.

    None: as many as a filter needs to be fast, whose speed the guards set.
    """
    guards = max(6, 2 * k // 5) if least is None else least
    if options.m is not None and options.m <= k:
        raise InputError(f"the block's width m must be more than k = {k}, got {options.m}.")
    return min(options.m or -(-(k + guards) // 8) * 8, L.n)


def _sparse(L: Operator) -> SparseOperator:
    matrix = L.detach().to_scipy()
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return SparseOperator(*parts, psd=L.psd)


def _large(L: Operator, k: int, run: Callable[[Operator, NullSpace | None], Ritz], why: str) -> Subspace:
    """Run a refinement of one large graph in an order that is near in memory; read off a null space that suffices."""
    null = null_space(L)

    def ordered(A: Operator) -> Ritz:
        if null is not None and null.lowest and null.count >= k:
            return _null_answer(A, null, k)
        other = reordered_if_it_pays(A.detach()) if isinstance(A, SparseOperator) else None
        if other is None:
            return run(A, null)
        B = other.operator
        B.products, B.passes = 0, 0
        moved = null and replace(null, labels=other.forward(null.labels), vector=other.forward(null.vector))
        pairs = run(B, moved)
        A.products += B.products
        A.passes += B.passes
        return replace(pairs, X=other.back(pairs.X))

    return _refined(L, k, ordered, why)


def _null_answer(L: Operator, null: NullSpace, k: int) -> Ritz:
    """Return k null vectors of a graph of at least k components: they are the lowest, and need no iteration."""
    zero = torch.zeros(k, dtype=L.dtype, device=L.device)
    rounding = L.n * torch.finfo(L.dtype).eps ** 2
    unique = k if null.count == k else 0
    evidence = Evidence(error=rounding, floor=0.0, well_defined=unique, residuals=zero.to(torch.float64))
    return Ritz(zero, null.basis(k, L.dtype), zero, evidence=evidence)


def _lobpcg(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, SparseOperator) and _is_large(L, k):
        return _large_lobpcg(L, k, options)
    width = min(int(L.sizes.min()), options.m or k + max(2, k // 5))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 2000 * width
        watch = Watch(A, SAFETY * options.tol, options.callback)
        return lobpcg(A, X, k, tol=SAFETY * options.tol, max_products=limit, watch=watch)

    return _refined(L, k, run, f"scipy's LOBPCG on a block of {width} vectors")


def _large_lobpcg(L: SparseOperator, k: int, options: Options) -> Subspace:
    # A row of sixteen float32 is a line of the cache.
    width = _block_width(L, k, options) if options.m is not None else min(-(-(k + max(6, 2 * k // 5)) // 16) * 16, L.n)

    def run(A: Operator, null: NullSpace | None) -> Ritz:
        assert isinstance(A, SparseOperator)
        return preconditioned_subspace(
            A,
            gaussian(A, width, generator=options.generator),
            k,
            null,
            tol=options.tol,
            max_products=options.max_products or 4000 * width,
            generator=options.generator or torch.Generator(device=A.device).manual_seed(0),
            watch=Watch(A, options.tol, options.callback),
        )

    return _large(L, k, run, f"a block of {width} vectors, filtered and corrected through the diagonal")


def _shift_invert(L: Operator, k: int, options: Options) -> Subspace:
    if isinstance(L, SparseOperator) and _is_large(L, k):
        return _large_shift_invert(L, k, options)
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

    return _refined(L, k, run, f"a factorisation, then a basis of at most {basis_size} vectors")


def _large_shift_invert(L: SparseOperator, k: int, options: Options) -> Subspace:
    null, basis_size = null_space(L), options.m or 2 * k + 24

    def run(A: Operator) -> Ritz:
        if null is not None and null.lowest and null.count >= k:
            return _null_answer(A, null, k)
        return large_shift_invert(
            L,
            k,
            null,
            basis_size=basis_size,
            tol=options.tol,
            max_products=options.max_products or 200 * basis_size,
            generator=options.generator,
        )

    return _refined(L, k, run, f"a factorisation, then a basis of at most {basis_size} vectors")


def _refined(L: Operator, k: int, run: Callable[[Operator], Ritz], why: str) -> Subspace:
    """Run a refinement without a tape, and attach the implicit gradient where one is wanted."""
    products, passes = L.products, L.passes
    with torch.no_grad():
        pairs = run(L)
    X, theta = pairs.X[..., :k], pairs.theta[..., :k]
    guard = pairs.theta.shape[-1] > k
    products, passes = L.products - products, L.passes - passes
    if torch.is_grad_enabled() and L.requires_grad:
        X = attach_gradient(L, X, theta)
    return _result(
        L,
        X,
        theta,
        products,
        passes,
        why,
        following=pairs.theta[..., k] if guard else None,
        following_residual=pairs.residuals[..., k] if guard else None,
        interrupted=pairs.interrupted,
        evidence=pairs.evidence,
    )


def _result(
    L: Operator,
    basis: Tensor,
    theta: Tensor,
    products: int,
    passes: int,
    why: str = "",
    *,
    following: Tensor | None = None,
    following_residual: Tensor | None = None,
    exact: bool = False,
    interrupted: bool = False,
    evidence: Evidence | None = None,
) -> Subspace:
    return Subspace(
        basis=basis,
        ritz_values=theta,
        operator=L,
        products=products,
        passes=passes,
        method="",
        why=why,
        tol=1e-3,
        following=following,
        following_residual=following_residual,
        exact=exact,
        interrupted=interrupted,
        evidence=evidence,
    )


def up_to(L: Operator, cutoff: float, method: str, options: Options) -> Subspace:
    """Keep every Ritz value up to the cutoff: all at once where the method is exact, else with a growing k."""
    if method == "exact":
        dense = lifted_dense(L)
        values, _ = eigh(dense)
        real = torch.arange(L.n, device=L.device) < L.sizes[..., None]
        kept = ((values <= cutoff) & real).sum(-1)
        k = max(1, int(kept.max()))
        _, basis = lowest_eigenspace(dense, k, kept)
        return _cut(_result(L, basis, torch.where(real, values, torch.inf), 0, 0), cutoff, exact=True)
    smallest = int(L.sizes.min())
    k = min(8, smallest)
    with torch.no_grad():
        found = RECIPES[method](L, k, options)
        while k < smallest and bool((found.ritz_values[..., -1] <= cutoff).any()):
            k = min(2 * k, smallest)
            found = RECIPES[method](L, k, options)
    if bool(((found.ritz_values[..., -1] <= cutoff) & (L.sizes > k)).any()):
        raise InputError(
            f"the cutoff must keep at most as many frequencies as the smallest graph has nodes, {smallest}, got "
            f'{cutoff}, which keeps more in a larger one: use method="exact", or filter the graphs apart.'
        )
    found = _cut(found, cutoff)
    if not (torch.is_grad_enabled() and L.requires_grad):
        return found
    # The gradient is that of the space that was kept, not of the larger one that was computed.
    if method in ("lanczos", "unrolled"):
        raise InputError(f'method="{method}" has no gradient at a cutoff: pass k, or use method="exact".')
    within = found.ritz_values.isfinite()
    theta = torch.where(within, found.ritz_values, torch.zeros_like(found.ritz_values))
    return replace(found, basis=attach_gradient(L, found.basis, theta) * within[..., None, :])


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
