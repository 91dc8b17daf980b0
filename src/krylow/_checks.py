"""Every check of user input, in one place.

Each function returns its argument in the form the library works with, or raises an error that says what must hold,
what came, and what to do. Nothing here changes values: a check never repairs silently.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Relative asymmetry that is still taken for rounding, in units of eps(dtype).
SYMMETRY_EPS = 256
#: Tokens may have this power of the largest number: products with their gradients, and sums of them, stay finite.
TOKEN_RANGE = 0.6


class InputError(ValueError):
    """Raised for bad input, with what must hold, what came and what to do."""


def traced() -> bool:
    """Whether ``torch.compile`` or ``torch.export`` records this call: then there are shapes, and no values to look at.

    Checks of values are left out of what is recorded, and what depends on values is computed for all of them.
    """
    return torch.compiler.is_compiling()


def floating(x: Tensor, what: str) -> Tensor:
    """Return ``x`` as floating point: integers and booleans become the default dtype, complex is refused."""
    if x.is_complex():
        raise InputError(f"{what} must be real, got {x.dtype}: pass its real part, or the modulus of its weights.")
    if x.dtype in (torch.float16, torch.bfloat16):
        raise InputError(f"{what} must be float32 or float64, got {x.dtype}: convert it with .float() or .double().")
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def numbers(x: Any, what: str) -> Tensor:
    """Return a tensor, an array or a nested list of numbers as a tensor, with its gradient where it has one."""
    if isinstance(x, Tensor):
        return x
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, tensors with a gradient
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "fiubc":
        came = f"dtype {array.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InputError(f"{what} must be numbers: a torch tensor, a numpy array or a list of numbers, got {came}.")
    if array.dtype.kind in "ui" or (array.dtype.kind == "f" and array.dtype.itemsize > 8):
        array = array.astype(np.float64)
    elif not array.dtype.isnative or array.dtype.kind == "c":
        array = array.astype(complex if array.dtype.kind == "c" else array.dtype.newbyteorder("="))
    return tensor_of(np.asarray(array, order="C"))


def tensor_of(array: np.ndarray) -> Tensor:
    """Return a contiguous array as a tensor, copied where torch cannot share it."""
    # A view backward along a dimension of one entry is contiguous, and has a negative stride.
    shared = array.flags.writeable and min(array.strides, default=0) >= 0
    return torch.from_numpy(array if shared else array.copy())


def as_given(y: Tensor, x: Any) -> Any:
    """Return an answer ``y`` as what came in, x, was: its kind (a list becomes an array), device and floating dtype."""
    if isinstance(x, Tensor):
        return y.to(x.device, x.dtype if x.is_floating_point() else y.dtype)
    array = y.detach().cpu().numpy()
    dtype = getattr(x, "dtype", None)
    return array.astype(dtype, copy=False) if isinstance(dtype, np.dtype) and dtype.kind == "f" else array


def tensor(x: Any, what: str, *, floating: bool = True) -> Tensor:
    """Check for a tensor, of real floating point unless any dtype will do."""
    if not isinstance(x, Tensor):
        raise InputError(f"{what} must be a torch tensor, got {type(x).__name__}: convert it with torch.as_tensor().")
    if floating and x.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{what} must be float32 or float64, got {x.dtype}: convert it with .float() or .double().")
    return x


def dtype(value: Any) -> torch.dtype:
    """Return float32 or float64; None: torch's default."""
    value = torch.get_default_dtype() if value is None else value
    if value not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {value!r}.")
    return value


def generator(value: Any) -> torch.Generator | None:
    """Return a source of random numbers, or None."""
    if value is not None and not isinstance(value, torch.Generator):
        raise InputError(f"generator must be a torch.Generator, got {value!r}: for a number, pass seed.")
    return value


def untransformed(x: Tensor, what: str) -> Tensor:
    """Refuse a tensor inside a transform of torch.func: solvers decide by values, which it has none of."""
    if not traced() and torch._C._functorch.is_functorch_wrapped_tensor(x):  # type: ignore[attr-defined, unused-ignore]
        raise InputError(
            f"{what} must be a plain tensor, got one inside a transform of torch.func: for vmap pass the whole batch "
            "(*batch, n, n), which is taken as it is; for grad call torch.autograd.grad or backward()."
        )
    return x


def square(x: Tensor, what: str) -> Tensor:
    """Check for shape ``(*batch, n, n)`` with n >= 1 and no empty batch."""
    untransformed(x, what)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise InputError(f"{what} must be square, (*batch, n, n), got shape {tuple(x.shape)}.")
    if x.shape[-1] == 0:
        raise InputError(f"{what} must have at least one node, got shape {tuple(x.shape)}.")
    if x.numel() == 0:
        raise InputError(f"{what} is an empty batch, shape {tuple(x.shape)}: pass at least one graph.")
    return x


def not_two_by_two(W: Tensor | np.ndarray, what: str) -> None:
    """Refuse whole numbers 2 x 2 that mean another graph as a matrix than as an edge_index."""
    if tuple(W.shape) != (2, 2):
        return
    if isinstance(W, Tensor) and W.dtype == torch.bfloat16:  # no dtype of numpy; it is refused later
        return
    array = W.detach().to_dense().cpu().numpy() if isinstance(W, Tensor) else W
    if array.dtype.kind in "iu" and (array >= 0).all() and array.tolist() != [[0, 1], [1, 0]]:
        raise InputError(
            f"{what} may be a matrix or an edge_index, got whole numbers of shape (2, 2): give a matrix as floats, and "
            "an edge_index with its number of nodes (num_nodes)."
        )


def finite(x: Tensor, what: str) -> Tensor:
    """Check that every entry is finite."""
    if traced():
        return x
    # A finite sum has finite terms only, and needs no memory; one of finite terms may still overflow.
    if not torch.isfinite(x.detach().sum()) and not torch.isfinite(x).all():
        bad = int((~torch.isfinite(x)).sum())
        raise InputError(f"{what} must be finite, got {bad} NaN or infinite entries: drop or replace them first.")
    return x


def in_range(size: float, dtype: torch.dtype, what: str) -> None:
    """Check the largest sum of the moduli of a matrix's row: twice it bounds the spectrum, and has to be finite."""
    largest = torch.finfo(dtype).max / 2
    if not size <= largest:  # an overflow, or NaN
        raise InputError(
            f"the weights of a node's edges must sum to at most {largest:.3g} in modulus, half of what {dtype} "
            f"holds, got more: divide {what} by its largest weight."
        )


def tokens(x: Tensor, dtype: torch.dtype, what: str) -> Tensor:
    """Check the dtype of tokens against that of a module's parameters; under autocast halves are converted to it."""
    if not (x.is_floating_point() or x.is_complex()):
        raise InputError(f"{what} must be floating point, got {x.dtype}: look numbers of words up in an nn.Embedding.")
    if x.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(x.device.type):
        return x.to(dtype)
    if floating(x, what).dtype != dtype:
        raise InputError(
            f"{what} must have the dtype of the module's parameters, {dtype}, got {x.dtype}: convert one with .to()."
        )
    return x


def token_size(x: Tensor, what: str) -> Tensor:
    """Check that tokens are finite, and so far from overflow that their gradients are."""
    if traced():
        return x
    low, high = torch.aminmax(x.detach())  # NaN is the least and the largest
    limit = torch.finfo(x.dtype).max ** TOKEN_RANGE
    if bool((-limit <= low) & (high <= limit)):
        return x
    finite(x, what)
    largest = float(x.detach().abs().amax())
    raise InputError(
        f"{what} must be at most {limit:.1e}, got {largest:.1e}, of which sums and gradients overflow {x.dtype}: "
        "divide them by their size, or put an nn.LayerNorm before."
    )


def symmetric(x: Tensor, what: str) -> Tensor:
    """Check ``x == x.mT`` to rounding."""
    if traced() or torch.equal(x, x.mT):  # nearly always, and several times cheaper than measuring by how much not
        return x
    gap = (x - x.mT).abs().amax(dim=(-2, -1))
    size = x.abs().amax(dim=(-2, -1))
    worst = (gap - SYMMETRY_EPS * torch.finfo(x.dtype).eps * size).max()
    if worst > 0:
        raise asymmetric(float(gap.max()), what)
    return x


def asymmetric(gap: float, what: str) -> InputError:
    """Return the error for an asymmetric matrix or edge list."""
    return InputError(
        f"{what} must be symmetric (an undirected graph), got entries that differ by up to {gap:.3g} from their "
        "mirror image: pass (W + W.T) / 2, or both directions of every edge."
    )


def not_a_laplacian(diagonal: Tensor, off_diagonal: Tensor, row_sums: Tensor) -> None:
    """Refuse a Laplacian where an adjacency is expected, as far as its entries show it."""
    size = diagonal.abs().amax()
    noise = SYMMETRY_EPS * torch.finfo(diagonal.dtype).eps * size
    if (
        off_diagonal.numel()
        and size > 0
        and off_diagonal.amax() <= 0 <= diagonal.amin()
        and row_sums.abs().amax() <= noise
    ):
        raise InputError(
            "W must be an adjacency, got a matrix whose rows sum to zero with no positive entry off the diagonal: "
            "that is a Laplacian already. Pass it to subspace() or lowpass() as it is."
        )


def count(value: Any, what: str, low: int = 1, high: int | None = None, hint: str = "") -> int:
    """Return an integer in [low, high]; a whole number of another type, such as 2.0, is converted."""
    if type(value) is not int and not _whole(value):
        raise InputError(f"{what} must be an integer, got {value!r}.")
    number = int(value)
    if number < low or (high is not None and number > high):
        span = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InputError(f"{what} must be {span}{hint}, got {value}.")
    return number


def width(value: Any, what: str) -> int:
    """Return a number of features that a tensor may have: beyond it torch's own counts overflow."""
    return count(value, what, 1, 2**31 - 1)


def _whole(value: Any) -> bool:
    """Whether a value is a whole number of any type; a truth value is none."""
    if isinstance(value, (bool, np.bool_, str)) or getattr(value, "dtype", None) == torch.bool:
        return False
    try:
        return bool(int(value) == value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def flag(value: Any, what: str) -> bool:
    """Return a truth value, Python's or numpy's; anything else is refused, as a tensor may have several."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f"{what} must be True or False, got {value!r}.")
    return bool(value)


def choice(value: Any, options: tuple[str, ...], what: str) -> str:
    """Check that ``value`` is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        raise InputError(f"{what} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def k_or_cutoff(k: Any, cutoff: Any, n: int) -> tuple[int | None, float | None]:
    """Return ``k`` and ``cutoff`` as plain numbers: exactly one of them is given, and in range."""
    if (k is None) == (cutoff is None):
        came = "neither" if k is None else f"k={k} and cutoff={cutoff}"
        raise InputError(f"give either k (number of kept frequencies) or cutoff (largest kept one), got {came}.")
    if k is not None:
        return count(k, "k", 1, n, hint=" (the number of nodes of the smallest graph)"), None
    return None, number(cutoff, "cutoff")


def number(value: Any, what: str, expected: str = "a number") -> float:
    """Return a real number, plain, of numpy or of torch, as a float; NaN is refused."""
    if type(value) is float and value == value:
        return value
    plain = value.item() if isinstance(value, (Tensor, np.ndarray, np.generic)) and value.ndim == 0 else value
    if isinstance(plain, bool) or not isinstance(plain, Real) or plain != plain:
        raise InputError(f"{what} must be {expected}, got {value!r}.")
    try:
        return float(plain)
    except OverflowError:
        raise InputError(f"{what} must be {expected} within float64, got {value!r}.") from None


def positive(value: Any, what: str) -> float:
    """Return a positive finite number as a float."""
    plain = number(value, what, "a positive number")
    if not 0 < plain < float("inf"):
        raise InputError(f"{what} must be a positive number, got {value!r}.")
    return plain


def signal(
    x: Any, batch_shape: torch.Size, n: int, dtype: torch.dtype, device: torch.device | None = None, row: str = "node"
) -> Tensor:
    """Return a signal ``(n,)``, ``(n, c)`` or ``(*batch, n, c)`` in the dtype of the operator it is filtered with.

    A ``row`` belongs to a node, or to a coefficient.
    """
    x = numbers(x, "the signal")
    if x.is_complex():
        raise InputError(f"the signal must be real, got {x.dtype}: filter real and imaginary part separately.")
    given, x = x, x.to(device or x.device, dtype)
    length = x.shape[-1] if x.ndim == 1 else x.shape[-2] if x.ndim >= 2 else 0
    if length != n:
        raise InputError(f"the signal must have one row per {row}, ({n}, c), got shape {tuple(x.shape)}.")
    if x.ndim == 1 and batch_shape:
        raise InputError(
            f"a batch of {tuple(batch_shape)} graphs needs a signal (*batch, {n}, c), got {tuple(x.shape)}."
        )
    if x.ndim > 2:
        try:
            torch.broadcast_shapes(x.shape[:-2], batch_shape)
        except RuntimeError:
            raise InputError(
                f"the signal's batch {tuple(x.shape[:-2])} does not fit the operator's {tuple(batch_shape)}."
            ) from None
    if x is not given and bool(torch.isfinite(given).all()) and not bool(torch.isfinite(x).all()):
        raise InputError(f"the signal must be within the range of the graph's {dtype}: scale it, or use L.double().")
    return finite(x, "the signal")
