"""Runs a job on ZeroGPU, Hugging Face's shared GPUs: how many seconds a run requests, and refusals in one sentence.

A run requests seconds on the GPU before it begins. Every requested second counts against the visitor's daily quota,
which is two minutes without an account. ZeroGPU aborts a run that takes longer than requested. So a run requests its
estimated seconds times ROOM.
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
# These are rough figures of an RTX Pro 6000 Blackwell. They were not measured on one.
START = 5.0  # seconds to start a worker
STEP = 0.005  # seconds to launch the kernels of a step that belong to no layer
LAYER = 0.0002  # seconds to launch the kernels of one layer
TO_GPU = 4e9  # bytes of weights a second that are copied to the GPU
IN_GPU = 1.2e12  # bytes a second that are read from the GPU's memory
FLOPS = 1.5e14  # FLOPs a second
ROOM = 1.5  # the factor between requested and estimated seconds
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)|<[^>]*>|\s+-\s+https?://\S+")
_SENTENCES = re.compile(r"(?<!vs)\.\s+")


def on_zero_gpu() -> bool:
    """Return whether the process runs on ZeroGPU."""
    return bool(value_of("SPACES_ZERO_GPU")) and importlib.util.find_spec("spaces") is not None


def gpu_seconds(lm: LanguageModel, job: Job, errors: bool) -> int:
    """Return the seconds to request for a job, at most MOST_SECONDS.

    They depend on the size of the model, the number of positions and the number of steps.

    errors: whether commit errors are measured, for which every row is computed a second time.
    """
    config = lm.config
    length = len(job.tokens) + job.gen_length
    blanks = job.tokens.count(lm.mask_id)
    nbytes = sum(weight.numel() * weight.element_size() for weight in lm.network.parameters())
    launching = STEP + LAYER * config.n_layers
    reading = nbytes / IN_GPU
    computing = baseline_flops(config, length, 1) / FLOPS
    step = max(launching, reading, computing)
    seconds = START + nbytes / TO_GPU
    for lane in job.lanes:
        passes = 2 if lane.decoder.settings.cfg_scale > 0 else 1
        if errors:
            passes *= 2
        seconds += passes * lane.decoder.steps_of(blanks) * step
    return min(MOST_SECONDS, math.ceil(ROOM * seconds))


def on_gpu(
    task: Callable[[Job, bool, bool], Generator[Item]], models: Models
) -> Callable[[Job, bool, bool, Mapping[str, str]], Generator[Item]]:
    """Return a generator function that runs `task` in a worker of ZeroGPU.

    The worker is a forked process, so arguments and items are pickled. The last argument of the generator function are
    the headers of the visitor's request: ZeroGPU counts the run against the quota of this visitor.

    The generator raises ValueError if the worker fails or ZeroGPU refuses the run. Inside the worker the errors are
    `gr.Error`, since only these keep their message on the way to this process.
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
        # the package spaces reads the headers of the visitor's request here
        context.run(LocalContext.request.set, cast(Any, SimpleNamespace(headers=headers)))
        items = context.run(worker, job, top, errors)
        try:
            while (item := context.run(next, items, None)) is not None:
                yield item
        except gr.Error as error:
            # ZeroGPU's errors have a title, and the errors of `inside` have none
            message = _refusal(error) if error.title else error.message
            raise ValueError(message) from error
        finally:
            items.close()

    return run


def _refusal(error: gr.Error) -> str:
    """Return the message of a refusal by ZeroGPU without links, as the end of a sentence."""
    message = _LINK.sub(lambda link: link[1] or "", error.message)
    if "aborted" in message:
        return "its time on the GPU was over before it ended; try a shorter run, or fewer lanes"
    sentences = [sentence.strip(" .") for sentence in _SENTENCES.split(message)]
    return "; ".join(_uncapitalized(sentence) for sentence in sentences if sentence)


def _uncapitalized(sentence: str) -> str:
    """Return a sentence with a small first letter. A first word in capitals, such as GPU, is kept."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
