r"""A block of vectors of one large graph, filtered by Chebyshev polynomials, that measures its own error on the way.

Let X be orthonormal and $Y = p(L) X$ with p at most $\delta$ in size on all that is dropped and $\mu_i$ at a wanted
eigenvalue. If $x_i$ holds a vector e of dropped frequencies, then $(I - X X^\top) y_i \approx (p(L) - \mu_i) e$: the
part of $y_i$ that left span(X), over $\mu_i - \delta$, is what $x_i$ leaks, and $\delta / \mu_i$ of it is all that is
left in $y_i$. This is Davis and Kahan's theorem for p(L) instead of L, applied to the vectors before the sweep and
contracted by the sweep. The residual of L overrates a leakage at frequency $\lambda$ by $(\lambda / \mathrm{gap})^2$,
many orders on a large graph, and would never let the iteration stop in time.

While much leaks, Rayleigh-Ritz steps are done for p(L), too: there a leakage at high frequencies does no harm, and no
product is spent. The last one is done for L: it tells the first k apart from the guards.

The filter runs in float32 where the error asked for allows it; sums over nodes are float64 from block to block. It
overwrites X while that tells enough: with $T_{2h} = 2 T_h^2 - 1$, the products $X^\top p(L) X$ are known half of the
way to p(L) X, to a rounding of a few $10^{-6}$ of what grows the most. Where less leaks than that tells, and less is
asked for, one part of the columns is filtered after the other, and products are taken with the former ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from krylow._memory import PAGE, discard, empty, trim
from krylow.linalg.components import NullSpace
from krylow.linalg.row_blocks import (
    exact_gram,
    exact_product_,
    gram,
    grams,
    orthonormalize_,
    residual_gram,
    rotate_,
    subtract_,
)
from krylow.operators import Operator
from krylow.solvers._image import Image, image, needs_exact

#: Columns of a row of float32 that fills a line of the cache: one that straddles lines takes half as long again.
LINE = 16
#: What two vectors leak is hardly ever parallel: the part of their product that is counted as mixing them in any case.
OVERLAP = 0.02
#: A filtered vector of which this part left the span of the block is not settled.
MOVES = 0.1
#: What random columns hold of a vector must be this many times what they hold of all others, squared, for it to show.
SHOWS = 10.0
#: What a vector may hold of a null vector that is kept apart.
APART = 1e-5
#: Squared leakages from here on are told by products that are known half of the way to them, too, unless a vector grows
#: so little that what rounding leaves of the lowest one, so many times, is more (``exact_below``).
TOLD, BESIDE = 1e-4, 10.0
#: A frequency may fall this many times as far as was estimated, and is resolved to this part of itself, where it has to
#: stay above a cutoff.
CAUTION, RESOLVED = 4.0, 1e-4
#: How much larger than at the lowest frequency found a filter may be at the end of the spectrum: its square is summed.
MOST_GROWTH = 1e10


def block_width(k: int, n: int, *, guards: int | None = None, line: int = LINE) -> int:
    """Return the columns of a block for k frequencies of n nodes, a multiple of ``line`` where there are so many nodes.

    ``guards`` are its least columns beyond k. None: as many as a filter needs, whose speed they set.
    """
    guards = max(6, k // 4) if guards is None else guards
    return min(n, -(-(k + guards) // line) * line)


class FilteredBlock:
    """An orthonormal block of one graph, a buffer for its filter, and what is known of its error.

    Parameters
    ----------
    L
        The operator of the filter; its dtype is the block's.
    X
        ``(n, s)`` start, taken over and overwritten.
    high
        Upper bound of the spectrum.
    orthonormal
        Whether X is that already.
    beside
        Null vectors that are known, the lowest frequencies: the block is kept orthogonal to them until
        :meth:`finish`.
    exact_below
        Where the error is to be small, the squared leakage below which products have to be those with the columns that
        a filter starts from. Then as many of them are filtered at a time as the buffer has room for twice.

    Attributes
    ----------
    X
        ``(n, s)`` orthonormal, in the order of rising frequency after ``turn``.
    turn
        ``(s, s)`` float64 by which X has to be multiplied for that; None: it need not be.
    theta
        ``(s,)`` float64 estimates of the frequencies, infinite before the first sweep.
    residuals
        ``(s,)`` float64 residual norms of L of the turned vectors, with their rounding, where a product has told them.
    leakage
        ``(s,)`` float64 norms of what each vector holds of frequencies outside the block, as far as the filter tells.
    doubt
        ``(s,)`` float64 by how much each frequency may still fall, by estimate; infinite before a product has shown it.
    noise
        What the last filter's rounding leaves in a vector.
    hidden
        What guards hold of all vectors together over what they hold of any one below the k-th, squared: n at first, if
        the other columns are not random. A vector that those lack shows when this is below the number of guards.
        0: all columns were random, and nothing is hidden.
    """

    def __init__(
        self,
        L: Operator,
        X: Tensor,
        high: float,
        *,
        orthonormal: bool = False,
        beside: NullSpace | None = None,
        exact_below: float = 0.0,
    ) -> None:
        self.L, self.high, self.beside = L, high, beside
        self.lowest = float(L.gershgorin()[0])
        self.X, s = X if orthonormal else orthonormalize_(self._apart_(X)), X.shape[1]
        self._spare = empty(*X.shape, dtype=X.dtype, device=X.device)
        self.exact_below = exact_below
        self.sweeps = 0
        self.turn: Tensor | None = None
        self.noise, self.hidden = 0.0, 0.0
        self.theta = torch.full((s,), torch.inf, dtype=torch.float64)
        self.residuals: Tensor | None = None
        self.doubt = torch.full_like(self.theta, torch.inf)
        self.leakage = torch.ones(s, dtype=torch.float64)
        self._swept = 0, high, self.leakage  # degree and interval of the last sweep, and what leaked before it

    def sweep(self, k: int, degree: int, low: float, first: float) -> None:
        """Filter with the Chebyshev polynomial of [low, high] that is 1 at ``first``, rotate, and measure k vectors."""
        degree = min(degree, self._bounded_degree(low, first))
        x = 1 + 2 * (low - first) / (self.high - low)
        dropped = 1 / math.cosh(degree * math.acosh(x))
        noise = self.noise = _noise(degree, self.X.dtype)
        filtered = self._filter_parts if self._leaks_little(k, degree, low, first) else self._filter
        G = filtered(degree, low, first).cpu()
        Y = self._apart_(self.X)
        mu, Q = torch.linalg.eigh((G + G.mT) / 2)
        mu, Q = mu.flip(0), Q.flip(1)
        S = Q.mT @ gram(Y, Y).cpu() @ Q  # inner products of the filtered Ritz vectors
        left = (S - Q.mT @ G.mT @ G @ Q).diagonal().clamp(min=0).sqrt()
        # What is outside may grow as much as a guard does that still moves: it need not be the next one yet. Guards
        # that are younger than the others do not speak for what is beyond them.
        least = k if self.hidden else self._last_guards(k)
        edge = min(max(_first_loose(left / mu.clamp(min=dropped), k), least), mu.numel() - 1)
        outside = max(dropped, float(mu[edge]) if mu.numel() > k else dropped)
        grown = mu > 1.05 * outside
        before = torch.where(grown, left / (mu - outside), torch.ones_like(mu)).clamp(max=1)
        self._swept = degree, low, before
        # The last sweep foretold this leakage: what it was too low by, this one is likely to be, too.
        foretold = self.leakage[:k].square().mean()
        optimism = float((before[:k].square().mean() / foretold).sqrt().clamp(min=1)) if self.sweeps else torch.inf
        contraction = torch.where(grown, outside / mu, torch.ones_like(mu))
        self.leakage = (before * contraction + noise) * (optimism if self.sweeps else 1.0)
        self.sweeps += 1
        if self.hidden:
            self.hidden *= float(S.diagonal()[k:].mean() / mu[k - 1].clamp(min=dropped).square())
        self.theta = self._frequencies(mu, S, degree, low, dropped)
        self._take(Q, S)

    def _leaks_little(self, k: int, degree: int, low: float, first: float) -> bool:
        """Return whether a sweep needs exact products to tell what the first k vectors leak."""
        lowest, last = self._growth(torch.stack([torch.tensor(first).to(self.theta), self.theta[k - 1]]), degree, low)
        told = max(self.exact_below, float((BESIDE * self.noise * lowest / last).square()))
        return self.exact_below > 0 and float(self.leakage[:k].square().mean()) < told

    def probe(self, k: int, degree: int, low: float, first: float) -> None:
        """Filter the guards alone, as :meth:`sweep` does, for what may be hidden from the first k vectors.

        These stay as they are. What they leak is told again, by what is known of the guards now.
        """
        degree = min(degree, self._bounded_degree(low, first))
        dropped = 1 / float(self._growth(torch.tensor(first), degree, low))
        kept, guards = self.X[:, :k], self.X.shape[1] - k
        start, room = self.rooms(-(-guards // LINE) * LINE)
        start[:, :guards] = self.X[:, k:]
        start[:, guards:] = 0
        inner = torch.ones(start.shape[1], dtype=torch.float64, device=start.device)
        inner[guards:] = 0
        *_, (Y, _, G) = self._recurrence(start, room, degree, low, first, torch.diag(inner))
        Y, G = Y[:, :guards], G[:guards, :guards]
        S, inside = grams((Y, Y), (kept, Y))
        mu, Q = torch.linalg.eigh((G + G.mT).cpu() / 2)
        mu, Q = mu.flip(0), Q.flip(1)
        S = Q.mT @ (S - inside.mT @ inside).cpu() @ Q
        self.hidden *= float(S.diagonal().mean()) / float(dropped * self._growth(self.theta[k - 1], degree, low)) ** 2
        self.theta[k:] = self._frequencies(mu, S, degree, low, dropped)
        subtract_(Y, [kept], [inside])
        self.X[:, k:], self.residuals = orthonormalize_(Y, S.to(Y.device), Q.to(Y.device)), None
        self.leakage[:k] = self.doubted(k)
        self.sweeps += 1

    def doubted(self, k: int) -> Tensor:
        """Return what the first k vectors leak after the last sweep, if all that is outside grew as the first guard."""
        degree, low, before = self._swept
        growth = self._growth(self.theta[: k + 1], degree, low)
        return before[:k] * growth[k] / growth[:k] + self.noise

    def _growth(self, theta: Tensor, degree: int, low: float) -> Tensor:
        """Return the size of the Chebyshev polynomial of [low, high] at frequencies below it, 1 beyond."""
        return torch.cosh(degree * torch.acosh((1 + 2 * (low - theta) / (self.high - low)).clamp(min=1)))

    def _frequencies(self, mu: Tensor, S: Tensor, degree: int, low: float, dropped: float) -> Tensor:
        """Return frequencies from values of the polynomial, ``dropped`` at its least, and products of what it made."""
        ahead = S.diagonal() / mu.clamp(min=dropped)  # of x^T p^2 x / x^T p x, half a sweep further than x^T p x
        inverse = torch.cosh(torch.acosh((ahead / dropped).clamp(min=1)) / degree)
        return ((self.high + low) / 2 - (self.high - low) / 2 * inverse).cummax(0).values

    def smooth(self, degree: int, low: float, inner: Tensor, *, exactly: bool = False) -> Tensor:
        """Replace X, of which the inner products are known, by p(L) X, with p as in :meth:`sweep` and 1 at zero.

        The columns are left as the filter makes them. Returns the inner products of the former block with them,
        ``exactly`` or to the rounding of those that are known half of the way.
        """
        self.noise = _noise(degree, self.X.dtype)
        self.turn, self.residuals = None, None
        return self._filter_parts(degree, low, 0.0) if exactly else self._filter(degree, low, 0.0, inner)

    def _bounded_degree(self, low: float, first: float) -> int:
        """Return the largest degree whose polynomial stays in range down to the spectrum's lowest end.

        ``first`` is an estimate from above: in the first sweeps the lowest frequency may be far below it.
        """
        end, one = (math.acosh(1 + 2 * (low - min(x, low)) / (self.high - low)) for x in (self.lowest, first))
        return max(1, int(math.log(MOST_GROWTH) / (end - one))) if end > one else 10**9

    def _take(self, Q: Tensor, S: Tensor) -> None:
        """Make the filtered block, rotated by Q to inner products S, orthonormal."""
        X = self.X
        self.X, self.turn, self.residuals = orthonormalize_(X, S.to(X.device), Q.to(X.device)), None, None
        # What is small before that and large after it, as guards are, holds rounding of what was large.
        if self.beside is not None and float(self.beside.coefficients(self.X).abs().max()) > APART:
            self.X = orthonormalize_(self._apart_(self.X))

    def settle(self) -> None:
        """Make orthonormal what an interruption has left of the block: whatever the filter made of it until then."""
        self.X, self.turn, self.residuals = orthonormalize_(self._apart_(self.X)), None, None

    def _filter(self, degree: int, low: float, first: float, inner: Tensor | None = None) -> Tensor:
        """Replace X, of known inner products or orthonormal, by p(L) X; return X^T p(L) X.

        The block is that of one step or another at any time, for whom Ctrl-C ends it.
        """
        if inner is None:
            inner = torch.eye(self.X.shape[1], dtype=torch.float64, device=self.X.device)
        products = inner
        for step in self._recurrence(self.X, self._spare, degree, low, first, inner):
            self.X, self._spare, products = step
        return products

    def _filter_parts(self, degree: int, low: float, first: float) -> Tensor:
        r"""Replace X by p(L) X, the last part of its columns first; return $X^\top p(L) X$.

        Products with the former columns themselves are exact enough where little is to leak. The matrix is symmetric:
        what it has of two parts is known before the later one is overwritten. That is filtered first, since it has the
        higher frequencies, which grow less: its rounding is small against what the others grow by, not the reverse.
        """
        X, s = self.X, self.X.shape[1]
        products = torch.zeros(s, s, dtype=torch.float64, device=X.device)
        part = max(LINE // 2, s // (2 * LINE) * LINE)
        for j in reversed(range(0, s, part)):
            end = min(j + part, s)
            start, room = self.rooms(end - j)
            made = start.copy_(X[:, j:end])
            try:
                for step in self._recurrence(start, room, degree, low, first):
                    made = step[0]
                found = self._products(X[:, :end], made)
                products[:end, j:end], products[j:end, :j] = found, found[:j].mT
            finally:  # whatever Ctrl-C has left of it
                X[:, j:end] = made
        return products

    def _recurrence(
        self,
        X: Tensor,
        room: Tensor,
        degree: int,
        low: float,
        first: float,
        inner: Tensor | None = None,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        r"""Yield the block of each step up to p(L) X, that of the step before, and $X^\top p(L) X$ once it is known.

        Both blocks are in the room of X and another one. With h half of the degree d, or a little less,
        $T_d = 2 T_h T_{d-h} - T_{d-2h}$, all of them scaled to 1 at ``first``; where the inner products of X are not
        given, none are known.
        """
        e, c = (self.high - low) / 2, (self.high + low) / 2
        start = e / (first - c)
        sigma, odd, growth = start, degree % 2, math.acosh(1 + 2 * (low - first) / (self.high - low))
        part = math.cosh(odd * growth) / math.cosh(degree * growth)
        current, previous = self.L.three_term(X, None, start / e, -c * start / e, out=room), X
        products = X.new_empty(0) if inner is None else self._products(X, current) if odd else inner
        for step in range(1, degree + 1):
            if step == degree - degree // 2 and inner is not None:
                half = self._products(previous if odd else current, current)
                products = (1 + part) * half - part * products
            yield current, previous, products
            if step < degree:
                following = 1 / (2 / start - sigma)
                a, b = 2 * following / e, -2 * c * following / e
                previous, current = (
                    current,
                    self.L.three_term(current, previous, a, b, -sigma * following, out=previous),
                )
                sigma = following

    def _products(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return X^T Y without what both hold of the known null vectors."""
        products = gram(X, Y)
        if self.beside is None:
            return products
        left, right = (self.beside.coefficients(Z).to(products) for Z in (X, Y))
        return products - left.mT @ right

    def rooms(self, width: int) -> tuple[Tensor, Tensor]:
        """Return two contiguous blocks of that width, in the buffer as far as this is wide enough."""
        n, size = self.X.shape[0], self.X.shape[0] * width
        places = [slice(i * size, (i + 1) * size) for i in range(self._spare.numel() // max(1, size))][:2]
        found = [self._spare.view(-1)[place].view(n, width) for place in places]
        found += [empty(n, width, dtype=self.X.dtype, device=self.X.device) for _ in range(2 - len(found))]
        return found[0], found[1]

    def rest(self) -> None:
        """Give the pages of a large buffer back while other work needs room; what it holds is lost."""
        if self._spare.device.type == "cpu" and self._spare.nbytes >= PAGE:
            discard(self._spare.numpy())

    def _apart_(self, X: Tensor) -> Tensor:
        """Take the known null vectors, which grow from rounding the most, out of X in place; return it."""
        return X if self.beside is None else self.beside.remove_(X)

    def count(self, cutoff: float) -> int:
        """Return how many of the block's frequencies are up to a cutoff."""
        return int((self.theta <= cutoff).sum())

    def straddles(self, cutoff: float) -> bool:
        """Return whether the first frequency above a cutoff, if there is one, is known to stay there."""
        j = self.count(cutoff)
        return j < self.theta.numel() and cautious_floor(self.theta[j], self.doubt[j]) > cutoff

    def error(self, k: int) -> float:
        """Return what the first k vectors leak, as an estimate of their normalised squared error."""
        if self.sweeps < 2:  # nothing has been foretold yet that could have come true
            return math.inf
        return float(self.leakage[:k].square().mean())

    def _last_guards(self, k: int) -> int:
        """Return where the last third of the guards begins."""
        return k + 2 * (self.X.shape[1] - k) // 3

    def unseen(self, k: int) -> float:
        """Return by what factor ``hidden`` has to fall until no vector below the k-th is; 1 and less: none is."""
        return SHOWS * self.hidden / max(1, self.X.shape[1] - k)

    def multiplied(
        self, L: Operator, tol: float, restrict: Callable[[Tensor], Tensor] | None = None, *, squared: bool = True
    ) -> Image:
        """Return what L makes of the block (:func:`~krylow.solvers._image.image`), in its buffer."""
        A = L if needs_exact(tol) else self.L
        return image(A, self.X, self._spare, self.high, tol, restrict, squared=squared)

    def align(self, L: Operator, tol: float) -> Tensor:
        r"""Turn to the Ritz vectors of L and return how they may still be mixed, ``(s, s)``.

        Vector i holds about $e_i^\top (L - \theta_i) e_j / (\theta_j - \theta_i)$ of the frequency of vector j, where
        $e_i$ is what it leaks. That is the product of their residuals, which is known, over the frequency at which they
        leak; the part ``OVERLAP`` of what it could be at most is added.
        """
        made = self.multiplied(L, tol, squared=False)
        residuals = residual_gram(self.X, made.LX, made.H).cpu()
        self.theta, Q = torch.linalg.eigh(made.H.cpu())
        self.turn = Q.to(self.X.device)
        residuals = Q.mT @ residuals @ Q  # inner products
        size = self.residuals = residuals.diagonal().clamp(min=0).sqrt() + made.rounding
        self.leakage = (Q.square().mT @ self.leakage.square()).sqrt()
        leakage = self.leakage.cummax(0).values  # a vector beyond another leaks no less, whatever was measured
        at = (size / leakage).clamp(max=self.high - min(self.lowest, 0.0)).sqrt()
        coupling = residuals.abs() / at / at[:, None] + OVERLAP * size[:, None] * leakage + made.rounding
        self.doubt = size * leakage + made.rounding
        return self.mixed(coupling, self.doubt)

    def mixed(self, coupling: Tensor, doubt: Tensor, theta: Tensor | None = None) -> Tensor:
        """Return couplings ``(s, s)`` over differences of frequencies, less the doubt ``(s,)`` about each of them.

        What is said is about vectors j beyond i alone. The frequency of a vector beyond another is no lower, however
        much in doubt it is.
        """
        theta = self.theta if theta is None else theta
        apart = theta - theta[:, None] - (doubt[:, None] + doubt)
        beyond = torch.ones_like(apart).triu(1).bool()
        apart = torch.where(beyond, apart, torch.full_like(apart, -torch.inf)).cummax(1).values
        mixing = coupling / apart.clamp(min=torch.finfo(torch.float64).tiny)
        return torch.where(beyond, mixing, torch.zeros_like(mixing))

    def turned(self) -> Tensor:
        """Return the block turned, in its own room."""
        if self.turn is not None:
            rotate_(self.X, self.turn)
            self.turn = None
        return self.X

    def finish(self, L: Operator, k: int, *, again: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Return Rayleigh quotients, vectors and residuals of the first k in float64; the block is spent.

        The vectors are ``(n, k)`` after the known null vectors, which come first. With ``again`` the others are told by
        L, and else they are what the last product has told.
        """
        self._spare = self.X.new_empty(0)
        X, self.X = self.X, self.X.new_empty(0, self.X.shape[1])
        trim(X)
        C = torch.eye(X.shape[1], dtype=torch.float64, device=X.device) if self.turn is None else self.turn
        R, failed = torch.linalg.cholesky_ex(C.mT @ exact_gram(X) @ C, upper=True)
        if not int(failed):
            C = torch.linalg.solve_triangular(R, C, upper=True, left=False)
        known = 0 if self.beside is None else self.beside.count
        basis = empty(X.shape[0], known + k, dtype=torch.float64, device=X.device)
        found = exact_product_(X, C[:, :k], basis[:, known:])
        del X
        if self.beside is not None:
            basis[:, :known] = self.beside.basis()
            self.beside.remove_(found)
        if int(failed):
            orthonormalize_(found)
        near = torch.nn.functional.pad(self.theta[:k].nan_to_num(posinf=0.0), (known, 0)).to(basis)
        if again or self.residuals is None:
            theta, residuals = L.quotients(basis, near)
            return theta, basis, residuals
        return near, basis, torch.nn.functional.pad(self.residuals[:k], (known, 0)).to(basis)


def cautious_floor(theta: Tensor, doubt: Tensor) -> float:
    """Return what a frequency is above for sure, if it may fall by about ``doubt``."""
    return float(theta - CAUTION * doubt - RESOLVED * theta.abs())


def _noise(degree: int, dtype: torch.dtype) -> float:
    """Return what the rounding of a filter leaves in a vector of unit length."""
    return 4 * degree**0.5 * torch.finfo(dtype).eps


def _first_loose(moved: Tensor, k: int) -> int:
    """Return the first guard that is not settled, given by how much each column moves; their number if all are."""
    loose = torch.nonzero(moved[k:] > MOVES)
    return k + int(loose[0]) if loose.numel() else moved.numel()
