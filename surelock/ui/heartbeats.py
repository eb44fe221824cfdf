"""The stream of each open page: when it ends, the page is closed, and its runs are dropped."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from surelock.ui.gate import API

BEAT_SECONDS = 15.0  # between two messages, so that no proxy takes the stream for dead
_BEAT = b"data: ALIVE\n\n"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class Heartbeats:
    """The streams of all open pages, as an ASGI application.

    page: Gradio's page.
    leave: called in a thread with the session of a page that has closed.

    Gradio 6.31 has such a stream, too, which takes 9 ms of the processor to open and to close: its end is a call of a
    function of the page.
    """

    def __init__(self, page: gr.Blocks, leave: Callable[[str], None]) -> None:
        self._queue, self._leave = page._queue, leave

    @property
    def route(self) -> Route:
        """The route of the streams. It comes before Gradio's."""
        return Route(f"{API}/heartbeat/{{session}}", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a beat every BEAT_SECONDS until the page is closed."""
        session = scope["path_params"]["session"]
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        closed = asyncio.ensure_future(_closed(receive))
        try:
            while not closed.done():
                await send({"type": "http.response.body", "body": _BEAT, "more_body": True})
                await asyncio.wait({closed}, timeout=BEAT_SECONDS)
        finally:
            closed.cancel()
            self._forget(scope["app"], session)
            await asyncio.to_thread(self._leave, session)

    def _forget(self, app: Any, session: str) -> None:
        """Let Gradio drop the state of a session, and end what it has asked for."""
        state = app.state_holder.session_data.get(session)
        if state is not None:
            state.is_closed = True
        for event_id in self._queue.pending_event_ids_session.get(session, ()):
            event = self._queue.event_ids_to_events.get(event_id)
            if event is not None:
                event.run_time, event.closed = math.inf, True
                event.signal.set()


async def _closed(receive: Receive) -> None:
    """Wait for the end of the connection."""
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()
