"""`bench loading`: the seconds that a model takes to load, the first time in a process and after that."""

import argparse
import time

from surelock.bench import Figures, add_shape_flags, load_of_cores, setup_of, subject, written
from surelock.engines.flags import add_engine_flag
from surelock.model.flags import add_model_flags
from surelock.model.machine import peak_memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench loading`; sets the parser's `run`."""
    add_model_flags(parser)
    add_engine_flag(parser)
    add_shape_flags(parser)
    parser.add_argument("--repeats", type=int, default=2, help="how often it is loaded (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's)")
    parser.set_defaults(run=run, batch=1, prompt_length=1)


def run(arguments: argparse.Namespace) -> Figures:
    """Run the benchmark and return its JSON object. Raises ValueError for flags that cannot be met."""
    head: Figures = {"load": load_of_cores()}
    seconds: list[float] = []
    with written(arguments) as given:
        for _ in range(max(1, arguments.repeats)):
            begun = time.perf_counter()
            lm = subject(given, given.engine)
            seconds.append(time.perf_counter() - begun)
            head |= setup_of(lm) | {"model": arguments.shape or lm.name}
            del lm  # before the next one is loaded
    return {"benchmark": "loading", **head, "loading_seconds": seconds, "peak_memory": peak_memory()}
