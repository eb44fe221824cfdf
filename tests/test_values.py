"""Values are values: what is described once and handed around cannot be changed, and arrays are never compared.

What is made once is kept, and the bounds of sizes are those that were chosen.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import surelock
from surelock.quality.judge import Judge

#: Dataclasses that gather something, and are changed while they do.
GATHER = {"commit_error._Waiting", "link.Link", "log._Kind", "onnx.Chunk", "cache.Rows", "step.Reading"}
GATHER |= {"onnx.Memory", "run._Interventions", "unmasking.Candidates"}
#: Those that hold arrays, whose comparison would be an array: each equals itself alone.
HOLD_ARRAYS = {
    "commit_error.CommitError",
    "noise.Draws",
    "outcomes.Outcome",
    "onnx.Part",
    "onnx.Memory",
    "step.Plan",
    "step.Reading",
}
HOLD_ARRAYS |= {"step.Step", "totals.Rows"}
#: Those whose fields are given by name.
BY_NAME = {"choices.Decoder", "lanes.Lane", "locking.LockRule", "locking.UnlockRule", "settings.DecodeSettings"}
BY_NAME |= {"settings.Setting"}
#: Functions whose results are kept: making them takes from a millisecond to seconds.
KEPT = {"choices.flat_settings", "settings.described", "format._validator", "lessons._validator", "replay.replay_shell"}
KEPT |= {"serving._packed", "serving._packed_shell", "network.rotary_table", "onnx._banned", "onnx._register_arena"}
KEPT |= {"Judge.load"}
#: The bounds of what is read, held at once, compared or told, by module.
BOUNDS: dict[str, dict[str, Any]] = {
    "decoding.own": {"MOST_CODE": 4000},
    "decoding.settings": {"_MOST_WHOLE": 2**53},
    "model.config": {"MOST": 2**24},
    "model.errors": {"_LONGEST": 200, "_LONGEST_VALUE": 60, "_MOST_BITS": 53},
    "model.families": {"AT_ONCE": 2**24, "SHOW_PROGRESS_FROM": 2**28},
    "model.flags": {"MOST_THREADS": 1024},
    "model.loading": {"_LONGEST_NAME": 1000},
    "model.random_weights": {"_AT_ONCE": 2**20},
    "quality.commit_error": {"_ROWS": {"cpu": 2**10, "cuda": 2**15}, "_HELD_BYTES": 2**26, "_MOST_WORDS": 2**15},
    "quality.judge": {"_BATCH_TOKENS": {"cpu": 2**10, "cuda": 2**14}},
    "trace.format": {"VERSION": 3, "TOP_K": 5, "KL_LOW": 1e-12, "KL_HIGH": 100, "KL_INFINITE": 255},
    "trace.lessons": {"MOST_BYTES": 2**20},
    "trace.picture": {"MOST_LINES": 200},
    "trace.pieces": {"MOST_CHARACTERS": 100_000},
    "trace.recorder": {"_TOP_TOLERANCE": 2},
    "trace.timing": {"BLOCKS": 16, "ERRORS": 3, "LEAST": 1.05},
    "decoding.adapter": {"_LAST": 1e-3, "_NAMED": 30},
    "engines.chunks": {"_LEAST_READ": 4, "_LEAST_ROWS": 32},
    "engines.onnx": {"_CHUNK_BYTES": 2**21, "_PART_BYTES": 2**27},
}


def modules() -> Iterator[ModuleType]:
    place = Path(surelock.__file__).parent
    for path in sorted(place.rglob("*.py")):
        name = ".".join(path.relative_to(place.parent).with_suffix("").parts)
        if not name.startswith(("surelock.research", "surelock.harness")) and not name.endswith("__"):
            yield importlib.import_module(name)


def own(module: ModuleType) -> list[Any]:
    """What a module defines."""
    return [each for each in vars(module).values() if getattr(each, "__module__", None) == module.__name__]


def short(each: Any) -> str:
    return ".".join(f"{each.__module__}.{each.__qualname__}".split(".")[-2:])


def classes() -> Iterator[type]:
    for module in modules():
        yield from (each for each in own(module) if isinstance(each, type) and dataclasses.is_dataclass(each))


def test_values_cannot_be_changed() -> None:
    params = {short(each): each.__dataclass_params__ for each in classes()}  # type: ignore
    assert len(params) > 50
    assert {name for name, each in params.items() if not each.frozen} == GATHER
    assert {name for name, each in params.items() if not each.eq} == HOLD_ARRAYS
    assert {
        short(each) for each in classes() if dataclasses.fields(each)[:1] and dataclasses.fields(each)[0].kw_only
    } == BY_NAME


def test_what_is_made_once_is_kept() -> None:
    found = [each for module in modules() for each in own(module)]
    found += [getattr(each, name) for each in found if isinstance(each, type) for name in vars(each)]
    assert {short(each) for each in found if hasattr(each, "cache_info")} == KEPT
    assert Judge.load.cache_info().maxsize == 1, "one language model beside the page's"


def test_the_bounds_are_those_that_were_chosen() -> None:
    for name, bounds in BOUNDS.items():
        module = importlib.import_module(f"surelock.{name}")
        assert {each: getattr(module, each) for each in bounds} == bounds, name
