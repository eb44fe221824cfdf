"""Checkpoints on disk: safetensors in the layout of a family, read into a Network."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import set_module_tensor_to_device
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm import tqdm

from surelock.model.config import NetworkConfig
from surelock.model.families import AT_ONCE, SHOW_PROGRESS_FROM, CheckpointError, Family, Stored, Tensors, read_json
from surelock.model.network import Network

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def check_files(directory: Path) -> None:
    """Raise CheckpointError if a directory holds a pipe or a device: reading one may never end."""
    for each in directory.iterdir():
        if each.exists() and not each.is_file() and not each.is_dir():
            raise CheckpointError(f"{each} is no ordinary file")


def file_states(directory: Path, patterns: Sequence[str]) -> dict[Path, tuple[int, ...]]:
    """Return (device, inode, size, time) of each file that matches a pattern: it changes when a file is replaced or
    written. Raises CheckpointError if a file disappears meanwhile.
    """
    states = {}
    try:
        for file in {file for pattern in patterns for file in directory.glob(pattern)}:
            found = file.stat()
            states[file] = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error}") from error
    return states


class TensorFiles:
    """The tensors of a checkpoint by name: in one safetensors file, or in shards with an index.

    Raises CheckpointError for a directory without either, and for a damaged index.
    """

    def __init__(self, directory: Path) -> None:
        self._open = ExitStack()
        self._readers: dict[Path, Any] = {}
        self._headers: dict[Path, tuple[int, dict[str, Any]]] = {}
        if (directory / INDEX).is_file():
            weight_map = read_json(directory / INDEX).get("weight_map")
            if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
                raise CheckpointError(f"{directory / INDEX} has no 'weight_map' from tensor names to files")
            if outside := [file for file in weight_map.values() if Path(file).name != file]:
                raise CheckpointError(f"{directory / INDEX} names a file outside its directory: {outside[0]!r}")
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
                # read, not mapped: to write over a mapped file changes the network, to shorten it ends the process
                self._readers[file] = self._open.enter_context(safe_open(file, framework="pt", backend="pread"))
            except FileNotFoundError:
                raise CheckpointError(f"{file} does not exist, though the index names it") from None
            except (OSError, SafetensorError) as error:
                raise CheckpointError(f"{file} is not a readable safetensors file: {error}") from error
        return self._readers[file]

    def stored(self, name: str) -> Stored:
        """Return the place of a tensor, from the header of its file. Raises CheckpointError if it is not there."""
        file = self.files[name]
        if file not in self._headers:
            self._reader(file)  # whatever is wrong with the file, its reader says
            with file.open("rb") as opened:
                size = int.from_bytes(opened.read(8), "little")
                self._headers[file] = 8 + size, json.loads(opened.read(size))
        begin, header = self._headers[file]
        if name not in header:
            raise CheckpointError(f"{file}: tensor {name!r} cannot be read: it is not there, though the index names it")
        found = header[name]
        start, stop = found["data_offsets"]
        return Stored(file, found["dtype"], tuple(found["shape"]), begin + start, stop - start)

    def read(self, name: str) -> Tensor:
        """Read a tensor. Raises CheckpointError if it is damaged."""
        try:
            return self._reader(self.files[name]).get_tensor(name)
        except SafetensorError as error:
            raise CheckpointError(f"{self.files[name]}: tensor {name!r} cannot be read: {error}") from error

    def parts(self, name: str) -> Iterator[Tensor]:
        """Read a tensor a few rows at a time. Raises CheckpointError if it is damaged."""
        try:
            whole = self._reader(self.files[name]).get_slice(name)
            rows, *columns = whole.get_shape()
            each = max(1, AT_ONCE // math.prod(columns))
            for start in range(0, rows, each):
                yield whole[start : min(start + each, rows)]
        except SafetensorError as error:
            raise CheckpointError(f"{self.files[name]}: tensor {name!r} cannot be read: {error}") from error


def check_layers(config: NetworkConfig, directory: Path) -> None:
    """Raise CheckpointError if a checkpoint has fewer tensors than layers, before a network of that size is built."""
    with TensorFiles(directory) as files:
        if config.n_layers > len(files.files):
            problem = f"config.json speaks of {config.n_layers} layers, but there are only {len(files.files)} tensors"
            raise CheckpointError(f"{directory}: {problem}")


def find_tensors(network: Network, family: Family, directory: Path) -> Tensors:
    """Return the places of the tensors of every parameter. No tensor is read.

    network: on the meta device.

    Raises CheckpointError for missing, extra, quantised or wrongly shaped tensors.
    """
    wanted = {name: family.tensor_names(name) for name, _ in network.named_parameters()}
    with TensorFiles(directory) as files:
        _check_names(files, wanted, network.config.tied, family, directory)
        found = {name: tuple((source, files.stored(source)) for source in sources) for name, sources in wanted.items()}
    for name, parameter in network.named_parameters():
        rows, *columns = parameter.shape
        counts = row_counts(network.config, wanted[name], rows)
        for (source, stored), count in zip(found[name], counts, strict=True):
            if not stored.dtype.startswith(("F", "BF")):
                raise CheckpointError(f"tensor {source} holds {stored.dtype}: quantised checkpoints are not supported")
            if stored.shape != (count, *columns):
                expected = [count, *columns]
                raise CheckpointError(f"tensor {source} has shape {list(stored.shape)}, expected {expected}")
    return found


def load_weights(
    network: Network,
    family: Family,
    directory: Path,
    *,
    device_of: Callable[[str], torch.device],
    dtype: torch.dtype | None,
) -> None:
    """Fill a network from a checkpoint, one parameter at a time.

    network: on the meta device.
    device_of: returns the device of a parameter.
    dtype: None is the dtype of the checkpoint's embedding.

    Raises what `find_tensors` raises.
    """
    found, parameters = find_tensors(network, family, directory), dict(network.named_parameters())
    with TensorFiles(directory) as files:
        dtype = dtype or next(files.parts(found["embed.weight"][0][0])).dtype
        size = sum(parameter.numel() for parameter in parameters.values())
        progress = tqdm(found.items(), desc="loading", unit="tensor", disable=size < SHOW_PROGRESS_FROM)
        for name, sources in progress:
            value, start = torch.empty(parameters[name].shape, dtype=dtype, device=device_of(name)), 0
            for part in chain.from_iterable(files.parts(source) for source, _ in sources):
                value[start : start + len(part)] = part
                start += len(part)
            set_module_tensor_to_device(network, name, device_of(name), value=value, dtype=dtype, clear_cache=False)


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
            warning = f"{directory}: {head} differs from {embed}; it is passed over, since the configuration ties them"
            warnings.warn(warning, stacklevel=2)
        extra -= {head}
    if extra:
        raise CheckpointError(f"{directory} holds unknown {_some(sorted(extra))}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"tensor{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def row_counts(config: NetworkConfig, sources: tuple[str, ...], rows: int) -> list[int]:
    """Return the numbers of rows of the tensors that are stacked into a parameter of `rows` rows."""
    q, kv = config.n_heads * config.head_size, config.n_kv_heads * config.head_size
    return {1: [rows], 2: [config.d_ff, config.d_ff], 3: [q, kv, kv]}[len(sources)]
