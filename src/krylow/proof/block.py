r"""A second, independent random block outside an answer, which is to find nothing below the next eigenvalue.

The test and its probability are in :mod:`krylow.proof`. The polynomial is Chebyshev's for the interval from the next
Ritz value to the top of the spectrum, scaled to 1 at the floor, between the last kept and the next Ritz value.
"""

from __future__ import annotations

import math
import time

import torch
from torch import Tensor

from krylow._floor import Inside
from krylow._random import gaussian
from krylow.certificate import LEAST_BOUND, Status, bound_above
from krylow.krylov.cg import conjugate_gradients
from krylow.krylov.chebyshev import chebyshev_steps
from krylow.krylov.ritz import rayleigh_ritz
from krylow.linalg.perturbation import entry_error
from krylow.operators import FunctionOperator, SparseOperator
from krylow.proof.shared import ProofSettings, Shown, Tell, extends, inside_of, inverse_bound, replaced, report
from krylow.result import Subspace
from krylow.solvers._problem import Problem


def check(
    found: Subspace, problem: Problem, inside: Inside, following: Tensor, settings: ProofSettings, tell: Tell
) -> Shown:
    """Return what a second, independent random block outside the answer shows (see the module)."""
    generator = torch.Generator(device=found.operator.device).manual_seed(_CHECK_SEED)
    if problem.generator is not None:  # independent of what the solver has drawn
        generator.manual_seed(int(torch.randint(2**62, (1,), generator=problem.generator, device=generator.device)))
    for left in reversed(range(settings.rounds + 1)):
        shown, block = _random_block(found, problem, inside, following, settings, generator, tell)
        if block is None or not left or not extends(found):
            return shown
        larger, values = _enlarged(inside, block)
        changed = replaced(inside.X.cpu().numpy(), larger.cpu().numpy())
        lower = values < following - 1e-3 * (following - inside.theta_k)
        if not changed and not bool(lower):
            return shown
        following = values
        if changed:
            tell(f"{changed} of {found.k} vectors had been missing and are added")
            inside = inside_of(found, larger)
    return shown


_CHECK_SEED = 0x5EED2


def _enlarged(inside: Inside, block: Tensor) -> tuple[Tensor, Tensor]:
    """Return the k lowest Ritz vectors of the answer with a block, and the value after them."""
    k = inside.X.shape[-1]
    Q = torch.linalg.qr(torch.cat([inside.X, block], dim=-1)).Q
    theta, Y = rayleigh_ritz(Q.mT @ (inside.A @ Q))
    return Q @ Y[..., :k], theta[..., k]


def _random_block(
    found: Subspace,
    problem: Problem,
    inside: Inside,
    following: Tensor,
    settings: ProofSettings,
    generator: torch.Generator,
    tell: Tell,
) -> tuple[Shown, Tensor | None]:
    """Return what one random block shows, and an orthonormal block of what it has found where that is too much."""
    A, theta_k = inside.A, inside.theta_k
    none = torch.full_like(theta_k, -torch.inf)
    codes = torch.full_like(found.operator.sizes, -1)
    high = A.gershgorin()[1].clamp(min=0)
    cut = theta_k if found.cutoff is None else theta_k.clamp(min=found.cutoff)
    floor = cut + 0.5 * (following - cut)
    open_gap = (floor - theta_k > _noise(found, inside)) & (floor > cut) & ~inside.missing & (high > following)
    small = settings.failure ** (1 / settings.block) / (1.6 * A.n**0.5)
    rate = torch.acosh(1 + 2 * ((following - floor) / (high - following)).clamp(min=1e-30))
    rate = torch.where(open_gap, rate, torch.full_like(rate, torch.inf))
    degree = max(1, math.ceil(math.acosh(1 / small) / float(rate.min()))) if bool(open_gap.any()) else 0
    steps = math.ceil(4 * degree / math.acosh(1 / small)) if degree else 0
    products = degree * settings.block + steps * found.k
    most = min(settings.max_products, problem.max_products or settings.max_products)
    if not degree or products > most:
        reason = f"a check would take {products} products" if degree else "no gap is open to a check"
        tell(f"estimated, neither proved nor checked: {reason}")
        return Shown(inside, none, none.abs(), codes, reason), None
    tell(f"check by {settings.block} random vectors outside the answer, about {products} products")
    Y = _filtered(inside, (following, high, floor), degree, settings.block, generator, problem, found)
    sizes = torch.linalg.vector_norm(Y, dim=-2)
    logs = (sizes.nan_to_num(nan=torch.inf) * (2 / math.pi) ** 0.5).clamp(max=1).log().sum(-1)
    passed = open_gap & (logs <= math.log(settings.failure))
    floor = torch.where(passed, floor, none)
    error = _bound(inside, floor, following, passed, steps, problem.tol)
    if bool((passed | inside.everything).all()):
        tell(
            f"checked: an eigenvector below {float(floor.min()):.4g} would have been overlooked with a probability "
            f"of {math.exp(float(logs.max())):.0e}"
        )
        return Shown(inside, floor, error, codes, ""), None
    tell("not confirmed: the random block has found something below the next eigenvalue")
    block = torch.linalg.qr(Y.nan_to_num(0.0, 0.0, 0.0)).Q
    H = block.mT @ (A @ block)
    lowest = torch.linalg.eigvalsh((H + H.mT) / 2)[..., 0]
    off = torch.minimum(inside.total, inside.total.square() / (following - theta_k).clamp(min=1e-300))
    below = open_gap & ~passed & (lowest < theta_k - 10 * off - _noise(found, inside))
    codes[below] = int(Status.MISSED)
    return Shown(inside, floor, error, codes, ""), None if found.operator.batch_shape else block


def _noise(found: Subspace, inside: Inside) -> Tensor:
    """Return a gap that products cannot tell from none: those of a function are in its own dtype."""
    L = found.operator
    dtype = L.dtype if isinstance(L, FunctionOperator) else inside.X.dtype
    return 8 * L.n**0.5 * torch.finfo(dtype).eps * inside.norm


def _bound(inside: Inside, floor: Tensor, following: Tensor, passed: Tensor, steps: int, tol: float) -> Tensor:
    """Return the bound of the error above the floor: by the inverse on the complement, where conjugate gradients do."""
    error = bound_above(inside, floor, ~passed, tol)
    if not bool((passed & (error > tol) & ~inside.absent.any(-1)).all()):
        return error
    A, X, shift = inside.A, inside.X, floor[..., None, None]
    start = X / (inside.theta - floor[..., None])[..., None, :]
    rest = X - (A @ start - shift * start)

    def complement(Z: Tensor) -> Tensor:
        Z = Z - X @ (X.mT @ Z)
        Z = A @ Z - shift * Z
        return Z - X @ (X.mT @ Z)

    rest = rest - X @ (X.mT @ rest)
    size = float(torch.linalg.vector_norm(rest, dim=-2).max())
    near = min(0.1, (0.02 * tol) ** 0.5 / size) if size > 0 else 0.1
    Y = start + conjugate_gradients(complement, rest, steps=steps + 20, tol=near)
    longest = int(A.crow.diff().max()) if isinstance(A, SparseOperator) else A.n
    other = inverse_bound(lambda Z: A @ Z, X, Y, floor, inside.norm, longest)
    other = ((other + LEAST_BOUND).sqrt() + entry_error(inside.L, inside.theta, floor)).square()
    return torch.minimum(error, other)


def _filtered(
    inside: Inside,
    ends: tuple[Tensor, Tensor, Tensor],
    degree: int,
    width: int,
    generator: torch.Generator,
    problem: Problem,
    found: Subspace,
) -> Tensor:
    """Return p(L) Z of a random block outside the answer: p is small between the first two ends, and 1 at the third."""
    A, X = inside.A, inside.X
    low, high, first = (end[..., None, None] for end in ends)
    begin = time.perf_counter()

    def outside(Z: Tensor) -> Tensor:
        return Z - X @ (X.mT @ Z)

    def multiply(Z: Tensor) -> Tensor:
        rest = outside(Z)  # what rounding lets in from the answer is put at the top of the spectrum
        return outside(A @ rest) + high * (Z - rest)

    shape = tuple(A.batch_shape)
    deflated = FunctionOperator(multiply, A.n, batch_shape=shape, dtype=A.dtype, device=A.device)
    Y = Z = outside(gaussian(A, width, generator=generator))
    for step, Y in enumerate(chebyshev_steps(deflated, Z, degree, low, high, first), start=1):  # noqa: B007
        if step % max(1, degree // 20) == 0:
            spent = time.perf_counter() - begin
            report(problem, found, f"checking, step {step} of {degree}", spent, spent * (degree / step - 1))
    return outside(Y)
