"""Adam for a population: elementwise as ever, with a learning rate and a gradient norm for each member."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class PopulationAdam(Optimizer):
    r"""Adam on parameters ``(C, ...)``, member c with its own learning rate.

    Member for member the same as ``torch.optim.Adam``:
    $\theta \leftarrow \theta - \eta_c \, \hat\mu / (\sqrt{\hat\nu} + \epsilon)$.

    Parameters
    ----------
    parameters
        Tensors whose first dimension counts the members.
    lr
        ``(C,)`` learning rates.
    betas, eps
        As in Adam.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: Tensor, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        self.member_lr = lr
        super().__init__(parameters, {"lr": 1.0, "betas": betas, "eps": eps})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` evaluates the loss anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        self._update(parameter, group["betas"], group["eps"])
        return loss

    def _update(self, parameter: Tensor, betas: tuple[float, float], eps: float) -> None:
        beta1, beta2 = betas
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        state["mean"].lerp_(parameter.grad, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        size = (state["square"] / (1 - beta2 ** state["step"])).sqrt_().add_(eps)
        lr = self.member_lr.reshape(-1, *[1] * (parameter.ndim - 1))
        parameter.sub_(lr * (state["mean"] / (1 - beta1 ** state["step"])) / size)


def clip_members(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Scale the gradients of each member to a norm of at most ``limit``; return the norms before, ``(C,)``.

    A member whose gradient is not finite takes no step.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)  # (C,)
    scale = (limit / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1)
    for g in gradients:
        shape = (-1, *[1] * (g.ndim - 1))
        finite = torch.isfinite(norms).reshape(shape)
        g.copy_(torch.where(finite, g * scale.reshape(shape), torch.zeros_like(g)))
    return norms
