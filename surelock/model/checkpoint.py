"""Checkpoints on disk: safetensors in the layout of a family, read into a Network."""

import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import set_module_tensor_to_device
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm import tqdm

from surelock.config import NetworkConfig
from surelock.errors import CheckpointError
from surelock.model.families import SHOW_PROGRESS_FROM, Family, read_json
from surelock.model.int8 import is_product, quantize
from surelock.model.modulation import folded, modulated, time_shapes
from surelock.model.network import Network
from surelock.model.stored import Stored, Tensors
from surelock.values import Fields, Floats

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
#: Prefixes that wrappers for training and compilation add to a tensor's name.
_WRAPPERS = re.compile(r"(?:(?:module|_orig_mod|_fsdp_wrapped_module)\.)+")
_BUFFERS = (
    "rotary_emb.inv_freq",
    "rotary_emb.original_inv_freq",
    "rotary_emb.cos_cached",
    "rotary_emb.sin_cached",
)
_BUFFERS += ("sampling_eps_min", "sampling_eps_max")  # bd3lm's
FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
_METHODS = {"gptq": "GPTQ", "awq": "AWQ"}
_MARKS = {
    "GPTQ or AWQ": (".qweight", ".qzeros", ".g_idx", ".scales"),
    "bitsandbytes": (
        ".SCB",
        "absmax",
        "quant_map",
        ".weight_format",
        "bitsandbytes__nf4",
        "bitsandbytes__fp4",
    ),
    "compressed-tensors": (".weight_packed", ".weight_zero_point", ".weight_shape"),
    "fp8 or int8 with scales": (".weight_scale_inv", ".weight_scale", ".input_scale"),
}
_ONLY_FLOATS = "only weights of float16, bfloat16, float32 or float64 are read"


def check_kind(directory: Path) -> None:
    """Raise CheckpointError for a directory with a PEFT adapter or a GGUF file instead of weights. Opens no file."""
    if (directory / SINGLE).is_file() or (directory / INDEX).is_file():
        return
    if (directory / "adapter_config.json").is_file() or any(directory.glob("adapter_model.*")):
        why = "a PEFT adapter, which is no model by itself: merge it into its model (merge_and_unload), and save that"
        raise CheckpointError(f"{directory} holds {why}")
    if gguf := min(directory.glob("*.gguf"), default=None):
        raise CheckpointError(f"{gguf} is a GGUF file: only safetensors are read")


def list_tensors(directory: Path) -> tuple[dict[str, Stored], list[str]]:
    """Return the places of a checkpoint's tensors by name, and sentences about files and prefixes that are ignored.

    The tensors are in one safetensors file, or in shards with an index. As in transformers, a single file has
    precedence over an index, and buffers of rotary embeddings are ignored. Prefixes of wrappers (DDP's "module.",
    torch.compile's "_orig_mod.") are ignored too.

    Raises CheckpointError for a directory with neither file, and for damaged files.
    """
    single = directory / SINGLE
    index = directory / INDEX
    notes = []
    listed = _weight_map(index) if index.is_file() else {}
    if single.is_file():
        if index.is_file() and set(listed.values()) != {SINGLE}:
            notes.append(
                f"{single} is read, as in transformers; {INDEX} and its shards are passed over"
            )
        headers = {SINGLE: _header(single)}
        listed = dict.fromkeys(headers[SINGLE], SINGLE)
    elif index.is_file():
        headers = {file: _header(directory / file) for file in dict.fromkeys(listed.values())}
    else:
        raise CheckpointError(
            f"{directory} holds neither {SINGLE} nor {INDEX} (only safetensors are read)"
        )
    tensors = {}
    names = {}
    prefixes = set()
    for stored, file in listed.items():
        prefix = match[0] if (match := _WRAPPERS.match(stored)) else ""
        name = stored[len(prefix) :]
        if name.endswith(_BUFFERS):
            continue
        if name in names:
            raise CheckpointError(
                f"{directory} holds tensor {name} twice: as {names[name]} and as {stored}"
            )
        if stored not in headers[file]:
            why = "it is not there, though the index names it"
            raise CheckpointError(f"{directory / file}: tensor {name!r} cannot be read: {why}")
        tensors[name] = headers[file][stored]
        names[name] = stored
        prefixes |= {prefix} - {""}
    if prefixes:
        named = " and ".join(map(repr, sorted(prefixes)))
        notes.append(f"{directory}: {named} in front of the tensors' names is passed over")
    return tensors, notes


def _header(file: Path) -> dict[str, Stored]:
    """Return the places of a file's tensors by name. safetensors checks the file."""
    try:
        with safe_open(file, framework="pt", backend="pread"):
            pass
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
    except FileNotFoundError:
        raise CheckpointError(f"{file} does not exist, though the index names it") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} is not a readable safetensors file: {error}") from error
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, stop = entry["data_offsets"]
        place = 8 + size + start
        tensors[name] = Stored(file, entry["dtype"], tuple(entry["shape"]), place, stop - start)
    return tensors


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(file, str) for file in weight_map.values()
    ):
        raise CheckpointError(f"{index} has no 'weight_map' from tensor names to files")
    if outside := [file for file in weight_map.values() if Path(file).name != file]:
        raise CheckpointError(f"{index} names a file outside its directory: {outside[0]!r}")
    return weight_map


def check_tensors(shape: NetworkConfig, config: Fields, directory: Path) -> None:
    """Raise CheckpointError for a quantised checkpoint, or for fewer tensors than layers.

    Warns of the files and prefixes that `list_tensors` ignores.
    """
    files, notes = list_tensors(directory)
    if how := _quantised(config, files):
        raise CheckpointError(f"{directory} holds a quantised checkpoint ({how}): {_ONLY_FLOATS}")
    if shape.n_layers > len(files):
        problem = f"config.json speaks of {shape.n_layers} layers, but there are only {len(files)} tensors"
        raise CheckpointError(f"{directory}: {problem}")
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _quantised(config: Fields, files: Mapping[str, Stored]) -> str:
    """Return how a checkpoint is quantised, in words, or "" if it is not.

    Signs are its config.json, the names of its tensors, and their dtypes.
    """
    described = config.get("quantization_config") or {}
    if not isinstance(described, Mapping):
        raise CheckpointError("config.json sets quantization_config to what is no object")
    in_bits = described.get("load_in_8bit") or described.get("load_in_4bit")
    if method := described.get("quant_method") or ("bitsandbytes" if in_bits else None):
        return _METHODS.get(method, str(method)[:40]) + " by config.json"
    for kind, marks in _MARKS.items():
        if marked := min((name for name in files if name.endswith(marks)), default=None):
            return f"{kind}: tensor {marked}"
    for name, stored in files.items():
        if name.endswith("weight") and stored.dtype not in FLOATS:
            return f"tensor {name} holds {stored.dtype}"
    return ""


def find_tensors(network: Network, family: Family, directory: Path) -> Tensors:
    """Return, by parameter of the network, the places of its tensors. No tensor is read.

    network: a network on the meta device.

    A tied checkpoint may have the embedding only under the head's name, as safetensors' `save_model` writes it.

    Raises CheckpointError for missing, extra or wrongly shaped tensors.
    """
    config = network.config
    files = list_tensors(directory)[0]
    wanted = {name: family.tensor_names(name) for name, _ in network.named_parameters()}
    (head,) = family.tensors["head.weight"]
    (embed,) = family.tensors["embed.weight"]
    if config.tied and embed not in files and head in files:
        wanted["embed.weight"] = (head,)
    expected = {source for sources in wanted.values() for source in sources}
    timed = family.modulated and modulated(files)
    if timed:
        expected |= time_shapes(config, 1).keys()
    if missing := sorted(expected - files.keys()):
        raise CheckpointError(f"{directory} lacks {_some(missing)}")
    for source in sorted(expected):
        if files[source].dtype not in FLOATS:
            held = f"tensor {source} holds {files[source].dtype}"
            raise CheckpointError(f"{directory}: {held}; {_ONLY_FLOATS}")
    extra = files.keys() - expected
    twice = config.tied and head in extra  # some tied checkpoints store the embedding a second time
    if twice and files[head].shape != files[embed].shape:
        shapes = f"has shape {list(files[head].shape)}, expected {list(files[embed].shape)}"
        raise CheckpointError(f"tensor {head} {shapes}: the configuration ties it")
    if unknown := sorted(extra - {head} if twice else extra):
        raise CheckpointError(f"{directory} holds unknown {_some(unknown)}")
    tensors: Tensors = {
        name: _pieces(network, name, {source: files[source] for source in sources})
        for name, sources in wanted.items()
    }
    if twice and not all(map(np.array_equal, files[head].read(), files[embed].read())):
        warning = f"{directory}: {head} differs from {embed}; it is passed over, since the configuration ties them"
        warnings.warn(warning, stacklevel=2)
    return folded(config, tensors, files if timed else None) if family.modulated else tensors


def _pieces(
    network: Network, name: str, sources: Mapping[str, Stored]
) -> tuple[tuple[str, Stored], ...]:
    """Return the (name, tensor) pairs that are stacked into a parameter.

    sources: the checkpoint's tensors for the parameter. A single tensor that contains several parts is divided. Raises
    CheckpointError for a wrong shape.
    """
    (rows, *columns) = network.get_parameter(name).shape
    config = network.config
    counts = row_counts(config, name, rows)
    if name in ("embed.weight", "head.weight"):
        counts = [rows]
        whole = [rows + config.unused]
    else:
        whole = counts if len(sources) == len(counts) else [rows]
    for (source, stored), count in zip(sources.items(), whole[: len(sources)], strict=True):
        if stored.shape != (expected := (count, *columns)):
            raise CheckpointError(
                f"tensor {source} has shape {list(stored.shape)}, expected {list(expected)}"
            )
    if len(sources) != 1 or whole == counts:
        return tuple(sources.items())
    ((source, stored),) = sources.items()
    edges = [0, *accumulate(counts)]
    return tuple((f"{source}[{a}:{b}]", stored.rows(a, b)) for a, b in pairwise(edges))


def load_weights(
    network: Network,
    family: Family,
    directory: Path,
    *,
    device_of: Callable[[str], torch.device],
    dtype: torch.dtype | None,
    int8: bool = False,
) -> None:
    """Fill a network that is on the meta device, one parameter at a time.

    device_of: a function from a parameter's name to its device.
    dtype: the dtype of the weights; None: the dtype of the checkpoint's embedding.
    int8: whether the weights of the layers' products are quantised, see `surelock.model.int8`.

    Raises what `find_tensors` raises.
    """
    tensors = find_tensors(network, family, directory)
    parameters = dict(network.named_parameters())
    dtype = dtype or next(
        FLOATS[tensor.dtype] for _, tensor in tensors["embed.weight"] if isinstance(tensor, Stored)
    )
    size = sum(parameter.numel() for parameter in parameters.values())
    progress = tqdm(
        tensors.items(), desc="loading", unit="tensor", disable=size < SHOW_PROGRESS_FROM
    )
    for name, sources in progress:
        value = torch.empty(parameters[name].shape, dtype=dtype)
        start = 0
        for _, source in sources:
            for part in _read(source):
                value[start : start + len(part)] = part
                start += len(part)
        set_module_tensor_to_device(
            network, name, device_of(name), value=value, dtype=dtype, clear_cache=False
        )
        del value  # frees memory: on a GPU the parameter is a copy
        if int8 and is_product(network, name):
            quantize(network, name)


def _read(source: Stored | Floats) -> Iterator[Tensor]:
    """Yield the rows of a tensor in order, a few at a time."""
    if not isinstance(source, Stored):
        yield torch.from_numpy(source)
        return
    start = 0
    for part in source.read():
        rows = torch.from_numpy(part).view(FLOATS[source.dtype])
        stop = start + len(part)
        if source.factor is not None:
            rows = rows * torch.from_numpy(source.factor[start:stop, None])
        start = stop
        yield rows


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"tensor{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def row_counts(config: NetworkConfig, parameter: str, rows: int) -> list[int]:
    """Return the numbers of rows of the parts that are stacked into a parameter. rows: their sum."""
    q = config.n_heads * config.head_size
    kv = config.n_kv_heads * config.head_size
    kinds = {
        "qkv": [q, kv, kv],
        "conv_in": 3 * [rows // 3],
        "gate_up": [rows] if config.gelu else 2 * [rows // 2],
    }
    return kinds.get(parameter.split(".")[-2], [rows])
