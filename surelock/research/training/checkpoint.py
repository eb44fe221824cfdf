"""Writes checkpoints in the LLaDA layout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from surelock.model.checkpoint import INDEX, SINGLE, row_counts
from surelock.model.families import LLADA, CheckpointError
from surelock.model.network import Network
from surelock.model.random_weights import llada_config


def save_checkpoint(
    network: Network,
    directory: Path,
    *,
    mask_id: int,
    eos_id: int,
    pad_id: int,
    dtype: torch.dtype = torch.bfloat16,
    max_shard_bytes: int = 9 * 2**20,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write config.json and safetensors shards in the LLaDA layout, which `load` reads.

    mask_id, eos_id, pad_id: the ids of special tokens, for config.json.
    dtype: of the tensors.
    max_shard_bytes: the largest shard; a larger tensor has a shard of its own.
    extra: further keys for config.json.

    Raises CheckpointError for a network that the layout cannot describe.
    """
    config = network.config
    own = config.qk_norm or config.shifted or config.block_size
    if own or config.n_heads * config.head_size != config.d_model:
        raise CheckpointError(
            "the LLaDA layout has no query/key norms, shifted logits or blocks, "
            "and needs n_heads * head_size == d_model"
        )
    shards = _shards({name: value.to("cpu", dtype).contiguous() for name, value in _unstack(network)}, max_shard_bytes)
    described = llada_config(config) | {"torch_dtype": str(dtype).removeprefix("torch.")}
    described |= {"mask_token_id": mask_id, "eos_token_id": eos_id, "pad_token_id": pad_id}
    directory.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=directory) as made:  # what is there stays until all of the new is written
        weight_map = {}
        for number, shard in enumerate(shards, 1):
            file = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else SINGLE
            save_file(shard, Path(made) / file, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(shard, file)
        if len(shards) > 1:
            index = {"metadata": {"total_size": sum(map(_bytes, shards))}, "weight_map": weight_map}
            _write_json(Path(made) / INDEX, index)
        _write_json(Path(made) / "config.json", described | dict(extra or {}))
        for old in directory.glob("model*.safetensors*"):
            old.unlink()
        for new in Path(made).iterdir():
            new.replace(directory / new.name)


def _shards(tensors: Mapping[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if shards[-1] and _bytes(shards[-1]) + value.nbytes > max_bytes:
            shards.append({})
        shards[-1][name] = value
    return shards


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(value.nbytes for value in tensors.values())


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _unstack(network: Network) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of the LLaDA layout by name, with stacked parameters split."""
    for name, parameter in network.named_parameters():
        sources = LLADA.tensor_names(name)
        counts = row_counts(network.config, sources, len(parameter))
        yield from zip(sources, parameter.detach().split(counts), strict=True)
