"""ZeroGPU: the seconds that a run requests, and refusals in one sentence.

Every requested second counts against the daily quota of a visitor, two minutes without an account. A run that takes
longer than it requested is aborted. So a run requests its estimated time with some margin.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Generator, Mapping
from contextvars import copy_context
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import gradio as gr
from gradio.context import LocalContext

from surelock.decoding.flops import baseline_flops
from surelock.environment import value_of
from surelock.errors import reason_of
from surelock.ui.models import Models
from surelock.ui.request import Job

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel

Item = TypeVar("Item")
MOST_SECONDS = 120  # the daily quota of a visitor without an account
#: Rough figures of an RTX Pro 6000 Blackwell, not measured there: seconds to start a worker, of a step and of each of
#: its layers (launching kernels); bytes of weights per second, to the GPU and from its memory; FLOPs per second.
START, STEP, LAYER = 5.0, 0.005, 0.0002  # seconds
TO_GPU, IN_GPU, FLOPS = 4e9, 1.2e12, 1.5e14  # a second
ROOM = 1.5
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|<[^>]*>|\s+-\s+https?://\S+")
_SENTENCES = re.compile(r"(?<!vs)\.\s+")


def on_zero_gpu() -> bool:
    return bool(value_of("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def gpu_seconds(lm: LanguageModel, job: Job, errors: bool) -> int:
    """Return the seconds to request, from the size of the model, the length of the job and the steps of its lanes.

    errors: whether commit errors are measured, which computes every row once more.
    """
    config, length, blanks = lm.config, len(job.tokens) + job.gen_length, job.tokens.count(lm.mask_id)
    weights = sum(each.numel() * each.element_size() for each in lm.network.parameters())
    launching, reading = STEP + LAYER * config.n_layers, weights / IN_GPU
    step = max(launching, reading, baseline_flops(config, length, 1) / FLOPS)
    seconds = START + weights / TO_GPU
    for lane in job.lanes:
        passes = (1 + errors) * (2 if lane.decoder.settings.cfg_scale > 0 else 1)
        seconds += passes * lane.decoder.steps_of(blanks) * step
    return min(MOST_SECONDS, math.ceil(ROOM * seconds))


def on_gpu(
    task: Callable[[Job, bool, bool], Generator[Item]], models: Models
) -> Callable[[Job, bool, bool, Mapping[str, str]], Generator[Item]]:
    """Return the generator function, run by a worker of ZeroGPU: a forked process, to and from which all is pickled.

    Its further argument is the headers of the visitor's request, to whose quota ZeroGPU counts the run. Errors and
    refusals of the worker are ValueErrors here. Inside the worker they are Gradio errors, the only ones that keep their
    message.
    """
    import spaces  # pyright: ignore[reportMissingImports]

    @wraps(task)
    def inside(job: Job, top: bool, errors: bool) -> Generator[Item]:
        try:
            yield from task(job, top, errors)
        except (ValueError, ArithmeticError, RuntimeError, MemoryError) as error:
            raise gr.Error(reason_of(error), title="", print_exception=False) from error

    def seconds(job: Job, top: bool, errors: bool) -> int:
        return gpu_seconds(models.get(job.label), job, errors)

    worker: Any = spaces.GPU(duration=seconds)(inside)

    def run(job: Job, top: bool, errors: bool, headers: Mapping[str, str]) -> Generator[Item]:
        context = copy_context()
        context.run(LocalContext.request.set, cast(Any, SimpleNamespace(headers=headers)))  # where `spaces` looks
        items = context.run(worker, job, top, errors)
        try:
            while (item := context.run(next, items, None)) is not None:
                yield item
        except gr.Error as error:
            raise ValueError(_refusal(error) if error.title else error.message) from error
        finally:
            items.close()

    return run


def _refusal(error: gr.Error) -> str:
    """The message of ZeroGPU without links, as the end of a sentence."""
    said = _LINK.sub(lambda link: link[1] or "", error.message)
    if "aborted" in said:
        return "its time on the GPU was over before it ended; try a shorter run, or fewer lanes"
    parts = [part.strip(" .") for part in _SENTENCES.split(said)]
    return "; ".join(part[:1].lower() + part[1:] if part[1:2].islower() else part for part in parts if part)
