"""Checkpoints on disk: safetensors in a family's layout, read into a Network and written from one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_module_tensor_to_device
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from surelock.model.families import LLADA, CheckpointError, Family
from surelock.model.network import Network

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_SHOW_PROGRESS_FROM = 2**30  # bytes


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises CheckpointError that names the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return content


class TensorFiles:
    """The tensors of a checkpoint directory by name: one safetensors file, or shards with an index."""

    def __init__(self, directory: Path) -> None:
        self._open = ExitStack()
        self._readers: dict[Path, Any] = {}
        if (directory / INDEX).is_file():
            weight_map = read_json(directory / INDEX).get("weight_map")
            if not isinstance(weight_map, dict):
                raise CheckpointError(f"{directory / INDEX} has no 'weight_map'")
            self.files = {name: directory / file for name, file in weight_map.items()}
        elif (directory / SINGLE).is_file():
            self.files = dict.fromkeys(self._reader(directory / SINGLE).keys(), directory / SINGLE)
        else:
            raise CheckpointError(f"{directory} holds neither {SINGLE} nor {INDEX} (only safetensors are read)")

    def __enter__(self) -> TensorFiles:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def _reader(self, file: Path) -> Any:
        if file not in self._readers:
            try:
                self._readers[file] = self._open.enter_context(safe_open(file, framework="pt"))
            except FileNotFoundError:
                raise CheckpointError(f"{file} does not exist, though the index names it") from None
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"{file} is not a readable safetensors file: {error}") from error
        return self._readers[file]

    def read(self, name: str) -> Tensor:
        try:
            return self._reader(self.files[name]).get_tensor(name)
        except SafetensorError as error:
            raise CheckpointError(f"{self.files[name]}: tensor {name!r} cannot be read: {error}") from error


def load_weights(
    network: Network,
    family: Family,
    directory: Path,
    *,
    device_of: Callable[[str], torch.device],
    dtype: torch.dtype | None,
) -> None:
    """Fill a network made on the meta device from a checkpoint, one parameter at a time, each on its own device.

    dtype None keeps the checkpoint's. Raises CheckpointError for missing, extra or wrongly shaped tensors.
    """
    parameters = dict(network.named_parameters())
    wanted = {name: family.tensor_names(name) for name in parameters}
    with TensorFiles(directory) as files:
        _check_names(files, wanted, network.config.tied, family, directory)
        size = sum(parameter.numel() for parameter in parameters.values()) * 2
        progress = tqdm(wanted.items(), desc="loading", unit="tensor", disable=size < _SHOW_PROGRESS_FROM)
        for name, sources in progress:
            value = _stack(files, sources, parameters[name].shape)
            set_module_tensor_to_device(network, name, device_of(name), value=value, dtype=dtype or value.dtype)


def _check_names(
    files: TensorFiles, wanted: Mapping[str, tuple[str, ...]], tied: bool, family: Family, directory: Path
) -> None:
    expected = {source for sources in wanted.values() for source in sources}
    missing = sorted(expected - files.files.keys())
    if missing:
        raise CheckpointError(f"{directory} lacks {_some(missing)}")
    extra = files.files.keys() - expected
    (head,), (embed,) = family.tensors["head.weight"], family.tensors["embed.weight"]
    if tied and head in extra:  # some tied checkpoints store the embedding a second time
        if not torch.equal(files.read(head), files.read(embed)):
            raise CheckpointError(f"{directory}: {head} differs from {embed}, though the configuration ties them")
        extra -= {head}
    if extra:
        raise CheckpointError(f"{directory} holds unknown {_some(sorted(extra))}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"tensor{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def _stack(files: TensorFiles, sources: tuple[str, ...], shape: torch.Size) -> Tensor:
    """The checkpoint's tensors stacked into one parameter of `shape`."""
    parts = [files.read(source) for source in sources]
    for source, part in zip(sources, parts, strict=True):
        if part.dim() != len(shape) or part.shape[1:] != shape[1:]:
            expected = [sum(p.shape[0] for p in parts), *shape[1:]] if len(parts) > 1 else list(shape)
            raise CheckpointError(f"tensor {source} has shape {list(part.shape)}, expected {expected}")
    value = parts[0] if len(parts) == 1 else torch.cat(parts)
    if value.shape != shape:
        shapes = ", ".join(f"{source} {list(part.shape)}" for source, part in zip(sources, parts, strict=True))
        raise CheckpointError(f"{shapes}: {shape[0]} rows expected in all, found {value.shape[0]}")
    return value


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
    """Write config.json and safetensors shards in the LLaDA layout, so that `load` reads them like LLaDA-8B.

    max_shard_bytes: size of a shard, one tensor at least in each. extra: further keys for config.json.
    """
    config = network.config
    if config.qk_norm or config.n_heads * config.head_size != config.d_model:
        raise CheckpointError("the LLaDA layout has no query/key norms and needs n_heads * head_size == d_model")
    tensors = {name: value.to("cpu", dtype).contiguous() for name, value in _unstack(network)}
    shards: list[dict[str, Tensor]] = [{}]
    for name, value in tensors.items():
        if shards[-1] and _bytes(shards[-1].values()) + _bytes([value]) > max_shard_bytes:
            shards.append({})
        shards[-1][name] = value
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("model*.safetensors*"):
        old.unlink()
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else SINGLE
        save_file(shard, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        index = {"metadata": {"total_size": _bytes(tensors.values())}, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    described = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "mlp_hidden_size": config.d_ff,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "max_sequence_length": config.max_length,
        "rope": True,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "layer_norm_type": "rms",
        "activation_type": "silu",
        "block_type": "llama",
        "include_bias": False,
        "include_qkv_bias": config.qkv_bias,
        "weight_tying": config.tied,
        "mask_token_id": mask_id,
        "eos_token_id": eos_id,
        "pad_token_id": pad_id,
        "torch_dtype": str(dtype).removeprefix("torch."),
        **(extra or {}),
    }
    (directory / "config.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _bytes(tensors: Any) -> int:
    return sum(value.numel() * value.element_size() for value in tensors)


def _unstack(network: Network) -> Iterator[tuple[str, Tensor]]:
    """The network's parameters under the LLaDA layout's names, stacked ones taken apart."""
    config = network.config
    q, kv = config.n_heads * config.head_size, config.n_kv_heads * config.head_size
    for name, parameter in network.named_parameters():
        sources = LLADA.tensor_names(name)
        sizes = {1: [len(parameter)], 2: [config.d_ff, config.d_ff], 3: [q, kv, kv]}[len(sources)]
        yield from zip(sources, parameter.detach().split(sizes), strict=True)
