"""Weights in int8, by torchao: the weights of the layers' matrix products, with a factor per row.

Embedding, head, norms and biases keep their dtype: the products take most of the memory, and errors of the head would
change tokens.
"""

from importlib.util import find_spec

import torch
from torch import nn

from surelock.errors import shown
from surelock.model.network import Network


def check_weights(weights: str | None, dtype: torch.dtype | None) -> None:
    """Raise ValueError unless `weights` is None or "int8", and int8 is possible with the dtype and has torchao."""
    if weights not in (None, "int8"):
        raise ValueError(f"weights must be 'int8' or None, not {shown(weights)}")
    if weights is not None and dtype is torch.float64:
        raise ValueError(
            "weights in int8 are computed in bfloat16, float16 or float32, not in float64"
        )
    if weights is not None and find_spec("torchao") is None:
        raise ValueError("weights in int8 need torchao: `pip install torchao`")


def is_product(network: Network, parameter: str) -> bool:
    """Return whether a parameter, named as in the network, is the weight of a layer's matrix product."""
    owner, _, kind = parameter.rpartition(".")
    return (
        kind == "weight"
        and owner.startswith("blocks.")
        and isinstance(network.get_submodule(owner), nn.Linear)
    )


def quantize(network: Network, parameter: str) -> None:
    """Replace a product's weight by int8 numbers and a float32 factor per row, on its device."""
    from torchao.quantization import (
        Int8WeightOnlyConfig,
        quantize_,
    )  # here, since the import takes seconds

    owner = network.get_submodule(parameter.rpartition(".")[0])
    # set_inductor_config=True would change the settings of all later compilations.
    quantize_(owner, Int8WeightOnlyConfig(set_inductor_config=False))
