"""Readers of streams: a run that nobody reads does not go on, and messages are kept for open sessions."""

import asyncio
import socket
import struct
import sys
import time
from asyncio import Queue
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

UNREAD_SECONDS = 10.0  # a run without a reader goes on for so long
TAKEN_SECONDS = 0.01  # until the first look whether a message was taken; each next one takes twice as long,
RARELY_SECONDS = 0.3  # up to this: hundreds may wait for readers that never come
KEPT_SECONDS = 30.0  # messages of a session that reads no stream are kept for so long
Item = TypeVar("Item")


class Link:
    """The connection of a stream. Linux reports whether the other end reads; elsewhere it is assumed to."""

    _ASKED, _UNACKED_AT, _TAKEN_AT, _LEFT_AT = 148, 24, 120, 144  # in the struct tcp_info

    def __init__(self, link: Any = None) -> None:
        self._link = link if sys.platform == "linux" else None
        self._taken = -1

    def takes(self) -> bool:
        """Return whether everything sent has been read, or something was read since the last call."""
        if self._link is None:
            return True
        try:
            info = self._link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, self._ASKED)
        except OSError:  # it has ended
            return False
        if len(info) < self._ASKED:  # a kernel that does not say
            return True
        left = struct.unpack_from("I", info, self._UNACKED_AT)[0] + struct.unpack_from("I", info, self._LEFT_AT)[0]
        before, self._taken = self._taken, struct.unpack_from("Q", info, self._TAKEN_AT)[0]
        return not left or self._taken != before


class Readers:
    """The open streams of each session. A script's call is a session of its own."""

    def __init__(self) -> None:
        self._links: dict[str, list[Link]] = {}

    def open(self, session: str, link: Link) -> Callable[[], None]:
        """Register a stream of a session. Call the returned function when the stream ends."""
        self._links.setdefault(session, []).append(link)

        def ended() -> None:
            self._links[session].remove(link)
            if not self._links[session]:
                del self._links[session]

        return ended

    @property
    def sessions(self) -> set[str]:
        """The sessions with an open stream, read or not."""
        return set(self._links)

    def _reads(self, session: str) -> bool:
        return any(link.takes() for link in tuple(self._links.get(session, ())))

    def watched(self, session: str | None) -> Callable[[], bool]:
        """Return a function that says whether a session still reads. Call it regularly.

        session: None is always read.
        """
        seen = time.monotonic()

        def read() -> bool:
            nonlocal seen
            now = time.monotonic()
            if session is None or self._reads(session):
                seen = now
            return now - seen <= UNREAD_SECONDS

        return read


async def following(
    items: AsyncGenerator[Item], wanted: Callable[[], bool], taken: Callable[[], bool]
) -> AsyncIterator[Item]:
    """Yield the items while `wanted` is true. No item is begun otherwise.

    taken: returns whether the item before has been taken. The next is begun then; if that takes UNREAD_SECONDS, the
    items end.
    """
    async with aclosing(items):
        if not wanted():
            return
        async for item in items:
            if not wanted():
                return
            yield item
            until, pause = time.monotonic() + UNREAD_SECONDS, TAKEN_SECONDS
            while not taken():
                if time.monotonic() > until or not wanted():
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, RARELY_SECONDS)


class Inboxes(OrderedDict[str, Any]):
    """Gradio's messages by session, at most `most` of them.

    used: returns the sessions that must be kept. Another one is dropped after KEPT_SECONDS, and the oldest of them if
    the mapping is full, when a session comes; Gradio's own mapping drops the oldest session even if it still runs.
    events: Gradio's events by session, dropped with it.

    A message for an unknown session is lost. In Gradio's own mapping it ends the queue for everybody.
    """

    def __init__(self, most: int, used: Callable[[], set[str]], events: dict[str, set[str]]) -> None:
        super().__init__()
        self._most, self._used, self._events = most, used, events
        self._used_at: dict[str, float] = {}

    def __setitem__(self, session: str, messages: Any) -> None:
        now, used = time.monotonic(), self._used()
        self._used_at |= {each: now for each in (*self, session) if each in used or each == session}
        if session not in self:
            idle = [each for each in self if each not in used]
            old = [each for each in idle if now - self._used_at[each] > KEPT_SECONDS]
            for gone in old or idle[: len(self) >= self._most]:
                del self[gone]
        super().__setitem__(session, messages)

    def taken(self, session: str) -> bool:
        """Return whether no message of a session waits to be taken."""
        return session not in self or self[session].empty()

    def __missing__(self, session: str) -> Queue[Any]:
        return Queue()

    def __delitem__(self, session: str) -> None:
        """Delete a session, which may be gone already: each of two streams of a session closes it."""
        self._events.pop(session, None)
        self._used_at.pop(session, None)
        if session in self:
            super().__delitem__(session)
