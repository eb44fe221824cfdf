"""Connections: how many there are, and how long each may leave its request half said or its answer unread.

What happens before a request is whole never reaches the gate.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from surelock.ui.addresses import is_loopback, network_of

HEAD_SECONDS = 10.0  # for the head of a request, from the connection or the answer before
UNREAD_SECONDS = 30.0  # for a piece of an answer to be taken
SEND_BUFFER = 2**18  # bytes of a connection that the system holds: what is unread shows by then
MOST = 2000  # connections in all
MOST_OF_ONE = 400  # of one address; a browser opens six
_FULL = b"The server has as many connections as it can hold; try again in a moment."
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Crowd:
    """Everyone who is connected: at most ``most``, of one address at most MOST_OF_ONE where addresses are people."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._here: set[Connection] = set()
        self._of: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}  # for their next request, the longest first

    def enter(self, connection: Connection) -> bool:
        """Whether there is room. Where there is none, the connection that has said nothing for longest goes."""
        person = connection.person
        if person is not None and self._of[person] >= MOST_OF_ONE:
            return False
        while len(self._here) >= self.most:
            if not self._waiting:
                return False
            silent = next(iter(self._waiting))
            self.leave(silent)
            silent.transport.abort()
        self._here.add(connection)
        if person is not None:
            self._of[person] += 1
        return True

    def wait(self, connection: Connection) -> None:
        """It has no whole request, from now on."""
        self._waiting[connection] = None

    def served(self, connection: Connection) -> None:
        """It has brought a whole request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """It is gone."""
        self._waiting.pop(connection, None)
        if connection in self._here:
            self._here.remove(connection)
            if connection.person is not None:
                self._of[connection.person] -= 1
                if not self._of[connection.person]:
                    del self._of[connection.person]


class Connection(H11Protocol):
    """Uvicorn's connection, which by itself waits for a request's head, and for its answer to be read, for ever."""

    person: str | None = None  # whose it is, None where the address tells nothing of who calls

    def __init__(self, *given: Any, crowd: Crowd, **named: Any) -> None:
        super().__init__(*given, **named)
        self._crowd = crowd
        self._silent: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or say that there is no room."""
        super().connection_made(transport)
        link = transport.get_extra_info("socket")
        if link is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.person = person(self.client[0]) if self.client else None
        if not self._crowd.enter(self):
            self.logger.warning("A connection was refused: there are too many.")
            transport.write(_REFUSAL)
            transport.close()
            return
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._crowd.leave(self)
        for timer in (self._silent, self._unread):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read on; a request that is whole ends the wait."""
        super().data_received(data)
        if self._begun() and not self.cycle.more_body:
            self._crowd.served(self)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is here."""
        super().on_response_complete()
        self._await_request()

    def pause_writing(self) -> None:
        """The answer is not read as fast as it is sent."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has been read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _begun(self) -> bool:
        """Whether a request's head is here and its answer is not complete; its body is the gate's business."""
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        self._crowd.served(self)
        if self._silent is not None:
            self._silent.cancel()
        if self._begun() and not self.cycle.more_body:
            return
        self._crowd.wait(self)
        seconds = UNREAD_SECONDS if self.transport.get_write_buffer_size() else HEAD_SECONDS
        self._silent = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if not self._begun():
            self.transport.abort()


def person(address: str) -> str | None:
    """Who connects: a network. None on a Space and from this machine, where a proxy speaks for everybody."""
    return None if "SPACE_ID" in os.environ or is_loopback(address) else network_of(address)


def room() -> int:
    """How many connections the process can hold: half of its files, the rest is for those at the door and for runs."""
    try:
        import resource
    except ImportError:  # Windows counts no sockets
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)
