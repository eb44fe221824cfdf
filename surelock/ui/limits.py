"""Limits of a server: memory for kept runs, seconds for one run."""

from surelock.values import frozen

MOST_CONNECTIONS = 2000
MOST_PASSES = 32  # before a run, for blanks from lists; nobody else's step is computed meanwhile
MOST_SIDE = 2**13  # positions or steps of a trace, by its schema
MOST_CELLS = 2**22  # positions times steps that the page can show


@frozen
class Limits:
    """The limits of a server.

    keep_mb: megabytes for all kept runs, by estimate. A single run may exceed it; --max-length bounds
    a run.
    run_seconds: the longest computation of a run.

    Raises ValueError, which names the flag, for a value that is not above 0.
    """

    keep_mb: float = 2048.0
    run_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in ("keep_mb", "run_seconds"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(
                    f"--{name.replace('_', '-')} must be a number above 0, not {getattr(self, name)}"
                )


def check_size(what: str, positions: int, steps: int) -> None:
    """Raise ValueError unless a trace of this size can be read (`surelock/trace/schema.json`) and shown."""
    if max(positions, steps) > MOST_SIDE or positions * steps > MOST_CELLS:
        most = f"{MOST_CELLS:,} positions times steps, {MOST_SIDE:,} of each"
        raise ValueError(
            f"{what} is of at most {most}; this run has {positions:,} times {steps:,}: ask without it"
        )


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
    return (
        MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
    )
