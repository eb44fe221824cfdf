"""Muon (Jordan and others, 2024), which orthogonalizes all matrices of one shape together."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the Newton-Schulz iteration: the authors'
_ITERATIONS = 5

Direct = Callable[[Tensor, Tensor], Tensor]


def orthogonalized(matrices: Tensor) -> Tensor:
    """The matrices [M, R, C] with singular values near 1, by five Newton-Schulz iterations."""
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def direct(gradients: Tensor, momentum: Tensor) -> Tensor:
    """The directions of a step, by Nesterov's momentum, which is changed in place: all [M, R, C]."""
    momentum.lerp_(gradients, 1 - _MOMENTUM)
    return orthogonalized(gradients.lerp(momentum, _MOMENTUM))


class Muon(torch.optim.Optimizer):
    """As `torch.optim.Muon`, with few and large products in place of many small ones.

    A parameter may be a stack of several matrices, as that of queries, keys and values is: every matrix is one here.
    """

    def __init__(
        self,
        stacks: Iterable[tuple[Tensor, Sequence[int]]],
        lr: float,
        weight_decay: float,
        direct: Direct = direct,
    ) -> None:
        """stacks: parameters [R, C], and the rows of the matrices in them. direct: that function, or it compiled."""
        self._stacks = list(stacks)
        self._direct = direct
        matrices = [part for stack, rows in self._stacks for part in stack.detach().split(rows)]
        shapes = dict.fromkeys(matrix.shape for matrix in matrices)
        groups = [
            {"params": [matrix for matrix in matrices if matrix.shape == shape]} for shape in shapes
        ]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        gradients: list[Tensor] = []
        for stack, rows in self._stacks:
            assert stack.grad is not None
            gradients += stack.grad.split(rows)
        for group in self.param_groups:
            matrices = group["params"]
            rate = group["lr"]
            rows, columns = matrices[0].shape
            alike = torch.stack(
                [gradient for gradient in gradients if gradient.shape == matrices[0].shape]
            )
            state = self.state[matrices[0]]
            if not state:
                state["momentum"] = torch.zeros_like(alike)
            with torch.autocast(alike.device.type, torch.bfloat16):
                directions = self._direct(alike, state["momentum"])
            scale = max(1, rows / columns) ** 0.5
            for matrix, direction in zip(matrices, directions, strict=True):
                matrix.mul_(1 - rate * group["weight_decay"])
                matrix.sub_(direction, alpha=rate * scale)
