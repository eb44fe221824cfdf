"""`load`: from a name to a LanguageModel on its device or devices."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import infer_auto_device_map, init_empty_weights
from accelerate.utils import get_balanced_memory

from surelock.model.checkpoint import check_layers, load_weights, read_json
from surelock.model.config import NetworkConfig
from surelock.model.families import CheckpointError, Family, family_of
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.model.tokenizer import SLOW, load_tokenizer
from surelock.places import ASSETS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STORIES = ASSETS / "stories"
_FILES = ["*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "*.jinja"]
_FILES += ["tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "chat_template.json", *SLOW]
_ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>")  # LLaDA's and Qwen's
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    device_map: str | Mapping[str, Any] | None = None,
    compiled: bool = False,
) -> LanguageModel:
    """Load a masked diffusion language model in the LLaDA, the Qwen3 or the Dream layout.

    name: "stories" (the embedded checkpoint), a local directory, or a hub id. device: CUDA if there is one, else the
    CPU. dtype: None is float32 on the CPU and the checkpoint's own elsewhere. device_map: "auto" spreads the blocks
    over all devices that accelerate finds, or a mapping from module names ("embed", "blocks.0", ..., "norm", "head")
    to devices. compiled: the packed forward is compiled when it first runs, which takes ten to twenty seconds, a CPU
    and a C++ compiler; its rounding is another. Only safetensors are read and no code of a checkpoint is run.

    Raises CheckpointError (a ValueError) for anything wrong with name or files, ValueError for the other arguments.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(map(str, _DTYPES))}, not {dtype}")
    if device is not None and device_map is not None:
        raise ValueError("give device or device_map, not both")
    target = find_device(device)
    if compiled:
        _check_compiler(target, device_map)
    directory = STORIES if str(name) == "stories" else _find(str(name))
    config = read_json(directory / "config.json")
    family = family_of(config)
    shape = family.read_config(config)
    tokenizer = load_tokenizer(directory)
    ids = _special_ids(config, shape, tokenizer, directory)
    check_layers(shape, directory)
    network = _load_network(shape, family, directory, target, dtype, device_map)
    generation = directory / "generation_config.json"
    return LanguageModel(
        name=str(name),
        network=network,
        tokenizer=tokenizer,
        generation=read_json(generation) if generation.is_file() else {},
        compiled=compiled,
        **ids,
    )


def find_device(device: str | int | torch.device | None) -> torch.device:
    """The device of that name (None: CUDA if there is one). Raises ValueError where this machine has none such."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {device!r} is not a device: use 'cpu', 'cuda' or 'cuda:1'") from error
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r} is not supported: use 'cpu', 'cuda' or 'cuda:1'")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {device!r} is not there: this machine has {torch.cuda.device_count()} CUDA devices")
    return chosen


def _check_compiler(device: torch.device, device_map: str | Mapping[str, Any] | None) -> None:
    """Raise ValueError where nothing can be compiled."""
    if device.type != "cpu" or device_map is not None:
        raise ValueError("compiled is for one CPU: give device='cpu' and no device_map")
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ValueError(f"compiled needs a C++ compiler, and there is no {compiler}: install it, or name one in CXX")


def _find(name: str) -> Path:
    """The local directory of a model: the name itself, or a snapshot of the hub's."""
    if name and Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise CheckpointError(f"no directory {name!r}, and it is no hub id of the form 'owner/model' either")
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except HFValidationError as error:
        raise CheckpointError(f"no directory {name!r}, and it is no valid hub id: {error}") from error
    except GatedRepoError as error:
        raise CheckpointError(
            f"{name} is gated on the hub: ask for access there, then log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"the hub has no model {name!r} (or it is private and you are not logged in)") from error
    except LocalEntryNotFoundError as error:
        raise CheckpointError(f"{name} is not in the local cache and the hub cannot be reached") from error
    except (*HfHubHTTPError.__bases__, OSError) as error:  # pyright: ignore  # its base: any HTTP failure
        raise CheckpointError(f"{name} could not be downloaded from the hub: {error}") from error


def _special_ids(
    config: Mapping[str, Any], shape: NetworkConfig, tokenizer: PreTrainedTokenizerBase | None, directory: Path
) -> dict[str, Any]:
    """mask, EOS, EoT and pad ids: from config.json, else from the tokenizer."""

    def find(kind: str) -> int | None:
        value = config.get(f"{kind}_token_id")
        value = value[0] if isinstance(value, list) and value else value
        value = getattr(tokenizer, f"{kind}_token_id", None) if value is None else value
        if value is not None and not (isinstance(value, int) and 0 <= value < shape.vocab_size):
            raise CheckpointError(
                f"{directory}: {kind}_token_id must be a whole number from 0 to {shape.vocab_size - 1}, not {value!r}"
            )
        return value

    mask_id, eos_id, pad_id = find("mask"), find("eos"), find("pad")
    if mask_id is None:
        raise CheckpointError(
            f"{directory} has no mask token: neither config.json nor the tokenizer gives a mask_token_id"
        )
    vocabulary = tokenizer.get_vocab() if tokenizer is not None else {}
    eot_id = next((vocabulary[token] for token in _ENDS_OF_TURN if token in vocabulary), None)
    pad_id = next(value for value in (pad_id, eos_id, mask_id) if value is not None)
    return {"mask_id": mask_id, "eos_id": eos_id, "eot_id": eot_id, "pad_id": pad_id}


def _load_network(
    shape: NetworkConfig,
    family: Family,
    directory: Path,
    device: torch.device,
    dtype: torch.dtype | None,
    device_map: str | Mapping[str, Any] | None,
) -> Network:
    with init_empty_weights():
        network = Network(shape)
    placement = {"": device} if device_map is None else _placement(network, device_map, dtype)
    if dtype is None and all(place.type == "cpu" for place in placement.values()):
        dtype = torch.float32
    load_weights(network, family, directory, device_of=lambda parameter: _device_of(parameter, placement), dtype=dtype)
    return network.eval().requires_grad_(False)


def _placement(
    network: Network, device_map: str | Mapping[str, Any], dtype: torch.dtype | None
) -> dict[str, torch.device]:
    if isinstance(device_map, str):
        if device_map != "auto":
            raise ValueError(f"device_map must be 'auto' or a mapping, not {device_map!r}")
        whole: dict[str, Any] = {"no_split_module_classes": ["Block"], "dtype": dtype or torch.bfloat16}
        device_map = infer_auto_device_map(network, max_memory=get_balanced_memory(network, **whole), **whole)
    if not isinstance(device_map, Mapping):
        raise ValueError(f"device_map must be 'auto' or a mapping, not {device_map!r}")
    movable = {"", "embed", "blocks", "norm", "head", *(f"blocks.{i}" for i in range(network.config.n_layers))}
    if unknown := device_map.keys() - movable:
        raise ValueError(f"device_map can place embed, blocks.0 ..., norm and head, not {', '.join(sorted(unknown))}")
    if "disk" in device_map.values():
        raise CheckpointError(
            "the model does not fit into the memory of all devices (offloading to disk is not supported)"
        )
    return {name: find_device(device) for name, device in device_map.items()}


def _device_of(parameter: str, placement: Mapping[str, torch.device]) -> torch.device:
    parts = parameter.split(".")
    for length in range(len(parts), -1, -1):
        prefix = ".".join(parts[:length])
        if prefix in placement:
            return placement[prefix]
    raise ValueError(f"device_map places no {parameter!r}: it must name every module, or '' for the rest")
