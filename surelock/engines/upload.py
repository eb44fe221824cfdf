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
    host, places = pack(arrays, pinned=device.type == "cuda")
    return unpack(host.to(device, non_blocking=True), arrays, places)


def pack(arrays: Mapping[str, NDArray], pinned: bool) -> tuple[Tensor, dict[str, slice]]:
    """Return the bytes of arrays behind one another, [bytes] uint8, and the place of each. pinned: page-locked."""
    places, stop = {}, 0
    for name, array in arrays.items():
        start = -(-stop // _ALIGNED) * _ALIGNED
        stop = start + array.nbytes
        places[name] = slice(start, stop)
    host = torch.empty(stop, dtype=torch.uint8, pin_memory=pinned)
    packed = host.numpy()
    for name, array in arrays.items():
        packed[places[name]] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return host, places


def unpack(packed: Tensor, arrays: Mapping[str, NDArray], places: Mapping[str, slice]) -> dict[str, Tensor]:
    dtypes = {name: torch.from_numpy(array[:0]).dtype for name, array in arrays.items()}
    return {name: packed[place].view(dtypes[name]).view(arrays[name].shape) for name, place in places.items()}
