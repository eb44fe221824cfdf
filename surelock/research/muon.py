"""The optimizer Muon (Jordan and others, 2024). All matrices of one shape are orthogonalized together."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
#: The authors' coefficients of the Newton-Schulz iteration.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5

Direct = Callable[[Tensor, Tensor], Tensor]


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices [M, R, C] with the same singular vectors and singular values near 1.

    They are computed by five Newton-Schulz iterations.
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def direct(gradients: Tensor, momentum: Tensor) -> Tensor:
    """Return the directions of a step, [M, R, C], by Nesterov's momentum.

    gradients: [M, R, C]. momentum: [M, R, C]; it is updated in place.
    """
    momentum.lerp_(gradients, 1 - _MOMENTUM)
    return orthogonalized(gradients.lerp(momentum, _MOMENTUM))


class Muon(torch.optim.Optimizer):
    """The optimizer of `torch.optim.Muon`, computed by few large products in place of many small ones.

    A parameter may be a stack of several matrices, such as those of queries, keys and values. Every matrix of a stack
    is orthogonalized by itself.
    """

    def __init__(
        self,
        stacks: Iterable[tuple[Tensor, Sequence[int]]],
        lr: float,
        weight_decay: float,
        direct: Direct = direct,
    ) -> None:
        """Make the optimizer of some parameters.

        stacks: (parameter [R, C], numbers of rows of its matrices).
        lr: the learning rate. weight_decay: decoupled weight decay per unit of learning rate.
        direct: the function `direct`, plain or compiled.
        """
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
        """Update the parameters by their gradients. closure: ignored."""
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
