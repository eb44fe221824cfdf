"""The HTTP routes of runs: the page requests a run, reads its stream of events, and stops it."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from functools import partial
from weakref import WeakValueDictionary

from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from surelock.decoding.word_lists import is_settled
from surelock.ui.addresses import client_of
from surelock.ui.attended import most_attended
from surelock.ui.gate import BODY, PIECE
from surelock.ui.models import Loading, Models, NotReady
from surelock.ui.queue import Place, Queue, QueueFull
from surelock.ui.request import Job, one_token, read_request, tokens_of
from surelock.ui.runs import Runs, TooMany, VisitorRun
from surelock.ui.shared_race import DEVICE, Runner, SharedRace, event, settled_job
from surelock.ui.wording import in_words
from surelock.values import Fields

RUNS = "/surelock/runs"
GONE = "This run is no longer kept on the server (restarted, full, or 10 minutes unread); press Run to start a new one."
PING_SECONDS = 15.0  # the time between two pings, without which a proxy would close a quiet stream
_VISITOR = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")


class RunRoutes:
    """The routes of the page's runs.

    decoder: the function that runs a job.
    queue: the queue of the device.
    runs: the runs that the server keeps.
    most: the most positions of a run.
    """

    def __init__(
        self, models: Models, decoder: Runner, queue: Queue, runs: Runs, most: int
    ) -> None:
        self._models = models
        self._decoder = decoder
        self._queue = queue
        self._runs = runs
        self._most = most
        # by client, a lock that is held while a part of the client's export is made
        self._exports: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looking = False  # whether `most_attended` is being computed

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route(RUNS, self.open, methods=["POST"]),
            Route(f"{RUNS}/{{id}}/events", self.events),
            Route(f"{RUNS}/{{id}}/stop", self.stop, methods=["POST"]),
            Route(f"{RUNS}/{{id}}/trace", self.trace),
            Route(f"{RUNS}/{{id}}/top", self.top),
            Route("/surelock/models/{label:path}/state", self.state),
            Route("/surelock/token", self.token, methods=["POST"]),
            Route("/surelock/attended", self.attended, methods=["POST"]),
        ]

    async def open(self, request: Request) -> Response:
        """Read a request and answer with the id of a new run. The run computes nothing before its events are read."""
        visitor = request.headers.get("x-surelock-visitor", "")
        if not _VISITOR.fullmatch(visitor):
            visitor = secrets.token_urlsafe(18)
        try:
            job = await asyncio.to_thread(
                read_request, self._models, request.scope[BODY], self._most
            )
            if not is_settled(job.tokens):
                job = await asyncio.get_running_loop().run_in_executor(
                    DEVICE, settled_job, self._models, job
                )
            origin = self._runs.find(job.origin.run) if job.origin else None
            begin = await asyncio.to_thread(self._race, job, origin, request.headers)
            run = self._runs.open(visitor, client_of(request.scope), job.key, begin, origin)
        except Loading as error:
            return JSONResponse({"detail": error.said, "loading": True}, 503, {"Retry-After": "1"})
        except TooMany as error:
            raise HTTPException(429, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, in_words(str(error))) from error
        return JSONResponse({"id": run.id}, 201)

    def _race(
        self, job: Job, origin: VisitorRun | None, headers: Mapping[str, str]
    ) -> Callable[[], SharedRace]:
        """Return a function that creates the race of a job.

        origin: the run that the job continues, None if there is none.
        headers: the headers of the visitor's request, for ZeroGPU.
        """
        # these modules import torch, which takes seconds: not before a model is loaded
        from surelock.trace.recorder import Recorder, make_header
        from surelock.ui.snapshots import snapshots_of

        lm = self._models.get(job.label)
        header = make_header(lm, job.prompt, job.tokens, job.lanes, name=job.label, chat=job.chat)
        recorder = Recorder(header, lm.tokenizer)
        snapshots = None
        kept = {}
        # a worker of ZeroGPU is another process, which cannot reach snapshots of this process
        if self._runs.shared:
            snapshots = snapshots_of(lm, job, recorder, origin and origin.race)
            kept = {"begins": snapshots.begins, "snapshots": snapshots.taken}
        rounds = self._decoder(job, True, True, headers, **kept)
        return lambda: SharedRace(
            job,
            recorder,
            rounds,
            self._runs.limits,
            pausable=self._runs.shared,
            begins=self._runs.make_room,
            ends=self._queue.finished,
            snapshots=snapshots,
        )

    async def events(self, request: Request) -> ASGIApp:
        """Stream the events of a run: the run's place in the queue, then the messages after Last-Event-ID."""
        run = self._run(request)
        last = request.headers.get("last-event-id")
        steps = request.query_params.get("steps")
        if not (last is None or _WHOLE.fullmatch(last)):
            raise HTTPException(422, "Last-Event-ID must be the number of a message.")
        if not (steps is None or (_WHOLE.fullmatch(steps) and int(steps))):
            raise HTTPException(422, "steps must be a whole number from 1 on.")
        stream = AsyncExitStack()
        try:
            place = None
            if not run.ended:
                client = client_of(request.scope)
                place = stream.enter_context(
                    self._queue.place(run.race, client, left=run.race.left)
                )
        except QueueFull as error:
            raise HTTPException(429 if error.client else 503, str(error)) from error
        is_current = stream.enter_context(run.streaming())
        after = -1 if last is None else int(last)
        most = None if steps is None else int(steps)
        messages = run.messages(after, most, is_current)

        async def streamed(scope: Scope, receive: Receive, send: Send) -> None:
            async with stream, aclosing(_placed(run, place, messages, is_current)) as events:
                response = EventSourceResponse(events, ping=PING_SECONDS, sep="\n")
                await response(scope, receive, send)

        return streamed

    async def stop(self, request: Request) -> Response:
        """End a run. An open stream ends after the present step."""
        self._run(request).stop()
        self._queue.wake()  # a run that waits for its turn sees that it is stopped
        return Response(status_code=204)

    async def trace(self, request: Request) -> ASGIApp:
        """Answer with the trace of the steps of a run that the page has been sent."""
        run = self._run(request)
        making = self._exports.setdefault(client_of(request.scope), asyncio.Lock())
        parts = run.race.recorder.written(run.steps)
        return StreamingResponse(_exported(parts, making), media_type="application/json")

    async def top(self, request: Request) -> Response:
        """Answer with the likely tokens of one position at one step, by id of the lane."""
        recorder = self._run(request).race.recorder
        query = request.query_params
        header = recorder.header
        step = _whole(query.get("step"), header["steps"])
        position = _whole(query.get("position"), header["length"])
        if step is None or position is None:
            raise HTTPException(
                422, "step and position must be whole numbers below those of the run."
            )
        return JSONResponse(
            {lane["id"]: recorder.top(lane["id"], step, position) for lane in header["lanes"]}
        )

    async def state(self, request: Request) -> Response:
        """Answer with the state of a model: "ready", "loading", or the reason why it cannot be used."""
        label = request.path_params["label"]
        state = "This page does not offer that model."
        if label in self._models.labels:
            state = self._models.state(label)
        return JSONResponse({"state": state})

    async def token(self, request: Request) -> Response:
        """Answer with the token that is a whole text, or with a problem and the several tokens of the text."""
        fields = _fields(request)
        text = fields.get("text")
        try:
            lm = self._models.get(fields.get("model", ""))
        except (Loading, NotReady, ValueError) as error:
            return JSONResponse({"problem": str(error)})
        try:
            return JSONResponse(await asyncio.to_thread(one_token, lm, text))
        except ValueError as error:
            pieces = await asyncio.to_thread(tokens_of, lm, text)
            return JSONResponse({"problem": str(error), "pieces": pieces})

    async def attended(self, request: Request) -> Response:
        """Answer with `most_attended` of the body's fields, null while another call is computed.

        The computation delays all runs, so there is only one at a time.
        """
        if self._looking:
            return JSONResponse(None)
        self._looking = True
        look = partial(most_attended, self._models, _fields(request), self._most)
        try:
            return JSONResponse(await asyncio.get_running_loop().run_in_executor(DEVICE, look))
        finally:
            self._looking = False

    def _run(self, request: Request) -> VisitorRun:
        """Return the run that a request names. Raises HTTPException if the server no longer keeps it."""
        run = self._runs.find(request.path_params["id"])
        if run is None:
            raise HTTPException(404, GONE)
        return run


def _fields(request: Request) -> Fields:
    """Return the fields of a request's body; no fields if the body is no object."""
    body = request.scope[BODY]
    return body if isinstance(body, Mapping) else {}


async def _placed(
    run: VisitorRun,
    place: Place | None,
    messages: AsyncGenerator[bytes],
    is_current: Callable[[], bool],
) -> AsyncGenerator[bytes]:
    """Yield the reports of a place in the queue as events, then the messages of the run.

    place: the place of this stream, None if the run has ended.
    is_current: whether no newer stream has the run, see `VisitorRun.streaming`.
    """
    if place is not None:
        async with aclosing(place.waits()) as reports:
            async for before, seconds in reports:
                if run.ended or not is_current():
                    break
                yield event("place", {"place": before, "seconds": seconds})
    async with aclosing(messages):
        async for batch in messages:
            yield batch


async def _exported(parts: Iterator[str], making: asyncio.Lock) -> AsyncGenerator[bytes]:
    """Yield a trace in pieces of at least PIECE characters; the last piece may be shorter.

    A thread makes a piece once the client has taken the piece before it.

    making: the lock that is held while a piece is made, and free while the piece is sent.
    """

    def some() -> bytes:
        texts = list[str]()
        size = 0
        for part in parts:
            texts.append(part)
            size += len(part)
            if size >= PIECE:
                break
        return "".join(texts).encode()

    while True:
        async with making:
            piece = await asyncio.to_thread(some)
        if not piece:
            return
        yield piece


def _whole(text: str | None, size: int) -> int | None:
    """Return the whole number in a text; None if the text is no whole number, or a number of at least `size`."""
    number = int(text) if text is not None and _WHOLE.fullmatch(text) else size
    return number if number < size else None
