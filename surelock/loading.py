"""`load`: load a LanguageModel by its name, onto one device or several devices."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate import infer_auto_device_map
from accelerate.utils import get_balanced_memory

from surelock.config import NetworkConfig
from surelock.decoding.step import Engine
from surelock.engines import ENGINES
from surelock.engines.flags import DTYPES
from surelock.engines.torch import TorchEngine
from surelock.environment import check_environment
from surelock.errors import CheckpointError, nearest, shown
from surelock.model.checkpoint import (
    check_kind,
    check_tensors,
    find_tensors,
    list_tensors,
    load_weights,
)
from surelock.model.digits import digits_of_weights
from surelock.model.families import CONFIG, GENERATION, Family, family_of, read_json, shape_of
from surelock.model.footprint import Sizes, check_room, file_sizes, hub_sizes
from surelock.model.generation import generation_of
from surelock.model.int8 import check_weights, is_product
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network, empty_network
from surelock.model.special_ids import special_ids
from surelock.model.stored import Stored
from surelock.model.tokenizer import (
    DESCRIBED,
    FILE,
    SLOW,
    check_pieces,
    has_tokenizer,
    load_tokenizer,
)
from surelock.places import ASSETS, is_hub_id
from surelock.values import Fields, Json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STORIES = ASSETS / "stories"
_FILES = [
    "*.safetensors",
    "*.safetensors.index.json",
    CONFIG,
    GENERATION,
    "adapter_config.json",
    "*.jinja",
]
_FILES += [
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    *SLOW,
]
_TOKENIZER_FILES = [FILE, DESCRIBED]
_LONGEST_NAME = 1000


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    device_map: str | Fields | None = None,
    engine: str = "auto",
    weights: str | None = None,
    tokenizer: str | Path | None = None,
) -> LanguageModel:
    """Load a masked diffusion language model.

    name: "stories" (the embedded checkpoint), a directory, or a hub id. The checkpoint must be of one of
    `surelock.model.families`.
    device: a device of torch. None: CUDA if there is one, otherwise the CPU.
    dtype: a dtype of torch, or its name, such as "bfloat16". None: float32 on the CPU, otherwise the checkpoint's.
    device_map: "auto" spreads the layers over all devices that accelerate finds. A mapping places modules ("embed",
    "blocks.0", ..., "norm", "head") on devices.
    engine: "onnx" computes in float32 on one CPU, "torch" everywhere. "auto": "onnx" if it can compute the model on the
    device, otherwise "torch".
    weights: "int8" keeps the weights of the layers' products in int8 (torchao). They take half the memory of bfloat16,
    and torch computes them in `dtype`. None: all weights are in `dtype`.
    tokenizer: a directory or a hub id with a tokenizer.json. None: the checkpoint's tokenizer, or its family's from the
    hub if the checkpoint has none. "": no tokenizer.

    Only safetensors are read, and no code of a checkpoint is run.

    Raises CheckpointError (a ValueError) for an unknown name and for damaged files, and ValueError for other wrong
    arguments.
    """
    dtype = read_dtype(dtype)
    if device is not None and device_map is not None:
        raise ValueError("give device or device_map, not both")
    target = find_device("cpu" if engine == "onnx" and device is None else device)
    check_weights(weights, dtype)
    engine = _chosen(engine, target, dtype, device_map, weights)
    check = partial(
        check_room, str(name), device=target, dtype=dtype, device_map=device_map, weights=weights
    )
    directory = find_directory(str(name), check)
    check_kind(directory)
    config = read_json(directory / CONFIG)
    family = family_of(config)
    shape = shape_of(family, config, str(name))
    check_tensors(shape, config, directory)
    check(file_sizes(directory))
    generation = generation_of(family, shape, directory)
    words = _tokenizer(tokenizer, family, directory, shape.vocab_size + shape.unused)
    ids = special_ids(config, shape.vocab_size, words, family, directory)

    network = partial(_load_network, shape, family, directory, target, dtype, device_map, weights)
    made = None if engine == "torch" else _onnx_engine(engine, shape, family, directory, network)
    if made is None:
        made = TorchEngine(network())
        made.prepare()
        made.name += f", weights in {weights}" if weights else ""
    files = {tensor.file for tensor in list_tensors(directory)[0].values()}
    extras = {"generation": generation, "stop": family.stop, "weights": digits_of_weights(files)}
    return LanguageModel(str(name), made, words, **extras, **ids)


def load_by(arguments: argparse.Namespace) -> LanguageModel:
    """Return the model that the flags of a command name. The flags have the names of arguments of `load`."""
    names = [*signature(load).parameters][1:]  # without `name`, whose flag is --model
    options = {name: value for name, value in vars(arguments).items() if name in names}
    return load(arguments.model, **options)


def _tokenizer(
    name_or_path: str | Path | None, family: Family, directory: Path, rows: int
) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer for `load`, with the chat template of the family; None if there is none.

    rows: number of rows of the stored embedding.

    Warns if the family's tokenizer cannot be downloaded. Raises CheckpointError for a wrong or damaged tokenizer.
    """
    is_elsewhere = name_or_path is not None or not has_tokenizer(directory)
    if name_or_path == "" or (is_elsewhere and not (name_or_path or family.tokenizer)):
        return None
    if is_elsewhere:
        name = str(name_or_path or family.tokenizer)
        try:
            directory = find_directory(name, files=_TOKENIZER_FILES)
        except CheckpointError as error:
            if name_or_path is not None:
                raise
            without = "without a tokenizer prompts are token ids; or give one (--tokenizer)"
            warnings.warn(f"{error}: {without}", stacklevel=3)
            return None
        if not (directory / FILE).is_file():
            raise CheckpointError(f"{name} holds no {FILE}, so it is no tokenizer")
    tokenizer = load_tokenizer(directory)
    if tokenizer is None:
        return None
    check_pieces(tokenizer, rows, directory)
    if family.template:
        tokenizer.chat_template = family.template
    return tokenizer


def read_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """Return the dtype for a dtype, its name or None. Raises ValueError for a dtype in which no engine computes."""
    name = str(dtype).removeprefix("torch.")
    if dtype is not None and name not in DTYPES:
        raise ValueError(
            f"dtype must be one of {', '.join(DTYPES)}, not {shown(name)}{nearest(name, DTYPES)}"
        )
    return None if dtype is None else getattr(torch, name)


def _chosen(
    engine: str,
    device: torch.device,
    dtype: torch.dtype | None,
    device_map: str | Fields | None,
    weights: str | None,
) -> str:
    """Return the engine to use: "onnx", "torch", or "auto" if the tensors must still be checked for "onnx".

    Raises ValueError for an engine that cannot compute with these arguments.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {shown(engine)}")
    if engine == "onnx" and weights is not None:
        raise ValueError(
            f"engine 'onnx' computes no weights in {weights}: ask for engine 'torch', or leave them out"
        )
    fits = (
        weights is None
        and device.type == "cpu"
        and device_map is None
        and dtype in (None, torch.float32)
    )
    missing = [package for package in ("onnx", "onnxruntime") if find_spec(package) is None]
    if engine == "onnx" and not fits:
        raise ValueError(
            "engine 'onnx' computes in float32 on one CPU: ask for that, or for engine 'torch'"
        )
    if engine == "onnx" and missing:
        raise ValueError(
            f"engine 'onnx' needs {' and '.join(missing)}: `pip install {' '.join(missing)}`"
        )
    return engine if fits and not missing else "torch"


def _onnx_engine(
    engine: str,
    shape: NetworkConfig,
    family: Family,
    directory: Path,
    network: Callable[[], Network],
) -> Engine | None:
    """Return the ONNX engine; None if `engine` is "auto" and ONNX Runtime cannot read the checkpoint's files."""
    from surelock.engines.onnx import OnnxEngine

    tensors = find_tensors(empty_network(shape), family, directory)
    stored = (
        tensor for parts in tensors.values() for _, tensor in parts if isinstance(tensor, Stored)
    )
    if len({tensor.file.resolve().parent for tensor in stored}) == 1:
        return OnnxEngine(shape, tensors, torch.get_num_threads(), network)
    if engine == "auto":
        return None
    why = "its files lie in several folders, and it reads one"
    raise CheckpointError(
        f"{directory} cannot be computed by engine 'onnx': {why}; ask for engine 'torch'"
    )


def check_name(name: str) -> None:
    """Raise CheckpointError for a name longer than any path or hub id."""
    if len(name) > _LONGEST_NAME:
        raise CheckpointError(f"no model has a name of {len(name):,} characters: {name[:40]!r}…")


def find_device(device: str | int | torch.device | None) -> torch.device:
    """Return a torch device. None: CUDA if there is one, otherwise the CPU. Raises ValueError for a missing device."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device {device!r} is not a device: use 'cpu', 'cuda' or 'cuda:1'"
        ) from error
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r} is not supported: use 'cpu', 'cuda' or 'cuda:1'")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} is not there: this machine has {torch.cuda.device_count()} CUDA devices"
        )
    return chosen


def find_directory(
    name: str, check: Callable[[Sizes], None] | None = None, files: Sequence[str] = _FILES
) -> Path:
    """Return the directory of a model. If `name` is a hub id, the model is downloaded.

    check: a function that is called with the sizes of the tensors before a download.
    files: patterns of the files to download.

    Raises CheckpointError if there is no such model, and if it cannot be downloaded.
    """
    if name == "stories":
        return STORIES
    check_name(name)
    if os.path.isdir(name):  # Path(name).is_dir() raises OSError for a name that is too long
        return Path(
            name
        ).absolute()  # absolute, since the network may be read after a change of directory
    if os.path.isfile(name):
        kind = (
            "a GGUF file: only safetensors are read"
            if name.endswith(".gguf")
            else "a file: name its directory"
        )
        raise CheckpointError(f"{name} is {kind}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if not is_hub_id(name):
        hint = nearest(name, ["stories"])
        raise CheckpointError(
            f"no directory {name!r}, and it is no hub id of the form 'owner/model' either{hint}"
        )
    check_environment("network")
    if check is not None:
        check(hub_sizes(name))
    try:
        return Path(snapshot_download(name, allow_patterns=[*files]))
    except (HFValidationError, *HfHubHTTPError.__bases__, OSError) as error:  # pyright: ignore  # its base: any failure
        sentences = {
            HFValidationError: f"no directory {name!r}, and it is no valid hub id: {error}",
            GatedRepoError: f"{name} is gated on the hub: ask for access there, then log in with `hf auth login`",
            RepositoryNotFoundError: f"the hub has no model {name!r} (or it is private and you are not logged in)",
            LocalEntryNotFoundError: f"{name} is not in the local cache and the hub cannot be reached",
            object: f"{name} could not be downloaded from the hub: {error}",
        }
        raise CheckpointError(
            next(text for kind, text in sentences.items() if isinstance(error, kind))
        ) from error


def _load_network(
    shape: NetworkConfig,
    family: Family,
    directory: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    device_map: str | Fields | None,
    weights: str | None,
) -> Network:
    """Return the torch network with its weights."""
    network = empty_network(shape)
    placement = {"": device}
    if device_map is not None:
        placement = _placement(network, device_map, dtype, weights)
    if dtype is None and all(place.type == "cpu" for place in placement.values()):
        dtype = torch.float32
    places = partial(_device_of, placement=placement)
    load_weights(network, family, directory, device_of=places, dtype=dtype, int8=weights == "int8")
    return network.eval().requires_grad_(False)


def _placement(
    network: Network, device_map: str | Fields, dtype: torch.dtype | None, weights: str | None
) -> dict[str, torch.device]:
    """Return, by module of the network, its device. Raises ValueError for a wrong device_map."""
    if isinstance(device_map, str):
        if device_map != "auto":
            raise ValueError(f"device_map must be 'auto' or a mapping, not {device_map!r}")
        small = [
            name
            for name, _ in network.named_parameters()
            if weights == "int8" and is_product(network, name)
        ]
        whole: Json = {"no_split_module_classes": ["Block"], "dtype": dtype or torch.bfloat16}
        whole["special_dtypes"] = dict.fromkeys(small, torch.int8)
        device_map = infer_auto_device_map(
            network, max_memory=get_balanced_memory(network, **whole), **whole
        )
    if not isinstance(device_map, Mapping):
        raise ValueError(f"device_map must be 'auto' or a mapping, not {device_map!r}")
    movable = {
        "",
        "embed",
        "blocks",
        "norm",
        "head",
        *(f"blocks.{i}" for i in range(network.config.n_layers)),
    }
    if unknown := device_map.keys() - movable:
        raise ValueError(
            f"device_map can place embed, blocks.0 ..., norm and head, not {', '.join(sorted(unknown))}"
        )
    if "disk" in device_map.values():
        raise CheckpointError(
            "the model does not fit into the memory of all devices (none of it is kept on disk)"
        )
    return {name: find_device(device) for name, device in device_map.items()}


def _device_of(parameter: str, placement: Mapping[str, torch.device]) -> torch.device:
    """Return the device of a parameter: that of the longest module name in `placement` that contains it."""
    prefixes = [name for name in placement if not name or f"{parameter}.".startswith(f"{name}.")]
    if not prefixes:
        raise ValueError(
            f"device_map places no {parameter!r}: it must name every module, or '' for the rest"
        )
    return placement[max(prefixes, key=len)]
