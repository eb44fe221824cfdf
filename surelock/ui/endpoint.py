"""/decode runs a prompt for a script or an agent, step by step. The parameters are the settings of the library."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import gradio as gr
import numpy as np
from gradio.context import LocalContext
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import Scope

from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.ends import written
from surelock.decoding.spelling import (
    check_owners,
    kinds_of,
    unfolded,
)
from surelock.errors import reason_of, shown
from surelock.trace.lanes import alone
from surelock.ui.addresses import client_of
from surelock.ui.gate import API, Refused
from surelock.ui.limits import Limits, check_size, too_long
from surelock.ui.models import Models
from surelock.ui.parameters import ENDPOINT, FLAGS, NONE_IS_ZERO, check_names, parameters
from surelock.ui.queue import Queue, QueueFull
from surelock.ui.request import MOST_EVENTS, Job, read_job
from surelock.ui.shared_race import DEVICE, Runner, settled_job
from surelock.values import Fields, Json

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel
    from surelock.quality.commit_error import CommitError

#: The wait before a script is answered that the queue is full. It slows down scripts that try again at once.
AGAIN_SECONDS = 0.5
UNREAD_SECONDS = 10.0  # how long a call runs while nobody reads its answers
_CALL = re.compile(rf"{API}/call/(v2/)?{ENDPOINT}/?")
_STREAM = re.compile(rf"{API}/(?:queue/data|call/(?:v2/)?{ENDPOINT}/(.+))")


class Calls:
    """The calls of /decode. They wait in the queue of the device, after the page's visitors.

    decoder: the function that runs a job.
    queue: the queue of the device, which the page's visitors share.
    most: the most positions of a run.
    """

    def __init__(
        self, models: Models, decoder: Runner, queue: Queue, limits: Limits, most: int
    ) -> None:
        self._models = models
        self._decoder = decoder
        self._queue = queue
        self._limits = limits
        self._most = most
        # the number of open streams of answers, by the id of the call or of the session that they belong to
        self._streams: Counter[str] = Counter()

    @contextmanager
    def streamed(self, scope: Scope) -> Iterator[None]:
        """Count the stream of answers that a request opens until the block ends. Other requests are not counted."""
        match = _STREAM.fullmatch(scope["path"])
        name = None
        if match:
            name = match[1] or QueryParams(scope["query_string"]).get("session_hash")
        opened = Counter([name] if name else [])
        self._streams += opened
        try:
            yield
        finally:
            self._streams -= opened

    def is_read(self, *names: str | None) -> bool:
        """Return whether a stream of answers is open. names: the ids of a call and of its session."""
        return any(name in self._streams for name in names)

    def check(self, client: str) -> None:
        """Raise QueueFull if the queue has no place for one more call of a client."""
        self._queue.check(client, script=True)

    async def answers(self, named: Fields, request: Request) -> AsyncGenerator[Json]:
        """Yield the answers to a call: {"place", "seconds"} while it waits, one object per step, and a last object.

        named: the parameters of the call by name.

        Raises ValueError, one sentence, if the call is refused and if the run fails.
        """
        steps = await asyncio.to_thread(self._read, named, request)
        loop = asyncio.get_running_loop()
        seconds = 0.0
        try:
            with self._queue.place(steps, client_of(request.scope), script=True) as place:
                async with aclosing(place.waits()) as reports:
                    async for before, left in reports:
                        if before:
                            yield {"place": before, "seconds": left}
                while True:
                    begun = time.monotonic()
                    answer = await loop.run_in_executor(DEVICE, next, steps, None)
                    if answer is None:
                        return
                    if seconds > self._limits.run_seconds:
                        raise ValueError(too_long(self._limits.run_seconds))
                    seconds += time.monotonic() - begun
                    yield answer
        except (ArithmeticError, MemoryError, RuntimeError) as error:
            # errors of torch are RuntimeErrors, such as running out of memory on a GPU
            raise ValueError(f"The run stopped: {reason_of(error)}.") from error
        finally:
            DEVICE.submit(steps.close)  # runs after the present step

    def _read(self, named: Fields, request: Request) -> Generator[Json]:
        """Return the generator of a call's answers. Nothing is computed before its first item is taken.

        Raises ValueError, one sentence.
        """
        check_names(named)
        values: Json = {parameter.name: parameter.default for parameter in parameters()} | {
            "prompt": None,
            **named,
        }
        label = values["model"]
        if label == "":
            label = self._models.labels[0]
        lm = self._models.get(label)
        for name in FLAGS:
            if values[name] not in (None, True, False):
                raise ValueError(f"{name} must be true or false, not {shown(values[name])}")
        lane = alone(decoder_of(values))
        longest = min(self._most, lm.config.max_length)
        blanks = values["blanks"] in (None, True)
        job = read_job(lm, label, values["prompt"], bool(values["chat"]), [lane], longest, blanks)
        if values["trace"]:
            steps = lane.decoder.steps_of(job.tokens.count(lm.mask_id))
            check_size("trace", len(job.tokens) + job.gen_length, steps)
        errors = bool(values["commit_error"])
        headers = request.headers
        return self._steps(
            lm,
            job,
            bool(values["trace"]),
            lambda setup: self._decoder(setup, False, errors, headers),
        )

    def _steps(
        self, lm: LanguageModel, job: Job, trace: bool, decode: Callable[[Job], Iterator[Any]]
    ) -> Generator[Json]:
        job = settled_job(self._models, job)
        yield from _steps(lm, job, decode(job), trace)


@contextmanager
def admit(page: gr.Blocks, calls: Calls, scope: Scope, body: Any) -> Iterator[None]:
    """Check a request before Gradio reads it. Count the stream that it opens until it is answered. Raises Refused."""
    _check_call(page, calls, scope, body)
    with calls.streamed(scope):
        yield


def _check_call(page: gr.Blocks, calls: Calls, scope: Scope, body: Any) -> None:
    """Check a request that calls one of the page's functions. Raises Refused.

    Gradio would print the traceback of an unreadable call, with all its data.
    """
    called = _CALL.fullmatch(scope["path"])
    path = scope["path"].rstrip("/")
    queued = path == f"{API}/queue/join"
    if scope["method"] != "POST" or not (called or queued or path == f"{API}/run/predict"):
        return
    if not isinstance(body, dict):
        raise Refused(400, "A call is an object.")
    if called and called[1]:
        try:
            check_names(body)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        if "prompt" not in body:
            raise Refused(400, "prompt is missing: the text to continue.")
    elif not called:
        number = body.get("fn_index")
        data = body.get("data")
        function = page.fns.get(number) if type(number) is int else None
        if function is None or not function.fn or function.queue != queued:
            raise Refused(400, "fn_index must be the number of one of the page's functions.")
        if not isinstance(data, list) or len(data) != len(function.inputs):
            raise Refused(400, f"data must be a list of {len(function.inputs)}.")
    if called or queued:
        try:
            calls.check(client_of(scope))
        except QueueFull as error:
            raise Refused(429 if error.client else 503, str(error), AGAIN_SECONDS) from None


def make_endpoint(calls: Calls) -> Callable[..., AsyncGenerator[Json]]:
    """Return the function that Gradio calls for /decode. Its signature lists `surelock.ui.parameters.parameters`."""
    signature = inspect.Signature(parameters(), return_annotation=AsyncGenerator[dict])

    async def decode(*args: Any, **kwargs: Any) -> AsyncGenerator[dict]:
        request: Any = LocalContext.request.get()
        read = time.monotonic()
        try:
            named = signature.bind(*args, **kwargs).arguments
            async with aclosing(calls.answers(named, request.request)) as answers:
                async for answer in answers:
                    if calls.is_read(LocalContext.event_id.get(None), request.session_hash):
                        read = time.monotonic()
                    elif time.monotonic() - read > UNREAD_SECONDS:
                        raise ValueError(
                            f"The call was ended: nobody read it for {UNREAD_SECONDS:g} seconds."
                        )
                    yield answer
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error

    decode.__signature__ = signature  # type: ignore[attr-defined]
    decode.__annotations__ = {
        name: parameter.annotation for name, parameter in signature.parameters.items()
    }
    decode.__annotations__["return"] = signature.return_annotation
    return decode


def decoder_of(named: Fields) -> Decoder:
    """Return the decoder that a call's parameters describe.

    Raises ValueError; the message begins with the name of the setting.
    """
    values = unfolded(named)
    values |= {name: None for name in NONE_IS_ZERO if values.get(name) == 0}
    events = values.get("events")
    if events is not None and (not isinstance(events, list) or len(events) > MOST_EVENTS):
        raise ValueError(f"events must be a list of at most {MOST_EVENTS}")
    check_owners(values, kinds_of(values))
    return read_decoder(values)


def _steps(lm: Any, job: Job, rounds: Iterator[Any], trace: bool) -> Generator[Json]:
    """Yield one object per step, and the last object with the text and the totals.

    rounds: the iterator of `surelock.trace.race.race`.
    trace: whether the last object contains the trace.
    """
    # these modules import torch, which takes seconds: not before the first call
    from surelock.trace.race import Errors, LaneStep
    from surelock.trace.recorder import Recorder, make_header

    recorder = None
    if trace:
        header = make_header(lm, job.prompt, job.tokens, job.lanes, name=job.label, chat=job.chat)
        recorder = Recorder(header, lm.tokenizer)
    length = len(job.tokens) + job.gen_length
    total: Json = {
        "seconds": 0.0,
        "flops": 0.0,
        "baseline_flops": 0.0,
        "rows": 0,
        "steps": 0,
        "spared": 0,
    }
    last = {}
    canvas = []
    for item in chain.from_iterable(rounds):
        if recorder is not None:
            recorder.take([item])
        if isinstance(item, Errors):
            last["commit_error"] = _plain_errors(item.commits)
            continue
        assert isinstance(item, LaneStep)
        step = item.step
        canvas = step.tokens[0].tolist()
        rows = int(step.computed.sum())
        costs = {
            name: float(np.sum(getattr(step, name)))
            for name in ("seconds", "flops", "baseline_flops")
        }
        spared = 0 if step.ended is None else int(step.ended.steps[0])
        for name, value in (*costs.items(), ("rows", rows), ("steps", 1), ("spared", spared)):
            total[name] += value
        yield {
            "step": step.index,
            "unmasked": [
                {"position": p, "token": canvas[p]}
                for p in np.flatnonzero(step.newly_unmasked[0]).tolist()
            ],
            "taken_back": np.flatnonzero(step.taken_back[0]).tolist(),
            "newly_locked": np.flatnonzero(step.newly_locked[0]).tolist(),
            "locked": int(step.locked.sum()),
            "computed": rows,
            **costs,
        }
    if recorder is not None:
        last["trace"] = recorder.document()
    texts = []
    if lm.tokenizer is not None:
        texts.append(written(lm, job.tokens, canvas))
    yield {
        "done": True,
        "texts": texts,
        "tokens": canvas,
        "steps": total["steps"],
        "seconds": total["seconds"],
        "flops": total["flops"],
        "flops_ratio": total["flops"] / total["baseline_flops"],
        "active_ratio": total["rows"] / (length * (total["steps"] + total["spared"])),
        "spared": total["spared"],
        **last,
    }


def _plain_errors(commits: CommitError) -> Json:
    """Return commit errors as JSON.

    mean: the mean commit error, in nats.
    regret: the mean regret, None if the regret of a commit is undefined.
    commits: the number of commits.
    changed: the number of commits whose likeliest token was another one in the dense computation.
    each: for every commit its step, position, error, changed and regret.
    """
    columns = {
        name: getattr(commits, name).tolist() for name in ("step", "position", "error", "changed")
    }
    regrets = [value if math.isfinite(value) else None for value in commits.regret.tolist()]
    columns["regret"] = regrets
    mean_regret = None if None in regrets else float(commits.regret.mean())
    rows = zip(*columns.values(), strict=True)
    return {
        "mean": float(commits.error.mean()),
        "regret": mean_regret,
        "commits": len(commits.error),
        "changed": int(commits.changed.sum()),
        "each": [dict(zip(columns, row, strict=True)) for row in rows],
    }
