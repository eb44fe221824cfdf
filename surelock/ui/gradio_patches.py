"""All changes that this page makes to Gradio itself, each with the version that needs it and the reason.

Review them when Gradio is updated, and remove those that are no longer needed.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import gradio as gr
from anyio import to_thread
from gradio import http_server, queueing, route_utils, routes
from gradio.brotli_middleware import BrotliMiddleware
from gradio.components.api_component import Api
from gradio.server_messages import ProcessCompletedMessage
from gradio.state_holder import SessionState
from starlette.types import ASGIApp, Receive, Scope, Send

from surelock.errors import cut, without_paths
from surelock.ui.connections import Connection, Crowd, room
from surelock.ui.gate import BRIEF, CALL

POLL_SECONDS = 0.02
AGAIN_SECONDS = 1.0  # until a failed queue is started again
THREADS = 8  # that answer at once what is not in the queue
AT_ONCE = 4  # calls of the page's functions beside the queue
AT_THE_DOOR = 100  # connections that wait in the system to be accepted
_LOG = logging.getLogger("surelock")


def poll_calmly(page: gr.Blocks) -> None:
    """Gradio 6.31: the queue polls 1000 times a second, which takes 7 % of a core. Poll 50 times a second."""
    page._queue.sleep_when_free = POLL_SECONDS
    page._queue.progress_update_sleep_when_free = 10 * POLL_SECONDS  # of gr.Progress, which the page does not use


def keep_queue(page: gr.Blocks) -> None:
    """Gradio 6.31: if the queue's loop fails, all runs are cancelled and every later one is refused.

    Here the runs go on, the error is logged, and the loop is started again.
    """
    queue = page._queue
    plain = queue.start_processing
    queue._cancel_asyncio_tasks = lambda: None

    async def again() -> None:
        while True:
            loop = asyncio.ensure_future(plain())
            await asyncio.wait({loop})
            error = None if loop.cancelled() else loop.exception()
            if error is None:  # it was asked to stop
                return
            queue.stopped = False
            _LOG.error("The queue had stopped and was started again.", exc_info=error)
            await asyncio.sleep(AGAIN_SECONDS)

    queue.start_processing = again


def keep_no_values() -> None:
    """Gradio 6.31 keeps the latest value of every field of every session, for a feature that this page does not use."""
    SessionState._update_value_in_config = lambda self, key, value: None


def log_failures() -> None:
    """Gradio 6.31 prints the traceback of each failed event. Write it to the log, which drops repetitions."""

    class Logged:
        @staticmethod
        def print_exc() -> None:
            _LOG.error("A request failed.", exc_info=True)

    for module in (queueing, route_utils, routes):
        module.traceback = Logged  # type: ignore[attr-defined]


def bound_connections() -> None:
    """Gradio 6.31 configures uvicorn without limits on connections, with a backlog of 2,048, more than the open files
    of a process, and answers many routes in forty threads, for each of which the loop waits. Set all, see `Connection`.
    """
    most = room()

    class Server(http_server.Server):
        def __init__(self, config: Any, *given: Any, **named: Any) -> None:
            config.http = partial(Connection, crowd=Crowd(most))
            config.backlog = min(AT_THE_DOOR, most // 5)
            config.ws = "none"  # the page opens no socket
            super().__init__(config, *given, **named)

        async def startup(self, *given: Any, **named: Any) -> None:
            to_thread.current_default_thread_limiter().total_tokens = THREADS
            await super().startup(*given, **named)

    http_server.Server = Server  # type: ignore[misc]


def compress_no_files() -> None:
    """Gradio 6.31 compresses each file anew for each request that takes brotli, on the loop: a tenth of a second of
    everybody's time for the largest. Files are compressed once instead, see `surelock.ui.serving`.
    """
    BrotliMiddleware._is_compressible_file_type = lambda self, scope: scope["path"] == "/theme.css"


def take_any_number() -> None:
    """Gradio 6.31: a number beyond a slider's end fails the event before the form can correct it. Accept any number.

    The class is changed, since each session makes its own components.
    """

    def number(self: gr.Slider, payload: Any) -> Any:
        if payload is None or (isinstance(payload, int | float) and math.isfinite(payload)):
            return payload
        raise gr.Error(f"{self.label} must be a number.")

    gr.Slider.preprocess = number


def refuse_in_a_sentence(page: gr.Blocks) -> None:
    """Gradio 6.31 logs a traceback, with all data, for a request that its components cannot read. Answer such a request
    with one sentence, and log nothing.
    """
    plain, process, chosen = page.preprocess_data, page.process_api, gr.Dropdown.preprocess

    def one(self: gr.Dropdown, payload: Any) -> Any:
        if isinstance(payload, list):  # Gradio takes an empty one for a choice
            raise gr.Error(f"{self.label} must be one of its choices.")
        return chosen(self, payload)

    gr.Dropdown.preprocess = one

    async def read(*given: Any, **more: Any) -> Any:
        try:
            return await plain(*given, **more)
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
            raise gr.Error(f"The data is not what this function takes: {without_paths(error)}") from error

    async def answered(block_fn: Any, *given: Any, **more: Any) -> Any:
        known = page.fns.get(block_fn) if isinstance(block_fn, int) else block_fn
        if known is not None and not known.fn:
            raise gr.Error("This function is the browser's own.", print_exception=False)
        try:
            return await process(block_fn, *given, **more)
        except gr.Error as error:
            error.message, error.print_exception = cut(error.message), False
            raise

    page.preprocess_data, page.process_api = read, answered  # type: ignore[method-assign]


def explain(page: gr.Blocks, endpoint: str, schemas: Mapping[str, dict[str, Any]], answer: str) -> None:
    """Gradio 6.31 describes an endpoint's parameters by their types alone. Set full schemas instead.

    page: while it is built.
    """
    (made,) = (fn for fn in page.fns.values() if fn.api_name == endpoint)
    (given,) = made.outputs
    every = [*schemas.values(), {"type": "object", "description": answer}]
    for component, schema in zip([*made.inputs, given], every, strict=True):
        assert isinstance(component, Api)
        component._api_info = schema


def serve_agents() -> None:
    """Gradio 6.31 sends an agent the repr of a result, and goes on computing for an agent that has left, in a thread
    that no other call can use. Send JSON, and end such a call.

    The class is changed, since the server is made when the page is launched. Needs the package mcp.
    """
    from gradio.mcp import GradioMCPServer

    plain, progress = GradioMCPServer.postprocess_output_data, GradioMCPServer._execute_tool_with_progress

    def in_json(self: Any, data: Any, root_url: str) -> list[Any]:
        return plain(self, [json.dumps(each) if isinstance(each, dict) else each for each in data], root_url)

    async def waited_for(self: Any, job: Any) -> list[Any]:
        try:
            while not job.done():
                await asyncio.sleep(POLL_SECONDS)
            return [job.result()]
        finally:  # an agent that leaves cancels this
            _end(self.blocks, job)

    async def followed(self: Any, job: Any, progress_token: Any) -> Any:
        try:
            return await progress(self, job, progress_token)
        finally:
            _end(self.blocks, job)

    GradioMCPServer.postprocess_output_data = in_json
    GradioMCPServer._execute_tool_without_progress = waited_for
    GradioMCPServer._execute_tool_with_progress = followed


def _end(page: gr.Blocks, job: Any) -> None:
    """End a job of the page's own client that is not finished: at once if it waits, else after its present step.

    Call it in the queue's thread. A job's own `cancel` would end all calls of the session, and all agents share one.
    """
    queue, event_id = page._queue, job.communicator.event_id
    if job.done():
        return
    if event_id is None:  # it is being asked for at this moment
        asyncio.get_running_loop().call_later(POLL_SECONDS, _end, page, job)
        return
    event = queue.event_ids_to_events.get(event_id)
    if event is None:
        return
    left = {"error": "The caller has left."}
    queue.send_message(event, ProcessCompletedMessage(output=left, success=False))
    event.alive = False
    waiting = queue.event_queue_per_concurrency_id[event.concurrency_id].queue
    if event in waiting:
        waiting.remove(event)
        queue.event_ids_to_events.pop(event_id)


class FewAtOnce:
    """ASGI middleware. Gradio 6.31 works at all calls of `run/predict` at once, on the loop, and the package mcp at all
    requests of agents. Here others are answered between them; agents who call the tool wait for their run elsewhere.
    The first of these calls goes alone: in it Gradio makes its client, for which each call beside it would hold a
    thread, until none is left to answer the client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._room, self._first, self._called = asyncio.Semaphore(AT_ONCE), asyncio.Lock(), False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request in its turn."""
        if scope["type"] == "http" and (scope["path"].rstrip("/").endswith("/run/predict") or BRIEF in scope):
            async with self._room:
                return await self.app(scope, receive, send)
        if CALL in scope and not self._called:
            async with self._first:
                if not self._called:
                    await self.app(scope, receive, send)
                    self._called = True
                    return None
        await self.app(scope, receive, send)
