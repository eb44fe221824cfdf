"""The whole traces of runs, for their pages: made in a thread, one at a time for each client."""

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
    """What each client is being sent."""

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, recorder: Recorder, steps: int | None) -> Export:
        """The answer that is its document, see `Recorder.document`."""
        return Export(recorder, steps, self._turns)


class Export(Shared):
    """A recorder's document, made when the client has taken the one before."""

    def __init__(self, recorder: Recorder, steps: int | None, turns: WeakValueDictionary[str, asyncio.Lock]) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]  # it is not known yet
        self._recorder, self._steps, self._turns = recorder, steps, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the document and send it; a client that has left meanwhile costs nothing."""
        async with self._turns.setdefault(client_of(scope), asyncio.Lock()):
            if await Request(scope, receive).is_disconnected():
                return
            self.body = await asyncio.to_thread(self._make)
            await super().__call__(scope, receive, send)

    def _make(self) -> bytes:
        document = self._recorder.document(steps=self._steps)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
