"""What weights will take is written before they are fetched or read, beside what the machine has."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from test_int8 import FAMILIES, SHAPE, stored

import surelock
from surelock.config import LLADA_8B
from surelock.errors import CheckpointError
from surelock.model import footprint
from surelock.model.families import LLADA
from surelock.model.footprint import Sizes, check_room, file_sizes, weight_bytes
from surelock.model.network import empty_network
from surelock.model.stored import Stored

CPU = torch.device("cpu")
CUDA = torch.device("cuda")


def published() -> Sizes:
    """The tensors of LLaDA-8B, in bfloat16."""
    config = LLADA_8B
    sizes = {}
    for name, each in empty_network(config).named_parameters():
        rows, *columns = each.shape
        sources = LLADA.tensor_names(name)
        sizes |= {source: ("BF16", (rows // len(sources), *columns)) for source in sources}
    return sizes


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda gigabytes: monkeypatch.setattr(
        footprint, "total_memory", lambda device: gigabytes * 1e9
    )


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_headers_tell_the_bytes_of_a_loaded_network(
    tmp_path: Path, family: str, tied: bool
) -> None:
    FAMILIES[family](tmp_path, tied=tied, **SHAPE)
    sizes = file_sizes(tmp_path)
    for dtype in (torch.float32, torch.bfloat16):
        whole = surelock.load(tmp_path, device="cpu", dtype=dtype, engine="torch").network
        small = surelock.load(tmp_path, device="cpu", dtype=dtype, weights="int8").network
        assert weight_bytes(sizes, dtype, False) == stored(whole)
        assert weight_bytes(sizes, dtype, True) == stored(small)


#: Options, the gigabytes of the machine, and what is written, or is why it is refused.
ROOM = """
{"device": "cuda"} | 25.4 | LLaDA-8B takes 16.0 GB in bfloat16, this GPU has 25.4
{"device": "cuda", "weights": "int8"} | 12 | LLaDA-8B takes 9.1 GB in int8, this GPU has 12.0
{"device": "cpu"} | 64 | LLaDA-8B takes 32.1 GB in float32, this machine has 64.0
{"device": "cuda", "device_map": "auto"} | 12 | LLaDA-8B takes 16.0 GB in bfloat16
{"device": "cuda"} | 12 | LLaDA-8B takes 16.0 GB in bfloat16, this GPU has 12.0: --weights int8 takes 9.1
{"device": "cpu"} | 16 | LLaDA-8B takes 32.1 GB in float32, this machine has 16.0: --weights int8 takes 11.1
{"device": "cuda"} | 8 | LLaDA-8B takes 16.0 GB in bfloat16, this GPU has 8.0: no setting makes it fit
{"device": "cuda", "weights": "int8"} | 8 | LLaDA-8B takes 9.1 GB in int8, this GPU has 8.0: no setting makes it fit
"""


def test_what_fits_is_written_and_what_does_not_is_refused_with_what_would(memory, capsys) -> None:
    sizes = published()
    for case in ROOM.strip().splitlines():
        text, gigabytes, sentence = case.split(" | ")
        options = json.loads(text)
        options["device"] = torch.device(options["device"])
        memory(float(gigabytes))
        try:
            check_room("LLaDA-8B", sizes, **options)
        except CheckpointError as error:
            assert ": " in sentence and str(error) == sentence, case
        else:
            assert ": " not in sentence and capsys.readouterr().err == f"{sentence}\n", case


def test_a_small_model_needs_no_sentence(
    stories: surelock.LanguageModel, capsys: pytest.CaptureFixture
) -> None:
    surelock.load("stories", device="cpu", engine="torch")
    assert capsys.readouterr().err == ""


def test_a_hub_model_too_large_is_not_fetched(memory, monkeypatch: pytest.MonkeyPatch) -> None:
    memory(12.0)
    tensors = {
        name: SimpleNamespace(dtype=kind, shape=shape)
        for name, (kind, shape) in published().items()
    }
    shards = SimpleNamespace(files_metadata={"a": SimpleNamespace(tensors=tensors)})
    monkeypatch.setattr(huggingface_hub, "get_safetensors_metadata", lambda name: shards)
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("it was fetched")
    )
    with pytest.raises(
        CheckpointError, match=r"^owner/model takes 32\.1 GB in float32, this machine has 12\.0: "
    ):
        surelock.load("owner/model", device="cpu")


def test_a_directory_too_large_is_not_read(
    memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAMILIES["llada"](tmp_path, tied=True, **SHAPE)
    memory(1e-6)
    monkeypatch.setattr(footprint, "SHOW_PROGRESS_FROM", 1)
    monkeypatch.setattr(Stored, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(CheckpointError, match=r"this machine has 0\.0: no setting makes it fit"):
        surelock.load(tmp_path, device="cpu")
