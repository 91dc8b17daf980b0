"""The methods on one large graph, whose bound is an estimate that they hand on themselves.

All but the inverse run in an order in which neighbours are near in memory; a null space that suffices is read off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from krylow._checks import InputError
from krylow._memory import empty
from krylow._threads import sharing
from krylow.answers import Options, refined
from krylow.certify import Subspace
from krylow.floor import PROOF_LIMIT
from krylow.linalg.components import NullSpace, null_space
from krylow.linalg.rounding import by_construction
from krylow.operators import Operator, SparseOperator
from krylow.operators.ordering import grouped_if_it_pays, reordered_if_it_pays
from krylow.operators.sparse import WHOLE
from krylow.operators.walks import walk
from krylow.refine.chebyshev import filtered_subspace, in_single, rough
from krylow.refine.condensed import core_of
from krylow.refine.filtered import LINE, block_width
from krylow.refine.multilevel import multilevel_subspace
from krylow.refine.preconditioned import preconditioned_subspace
from krylow.refine.progress import Watch
from krylow.refine.ritz import Evidence, Ritz
from krylow.refine.shift_invert import large_shift_invert
from krylow.start.communities import community_block
from krylow.start.gaussian import gaussian

#: Sparse graphs of more nodes are factorised as large ones are: without chains and twigs, by a factor that proves.
FACTORISED = 500
#: Least guards of a block whose errors a coarser graph corrects; one is enough where so many columns hold it.
GUARDS, NARROW = 3, 8
#: Guards of a block whose errors are corrected through the diagonal: this many where so few vectors are wanted, and
#: where weights lie far apart; else a third of those if that is less. A fourth in any case, if that is more.
CORRECTED_GUARDS, FEW = 6, 10
#: A graph has a geometry if a breadth-first walk meets at most this share of its nodes at a time.
GEOMETRIC = 0.1
#: Weights lie far apart if the mean degree is so many times the harmonic mean.
CONTRAST = 20.0


def is_large(L: Operator, k: int, beyond: int | None = None) -> bool:
    """Return whether L is one graph of more nodes than that, of which k is a small part.

    None: beyond the size whose certificate is proved by a dense factor.
    """
    return not L.batch_shape and L.n > (PROOF_LIMIT if beyond is None else beyond) and 4 * k <= L.n


def contrast(L: SparseOperator) -> float:
    """Return the mean of the degrees over their harmonic mean: 1 if all are alike."""
    diagonal = L.diagonal().detach().abs()
    return float(diagonal.mean() * diagonal[diagonal > 0].reciprocal().mean()) if bool(diagonal.any()) else 1.0


@sharing()
def chebyshev(L: Operator, k: int, options: Options) -> Subspace:
    """Filter a block whose guards set the speed."""
    width = _width(L, k, options)

    def filtered(A: Operator, start: Callable[[], Tensor], watch: Watch, **how: Any) -> Ritz | None:
        limit = options.max_products or 4000 * width
        cutoff = options.cutoff
        return filtered_subspace(A, start, k, tol=options.tol, max_products=limit, watch=watch, cutoff=cutoff, **how)

    def planted(A: Operator, null: NullSpace | None, communities: Tensor | None, watch: Watch) -> Ritz | None:
        if communities is None or null is None or not null.lowest:  # gaps are told by factors, above zero
            return None
        if options.cutoff is not None:
            return None
        assert isinstance(A, SparseOperator)
        X = community_block(A, _null_vector(A, null), communities, k, width, options.generator)
        if X is None:
            return None
        start = [X]
        del X  # the filter's own from now on
        return filtered(A, lambda: start.pop(), watch, planted=True)

    def run(A: Operator, null: NullSpace | None, communities: Tensor | None) -> Ritz:
        watch = Watch(A, options.tol, options.callback)
        pairs = planted(A, null, communities, watch)
        if pairs is None:
            pairs = filtered(A, partial(_random, A, width, options), watch, null=null)
        assert pairs is not None
        return pairs

    why = f"a filtered block of {width} vectors"
    return _solved(L, k, run, why, tol=options.tol, grouped=True)


@sharing()
def multilevel(L: Operator, k: int, options: Options) -> Subspace:
    """Refine the answer of coarser graphs."""
    if options.cutoff is not None and not (isinstance(L, SparseOperator) and walk(L).widest <= GEOMETRIC):
        # What a coarser graph that is unlike it estimates of a guard vector would not show what is below the cutoff.
        return chebyshev(L, k, options)
    # Neighbours are near: a narrow block pays more than whole lines of the cache.
    width = _width(L, k, options, guards=GUARDS if k >= NARROW else 1, line=NARROW)

    def run(A: Operator, null: NullSpace | None, communities: Tensor | None) -> Ritz:
        S = A if isinstance(A, SparseOperator) else _sparse(A)
        looped = null is None or null.count < null.components  # one guard tells too little of errors there
        # So it does of a frequency that has to be above a cutoff.
        several = looped or options.cutoff is not None

        def wide(k: int) -> int:
            return _width(L, k, options, guards=GUARDS if several or k >= NARROW else 1, line=NARROW)

        pairs = multilevel_subspace(
            S,
            _null_vector(A, null),
            k,
            wide(k),
            tol=options.tol,
            max_products=options.max_products or 4000 * width,
            generator=options.generator or torch.Generator(device=A.device).manual_seed(0),
            watch=Watch(S, options.tol, options.callback),
            cutoff=options.cutoff,
            width_of=wide,
        )
        if S is not A:
            A.products += S.products
            A.passes += S.passes
        return pairs

    why = f"coarser graphs, then a block of {width} vectors or more"
    return _solved(L, k, run, why, tol=options.tol)


@sharing()
def lobpcg(L: SparseOperator, k: int, options: Options) -> Subspace:
    """Filter and correct a block through the diagonal."""
    least = CORRECTED_GUARDS if k <= FEW or contrast(L) > CONTRAST else min(CORRECTED_GUARDS, k // 3)
    width = _width(L, k, options, guards=max(least, k // 4), line=8)

    def run(A: Operator, null: NullSpace | None, communities: Tensor | None) -> Ritz:
        assert isinstance(A, SparseOperator)
        return preconditioned_subspace(
            A,
            partial(_random, A, width, options),
            k,
            null,
            tol=options.tol,
            max_products=options.max_products or 4000 * width,
            generator=options.generator or torch.Generator(device=A.device).manual_seed(0),
            watch=Watch(A, options.tol, options.callback),
            cutoff=options.cutoff,
        )

    return _solved(L, k, run, f"a block of {width} vectors, filtered and corrected through the diagonal")


@sharing()
def shift_invert(L: SparseOperator, k: int, options: Options) -> Subspace:
    """Invert what is left without chains and twigs."""
    null, basis_size = null_space(L, core_of(L).components), options.m or 2 * k + 24

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

    return refined(L, k, run, f"a factorisation, then a basis of at most {basis_size} vectors")


def _width(L: Operator, k: int, options: Options, *, guards: int | None = None, line: int = LINE) -> int:
    """Return the width of the block: m where that is given."""
    if options.m is not None and options.m <= k:
        raise InputError(f"the block's width m must be more than k = {k}, got {options.m}.")
    return block_width(k, L.n, guards=guards, line=line) if options.m is None else min(options.m, L.n)


def _random(L: Operator, width: int, options: Options) -> Tensor:
    """Return a random block in float32, in large pages: a filter that starts from it runs over its room."""
    room = empty(L.n, width, dtype=torch.float32, device=L.device)
    return gaussian(L, width, generator=options.generator, out=room)


def _storage(L: SparseOperator, tol: float | None) -> torch.dtype:
    """Return what the entries of L in another order are kept in for a filter; where that does, no other copy is kept.

    Where the error is to be small, float32 has to hold them as they are. None: L is not filtered.
    """
    if tol is None or not in_single(L, tol):
        return L.dtype
    kept = L.single_storage()
    return kept if kept == WHOLE or rough(tol) or _held_by_single(L.values) else L.dtype


def _held_by_single(values: Tensor) -> bool:
    """Return whether float32 holds all values as they are, without room for another copy of them."""
    return all(torch.equal(part, part.float().to(part.dtype)) for part in values.split(1 << 16))


def _sparse(L: Operator) -> SparseOperator:
    matrix = L.detach().to_scipy()
    parts = (torch.from_numpy(part) for part in (matrix.indptr, matrix.indices, matrix.data))
    return SparseOperator(*parts, psd=L.psd)


def _solved(
    L: Operator,
    k: int,
    run: Callable[[Operator, NullSpace | None, Tensor | None], Ritz],
    why: str,
    *,
    tol: float | None = None,
    grouped: bool = False,
) -> Subspace:
    """Run a refinement of one large graph in an order that is near in memory; read off a null space that suffices.

    The graph in that order is what a filter needs for an error of ``tol``, or None: as it is. ``grouped`` says whether
    communities are looked for where there is none.
    """
    null = null_space(L)

    def ordered(A: Operator) -> Ritz:
        if null is not None and null.lowest and null.count >= k:
            return _null_answer(A, null, k)
        other = None
        if isinstance(A, SparseOperator):
            plain = A.detach()
            storage = _storage(plain, tol)
            other = reordered_if_it_pays(plain, storage) or (grouped_if_it_pays(plain, storage) if grouped else None)
        if other is None:
            return run(A, null, None).to(A.dtype)
        B = other.operator
        B.products, B.passes = 0, 0
        moved = null and null.reordered(other.order)
        pairs = run(B, moved, other.communities)
        A.products += B.products
        A.passes += B.passes
        return replace(pairs, X=other.back_(pairs.X.contiguous())).to(A.dtype)

    return refined(L, k, ordered, why)


def _null_vector(L: Operator, null: NullSpace | None) -> Tensor:
    """Return a vector ``(n,)`` that L maps to zero wherever that is known of one, nowhere zero itself."""
    if null is None or not null.count or null.vector.stride(0) == 0:  # ones, which take no room
        return torch.ones(1, dtype=torch.float64, device=L.device).expand(L.n)
    vector = null.vector * L.n**0.5
    return vector if null.count == null.components else vector.masked_fill_(vector == 0, 1.0)


def _null_answer(L: Operator, null: NullSpace, k: int) -> Ritz:
    """Return k null vectors of a graph of at least k components: they are the lowest, and need no iteration."""
    zero = torch.zeros(k, dtype=L.dtype, device=L.device)
    rounding = L.n * torch.finfo(L.dtype).eps ** 2
    unique = k if null.count == k else 0
    evidence = Evidence(
        error=rounding,
        floor=0.0,
        well_defined=unique,
        residuals=zero.to(torch.float64),
        proved=by_construction(L),
        restored=True,
    )
    return Ritz(zero, null.basis(k, L.dtype), zero, evidence=evidence)
