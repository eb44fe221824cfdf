"""What runs may take of the server: bytes for those that are kept, seconds for each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
FLOAT = 4  # bytes; the halves of another precision are not counted on
HELD_BYTES = 2**26  # of logits that wait for their comparison, see ``surelock.quality.commit_error``
CELL_BYTES = 64  # measured: a position of a step in a recorder
MOST_SIDE, MOST_CELLS = 2**13, 2**22  # of a trace: by its schema, and by what the page shows
HELD_BESIDE = 1.15  # measured: of what runs take, what the allocator holds for them


@dataclass(frozen=True, slots=True)
class Limits:
    """keep_mb: megabytes for all runs that are kept, by estimate; one run is always possible, --max-length bounds it.
    run_seconds: that one run computes at most.
    """

    keep_mb: float = 2048.0
    run_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("keep_mb", "run_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"--{name.replace('_', '-')} must be a number above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Weight:
    """Bytes that a run takes at most, by estimate. live: until it ends, of its decoders. kept: of what is recorded."""

    live: float
    kept: float


def weigh(header: Mapping[str, Any]) -> Weight:
    """What the run of that header takes: each decoder keys and values of all layers, the logits of two steps, and those
    of what it commits until they are compared.
    """
    model, positions, lanes = header["model"], header["length"], len(header["lanes"])
    cache = 2 * model["n_layers"] * model["d_model"]
    logits = 2 * model["vocab_size"]
    commits = min(HELD_BYTES, positions * model["vocab_size"] * FLOAT)
    live = positions * FLOAT * (cache + logits) + commits
    kept = positions * header["steps"] * CELL_BYTES
    return Weight(HELD_BESIDE * lanes * live, HELD_BESIDE * lanes * kept)


def check_size(what: str, positions: int, steps: int) -> None:
    """Raise ValueError unless a trace of that size can be read (`surelock/trace/schema.json`) and shown."""
    if max(positions, steps) > MOST_SIDE or positions * steps > MOST_CELLS:
        most = f"{MOST_CELLS:,} positions times steps, {MOST_SIDE:,} of each"
        raise ValueError(f"{what} is of at most {most}; this run has {positions:,} times {steps:,}: ask without it")


def within(items: Iterator[Item], seconds: float) -> Iterator[Item]:
    """The same items, until one came too late: that one, and ValueError where others would follow."""
    until = time.monotonic() + seconds
    late = False
    for item in items:
        if late:
            raise ValueError(too_long(seconds))
        yield item
        late = time.monotonic() > until


def too_long(seconds: float) -> str:
    """What is said of a run that takes too long."""
    return f"The run was stopped after {seconds:.0f} seconds, the most that one may take here; try a shorter one."
