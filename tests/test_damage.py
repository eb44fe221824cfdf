"""Damaged inputs by a seeded generator: files, settings, flags. Each ends in one sentence, soon."""

import argparse
import io
import json
import random
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from checkpoints import write_llada

from surelock import loading
from surelock.__main__ import main as command_line
from surelock.decoding import flops
from surelock.decoding.settings import DecodeSettings, to_plain
from surelock.errors import CheckpointError
from surelock.loading import STORIES, load
from surelock.research import cli as experiments
from surelock.research import training
from surelock.trace import cli as tracing
from surelock.trace.format import TraceError
from surelock.trace.lanes import Lane
from surelock.trace.table import read_trace
from surelock.ui import launch
from surelock.ui.models import Models, NotReady
from tests.waiting import HANGS, import_seconds

ROOT = Path(__file__).resolve().parents[1]
TRACES = [ROOT / "tests" / "traces" / "events.json", ROOT / "assets" / "runs" / "stories.json"]
MOST_IMPORTS = 3.0  # that a case may take as long as
ODD: tuple[Any, ...] = (
    None, True, 5, -1, 0, 1.5, 10**9, 10**30, 1e308, float("nan"), float("inf"), "",
    "x", "\ud800", [], [1], [[]], {}, {"a": 1},
)  # fmt: skip
WORDS = (
    "nan", "inf", "-inf", "-1", "0", "3", "5", "-0.5", "1e308", "1e-320", "100000", "99999999999999999999", "x", "",
    "\udcff", "\uff11", "none", "true", "[]", "a b", "../x",
)  # fmt: skip
Damage = Callable[[Path, random.Random], Callable[[], Any]]


class Told(Exception):
    """A command has ended with a sentence on its last line."""


class Started(Exception):
    """The work would begin now."""


def damaged(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one odd thing somewhere: set, added or taken away."""
    value = json.loads(json.dumps(value))
    place = None
    key = None
    inner = value
    while isinstance(inner, dict | list) and inner and (place is None or rng.random() < 0.8):
        place = inner
        key = rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
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
    write_llada(folder, layers=1, d_model=16, heads=2, kv_heads=1, d_ff=24, vocab=30)
    (folder / "generation_config.json").write_text('{"gen_length": 8, "steps": 8}')
    spoil(
        folder / rng.choice(["config.json"] * 4 + ["generation_config.json", "model.safetensors"]),
        rng,
    )
    return lambda: load(folder, device="cpu")


def tokenizer_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    shutil.copytree(STORIES, folder, dirs_exist_ok=True)
    spoil(folder / rng.choice(sorted(file.name for file in folder.glob("tokenizer*.json"))), rng)
    return lambda: load(folder, device="cpu").encode("Once upon a time")


def trace_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    document = json.loads(rng.choice(TRACES).read_text("utf-8"))
    document["records"] = document["records"][:8]
    (file := folder / "trace.json").write_text(json.dumps(document))
    spoil(file, rng)
    return lambda: read_trace(file)


def settings_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    lane = {"settings": to_plain(DecodeSettings()), "compute": {"kind": "lock", "epsilon": 0.1}}
    lane |= {"id": "a", "name": "A", "unmask": {"kind": "klass"}}
    plain = damaged(lane | {"events": [{"step": 1, "kind": "lock", "position": 2}]}, rng)
    return lambda: Lane.from_plain(plain)


#: What adds a command's flags, and what it is told beside the damaged ones.
COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]] = {
    "decode": (tracing.add_decode_arguments, "A --gen-length 4"),
    "flops": (
        flops.add_flops_arguments,
        "--d-model 64 --layers 2 --heads 4 --kv-heads 4 --ffn 99 --seq-len 8",
    ),
    "experiment": (experiments.add_arguments, "flops --quick --out out"),
    "train": (training.add_train_arguments, "--data text --valid text --out out --steps 1"),
    "page": (launch.add_page_arguments, ""),
}


def flag_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    """One or two flags of a command with odd words for values."""
    name = rng.choice(sorted(COMMANDS))
    (folder / "text").write_text("Nora had a small green boat.\n<|endoftext|>\n")
    COMMANDS[name][0](parser := argparse.ArgumentParser())
    words = [name, *COMMANDS[name][1].split()]
    for _ in range(rng.randint(1, 2)):
        action = rng.choice(
            [each for each in parser._actions if each.option_strings and each.dest != "help"]
        )
        flag = rng.choice(action.option_strings)
        words.append(
            flag if action.nargs == 0 and rng.random() < 0.8 else f"{flag}={rng.choice(WORDS)}"
        )
    return lambda: ended_command(words, folder)


def ended_command(words: list[str], folder: Path) -> None:
    """Run a command in that folder. Raises Told if it ends with a sentence, RuntimeError if it ends without."""
    written = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(patch.object(loading, "load", load_once))
        for owner, name in ((training, "Trainer"), (experiments, "run_cells"), (launch, "build")):
            stack.enter_context(patch.object(owner, name, side_effect=Started))
        stack.enter_context(chdir(folder))
        stack.enter_context(redirect_stderr(written))
        stack.enter_context(redirect_stdout(io.StringIO()))
        try:
            status = command_line(words)
        except SystemExit as ended:
            status = ended.code
        except Started:
            return
    last = (written.getvalue().strip().splitlines() or [""])[-1]
    if status in (0, None):
        return
    if status != 2 or not (last.startswith("surelock: ") or ": error: " in last):
        raise RuntimeError(f"{words}: status {status}, {last}")
    raise Told(last)


@cache
def load_once(name: str, **how: Any) -> Any:
    return load(
        name,
        **{key: str(value) if key == "device" and value else value for key, value in how.items()},
    )


#: Of each class what damages something, and returns what then reads it; what may be raised; and how many cases.
KINDS: dict[str, tuple[Damage, type[Exception], int]] = {
    "checkpoint": (checkpoint_damage, CheckpointError, 20),
    "tokenizer": (tokenizer_damage, CheckpointError, 20),
    "trace": (trace_damage, TraceError, 120),
    "settings": (settings_damage, ValueError, 50),
    "flags": (flag_damage, Told, 30),
}


def outcome(kind: str, seed: int, folder: Path) -> str:
    """'good' or 'refused', else what was wrong with the answer."""
    make, error_kind, _ = KINDS[kind]
    folder.mkdir()
    act = make(folder, random.Random(f"{kind}/{seed}"))
    begun = time.process_time()
    try:
        act()
        found = "good"
    except error_kind as error:
        found = (
            "refused"
            if str(error) and "\n" not in str(error).strip()
            else f"not one line: {error!r:.300}"
        )
    except Exception as error:
        found = f"{type(error).__name__}: {error!s:.300}"
    seconds = time.process_time() - begun
    return found if seconds < MOST_IMPORTS * import_seconds() else f"took {seconds:.1f} s"


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_damaged_ends_in_a_sentence(kind: str, times: int, tmp_path: Path) -> None:
    load_once("stories")  # what is loaded once is not a case's time
    cases = KINDS[kind][2] * times
    found = Counter(outcome(kind, seed, tmp_path / str(seed)) for seed in range(cases))
    assert set(found) <= {"good", "refused"}, found
    assert found["refused"] > cases // 4


def ended(models: Models, label: str) -> str:
    models.start_loading(label)
    for thread in threading.enumerate():
        if thread.name == f"load {label}":
            thread.join(HANGS)
    return models.state(label)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_no_model_that_loads(
    llada: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("surelock.loading.load", dies)
    models = Models([str(llada)])
    assert "damaged" in ended(models, llada.name)
    with pytest.raises(NotReady, match="could not be loaded"):
        models.get(llada.name)


def test_a_port_in_use_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(SystemExit) as ended_with:
            launch.main(["--port", str(holder.getsockname()[1])])
    assert ended_with.value.code == 2
    assert "port" in capsys.readouterr().err.splitlines()[-1]
