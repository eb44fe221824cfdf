"""What this page changes in Gradio itself, all of it, each with the version it was needed for and the reason.

Look at each again when Gradio is updated: what is no longer needed goes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr
from gradio.components.api_component import Api
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surelock.places import ASSETS

_SCRIPTS = [ASSETS / "js" / "load" / name for name in ("frames.js", "hold.js")]
POLL_SECONDS = 0.02


def poll_calmly(page: gr.Blocks) -> None:
    """Gradio 6.31: its queue looks for work 1000 times a second, idle or not: 7 % of a core. Fifty times will do."""
    page._queue.sleep_when_free = POLL_SECONDS
    page._queue.progress_update_sleep_when_free = 10 * POLL_SECONDS  # of gr.Progress, which the page does not use


def take_any_number() -> None:
    """Gradio 6.31: a number typed beyond a slider's end fails the event before its function sees it; the form shortens
    it and says so. Of the class, since a session makes its components anew.
    """
    gr.Slider.preprocess = lambda self, payload: payload


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


def answer_in_json() -> None:
    """Gradio 6.31 gives an agent what a tool returns as Python prints it; agents read JSON. Of the class: the page
    makes its one when it is launched. Needs the package mcp.
    """
    from gradio.mcp import GradioMCPServer

    plain = GradioMCPServer.postprocess_output_data

    def in_json(self: Any, data: Any, root_url: str) -> list[Any]:
        return plain(self, [json.dumps(each) if isinstance(each, dict) else each for each in data], root_url)

    GradioMCPServer.postprocess_output_data = in_json


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
