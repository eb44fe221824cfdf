"""Limits of connections: their number, and the time for a request to arrive and for an answer to be read.

The gate sees a request only once its head is complete. Before that, these limits hold.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from surelock.ui.addresses import is_loopback, network_of

HEAD_SECONDS = 10.0  # for the head of a request, after the connection or the last answer
UNREAD_SECONDS = 30.0  # for a piece of an answer to be read
SEND_BUFFER = 2**18  # bytes that the system holds for a connection before it reports unread data
SLICE = 2**12  # bytes that are read at once: of pieces of one byte, 700
MOST = 2000  # connections in all
MOST_OF_ONE = 400  # of one address; a browser opens six
_FULL = b"The server has as many connections as it can hold; try again in a moment."
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Crowd:
    """All connections: at most `most`, and at most MOST_OF_ONE of one client if the client is known."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._here: set[Connection] = set()
        self._of: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}  # for their next request, the longest first

    def enter(self, connection: Connection) -> bool:
        """Add a connection. Returns whether there is room; the connection that has been silent longest makes room."""
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
        """Note that the connection waits for its next request."""
        self._waiting[connection] = None

    def served(self, connection: Connection) -> None:
        """Note that the connection has sent a whole request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Remove a connection."""
        self._waiting.pop(connection, None)
        if connection in self._here:
            self._here.remove(connection)
            if connection.person is not None:
                self._of[connection.person] -= 1
                if not self._of[connection.person]:
                    del self._of[connection.person]


class Connection(H11Protocol):
    """Uvicorn's connection with timeouts for the head of a request and for reading the answer."""

    person: str | None = None  # the client; None behind a proxy

    def __init__(self, *given: Any, crowd: Crowd, **named: Any) -> None:
        super().__init__(*given, **named)
        self._crowd = crowd
        self._silent: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there is no room."""
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
        """Remove the connection and its timers."""
        super().connection_lost(exc)
        self._crowd.leave(self)
        for timer in (self._silent, self._unread):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read data. A whole request ends the wait. Of a body without a length no more is read: the gate refuses it."""
        for start in range(0, len(data), SLICE):
            if self.transport.is_closing() or self._in_pieces():
                return
            super().data_received(data[start : start + SLICE])
        if self._begun() and not self.cycle.more_body:
            self._crowd.served(self)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has arrived."""
        super().on_response_complete()
        self._await_request()

    def pause_writing(self) -> None:
        """Start the timer of an answer that is read too slowly."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def _begun(self) -> bool:
        """Whether the head of a request has arrived and its answer is not complete. The gate reads the body."""
        return self.cycle is not None and not self.cycle.response_complete

    def _in_pieces(self) -> bool:
        return self.scope is not None and any(name == b"transfer-encoding" for name, _ in self.scope["headers"])

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
    """Return the client of an address; None on a Space and on this machine, where a proxy may be calling."""
    return None if "SPACE_ID" in os.environ or is_loopback(address) else network_of(address)


def room() -> int:
    """Return the number of connections that the process can hold: half of its open files, at most MOST."""
    try:
        import resource
    except ImportError:  # Windows counts no sockets
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if files == resource.RLIM_INFINITY else min(MOST, files // 2)
