"""The random start: independent Gaussian columns."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from krylow import _checks
from krylow._reduce import seeded
from krylow.operators import Operator


@torch.compiler.assume_constant_result
def fixed(shape: tuple[int, ...], seed: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return the same Gaussian numbers at every call, on the host; where torch records, they are a constant."""
    with _disable_current_modes():
        return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gaussian(
    L: Operator,
    columns: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return a Gaussian block ``(*batch, n, columns)``, zero on padded nodes.

    Parameters
    ----------
    L
        The operator it will be multiplied with.
    columns
        Width of the block.
    generator
        Source of randomness. None: a fresh one with seed 0, so that equal calls give equal answers.
    dtype
        None: the operator's. Numbers in float32 are made several times faster.
    out
        Room for the block, whose dtype is taken then. None: torch's.
    """
    shape = (*L.batch_shape, L.rows, columns)
    if generator is None and out is None and _checks.traced():
        z = fixed(tuple(shape), 0, dtype or L.dtype).to(L.device)
        return z if L.mask is None else z * L.mask[..., None]
    if generator is None:
        generator = seeded(0, L.device)
    if out is None:
        z = torch.randn(shape, dtype=dtype or L.dtype, device=L.device, generator=generator)
    else:
        z = out.normal_(generator=generator)
    return z if L.mask is None else z * L.mask[..., None]
