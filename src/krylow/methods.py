r"""The methods: each a short recipe of start, refinement and extraction, behind one interface.

===============  ==========================  =======================================  ==========================
method           start                       refine                                   extract
===============  ==========================  =======================================  ==========================
exact            -                           -                                        eigh of L
lanczos          Gaussian vector             m classical steps, reorthogonalised      Ritz
unrolled         learned probe               m relaxed steps, learned gammas          symmetrised relaxed T_m
thick_restart    Gaussian block              restarted within a basis limit           Rayleigh-Ritz
chebyshev        Gaussian block              Chebyshev filter, adaptive interval      Rayleigh-Ritz
lobpcg           Gaussian block              scipy's LOBPCG                           Rayleigh-Ritz
shift_invert     Gaussian block              thick restart on (L + shift I)^-1        Rayleigh-Ritz
===============  ==========================  =======================================  ==========================

:func:`lowpass` takes three more, which filter the signal without a basis (:mod:`krylow.response`): "lanczos_signal",
"polynomial" and "polynomial_jackson".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow.certify import PROOF_LIMIT, Subspace, lifted_dense
from krylow.extract import ritz
from krylow.graph import as_operator
from krylow.linalg.eigenspace import lowest_eigenspace
from krylow.linalg.eigh import eigh, lowest_eigenpairs
from krylow.linalg.implicit import attach_gradient
from krylow.operators import DenseOperator, FunctionOperator, Operator
from krylow.refine.chebyshev import chebyshev_subspace
from krylow.refine.lanczos import lanczos
from krylow.refine.lobpcg import lobpcg
from krylow.refine.ritz import Ritz
from krylow.refine.shift_invert import shift_invert
from krylow.refine.thick_restart import thick_restart
from krylow.response import chebyshev_lowpass, lanczos_lowpass
from krylow.start.gaussian import gaussian

#: Refinements stop at this part of tol by their own estimate, so that the certificate, which is stricter, agrees.
SAFETY = 0.25


@dataclass(frozen=True)
class Options:
    """The options of every method, checked once."""

    tol: float = 1e-3
    m: int | None = None
    generator: torch.Generator | None = None
    weights: Any = None
    max_products: int | None = None


def subspace(
    L: Any,
    k: int | None = None,
    *,
    cutoff: float | None = None,
    method: str = "auto",
    tol: float = 1e-3,
    m: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    weights: Any = None,
    max_products: int | None = None,
) -> Subspace:
    r"""Return the subspace of the k lowest graph frequencies, or of all up to a cutoff.

    $$\mathcal S_k = \mathrm{span}(u_1, \ldots, u_k), \qquad L u_i = \lambda_i u_i, \quad \lambda_1 \le \lambda_2 \le
    \ldots$$

    Parameters
    ----------
    L
        An operator (:func:`~krylow.laplacian`), or a plain symmetric matrix that is a Laplacian.
    k
        Number of kept frequencies.
    cutoff
        Instead of k: keep every eigenvalue up to this one, the ideal low-pass filter of the paper's eq. (1). In a
        batch the graphs may then keep different numbers; columns beyond a graph's own number are zero.
    method
        One of :data:`METHODS`, or "auto", which says what it chose in ``why``.
    tol
        Normalised squared subspace error asked for. "lanczos" and "unrolled" do a fixed number of steps and only
        report.
    m
        Steps of "lanczos" and "unrolled"; most basis vectors of "thick_restart"; block width of "chebyshev" and
        "lobpcg".
    seed, generator
        Where randomness comes from; the same call gives the same answer by default.
    weights
        For "unrolled": a trained network, its name or its file (see :func:`~krylow.load`). None: an untrained one.
    max_products
        Most products with L of the methods that iterate until tol.

    Returns
    -------
    Subspace
        Basis, Ritz values, cost, and (computed when asked for) residuals, error bound and status.

    Examples
    --------
    >>> import krylow as kl
    >>> path = torch.diag(torch.ones(9), 1)
    >>> sub = subspace(kl.laplacian(path + path.T), k=3)
    >>> sub.status.name, sub.basis.shape
    ('CONVERGED', torch.Size([10, 3]))
    """
    L = as_operator(L)
    smallest = int(L.sizes.min())
    _checks.k_or_cutoff(k, cutoff, smallest)
    _checks.positive(tol, "tol")
    generator = _generator(L, seed, generator)
    if m is not None:
        m = _checks.count(m, "m")
    if max_products is not None:
        max_products = _checks.count(max_products, "max_products")
    if weights is not None and method not in ("auto", "unrolled"):
        raise InputError(f'weights are for method="unrolled", got method={method!r}.')
    options = Options(tol, m, generator, weights, max_products)
    why = "asked for"
    if method == "auto":
        method, why = choose(L, k or smallest, weights)
    recipe = RECIPES[_checks.choice(method, METHODS, "method")]
    found = recipe(L, k, options) if k is not None else _up_to(L, float(cutoff or 0.0), method, options)
    return replace(found, method=method, why=f"{why}; {found.why}" if found.why else why, tol=tol)


def lowpass(
    L: Any,
    x: Any,
    k: int | None = None,
    *,
    cutoff: float | None = None,
    method: str = "auto",
    tol: float = 1e-3,
    m: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    weights: Any = None,
    max_products: int | None = None,
) -> Any:
    r"""Return the ideal low-pass filtered signal $y = U_k U_k^\top x$.

    Differentiable in x and, for torch input, in L: only gaps between kept and dropped frequencies enter the gradient,
    so that repeated frequencies inside the band do no harm.

    Parameters
    ----------
    L
        As in :func:`subspace`.
    x
        ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, torch or numpy.
    method
        As in :func:`subspace`, or one of :data:`SIGNAL_METHODS`, whose number of steps or degree is ``m`` (50).
    k, cutoff, tol, m, seed, generator, weights, max_products
        As in :func:`subspace`.

    Returns
    -------
    Tensor or ndarray
        Of x's kind and shape.

    Examples
    --------
    >>> import numpy as np
    >>> L = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> lowpass(L, np.array([1.0, 3.0]), k=1).round(6)
    array([2., 2.])
    """
    L = as_operator(L)
    signal = torch.from_numpy(np.ascontiguousarray(x)) if isinstance(x, np.ndarray) else torch.as_tensor(x)
    signal = _checks.signal(signal, L.batch_shape, L.n, L.dtype)
    if method in SIGNAL_METHODS:
        _checks.k_or_cutoff(k, cutoff, int(L.sizes.min()))
        steps = 50 if m is None else _checks.count(m, "m")
        column = signal if signal.ndim > 1 else signal[:, None]
        if method == "lanczos_signal":
            y = lanczos_lowpass(L, column, cutoff=cutoff, k=k, m=steps)
        else:
            source = _generator(L, seed, generator)
            damped = method == "polynomial_jackson"
            y = chebyshev_lowpass(L, column, cutoff=cutoff, k=k, degree=steps, jackson=damped, generator=source)
        y = y.reshape(signal.shape) if signal.ndim == 1 else y
    else:
        y = subspace(
            L,
            k,
            cutoff=cutoff,
            method=method,
            tol=tol,
            m=m,
            seed=seed,
            generator=generator,
            weights=weights,
            max_products=max_products,
        ).project(signal)
    return y.detach().numpy() if isinstance(x, np.ndarray) else y


def _generator(L: Operator, seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    """Return the source of randomness that ``seed`` or ``generator`` names."""
    if seed is None:
        return generator
    if generator is not None:
        raise InputError("give either seed or generator, got both.")
    return torch.Generator(device=L.device).manual_seed(seed)


def choose(L: Operator, k: int, weights: Any = None) -> tuple[str, str]:
    """Return the method that ``auto`` takes, and why. The thresholds come from ``benchmarks/crossover.py``."""
    if weights is not None:
        return "unrolled", "weights were given"
    if isinstance(L, FunctionOperator):
        return "thick_restart", "no entries are known, only products"
    if L.n <= EXACT_LIMIT or (L.n <= PROOF_LIMIT and k > L.n // 8):
        return "exact", f"a graph of {L.n} nodes is fastest to decompose for k = {k}"
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose for k = {k}"


#: Graphs up to this size are decomposed by ``auto``.
EXACT_LIMIT = 500


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
        )

    return _refined(L, k, run, f"a basis of at most {basis_size} vectors")


def _chebyshev(L: Operator, k: int, options: Options) -> Subspace:
    width = min(int(L.sizes.min()), options.m or k + max(4, k // 3))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 4000 * width
        return chebyshev_subspace(A, X, k, tol=SAFETY * options.tol, max_products=limit)

    return _refined(L, k, run, f"a filtered block of {width} vectors")


def _lobpcg(L: Operator, k: int, options: Options) -> Subspace:
    width = min(int(L.sizes.min()), options.m or k + max(2, k // 5))
    if width < k:
        raise InputError(f"the block's width m must be at least k = {k}, got {width}.")

    def run(A: Operator) -> Ritz:
        X = gaussian(A, width, generator=options.generator)
        limit = options.max_products or 2000 * width
        return lobpcg(A, X, k, tol=SAFETY * options.tol, max_products=limit)

    return _refined(L, k, run, f"scipy's LOBPCG on a block of {width} vectors")


def _shift_invert(L: Operator, k: int, options: Options) -> Subspace:
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
    )


def _up_to(L: Operator, cutoff: float, method: str, options: Options) -> Subspace:
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
    "lobpcg": _lobpcg,
    "shift_invert": _shift_invert,
}
METHODS = tuple(RECIPES)
SIGNAL_METHODS = ("lanczos_signal", "polynomial", "polynomial_jackson")
