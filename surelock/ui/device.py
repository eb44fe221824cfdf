"""Runs the lanes of a job: in this process, or in a ZeroGPU worker.

A ZeroGPU worker is a forked process, and arguments and results are pickled. So the function takes settings and yields
steps, which are plain data, in both cases.

In this process one thread does all computation. OpenMP keeps a team of threads for every thread that has ever computed.
With more threads than cores it stops spinning at barriers, and every step takes twice as long as soon as another
process (such as the visitor's browser) uses the machine.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from surelock.ui.models import Models
from surelock.ui.request import Job
from surelock.ui.zero_gpu import on_gpu

if TYPE_CHECKING:
    from surelock.trace.race import Round

#: Runs a job; its arguments are job, likely tokens?, commit errors?
Runner = Callable[[Job, bool, bool], Iterator["Round"]]
Value = TypeVar("Value")
#: The thread that computes.
DEVICE = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")


def on_zero_gpu() -> bool:
    """Return whether this is a ZeroGPU Space."""
    return bool(os.environ.get("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def make_decoder(models: Models, advanced: bool = True) -> Runner:
    """Return the function that runs a job, see `race`."""

    def decode_lanes(job: Job, top: bool, errors: bool) -> Generator[Round]:
        lm = models.get(job.label)
        from surelock.quality.commit_error import Shadow
        from surelock.trace.race import race

        yield from race(lm, job.tokens, job.lanes, top=top, shadow=Shadow if errors else None)

    if on_zero_gpu():
        return on_gpu(decode_lanes, models)
    if not advanced:
        return decode_lanes
    return lambda job, top, errors: _advanced(decode_lanes(job, top, errors))


def computed(call: Callable[[], Value]) -> Value:
    """Run a call in the computing thread, after its present step, and return the result."""
    return DEVICE.submit(call).result()


def _advanced(items: Generator[Round]) -> Iterator[Round]:
    """Yield the items, each computed in the computing thread."""
    try:
        while (item := computed(lambda: next(items, None))) is not None:
            yield item
    finally:
        computed(items.close)
