"""The stream of each open page: when it ends, the page is closed, and its runs are dropped."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import gradio as gr
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from surelock.ui.gate import API
from surelock.ui.readers import Readers

BEAT_SECONDS = 15.0  # between two messages, so that no proxy takes the stream for dead
#: After a page's last stream what it has asked for ends, which pauses its runs. They are dropped later: it may be the
#: connection alone that has broken.
LOOK_SECONDS, DROP_SECONDS = 0.05, 5.0
_BEAT = b"data: ALIVE\n\n"
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class Heartbeats:
    """The streams of all open pages, as an ASGI application. A page is open while any stream of its session is.

    readers: its other streams.
    leave: called in a thread with the session of a page that has closed.

    Gradio 6.31 has such a stream, too, which takes 9 ms of the processor to open and to close: its end is a call of a
    function of the page.
    """

    def __init__(self, page: gr.Blocks, readers: Readers, leave: Callable[[str], None]) -> None:
        self._queue, self._readers, self._leave = page._queue, readers, leave
        self._open: Counter[str] = Counter()  # heartbeats by session
        self._closing: dict[str, asyncio.Task[None]] = {}

    @property
    def route(self) -> Route:
        """The route of the streams. It comes before Gradio's."""
        return Route(f"{API}/heartbeat/{{session}}", self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a beat every BEAT_SECONDS until the page is closed."""
        session = scope["path_params"]["session"]
        self._open[session] += 1
        closed = asyncio.ensure_future(_closed(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            while not closed.done():
                await send({"type": "http.response.body", "body": _BEAT, "more_body": True})
                await asyncio.wait({closed}, timeout=BEAT_SECONDS)
        finally:
            closed.cancel()
            self._open -= Counter([session])
            if session not in self._closing:
                self._closing[session] = asyncio.ensure_future(self._close(scope["app"], session))

    async def _close(self, app: Any, session: str) -> None:
        """End and drop what a session has, unless a stream of it is open meanwhile or its heartbeat comes back."""
        quiet = 0
        try:
            while quiet * LOOK_SECONDS < DROP_SECONDS:
                await asyncio.sleep(LOOK_SECONDS)
                if self._open[session]:
                    return
                quiet = 0 if session in self._readers.sessions else quiet + 1
                if quiet == 1:
                    self._end(session)
            state = app.state_holder.session_data.get(session)
            if state is not None:
                state.is_closed = True
            await asyncio.to_thread(self._leave, session)
        finally:
            del self._closing[session]

    def _end(self, session: str) -> None:
        """End what a session has asked for."""
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
