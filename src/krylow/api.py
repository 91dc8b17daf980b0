"""The two functions that everything comes down to, `subspace` and `lowpass`.

:func:`subspace` runs one of :mod:`krylow.solvers`. :func:`lowpass` projects on what it finds; it also takes three
methods that filter the signal without a basis: "polynomial" and "polynomial_jackson" (:mod:`krylow.expansion`), and
"lanczos_signal" (:mod:`krylow.krylov.signal`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from krylow import _checks
from krylow._checks import InputError
from krylow._floor import PROOF_LIMIT
from krylow._reduce import seeded
from krylow._similar import MAGNETIC_METHODS, answer, similar_subspace, through
from krylow._similar import signal as signal_of
from krylow.certificate import Status
from krylow.choose import choose
from krylow.density import estimated_cutoff
from krylow.expansion import chebyshev_lowpass
from krylow.graph import as_operator, operator_and_note
from krylow.krylov.signal import lanczos_lowpass
from krylow.linalg.row_blocks import project_by_blocks
from krylow.operators import Operator, SimilarOperator
from krylow.operators.partition import DistributedOperator
from krylow.profile import GraphProfile
from krylow.proof import ProofSettings
from krylow.proof import prove as proved
from krylow.result import Subspace
from krylow.solvers import METHODS, Problem, Solver, solver_of
from krylow.solvers._cutoff import up_to
from krylow.solvers._problem import Callback

__all__ = ["METHODS", "SIGNAL_METHODS", "lowpass", "subspace"]

#: What :func:`lowpass` takes beside ``METHODS``.
SIGNAL_METHODS = ("lanczos_signal", "polynomial", "polynomial_jackson")
#: Largest degree of a polynomial, which takes as many products a signal.
MOST_DEGREE = 10**6
#: A larger limit of products is none.
MOST_PRODUCTS = 2**62


def subspace(
    L: Any,
    k: int | None = None,
    *,
    cutoff: float | None = None,
    method: str | Solver = "auto",
    tol: float = 1e-3,
    m: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    weights: Any = None,
    max_products: int | None = None,
    start: Any = None,
    callback: Callback | None = None,
    prove: bool | ProofSettings = False,
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
        One of :data:`METHODS`, a solver object of :mod:`krylow.solvers` with settings of its own, or "auto", which says
        what it chose in ``why``.
    tol
        Normalised squared subspace error asked for. "lanczos" and "unrolled" do a fixed number of steps and only
        report.
    m
        Steps of "lanczos" and "unrolled"; most basis vectors of "thick_restart"; block width of "chebyshev",
        "multilevel", "davidson" and "lobpcg". At most the number of nodes is used.
    seed, generator
        Where randomness comes from; the same call gives the same answer by default.
    weights
        For "unrolled": a trained network, its name or its file (see :func:`~krylow.load`). None: an untrained one.
    max_products
        Most products with L of the methods that iterate until tol.
    start
        A warm start of the methods that iterate: an earlier :class:`Subspace` of nearly the same graph, or a block
        ``(*batch, n, s)``. It only saves products: a random start follows where the certificate does not confirm its
        answer. An earlier Subspace of k vectors or more is refined without guard vectors (not by "multilevel"): up to
        2048 nodes of known entries and with ``prove`` a proof follows; on larger sparse graphs a random vector outside
        the start shows first that no other eigenvector is below the cut, unless ``max_products`` is given. It is given
        up where it would take as many products as the method took at random. A block is used by "thick_restart",
        "lanczos" and, up to 2048 nodes, "lobpcg".
    callback
        Called after every sweep of such a method with a :class:`~krylow.solvers._problem.Progress`: passes, the error
        reached, the seconds spent and left. Ctrl-C ends the iteration with the best subspace so far, whose status
        says so (INTERRUPTED); a second one raises. With ``prove`` also before a proof, whose price is in ``stage``.
    prove
        Whether the answer is to be proved (:mod:`krylow.proof`): by the inertia of a sparse factor, else of a dense one
        up to 4096 nodes; where both are too dear, or L is a function, a second random block checks it. ``why`` says
        which, and the price; ``certificate.kind`` is "proved", "checked" or "estimated". What is found missing is
        added. The status is CONVERGED only if that is proved or checked. A :class:`~krylow.proof.ProofSettings` sets
        the limits.

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
    if isinstance(L, SimilarOperator):
        others: dict[str, Any] = {"tol": tol, "m": m, "seed": seed, "generator": generator, "weights": weights}
        others |= {"max_products": max_products, "callback": callback, "prove": prove}
        return similar_subspace(L, k, cutoff, method, start, partial(subspace, **others))
    L, note = operator_and_note(L)
    smallest = least_nodes(L)
    k, cutoff = _checks.k_or_cutoff(k, cutoff, smallest)
    tol = _checks.positive(tol, "tol")
    generator = _generator(L, seed, generator)
    if m is not None:
        m = _checks.count(m, "m")
        m = m if weights is not None else min(m, L.n)  # a trained network has its own number
    if max_products is not None:
        max_products = min(_checks.count(max_products, "max_products"), MOST_PRODUCTS)
    if not isinstance(prove, (bool, ProofSettings)):
        raise InputError(f"prove must be True, False or a ProofSettings, got {prove!r}.")
    if callback is not None and not callable(callback):
        raise InputError(f"callback must be a function of one argument, got {callback!r}.")
    why, profile = "asked for", GraphProfile(L)
    if isinstance(L, DistributedOperator):
        asked = Problem(L, k or 1, profile, tol, generator, max_products, callback)
        if cutoff is not None or start is not None or weights is not None:
            raise InputError("a graph that ranks share takes k, method, tol, m, seed, prove and max_products only.")
        return _shared(asked, method, m, seed, prove)
    if isinstance(method, str) and method == "auto":
        # A small graph is decomposed for a cutoff; of a large one few frequencies are expected below it.
        method, why = choose(L, k or (smallest if smallest <= PROOF_LIMIT else 1), weights, profile)
    solver = solver_of(method, m, weights)
    problem = Problem(L, k or 1, profile, tol, generator, max_products, callback, start=_start(L, start))
    if isinstance(start, Subspace) and k is not None and start.k >= k:
        problem = replace(problem, following=_following(L, start, k), prove=bool(prove))
        if start.method == solver.name and start.products:
            problem = replace(problem, worth=start.cold or start.products)
    with L.counted_separately():
        found = solver.subspace(problem) if k is not None else up_to(problem, float(cutoff or 0.0), solver)
    found = replace(found, method=solver.name, why="; ".join(filter(None, (note, why, found.why))), tol=tol)
    if prove is False:
        return found
    return proved(found, problem, ProofSettings() if prove is True else prove)


def least_nodes(L: Operator) -> int:
    """Return how many nodes the smallest graph has; only where some are padded is a value looked at."""
    return L.n if L.mask is None else int(L.sizes.min())


def _shared(
    asked: Problem, method: str | Solver, m: int | None, seed: int | None, prove: bool | ProofSettings
) -> Subspace:
    """Return the subspace of a graph that ranks share."""
    from krylow.distributed._solve import shared_subspace

    L = asked.operator
    assert isinstance(L, DistributedOperator)
    k, tol = asked.k, asked.tol
    settings = None if prove is False else ProofSettings() if prove is True else prove
    alone = lambda whole: subspace(whole, k, method=method, tol=tol, m=m, seed=seed, prove=prove)  # noqa: E731
    return shared_subspace(L, asked, method, m, alone, settings)


def lowpass(
    L: Any,
    x: Any,
    k: int | None = None,
    *,
    cutoff: float | None = None,
    method: str | Solver = "auto",
    tol: float = 1e-3,
    m: int | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    weights: Any = None,
    max_products: int | None = None,
    start: Any = None,
    callback: Callback | None = None,
    prove: bool | ProofSettings = False,
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
    k, cutoff, tol, m, seed, generator, weights, max_products, start, callback
        As in :func:`subspace`.
    prove
        As in :func:`subspace`. What is not proved or checked warns, and so does what has not converged.
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
    asked: dict[str, Any] = {
        "cutoff": cutoff,
        "method": method,
        "tol": tol,
        "m": m,
        "seed": seed,
        "generator": generator,
        "weights": weights,
        "max_products": max_products,
        "start": start,
        "callback": callback,
        "prove": prove,
    }
    if isinstance(L, SimilarOperator):
        if out is not None:
            raise InputError(f"out is for real symmetric Laplacians, got a {L.name} one.")
        if not isinstance(method, str) or method not in SIGNAL_METHODS:
            return _warned(subspace(L, k, **asked), prove).project(x)
        if L.real == 2:
            raise InputError(f"a magnetic Laplacian takes {', '.join(MAGNETIC_METHODS)}, got method={method!r}.")
        return answer(L, through(L, signal_of(L, x), lambda lifted: lowpass(L.core, lifted, k, **asked)), x)
    L = as_operator(L)
    if isinstance(x, (list, tuple)) and len(L.batch_shape) == 1 and out is None:
        return filter_list(L, x, lambda signals: lowpass(L, signals, k, **asked))
    by_blocks = out is not None or (isinstance(x, np.memmap) and x.ndim == 2)
    on_signal = isinstance(method, str) and method in SIGNAL_METHODS
    if by_blocks and not on_signal and not L.batch_shape:
        if not isinstance(x, np.ndarray) or x.ndim != 2:
            raise InputError(f"out is for signals (n, c) of numpy, got {type(x).__name__} of {np.ndim(x)} dimensions.")
        _checks.signal(torch.from_numpy(np.array(x[:, :0])), L.batch_shape, L.n, L.dtype)
        return project_by_blocks(_warned(subspace(L, k, **asked), prove).basis, x, out)
    if out is not None:
        raise InputError(f"out is for one graph and methods that find a subspace, got method={method!r}.")
    signal = _checks.signal(x, L.batch_shape, L.rows, L.dtype, L.device)
    if on_signal and not isinstance(L, DistributedOperator):
        if prove is not False:
            raise InputError(f"prove is for methods that find a subspace, got method={method!r}.")
        k, cutoff = _checks.k_or_cutoff(k, cutoff, least_nodes(L))
        steps = 50 if m is None else _checks.count(m, "m")
        column = signal if signal.ndim > 1 else signal[:, None]
        if method == "lanczos_signal":
            y = lanczos_lowpass(L, column, cutoff=cutoff, k=k, m=steps)
        else:
            source = _generator(L, seed, generator)
            damped = method == "polynomial_jackson"
            _checks.count(steps, "m", 1, MOST_DEGREE, hint=" (the degree of the polynomial)")
            limit = cutoff if k is None else estimated_cutoff(L, k, degree=steps, generator=source)
            y = chebyshev_lowpass(L, column, cutoff=limit, degree=steps, jackson=damped)  # type: ignore[arg-type]
        y = y.reshape(signal.shape) if signal.ndim == 1 else y
    else:
        y = _warned(subspace(L, k, **asked), prove).project(signal)
    return _checks.as_given(y, x)


def _warned(found: Subspace, prove: bool | ProofSettings) -> Subspace:
    """Return the answer; warn where a proof was asked for and it is not CONVERGED, which no signal says."""
    if prove is not False and found.status != Status.CONVERGED:
        warnings.warn(f"prove: {found.certificate}. {found.status.advice} ({found.why})", UserWarning, stacklevel=3)
    return found


def filter_list(L: Operator, signals: Any, filtered: Callable[[Tensor], Tensor]) -> list[Any]:
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
    y = filtered(torch.stack(padded))
    cut = [part[: c.shape[0], : c.shape[1]] for part, c in zip(y, columns, strict=True)]
    return [_checks.as_given(c.reshape(*p.shape, *y.shape[3:]), x) for c, p, x in zip(cut, parts, signals, strict=True)]


def _generator(L: Operator, seed: int | None, generator: torch.Generator | None) -> torch.Generator | None:
    """Return the source of randomness that ``seed`` or ``generator`` names."""
    generator = _checks.generator(generator)
    if seed is None:
        return generator
    if generator is not None:
        raise InputError("give either seed or generator, got both.")
    with L.together():
        return seeded(_checks.count(seed, "seed", -(2**63), 2**64 - 1), L.device)


def _following(L: Operator, start: Subspace, k: int) -> Tensor | None:
    """Return what an earlier answer knows of the frequency behind its k lowest, ``(*batch,)``; None: nothing."""
    value = start.ritz_values[..., k] if start.k > k else start.following
    if value is None or tuple(value.shape) != tuple(L.batch_shape) or not bool(value.isfinite().all()):
        return None
    return value.detach().to(L.device, L.dtype)


def _start(L: Operator, start: Any) -> Tensor | None:
    """Return a warm start ``(*batch, n, s)`` without a gradient, in the operator's dtype and zero on padding."""
    if start is None:
        return None
    block = _checks.numbers(start.basis if isinstance(start, Subspace) else start, "start").detach()
    wanted = (*L.batch_shape, L.n)
    if block.is_complex() or block.ndim < 2 or tuple(block.shape[:-1]) != wanted or block.shape[-1] == 0:
        raise InputError(f"start must be a Subspace or a real block {(*wanted, 's')}, got shape {tuple(block.shape)}.")
    block = _checks.finite(block.to(L.device, L.dtype), "start")
    return block if L.mask is None else block * L.mask[..., None]
