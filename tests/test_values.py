"""Values are values: what is described once and handed around cannot be changed, and arrays are never compared."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path

import surelock

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


def classes() -> Iterator[type]:
    place = Path(surelock.__file__).parent
    for path in sorted(place.rglob("*.py")):
        name = ".".join(path.relative_to(place.parent).with_suffix("").parts)
        if not name.startswith(("surelock.research", "surelock.harness")) and not name.endswith("__"):
            module = importlib.import_module(name)
            own = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == name)
            yield from filter(dataclasses.is_dataclass, own)


def test_values_cannot_be_changed() -> None:
    name = "{0.__module__}.{0.__qualname__}".format
    params = {".".join(name(each).split(".")[-2:]): each.__dataclass_params__ for each in classes()}  # type: ignore
    assert len(params) > 50
    assert {name for name, each in params.items() if not each.frozen} == GATHER
    assert {name for name, each in params.items() if not each.eq} == HOLD_ARRAYS
