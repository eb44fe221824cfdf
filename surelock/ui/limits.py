"""Limits of a server: memory for kept runs, seconds for one run."""

from surelock.values import frozen

MOST_CONNECTIONS = 2000
#: The most forward passes that choose the lengths of blanks from word lists before a run. They delay all other runs.
MOST_PASSES = 32
MOST_SIDE = 2**13  # the most positions and the most steps that the schema of a trace allows
MOST_CELLS = 2**22  # the most positions times steps that the page can show


@frozen
class Limits:
    """The limits of a server.

    keep_mb: estimated memory of all kept runs, in megabytes. A single run may exceed this limit; --max-length bounds
        a run.
    run_seconds: the most seconds of computation of one run.

    Raises ValueError, which names the flag, for a value that is not a finite number above 0.
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
    """Raise ValueError for a trace that is too large for its schema (`surelock/trace/schema.json`) or for the page.

    what: the parameter that asks for the trace, the first word of the message.
    """
    if max(positions, steps) > MOST_SIDE or positions * steps > MOST_CELLS:
        most = f"{MOST_CELLS:,} positions times steps, {MOST_SIDE:,} of each"
        raise ValueError(
            f"{what} is of at most {most}; this run has {positions:,} times {steps:,}: ask without it"
        )


def too_long(seconds: float) -> str:
    """Return the message of a run that was stopped after its limit of `seconds`."""
    return f"The run was stopped after {seconds:.0f} seconds, the most that one may take here; try a shorter one."


def room() -> int:
    """Return the number of connections that the process may have open at once.

    It is half the number of files that the process may open, at most MOST_CONNECTIONS.
    """
    try:
        import resource
    except ImportError:  # Windows does not count sockets among open files
        return MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, files // 2)
