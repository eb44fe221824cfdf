"""Arrays of a step go to a device in one copy."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNED = 16  # bytes


def upload(arrays: Mapping[str, NDArray], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to a device, all of them at once. The host does not wait for the copy.

    Returns tensors of the arrays' names, dtypes and shapes. On a CPU they share the memory of the arrays.
    """
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    places, stop = {}, 0
    for name, array in arrays.items():
        start = -(-stop // _ALIGNED) * _ALIGNED
        stop = start + array.nbytes
        places[name] = slice(start, stop)
    host = torch.empty(stop, dtype=torch.uint8, pin_memory=device.type == "cuda")
    packed = host.numpy()
    for name, array in arrays.items():
        packed[places[name]] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = host.to(device, non_blocking=True)
    dtypes = {name: torch.from_numpy(array[:0]).dtype for name, array in arrays.items()}
    return {name: there[place].view(dtypes[name]).view(arrays[name].shape) for name, place in places.items()}
