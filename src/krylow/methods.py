"""The two functions that everything comes down to, `subspace` and `lowpass`, and the choice that ``auto`` makes.

:func:`subspace` runs one of :mod:`krylow.recipes`. :func:`lowpass` projects on what it finds; it also takes three
methods that filter the signal without a basis (:mod:`krylow.response`): "lanczos_signal", "polynomial" and
"polynomial_jackson".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from krylow import _checks
from krylow._checks import InputError
from krylow.answers import Options
from krylow.certify import Subspace
from krylow.floor import PROOF_LIMIT
from krylow.graph import as_operator, operator_and_note
from krylow.large import CONTRAST, FACTORISED, GEOMETRIC, contrast
from krylow.linalg.fill import core_fill
from krylow.linalg.projection import project_by_blocks
from krylow.operators import FunctionOperator, Operator, SparseOperator
from krylow.operators.walks import components_of, walk
from krylow.recipes import METHODS, RECIPES, up_to
from krylow.refine.condensed import core_of
from krylow.refine.progress import Callback
from krylow.response import chebyshev_lowpass, lanczos_lowpass

__all__ = [
    "EXACT_LIMIT",
    "FACTOR_LIMIT",
    "GEOMETRIC",
    "METHODS",
    "SIGNAL_METHODS",
    "SPARSE_EXACT_LIMIT",
    "choose",
    "lowpass",
    "subspace",
]

#: What :func:`lowpass` takes beside ``METHODS``.
SIGNAL_METHODS = ("lanczos_signal", "polynomial", "polynomial_jackson")
#: Largest degree of a polynomial, which takes as many products a signal.
MOST_DEGREE = 10**6
#: A larger limit of products is none.
MOST_PRODUCTS = 2**62
#: Up to this size ``auto`` decomposes a graph, and up to the second a sparse one whose factor is light; that one it
#: factorises up to the third. Up to there it decomposes where more than an eighth of the frequencies is wanted.
EXACT_LIMIT = 1000
SPARSE_EXACT_LIMIT = FACTORISED
FACTOR_LIMIT = 4096
#: A factor of so many entries a node, by estimate, is light.
LIGHT_FILL = 90.0
#: A large graph of so few neighbours a node (a tree has 2), whose factor has at most so many times its own entries by
#: estimate, is nearly a tree.
TREE_NEIGHBORS = 3.5
TREE_FILL = 3.0
#: So is one of so few neighbours, if a dense matrix of as many entries as its factor is estimated to have takes at most
#: this many multiplications a node: without its chains and twigs it is small, whatever that fills.
THIN_NEIGHBORS = 2.5
THIN_WORK = 6e4
#: A graph whose weights lie far apart is factorised if that takes at most so many multiplications a node, as above:
#: coarser graphs are unlike it, and a filter would take for ever.
CONTRAST_WORK = 5e5
#: Degrees lie far apart if the largest is so many times the mean: the diagonal then tells the methods most.
WIDE_DEGREES = 10.0


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
    callback: Callback | None = None,
) -> Subspace:
    r"""Return the subspace of the k lowest graph frequencies, or of all up to a cutoff.

    $$\mathcal S_k = \mathrm{span}(u_1, \ldots, u_k), \qquad L u_i = \lambda_i u_i, \quad \lambda_1 \le \lambda_2 \le
    \ldots$$

    Parameters
    ----------
    L
        An operator (:func:`~krylow.laplacian`); a plain symmetric matrix that is a Laplacian; or a graph (networkx,
        PyG, an ``edge_index``, a pair ``(edge_index, weights)``) or a list of graphs, whose Laplacian is taken:
        combinatorial, or generalized where there are self-loops, as ``why`` says. A matrix that no kind of Laplacian
        explains, such as an adjacency, is refused; an operator is taken as it is.
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
        Steps of "lanczos" and "unrolled"; most basis vectors of "thick_restart"; block width of "chebyshev",
        "multilevel" and "lobpcg". At most the number of nodes is used.
    seed, generator
        Where randomness comes from; the same call gives the same answer by default.
    weights
        For "unrolled": a trained network, its name or its file (see :func:`~krylow.load`). None: an untrained one.
    max_products
        Most products with L of the methods that iterate until tol.
    callback
        Called after every sweep of such a method with a :class:`~krylow.refine.progress.Progress`: passes, the error
        reached, the seconds spent and left. Ctrl-C ends the iteration with the best subspace so far, whose status
        says so (INTERRUPTED); a second one raises.

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
    L, note = operator_and_note(L)
    smallest = int(L.sizes.min())
    k, cutoff = _checks.k_or_cutoff(k, cutoff, smallest)
    tol = _checks.positive(tol, "tol")
    generator = _generator(L, seed, generator)
    if m is not None:
        m = _checks.count(m, "m")
        m = m if weights is not None else min(m, L.n)  # a trained network has its own number
    if max_products is not None:
        max_products = min(_checks.count(max_products, "max_products"), MOST_PRODUCTS)
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one argument, got {callback!r}.")
    if weights is not None and method not in ("auto", "unrolled"):
        raise InputError(f'weights are for method="unrolled", got method={method!r}.')
    options = Options(tol, m, generator, weights, max_products, callback)
    why = "asked for"
    if method == "auto":
        # A small graph is decomposed for a cutoff; of a large one few frequencies are expected below it.
        method, why = choose(L, k or (smallest if smallest <= PROOF_LIMIT else 1), weights)
    recipe = RECIPES[_checks.choice(method, METHODS, "method")]
    with L.counted_apart():
        found = recipe(L, k, options) if k is not None else up_to(L, float(cutoff or 0.0), method, options)
    return replace(found, method=method, why="; ".join(filter(None, (note, why, found.why))), tol=tol)


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
    callback: Callback | None = None,
    out: np.ndarray | None = None,
) -> Any:
    r"""Return the ideal low-pass filtered signal $y = U_k U_k^\top x$.

    Differentiable in x and, for torch input, in L: only gaps between kept and dropped frequencies enter the gradient,
    so that repeated frequencies inside the band do no harm.

    Parameters
    ----------
    L
        As in :func:`subspace`.
    x
        ``(n,)``, ``(n, c)`` or ``(*batch, n, c)``, torch, numpy or nested lists, of any real dtype: it is filtered in
        the graph's. For a list of graphs: a list of as many signals, each as long as its graph. A ``numpy.memmap``
        ``(n, c)`` is filtered block by block, so that it need not fit into memory.
    method
        As in :func:`subspace`, or one of :data:`SIGNAL_METHODS`, whose number of steps or degree is ``m`` (50).
    k, cutoff, tol, m, seed, generator, weights, max_products, callback
        As in :func:`subspace`.
    out
        For x ``(n, c)`` of numpy: an array of x's shape, perhaps a ``numpy.memmap``, or x itself, that the result is
        written to block by block and that is returned.

    Returns
    -------
    Tensor, ndarray or list of them
        Of x's kind, shape and dtype (whole numbers become the graph's), in memory unless ``out`` is given; an array
        for nested lists of numbers.

    Examples
    --------
    >>> import numpy as np
    >>> L = np.array([[1.0, -1.0], [-1.0, 1.0]])
    >>> lowpass(L, np.array([1.0, 3.0]), k=1).round(6)
    array([2., 2.])
    """
    L = as_operator(L)
    if isinstance(x, (list, tuple)) and len(L.batch_shape) == 1 and out is None:
        own = Options(tol, m, generator, weights, max_products, callback)
        return _filter_list(L, x, k, cutoff, method, seed, own)

    def solve() -> Subspace:
        return subspace(
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
            callback=callback,
        )

    by_blocks = out is not None or (isinstance(x, np.memmap) and x.ndim == 2)
    if by_blocks and method not in SIGNAL_METHODS and not L.batch_shape:
        if not isinstance(x, np.ndarray) or x.ndim != 2:
            raise InputError(f"out is for signals (n, c) of numpy, got {type(x).__name__} of {np.ndim(x)} dimensions.")
        _checks.signal(torch.from_numpy(np.array(x[:, :0])), L.batch_shape, L.n, L.dtype)
        return project_by_blocks(solve().basis, x, out)
    if out is not None:
        raise InputError(f"out is for one graph and methods that find a subspace, got method={method!r}.")
    signal = _checks.signal(x, L.batch_shape, L.n, L.dtype, L.device)
    if method in SIGNAL_METHODS:
        k, cutoff = _checks.k_or_cutoff(k, cutoff, int(L.sizes.min()))
        steps = 50 if m is None else _checks.count(m, "m")
        column = signal if signal.ndim > 1 else signal[:, None]
        if method == "lanczos_signal":
            y = lanczos_lowpass(L, column, cutoff=cutoff, k=k, m=steps)
        else:
            source = _generator(L, seed, generator)
            damped = method == "polynomial_jackson"
            _checks.count(steps, "m", 1, MOST_DEGREE, hint=" (the degree of the polynomial)")
            y = chebyshev_lowpass(L, column, cutoff=cutoff, k=k, degree=steps, jackson=damped, generator=source)
        y = y.reshape(signal.shape) if signal.ndim == 1 else y
    else:
        y = solve().project(signal)
    return _checks.as_given(y, x)


def _filter_list(L: Operator, signals: Any, k: Any, cutoff: Any, method: str, seed: Any, options: Options) -> list[Any]:
    """Filter as many signals as a batch has graphs, each as long as its own graph, and return them alike."""
    sizes = L.sizes.tolist()
    if len(signals) != len(sizes):
        raise InputError(f"a list of signals must hold one a graph, {len(sizes)}, got {len(signals)}.")
    one = torch.Size(())
    parts = [_checks.signal(x, one, n, L.dtype, L.device) for x, n in zip(signals, sizes, strict=True)]
    if any(part.ndim > 2 for part in parts):
        raise InputError("the signals of a list must be (n,) or (n, c), got a batch of them.")
    columns = [part.reshape(part.shape[0], -1) for part in parts]
    width = max(part.shape[1] for part in columns)
    padded = [torch.nn.functional.pad(part, (0, width - part.shape[1], 0, L.n - part.shape[0])) for part in columns]
    y = lowpass(
        L,
        torch.stack(padded),
        k,
        cutoff=cutoff,
        method=method,
        tol=options.tol,
        m=options.m,
        seed=seed,
        generator=options.generator,
        weights=options.weights,
        max_products=options.max_products,
        callback=options.callback,
    )
    cut = [part[: c.shape[0], : c.shape[1]] for part, c in zip(y, columns, strict=True)]
    return [_checks.as_given(c.reshape(p.shape), x) for c, p, x in zip(cut, parts, signals, strict=True)]


def _generator(L: Operator, seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    """Return the source of randomness that ``seed`` or ``generator`` names."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise InputError(f"generator must be a torch.Generator, got {generator!r}: for a number, pass seed.")
    if seed is None:
        return generator
    if generator is not None:
        raise InputError("give either seed or generator, got both.")
    return torch.Generator(device=L.device).manual_seed(_checks.count(seed, "seed", -(2**63), 2**64 - 1))


def choose(L: Operator, k: int, weights: Any = None) -> tuple[str, str]:
    """Return the method that ``auto`` takes, and why. The thresholds come from ``benchmarks/crossover.py``."""
    if weights is not None:
        return "unrolled", "weights were given"
    if isinstance(L, FunctionOperator):
        return "thick_restart", "no entries are known, only products"
    least = SPARSE_EXACT_LIMIT if isinstance(L, SparseOperator) else EXACT_LIMIT
    if L.n <= least or (L.n <= FACTOR_LIMIT and k > L.n // 8):
        return "exact", f"a graph of {L.n} nodes is fastest to decompose for k = {k}"
    if isinstance(L, SparseOperator):
        if L.n <= FACTOR_LIMIT and L.device.type == "cpu" and core_fill(core_of(L)).entries <= LIGHT_FILL * L.n:
            return "shift_invert", f"a factor of its {L.n} nodes is light"
        return _choose_large(L) if L.n > PROOF_LIMIT else _choose_proved(L)
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose for k = {k}"


def _choose_proved(L: SparseOperator) -> tuple[str, str]:
    """Return the method for one sparse graph whose certificate a dense factor proves, since no light one does."""
    # A filter takes long where frequencies are hidden among far larger ones, or as often zero as there are components.
    if L.n <= EXACT_LIMIT or contrast(L) > CONTRAST or _spread(L) > WIDE_DEGREES or components_of(L)[1] > 1:
        return "exact", f"a graph of {L.n} nodes whose factor is not light is fastest to decompose"
    return "chebyshev", f"a graph of {L.n} nodes is too large to decompose, and its factor is not light"


def _choose_large(L: SparseOperator) -> tuple[str, str]:
    """Return the method for one large sparse graph, by its fill and how wide a walk from one node gets, and why."""
    if L.col.numel() <= (1 + TREE_NEIGHBORS) * L.n and L.device.type == "cpu":
        fill = core_fill(core_of(L))
        thin = L.col.numel() <= (1 + THIN_NEIGHBORS) * L.n and fill.entries**1.5 <= THIN_WORK * L.n
        if fill.ratio <= TREE_FILL or thin:
            return "shift_invert", f"a factor of its {L.n} nodes has about {fill.ratio:.1f} times the graph's entries"
    ratio = contrast(L)
    if ratio > CONTRAST:
        apart = f"the mean of its degrees is {ratio:.0f} times the harmonic one"
        if L.device.type == "cpu" and core_fill(core_of(L)).entries ** 1.5 <= CONTRAST_WORK * L.n:
            return "shift_invert", f"{apart}, and a factor stays small"
        return "lobpcg", f"{apart}, so that the diagonal tells most"
    widest = walk(L).widest
    seen = f"a walk from one node meets at most {max(widest, 1e-3):.1%} of {L.n} nodes at a time"
    if widest <= GEOMETRIC:
        return "multilevel", f"{seen}, so that coarser graphs are like it"
    spread = _spread(L)
    if spread > WIDE_DEGREES:
        return "lobpcg", f"{seen}, and its largest degree is {spread:.0f} times the mean"
    return "chebyshev", f"{seen}, so that no coarser graph is like it"


def _spread(L: SparseOperator) -> float:
    """Return the largest degree over the mean; 1 where one is negative, and the diagonal tells nothing."""
    diagonal = L.diagonal().detach()
    return float(diagonal.max() / diagonal.mean()) if bool(diagonal.any()) and bool((diagonal >= 0).all()) else 1.0
