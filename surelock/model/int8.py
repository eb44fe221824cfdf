"""Weights in int8, by torchao: those of the layers' products, with a factor per row.

Embedding, head, norms and biases stay as they are: most of the memory is in the products, and the head decides tokens.
"""

from importlib.util import find_spec

import torch
from torch import nn

from surelock.errors import shown
from surelock.model.network import Network


def check_weights(weights: str | None, dtype: torch.dtype | None) -> None:
    """Raise ValueError for weights that cannot be had: only None and "int8" can."""
    if weights not in (None, "int8"):
        raise ValueError(f"weights must be 'int8' or None, not {shown(weights)}")
    if weights is not None and dtype is torch.float64:
        raise ValueError(
            "weights in int8 are computed in bfloat16, float16 or float32, not in float64"
        )
    if weights is not None and find_spec("torchao") is None:
        raise ValueError("weights in int8 need torchao: `pip install torchao`")


def is_product(network: Network, parameter: str) -> bool:
    """Return whether a parameter, by its name, is the weights of a layer's matrix product."""
    owner, _, kind = parameter.rpartition(".")
    return (
        kind == "weight"
        and owner.startswith("blocks.")
        and isinstance(network.get_submodule(owner), nn.Linear)
    )


def quantize(network: Network, parameter: str) -> None:
    """Replace a product's weights by int8 and a float32 factor per row, on their device."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_  # its import takes seconds

    owner = network.get_submodule(parameter.rpartition(".")[0])
    # it would tune every later compilation
    quantize_(owner, Int8WeightOnlyConfig(set_inductor_config=False))
