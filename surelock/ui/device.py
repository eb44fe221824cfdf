"""Where the lanes run: in this process, or inside a ZeroGPU worker.

There the decorated function's body runs in a forked process: arguments and yields are pickled and live objects do not
cross. So it takes settings and yields facts, which are plain data, here as well as there.

Here one thread does all that computes. OpenMP keeps a team of threads for every thread that ever computed; once the
teams outnumber the cores it no longer lets them spin at a barrier, and every step takes twice as long as soon as
anything else (the browser of the visitor) runs on the machine.
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
    from surelock.quality.judge import Judge
    from surelock.trace.race import Told

Decoder = Callable[[Job, bool, bool], Iterator[list["Told"]]]
Value = TypeVar("Value")
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")


def on_zero_gpu() -> bool:
    """Whether this is a ZeroGPU Space."""
    return bool(os.environ.get("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def make_decoder(models: Models, judge: Judge | None = None) -> Decoder:
    """The function that runs a job's lanes: (job, with likely tokens?, with commit errors?) -> see
    ``surelock.trace.race``.
    """

    def decode_facts(job: Job, top: bool, errors: bool) -> Generator[list[Told]]:
        from surelock.trace.race import race

        lm = models.get(job.label)
        yield from race(lm, job.tokens, job.lanes, top=top, errors=errors, judge=judge if top else None)

    if on_zero_gpu():
        return on_gpu(decode_facts, models)
    return lambda job, top, errors: _advanced(decode_facts(job, top, errors))


def computed(call: Callable[[], Value]) -> Value:
    """What the call returns, computed by the one thread, after the step that it is at."""
    return _THREAD.submit(call).result()


def _advanced(items: Generator[list[Told]]) -> Iterator[list[Told]]:
    """The same items, each of them computed by the one thread."""
    try:
        while (item := computed(lambda: next(items, None))) is not None:
            yield item
    finally:
        computed(items.close)
