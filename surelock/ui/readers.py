"""Who reads, and whose messages are kept: nobody computes for no reader."""

from __future__ import annotations

import socket
import struct
import sys
import time
from asyncio import Queue
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

UNREAD_SECONDS = 10.0  # how long a run goes on that nobody reads
Item = TypeVar("Item")


class Link:
    """A stream's connection. Whether its other end takes what is sent, Linux tells; elsewhere it is taken to."""

    _ASKED, _UNACKED_AT, _TAKEN_AT, _LEFT_AT = 148, 24, 120, 144  # in the struct tcp_info

    def __init__(self, link: Any = None) -> None:
        self._link = link if sys.platform == "linux" else None
        self._taken = -1

    def takes(self) -> bool:
        """Whether nothing is left to take, or something was taken since this was asked last."""
        if self._link is None:
            return True
        try:
            told = self._link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, self._ASKED)
        except OSError:  # it has ended
            return False
        if len(told) < self._ASKED:  # a kernel that does not say
            return True
        left = struct.unpack_from("I", told, self._UNACKED_AT)[0] + struct.unpack_from("I", told, self._LEFT_AT)[0]
        before, self._taken = self._taken, struct.unpack_from("Q", told, self._TAKEN_AT)[0]
        return not left or self._taken != before


class Readers:
    """Who reads what, by session (of a script's call its own id)."""

    def __init__(self) -> None:
        self._links: dict[str, list[Link]] = {}

    def open(self, session: str, link: Link) -> Callable[[], None]:
        """Note that what the session gets goes by that connection; what it returns is to be called at its end."""
        self._links.setdefault(session, []).append(link)

        def ended() -> None:
            self._links[session].remove(link)
            if not self._links[session]:
                del self._links[session]

        return ended

    @property
    def sessions(self) -> set[str]:
        """Those of which a stream is open, whether its bytes are taken or not."""
        return set(self._links)

    def _reads(self, session: str) -> bool:
        return any(link.takes() for link in tuple(self._links.get(session, ())))

    def watched(self, session: str | None) -> Callable[[], bool]:
        """What it returns, asked now and then, says whether somebody still reads what that session gets; None: whoever
        may.
        """
        seen = time.monotonic()

        def read() -> bool:
            nonlocal seen
            now = time.monotonic()
            if session is None or self._reads(session):
                seen = now
            return now - seen <= UNREAD_SECONDS

        return read


def during(items: Iterator[Item], *wanted: Callable[[], bool]) -> Iterator[Item]:
    """The same items, for as long as they are wanted."""
    for item in items:
        if not all(each() for each in wanted):
            return
        yield item


async def following(items: AsyncGenerator[Item], *wanted: Callable[[], bool]) -> AsyncIterator[Item]:
    """The same items, for as long as they are wanted; none is begun that is not."""
    async with aclosing(items):
        if not all(each() for each in wanted):
            return
        async for item in items:
            if not all(each() for each in wanted):
                return
            yield item


class Inboxes(OrderedDict[str, Any]):
    """Gradio's messages by session. Full, the oldest makes room that `used` does not name: Gradio's own forgets whoever
    came first, who may wait or run still. With it go the ``events`` that Gradio remembers of it.

    Gradio's queue ends for all where it has something to tell a session that has no inbox: that is lost instead.
    """

    def __init__(self, most: int, used: Callable[[], set[str]], events: dict[str, set[str]]) -> None:
        super().__init__()
        self._most, self._used, self._events = most, used, events

    def __setitem__(self, session: str, messages: Any) -> None:
        if session not in self and len(self) >= self._most:
            used = self._used()
            gone = next((each for each in self if each not in used), None)
            if gone is not None:
                del self[gone]
        super().__setitem__(session, messages)

    def __missing__(self, session: str) -> Queue[Any]:
        return Queue()

    def __delitem__(self, session: str) -> None:
        """Also where it is gone already: of two streams of one session each closes it."""
        self._events.pop(session, None)
        if session in self:
            super().__delitem__(session)
