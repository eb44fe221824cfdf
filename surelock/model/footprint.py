"""The memory that a model's weights need, compared with the machine's, before the weights are downloaded or read."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from surelock.errors import CheckpointError
from surelock.model.checkpoint import FLOATS, list_tensors
from surelock.model.families import SHOW_PROGRESS_FROM
from surelock.model.machine import total_memory
from surelock.places import label_of

#: By tensor, its dtype, as safetensors spells it, and its shape.
Sizes = Mapping[str, tuple[str, Sequence[int]]]
_IN_A_LAYER = re.compile(r"\.\d+\.")


def file_sizes(directory: Path) -> Sizes:
    """Return the sizes of a checkpoint's tensors, from the headers of its files. Raises what `list_tensors` raises."""
    return {name: stored[1:3] for name, stored in list_tensors(directory)[0].items()}


def hub_sizes(name: str) -> Sizes:
    """Return the sizes of a hub model's tensors, from the headers on the hub; {} if the model is cached or unknown."""
    from huggingface_hub import get_safetensors_metadata, try_to_load_from_cache
    from huggingface_hub.errors import (
        HfHubHTTPError,
        NotASafetensorsRepoError,
        SafetensorsParsingError,
    )

    failures: Any = (
        *HfHubHTTPError.__bases__,
        NotASafetensorsRepoError,
        SafetensorsParsingError,
        OSError,
        ValueError,
    )
    try:
        if isinstance(try_to_load_from_cache(name, "config.json"), str):
            return {}
        files = get_safetensors_metadata(name).files_metadata.values()
    except failures:
        return {}
    return {
        name: (tensor.dtype, tensor.shape)
        for file in files
        for name, tensor in file.tensors.items()
    }


def check_room(
    name: str,
    sizes: Sizes,
    device: torch.device,
    dtype: torch.dtype | None = None,
    device_map: Any = None,
    weights: str | None = None,
) -> None:
    """Write to stderr how much memory the weights of a large model need.

    Raises CheckpointError if they need more memory than the device has.
    """
    counts = Counter()
    for kind, shape in sizes.values():
        counts[kind] += prod(shape)
    if counts.total() < SHOW_PROGRESS_FROM:
        return
    if dtype is None:
        on_cpu = device.type != "cuda" and device_map is None
        dtype = torch.float32 if on_cpu else FLOATS.get(counts.most_common(1)[0][0], torch.bfloat16)
    takes = weight_bytes(sizes, dtype, weights == "int8")
    has = total_memory(device)
    sentence = f"{label_of(name)} takes {takes / 1e9:.1f} GB in {weights or str(dtype).removeprefix('torch.')}"
    if device_map is None:
        sentence += f", this {'GPU' if device.type == 'cuda' else 'machine'} has {has / 1e9:.1f}"
    small = weight_bytes(sizes, dtype, int8=True)
    if device_map is None and takes > has:
        offer = "no setting makes it fit"
        if weights is None and small < has:
            offer = f"--weights int8 takes {small / 1e9:.1f}"
        raise CheckpointError(f"{sentence}: {offer}")
    tqdm.write(sentence, file=sys.stderr)


def weight_bytes(sizes: Sizes, dtype: torch.dtype, int8: bool) -> int:
    """Return the bytes of tensors in a dtype.

    int8: whether the weights of the layers' products are in int8, see `surelock.model.int8`.
    """
    total = 0
    for name, (_, shape) in sizes.items():
        if int8 and len(shape) == 2 and _IN_A_LAYER.search(name):
            total += prod(shape) + 5 * shape[0]
        else:
            total += dtype.itemsize * prod(shape)
    return total
