"""MDLM's time condition (kuleshov-group/mdlm, models/dit.py), a constant vector, folded into weights.

Without time conditioning sigma is 0 in every step. A layer then computes x + gate * f(norm(x) * (1 + scale) + shift)
with constant shift, scale and gate. An equivalent layer without these constants has a norm whose weight is multiplied
by 1 + scale and whose bias is shift. The rows and the bias of the last linear layer of f are multiplied by gate.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from surelock.config import NetworkConfig
from surelock.errors import CheckpointError
from surelock.model.stored import Stored, Tensors
from surelock.values import Floats

_WAVES = 256  # length of the time embedding: cosines, then sines
_FIRST = "backbone.sigma_map.mlp.0"
_SECOND = "backbone.sigma_map.mlp.2"
_OUTPUT = "backbone.output_layer.adaLN_modulation"


def modulated(names: Iterable[str]) -> bool:
    """Return whether tensors of these names have a time condition. Some bd3lm checkpoints have none."""
    return any("adaLN_modulation" in name or "sigma_map" in name for name in names)


def time_shapes(config: NetworkConfig, width: int) -> dict[str, tuple[int, ...]]:
    """Return, by name, the shapes of the time condition's tensors. width: the length of its vector."""
    shapes = {
        _FIRST: (width, _WAVES),
        _SECOND: (width, width),
        _OUTPUT: (2 * config.d_model, width),
    }
    for layer in range(config.n_layers):
        shapes[f"backbone.blocks.{layer}.adaLN_modulation"] = (6 * config.d_model, width)
    biases = {f"{owner}.bias": shape[:1] for owner, shape in shapes.items()}
    return {f"{owner}.weight": shape for owner, shape in shapes.items()} | biases


def folded(config: NetworkConfig, tensors: Tensors, files: Mapping[str, Stored] | None) -> Tensors:
    """Return the tensors of an equivalent network without a time condition.

    files: the checkpoint's tensors; None if it has no time condition.
    """
    folded_tensors = dict(tensors)
    norms = [name for name, sources in tensors.items() if not sources]
    if files is None:
        return folded_tensors | {name: ((name, np.zeros(config.d_model)),) for name in norms}
    condition = _condition(config, files)

    def scaled(name: str, factor: Floats) -> None:
        ((source, stored),) = tensors[name]
        assert isinstance(stored, Stored)
        if len(stored.shape) == 2:
            folded_tensors[name] = ((source, stored._replace(factor=factor)),)
        else:
            folded_tensors[name] = ((source, stored.wide(np.float64) * factor),)

    def norm(name: str, shift: Floats, scale: Floats) -> None:
        scaled(f"{name}.weight", 1 + scale)
        folded_tensors[f"{name}.bias"] = ((f"{name}.bias", shift),)

    norm("norm", *np.split(condition(_OUTPUT), 2))
    for layer in range(config.n_layers):
        name = f"blocks.{layer}"
        shift, scale, gate, *others = np.split(
            condition(f"backbone.blocks.{layer}.adaLN_modulation"), 6
        )
        norm(f"{name}.attn_norm", shift, scale)
        norm(f"{name}.ff_norm", *others[:2])
        for product, factor in (
            ("attn_out.weight", gate),
            ("ff_out.weight", others[2]),
            ("ff_out.bias", others[2]),
        ):
            scaled(f"{name}.{product}", factor)
    return folded_tensors


def _condition(config: NetworkConfig, files: Mapping[str, Stored]) -> Callable[[str], Floats]:
    """Return a function that applies a linear layer, which it takes by name, to the constant vector."""
    shapes = time_shapes(config, sum(files[f"{_SECOND}.bias"].shape[:1]))

    def checked(name: str) -> Floats:
        if (shape := files[name].shape) != shapes[name]:
            raise CheckpointError(
                f"tensor {name} has shape {list(shape)}, expected {list(shapes[name])}"
            )
        return files[name].wide(np.float64)

    def linear(name: str, x: Floats) -> Floats:
        return checked(f"{name}.weight") @ x + checked(f"{name}.bias")

    def silu(x: Floats) -> Floats:
        return x / (1 + np.exp(-x))

    waves = np.repeat([1.0, 0.0], _WAVES // 2)
    vector = silu(linear(_SECOND, silu(linear(_FIRST, waves))))
    return lambda name: linear(name, vector)
