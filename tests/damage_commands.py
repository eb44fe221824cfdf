"""Damage to what commands are told and find: every command's flags, and the state of an interrupted training.

What would take long is left out: a training and an experiment are set up but not run, the page is not built.
"""

from __future__ import annotations

import argparse
import atexit
import io
import random
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import torch
from spoiling import torn

from surelock import bench
from surelock.__main__ import main as command_line
from surelock.decoding import flops
from surelock.model.loading import load
from surelock.research import cli as experiments
from surelock.research import training
from surelock.research.bench import llada as bench_llada
from surelock.research.training import MODEL, STATE, Trainer
from surelock.trace import cli as tracing
from surelock.ui import launch

WORDS = (
    "nan", "inf", "-inf", "-1", "0", "3", "5", "-0.5", "1e308", "1e-320", "100000", "99999999999999999999", "x", "",
    "\udcff", "\uff11", "none", "true", "[]", "a b", "../x",
)  # fmt: skip
STORY = "Nora had a small green boat. One morning she took the boat to the pond near the house. The wind was soft."
TRAIN = "--data text --valid text --out out --d-model 16 --layers 1 --heads 2 --ffn 24 --pieces 300 --window 16"
TRAIN += " --batch-tokens 64 --steps"
#: Each command in small: what its parser gets its flags from, and what it is told beside the damaged ones.
COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]] = {
    "decode": (tracing.add_decode_arguments, "'A fox' --gen-length 4"),
    "flops": (
        flops.add_flops_arguments,
        "--d-model 64 --layers 2 --heads 4 --kv-heads 4 --ffn 99 --seq-len 64 --steps 8",
    ),
    "bench decode": (bench.add_arguments, "--gen-length 4 --repeats 1"),
    "bench llada": (bench_llada.add_arguments, "--gen-length 4 --repeats 1 --shape tiny --random-weights"),
    "experiment": (experiments.add_arguments, "flops --quick --out out"),
    "train": (training.add_train_arguments, f"{TRAIN} 1"),
}


class Told(Exception):
    """A command has ended with a sentence on its last line."""


class Started(Exception):
    """The page would be built now."""


def flag_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    """One or two flags of a command with odd words for values."""
    name = rng.choice([*COMMANDS, "app.py"])
    (folder / "text").write_text(f"{STORY}\n<|endoftext|>\n")
    flags = [odd for _ in range(rng.randint(1, 2)) for odd in _odd_flag(_parser_of(name), rng)]
    if name == "app.py":
        return lambda: _ended(launch.main, flags, folder)
    return lambda: _ended(command_line, [*name.split(), *shlex.split(COMMANDS[name][1]), *flags], folder)


def _parser_of(name: str) -> argparse.ArgumentParser:
    if name == "app.py":
        return launch.parser()
    parser = argparse.ArgumentParser()
    COMMANDS[name][0](parser)
    return parser


def _odd_flag(parser: argparse.ArgumentParser, rng: random.Random) -> list[str]:
    """A flag of that parser with an odd word, or as it is where it takes none."""
    action = rng.choice([each for each in parser._actions if each.option_strings and each.dest != "help"])
    flag = rng.choice(action.option_strings)
    return [flag] if action.nargs == 0 and rng.random() < 0.8 else [f"{flag}={rng.choice(WORDS)}"]


def _ended(command: Callable[[list[str]], int | None], words: list[str], folder: Path) -> None:
    """Run a command in that folder. Raises Told if it ends with a sentence, RuntimeError if it ends without."""
    said = io.StringIO()
    with _without_work(), chdir(folder), redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            status = command(words)
        except SystemExit as ended:
            status = ended.code
        except Started:
            return
    last = (said.getvalue().strip().splitlines() or [""])[-1]
    if status in (0, None):
        return
    if status != 2 or not (last.startswith("surelock: ") or ": error: " in last):
        raise RuntimeError(f"{words}: status {status}, {last}")
    raise Told(last)


@contextmanager
def _without_work() -> Iterator[None]:
    """Models are loaded once, work is only set up; torch keeps its threads."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        for module in (tracing, bench, experiments, training):
            stack.enter_context(patch.object(module, "load", _load_once))
        stack.enter_context(patch.object(Trainer, "run", lambda _: {}))
        stack.enter_context(patch.object(experiments, "run_cells"))
        stack.enter_context(patch.object(experiments, "merge", return_value=[]))
        stack.enter_context(patch.object(experiments, "report", return_value=pd.DataFrame()))
        stack.enter_context(patch.object(launch, "build", side_effect=Started))
        stack.callback(torch.set_num_threads, threads)
        yield


@cache
def _load_once(name: str, **how: Any) -> Any:
    return load(name, **{key: str(value) if key == "device" and value else value for key, value in how.items()})


def log_damage(folder: Path, rng: random.Random) -> Callable[[], Any]:
    """What an interrupted training left behind, which then goes on for a step."""
    options = _interrupted()
    out = folder / "out"
    shutil.copytree(options.out, out)
    file = out / rng.choice([STATE] * 4 + [f"{MODEL}/config.json", f"{MODEL}/tokenizer.json"])
    if file.name == STATE and rng.random() < 0.7:
        state = torch.load(file)
        _change(state, rng)
        torch.save(state, file)
    else:
        file.write_bytes(torn(file.read_bytes(), rng))
    resumed = argparse.Namespace(**vars(options) | {"out": out, "resume": True, "steps": 3})
    return lambda: Trainer(resumed).run()


def _change(state: dict[str, Any], rng: random.Random) -> None:
    """One entry of the state is another or gone."""
    key = rng.choice(sorted(state))
    if rng.random() < 0.3:
        del state[key]
    else:
        state[key] = rng.choice((None, "x", -1, float("nan"), [], {}, ["x"], torch.zeros(3), 10**30))


@cache
def _interrupted() -> argparse.Namespace:
    """A training that was interrupted after two steps."""
    folder = Path(tempfile.mkdtemp(prefix="interrupted"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "text").write_text(f"{STORY}\n<|endoftext|>\n")
    options = _parser_of("train").parse_args(f"{TRAIN} 2 --device cpu".split())
    options.data, options.valid, options.out = [folder / "text"], folder / "text", folder / "out"
    Trainer(options).run()
    return options


def warm_up() -> None:
    """What is imported and made once is not a case's time."""
    _load_once("stories")
    _interrupted()
