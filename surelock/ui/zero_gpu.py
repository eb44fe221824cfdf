"""A ZeroGPU Space's terms: how long a run asks for the GPU, and its refusals in a sentence.

Every second asked for counts against what a visitor has a day, two minutes without an account, and nothing that takes
longer than it asked for is let to its end. So a run asks for what it will take, by an estimate with room to spare.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import gradio as gr

from surelock.decoding.flops import baseline_flops
from surelock.model.errors import reason_of
from surelock.ui.models import Models
from surelock.ui.request import Job

if TYPE_CHECKING:
    from surelock.model.network import Network

Item = TypeVar("Item")
MOST_SECONDS = 120  # all that a visitor without an account has in a day
#: Rough figures of a shared H200, not measured there: to start a worker, of a step and of each of its layers (launching
#: kernels), and how fast weights arrive and matrices are multiplied.
START, STEP, LAYER = 10.0, 0.005, 0.0005  # seconds
BYTES, FLOPS = 2e9, 1e14  # a second
ROOM = 1.5
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|<[^>]*>|\s+-\s+https?://\S+")
_SENTENCES = re.compile(r"(?<!vs)\.\s+")


def gpu_seconds(network: Network, job: Job, errors: bool) -> int:
    """What to ask for: by the model's size, the job's length, and each lane's steps. errors: commit errors are
    measured, for which every row is computed once more.
    """
    config, length, seconds = network.config, len(job.tokens) + job.gen_length, START
    seconds += sum(each.numel() * each.element_size() for each in network.parameters()) / BYTES
    for lane in job.lanes:
        settings = lane.decoder.settings
        passes = (1 + errors) * (2 if settings.cfg_scale > 0 else 1)
        steps = settings.total_steps
        once = steps * (STEP + LAYER * config.n_layers) + baseline_flops(config, length, steps) / FLOPS
        seconds += passes * once
    return min(MOST_SECONDS, math.ceil(ROOM * seconds))


def on_gpu(
    task: Callable[[Job, bool, bool], Generator[Item]], models: Models
) -> Callable[[Job, bool, bool], Iterator[Item]]:
    """The same generator, run by a worker of ZeroGPU. What goes wrong there, and what is refused, is a ValueError here:
    of a worker's error only a Gradio one comes back whole.
    """
    import spaces  # pyright: ignore[reportMissingImports]

    @wraps(task)
    def inside(job: Job, top: bool, errors: bool) -> Generator[Item]:
        try:
            yield from task(job, top, errors)
        except (ValueError, ArithmeticError, RuntimeError, MemoryError) as error:
            raise gr.Error(reason_of(error), title="", print_exception=False) from error

    def seconds(job: Job, top: bool, errors: bool) -> int:
        return gpu_seconds(models.get(job.label).network, job, errors)

    worker: Any = spaces.GPU(duration=seconds)(inside)

    def run(job: Job, top: bool, errors: bool) -> Iterator[Item]:
        try:
            yield from worker(job, top, errors)
        except gr.Error as error:
            raise ValueError(_refusal(error) if error.title else error.message) from error

    return run


def _refusal(error: gr.Error) -> str:
    """What ZeroGPU says, without its links, as one sentence's end."""
    said = _LINK.sub(lambda link: link[1] or "", str(error.message))
    if "aborted" in said:
        return "its time on the GPU was over before it ended; try a shorter run, or fewer lanes"
    parts = [part.strip(" .") for part in _SENTENCES.split(said)]
    return "; ".join(part[:1].lower() + part[1:] if part[1:2].islower() else part for part in parts if part)
