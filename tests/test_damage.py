"""Damaged inputs: each ends in one sentence, soon. `python -m tests.damage 10000` counts more of them."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from damage import KINDS, outcome
from damage_commands import warm_up
from safetensors.torch import load_file, save_file

from surelock.__main__ import main as command_line
from surelock.model.families import CheckpointError
from surelock.model.loading import load
from surelock.research.runner import finished
from surelock.ui import launch
from surelock.ui.models import Models, NotReady

CASES = {  # and a tenth of them in every run
    "checkpoint": 200, "tokenizer": 200, "trace": 200, "settings": 500, "flags": 300, "cells": 300, "logs": 200,
}  # fmt: skip


@pytest.mark.parametrize("share", [10, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_damaged_is_told_in_a_sentence(kind: str, share: int) -> None:
    cases = CASES[kind] // share
    warm_up()
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
    with pytest.raises(CheckpointError, match="I8"):
        load(llada, device="cpu")
    with pytest.raises(ValueError, match="mps"):
        load("stories", device="mps")


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
