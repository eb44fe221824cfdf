"""Exports of whole traces: made in a thread, one at a time for each client."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from surelock.ui.addresses import client_of
from surelock.ui.serving import Shared

if TYPE_CHECKING:
    from surelock.trace.recorder import Recorder


class Exports:
    """The exports of all clients."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, recorder: Recorder, steps: int | None) -> Export:
        """Return the response with the document of a recorder, see `Recorder.document`."""
        return Export(recorder, steps, self._turns)


class Export(Shared):
    """The response with a recorder's document. It is made once the client's previous export is sent."""

    def __init__(self, recorder: Recorder, steps: int | None, turns: WeakValueDictionary[str, asyncio.Lock]) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]  # it is not known yet
        self._recorder, self._steps, self._turns = recorder, steps, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the document and send it, unless the client has left meanwhile."""
        async with self._turns.setdefault(client_of(scope), asyncio.Lock()):
            if await Request(scope, receive).is_disconnected():
                return
            self.body = await asyncio.to_thread(self._make)
            await super().__call__(scope, receive, send)

    def _make(self) -> bytes:
        document = self._recorder.document(steps=self._steps)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
