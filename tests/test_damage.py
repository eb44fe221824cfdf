"""Damaged inputs by a seeded generator: each ends in one sentence, soon. `python -m tests.test_damage 10000` counts."""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from surelock.__main__ import main as command_line
from surelock.decoding.setting import to_plain
from surelock.decoding.settings import DecodeSettings
from surelock.experiments.runner import finished
from surelock.model.families import CheckpointError
from surelock.model.loading import STORIES, load
from surelock.trace.contestants import Contestant
from surelock.trace.format import TraceError
from surelock.trace.frames import read_trace
from surelock.training import state
from surelock.training.options import TrainOptions
from surelock.ui import launch
from surelock.ui.models import Models, NotReady

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))  # where it is run as a command
from checkpoints import write_llada  # noqa: E402

CASES = {"checkpoint": 150, "tokenizer": 40, "trace": 200, "settings": 500}
TRACES = [ROOT / "tests" / "traces" / "version-1.json", ROOT / "assets" / "runs" / "stories.json"]
MOST_SECONDS = 5.0
ODD: tuple[Any, ...] = (
    None, True, 5, -1, 0, 1.5, 10**9, 10**30, 1e308, float("nan"), float("inf"), "",
    "x", "\ud800", [], [1], [[]], {}, {"a": 1},
)  # fmt: skip


def damaged(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one odd thing somewhere: set, added or taken away."""
    value = json.loads(json.dumps(value))
    place, key = None, None
    inner = value
    while isinstance(inner, dict | list) and inner and (place is None or rng.random() < 0.8):
        place, key = inner, rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        inner = inner[key]
    if place is None or rng.random() < 0.03:
        return rng.choice(ODD)
    if isinstance(place, dict) and rng.random() < 0.2:
        del place[key]
    else:
        place[key] = rng.choice(ODD)
    return value


def torn(content: bytes, rng: random.Random) -> bytes:
    """A file that was cut, or has other bytes somewhere."""
    at = rng.randrange(len(content))
    if rng.random() < 0.5:
        return content[:at]
    return content[:at] + rng.randbytes(rng.randint(1, 9)) + content[at + rng.randint(0, 9) :]


def spoil(file: Path, rng: random.Random) -> None:
    """Damage a JSON file, as a value or as bytes."""
    if file.suffix != ".json" or rng.random() < 0.2:
        file.write_bytes(torn(file.read_bytes(), rng))
    else:
        file.write_text(json.dumps(damaged(json.loads(file.read_text("utf-8")), rng)), "utf-8")


def checkpoint_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    sizes = {"layers": 1, "d_model": 16, "heads": 2, "kv_heads": 1, "d_ff": 24, "vocab": 30, "tied": False, "seed": 1}
    write_llada(folder, **sizes)
    (folder / "generation_config.json").write_text('{"gen_length": 8, "steps": 8}')
    spoil(folder / rng.choice(["config.json"] * 4 + ["generation_config.json", "model.safetensors"]), rng)
    return lambda: load(folder, device="cpu")


def tokenizer_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    shutil.copytree(STORIES, folder, dirs_exist_ok=True)
    spoil(folder / rng.choice(sorted(file.name for file in folder.glob("tokenizer*.json"))), rng)
    return lambda: load(folder, device="cpu").encode("Once upon a time")


def trace_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    file = folder / "trace.json"
    document = json.loads(rng.choice(TRACES).read_text("utf-8"))
    document["records"] = document["records"][:8]
    file.write_text(json.dumps(document))
    spoil(file, rng)
    return lambda: read_trace(file)


def settings_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    decoder = {
        "settings": to_plain(DecodeSettings()),
        "compute": {"kind": "lock", "epsilon": 0.1},
        "unmask": {"kind": "klass"},
    }
    plain = damaged({"id": "a", "name": "A", **decoder, "events": [{"step": 1, "kind": "lock", "position": 2}]}, rng)
    return lambda: Contestant.from_plain(plain)


KINDS: dict[str, tuple[Callable[[Path, random.Random], Callable[[], Any]], type[Exception]]] = {
    "checkpoint": (checkpoint_damage, CheckpointError),
    "tokenizer": (tokenizer_damage, CheckpointError),
    "trace": (trace_damage, TraceError),
    "settings": (settings_damage, ValueError),
}


def outcome(kind: str, seed: int) -> str:
    """'good' or 'refused', else what was wrong with the answer."""
    make, error_kind = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        act = make(Path(folder), random.Random(f"{kind}/{seed}"))
        begun = time.monotonic()
        try:
            act()
            told = "good"
        except error_kind as error:
            told = "refused" if str(error) and "\n" not in str(error).strip() else f"not one line: {error!r:.300}"
        except Exception as error:
            told = f"{type(error).__name__}: {error!s:.300}"
    return told if time.monotonic() - begun < MOST_SECONDS else f"took {time.monotonic() - begun:.1f} s"


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_damaged_is_told_in_a_sentence(kind: str) -> None:
    cases = CASES[kind]
    load("stories", device="cpu")  # what is imported then is not the damage's time
    found = Counter(outcome(kind, seed) for seed in range(cases))
    assert set(found) <= {"good", "refused"}, found
    assert found["refused"] > cases // 4


def ended(models: Models, label: str) -> str:
    models.start_loading(label)
    until = time.monotonic() + 20
    while (state := models.state(label)) == "loading" and time.monotonic() < until:
        time.sleep(0.01)
    for thread in threading.enumerate():
        if thread.name == f"load {label}":
            thread.join(5)
    return state


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_no_model_that_loads(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("surelock.model.loading.load", dies)
    models = Models([str(llada)])
    assert "damaged" in ended(models, llada.name)
    with pytest.raises(NotReady, match="could not be loaded"):
        models.get(llada.name)


@pytest.mark.parametrize("content", ["[1]", "5", '{"steps": "x"}', '{"gen_length": {}}', "[" * 9999])
def test_a_damaged_recommendation_keeps_no_page_from_starting(llada: Path, content: str) -> None:
    (llada / "generation_config.json").write_text(content)
    models = Models([str(llada)])
    assert models.recommended(llada.name) == {}
    ended(models, llada.name)
    assert models.recommended(llada.name) == {}


def test_no_path_of_this_machine_is_told_of_a_damaged_model(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    models = Models([str(tmp_path / "own")])
    assert ended(models, "own") != "ready" and str(tmp_path) not in models.state("own")


def test_weights_must_be_numbers_with_fractions_on_a_device_that_is_known(llada: Path) -> None:
    tensors = load_file(llada / "model.safetensors")
    save_file({name: value.to(torch.int8) for name, value in tensors.items()}, llada / "model.safetensors")
    with pytest.raises(CheckpointError, match="int8"):
        load(llada, device="cpu")
    with pytest.raises(ValueError, match="mps"):
        load("stories", device="mps")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("minutes", float("nan")), ("minutes", float("inf")), ("warm_up", 5.0), ("muon_rate", -1.0),
        ("adam_rate", -1.0), ("heads", 0), ("layers", -1), ("threads", 100_000), ("weight_decay", -1.0),
        ("save_minutes", 0.0),
    ],
)  # fmt: skip
def test_flags_of_training_name_themselves(flag: str, value: float) -> None:
    given: dict[str, Any] = {"data": (), "valid": Path(), "out": Path(), "steps": 5, flag: value}
    with pytest.raises(ValueError, match=f"^{flag}: "):
        TrainOptions(**given)


def test_a_torn_log_is_mended_and_a_damaged_state_named(tmp_path: Path) -> None:
    state.log(tmp_path, {"step": 1})
    whole = (tmp_path / state.LOG).read_bytes()
    (tmp_path / state.LOG).write_bytes(whole + b'{"step": 9}\n[1]\n{"st\xff')
    state.truncate_log(tmp_path, 5)
    assert (tmp_path / state.LOG).read_bytes() == whole
    rng = random.Random(0)
    state.save_state(tmp_path, {"step": torch.zeros(9)})
    good = (tmp_path / state.STATE).read_bytes()
    for _ in range(60):
        (tmp_path / state.STATE).write_bytes(torn(good, rng))
        try:
            state.read_state(tmp_path)
        except ValueError as error:
            assert state.STATE in str(error)


def test_a_damaged_cell_is_named(tmp_path: Path) -> None:
    for line in ("[" * 9999, "5", '{"setup": 1}', "x"):
        (tmp_path / "cells.jsonl").write_text(line + "\n")
        with pytest.raises(ValueError, match=r"cells\.jsonl, line 1"):
            finished(tmp_path)


def test_a_prompt_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["decode", "a \udcff"]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_a_port_in_use_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(SystemExit) as ended_with:
            launch.main(["--port", str(holder.getsockname()[1])])
    assert ended_with.value.code == 2
    assert "port" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "flags", [["--keep-mb", "nan"], ["--run-seconds", "-1"], ["--queue-size", "0"], ["--port", "99999"]]
)
def test_flags_of_the_page_are_checked(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch.main(flags)
    assert flags[0] in capsys.readouterr().err.splitlines()[-1]


if __name__ == "__main__":
    torch.set_num_threads(1)
    load("stories", device="cpu")
    for each in KINDS:
        print(each, dict(Counter(outcome(each, seed) for seed in range(int(sys.argv[1]) // len(KINDS)))), flush=True)
