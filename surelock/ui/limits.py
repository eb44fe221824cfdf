"""Limits of a server: memory for kept runs, seconds for one run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_CONNECTIONS = 2000
FLOAT = 4  # bytes; the halves of another precision are not counted on
HELD_BYTES = 2**26  # of logits that wait for their comparison, see `surelock.quality.commit_error`
CELL_BYTES = 64  # of one position in one step in a recorder, as measured
MOST_SIDE, MOST_CELLS = 2**13, 2**22  # of a trace: by its schema, and by what the page can show
HELD_BESIDE = 1.15  # memory that the allocator holds for one byte of runs, as measured


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    keep_mb: megabytes for all kept runs, by estimate. A single run may exceed it; --max-length bounds that.

    Raises ValueError, which names the flag.
    """

    keep_mb: float = 2048.0
    run_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("keep_mb", "run_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"--{name.replace('_', '-')} must be a number above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Weight:
    """The most bytes of a run, by estimate. live: of its decoders, until it ends. kept: of its record."""

    live: float
    kept: float


def weigh(header: Mapping[str, Any]) -> Weight:
    """Return the estimated memory of a run.

    header: of its trace. Each decoder holds the keys and values of all layers, the logits of two steps, and the logits
    of commits until they are compared.
    """
    model, positions, lanes = header["model"], header["length"], len(header["lanes"])
    cache = 2 * model["n_layers"] * model["d_model"]
    logits = 2 * model["vocab_size"]
    commits = min(HELD_BYTES, positions * model["vocab_size"] * FLOAT)
    live = positions * FLOAT * (cache + logits) + commits
    kept = positions * header["steps"] * CELL_BYTES
    return Weight(HELD_BESIDE * lanes * live, HELD_BESIDE * lanes * kept)


def check_size(what: str, positions: int, steps: int) -> None:
    """Raise ValueError unless a trace of this size can be read (`surelock/trace/schema.json`) and shown."""
    if max(positions, steps) > MOST_SIDE or positions * steps > MOST_CELLS:
        most = f"{MOST_CELLS:,} positions times steps, {MOST_SIDE:,} of each"
        raise ValueError(f"{what} is of at most {most}; this run has {positions:,} times {steps:,}: ask without it")


def too_long(seconds: float) -> str:
    """Return the message of a run that takes too long."""
    return f"The run was stopped after {seconds:.0f} seconds, the most that one may take here; try a shorter one."


def room() -> int:
    """Return the number of connections that the process can hold: half of its open files, at most MOST_CONNECTIONS."""
    try:
        import resource
    except ImportError:  # Windows counts no sockets
        return MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
