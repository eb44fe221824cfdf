"""What this page changes in Gradio itself, all of it, each with the version it was needed for and the reason.

Look at each again when Gradio is updated: what is no longer needed goes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import gradio as gr
from gradio import http_server, queueing, route_utils, routes
from gradio.components.api_component import Api
from gradio.server_messages import ProcessCompletedMessage
from gradio.state_holder import SessionState
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surelock.model.errors import cut, first_line, without_paths
from surelock.places import ASSETS
from surelock.ui.connections import Connection, Crowd, room

_SCRIPTS = [ASSETS / "js" / "load" / name for name in ("frames.js", "hold.js")]
POLL_SECONDS = 0.02
AGAIN_SECONDS = 1.0  # until a queue that has died is started again
AT_THE_DOOR = 100  # connections that are taken from the system at once
_LOG = logging.getLogger("surelock")


def poll_calmly(page: gr.Blocks) -> None:
    """Gradio 6.31: its queue looks for work 1000 times a second, idle or not: 7 % of a core. Fifty times will do."""
    page._queue.sleep_when_free = POLL_SECONDS
    page._queue.progress_update_sleep_when_free = 10 * POLL_SECONDS  # of gr.Progress, which the page does not use


def keep_queue(page: gr.Blocks) -> None:
    """Gradio 6.31: where its queue's one loop dies, all it runs is cancelled, and every Run is refused from then on.
    Here what runs goes on, the log says it, and the loop is started again.
    """
    queue = page._queue
    plain = queue.start_processing
    queue._cancel_asyncio_tasks = lambda: None

    async def again() -> None:
        while True:
            loop = asyncio.ensure_future(plain())
            await asyncio.wait({loop})
            error = None if loop.cancelled() else loop.exception()
            if error is None:  # it was told to stop
                return
            queue.stopped = False
            _LOG.error("The queue had stopped and was started again (%s: %s).", type(error).__name__, first_line(error))
            await asyncio.sleep(AGAIN_SECONDS)

    queue.start_processing = again


def keep_no_values() -> None:
    """Gradio 6.31 keeps the latest value of every field of every session, for links that this page does not have."""
    SessionState._update_value_in_config = lambda self, key, value: None


def log_failures() -> None:
    """Gradio 6.31 prints the traceback of each event that fails; the log leaves out what it has told."""

    class Logged:
        @staticmethod
        def print_exc() -> None:
            _LOG.error("A request failed.", exc_info=True)

    for module in (queueing, route_utils, routes):
        module.traceback = Logged  # type: ignore[attr-defined]


def bound_connections() -> None:
    """Gradio 6.31 makes uvicorn's configuration itself, with no bound on connections or on what they wait for. It also
    takes 2,048 from the system at a time, more than a process has files for.
    """
    most = room()

    class Server(http_server.Server):
        def __init__(self, config: Any, *given: Any, **named: Any) -> None:
            config.http = partial(Connection, crowd=Crowd(most))
            config.backlog = min(AT_THE_DOOR, most // 5)
            config.ws = "none"  # the page opens no socket
            super().__init__(config, *given, **named)

    http_server.Server = Server  # type: ignore[misc]


def take_any_number() -> None:
    """Gradio 6.31: a number typed beyond a slider's end fails the event before its function sees it; the form shortens
    it and says so. Of the class, since a session makes its components anew.
    """

    def number(self: gr.Slider, payload: Any) -> Any:
        if payload is None or (isinstance(payload, int | float) and math.isfinite(payload)):
            return payload
        raise gr.Error(f"{self.label} must be a number.")

    gr.Slider.preprocess = number


def refuse_in_a_sentence(page: gr.Blocks) -> None:
    """Gradio 6.31 writes a traceback for each request whose data its components cannot read, and repeats the data, all
    of it. What such a request is told is a sentence, and the log says nothing.
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
    """Gradio 6.31 makes the schema of an endpoint's parameters of their types alone; these say what each is, too. To be
    called while the page is built.
    """
    (made,) = (fn for fn in page.fns.values() if fn.api_name == endpoint)
    (given,) = made.outputs
    told = [*schemas.values(), {"type": "object", "description": answer}]
    for component, schema in zip([*made.inputs, given], told, strict=True):
        assert isinstance(component, Api)
        component._api_info = schema


def serve_agents() -> None:
    """Gradio 6.31 gives an agent what a tool returns as Python prints it; agents read JSON. And it computes on for one
    that has left, in a thread that none else may have. Of the class: the page makes its one when it is launched.
    Needs the package mcp.
    """
    from gradio.mcp import GradioMCPServer

    plain, told = GradioMCPServer.postprocess_output_data, GradioMCPServer._execute_tool_with_progress

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
            return await told(self, job, progress_token)
        finally:
            _end(self.blocks, job)

    GradioMCPServer.postprocess_output_data = in_json
    GradioMCPServer._execute_tool_without_progress = waited_for
    GradioMCPServer._execute_tool_with_progress = followed


def _end(page: gr.Blocks, job: Any) -> None:
    """End what the page's own client has asked for and not been given."""
    if job.done():
        return
    if job.communicator.event_id is None:  # it is being asked for at this moment
        asyncio.get_running_loop().call_later(POLL_SECONDS, _end, page, job)
    else:
        _end_event(page._queue, job.communicator.event_id)


def _end_event(queue: queueing.Queue, event_id: str) -> None:
    """Out of the queue with it, or no further step of it. Of the thread that the queue lives in. A job's own `cancel`
    would end all that the session runs of the function: one session asks for all agents.
    """
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


class PagesOfLessons:
    """Gradio 6.31 takes ``page`` in the address of ``/`` for one of its own pages, and answers that there is none. Here
    it is a lesson's page, which is the browser's business. ASGI middleware.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, ``/`` without ``page``."""
        if scope["type"] == "http" and scope["path"] == "/":
            kept = [part for part in scope["query_string"].split(b"&") if not part.startswith(b"page=")]
            scope = {**scope, "query_string": b"&".join(kept)}
        await self.app(scope, receive, send)


class CalmFrames:
    """Gradio 6.31: its loading screen leaves a frame loop running (see ``load/frames.js``), and what it is given as
    ``head`` comes too late, its own scripts have run by then: also for what keeps an early press of Run until the page
    is ready (``load/hold.js``). ASGI middleware that puts both scripts at the head of the page itself.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        scripts = "".join(f"<script>{path.read_text('utf-8')}</script>" for path in _SCRIPTS)
        self.head = f"<head>{scripts}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, with the scripts in what answers ``/``."""
        if scope["type"] != "http" or scope["path"] != "/":
            return await self.app(scope, receive, send)
        start: Message = {}

        async def send_with_scripts(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start:
                if b"<head>" in message["body"]:
                    message["body"] = message["body"].replace(b"<head>", self.head, 1)
                    MutableHeaders(scope=start)["content-length"] = str(len(message["body"]))
                await send(start)
                start = {}
            await send(message)

        await self.app(scope, receive, send_with_scripts)
