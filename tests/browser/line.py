"""A TCP line to a server that can be cut, as a network does it."""

import socket
import struct
import threading
import time
from contextlib import suppress


class Line:
    """Passes on what comes to its own ``port`` to another port of this machine."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._links: list[socket.socket] = []
        self._until = 0.0
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds: float = 0.0) -> None:
        """Reset every connection; new ones are taken after so many seconds, and reset until then."""
        self._until = time.monotonic() + seconds
        links = self._links
        self._links = []
        for link in links:
            with suppress(OSError):  # it has ended by itself
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                link.shutdown(socket.SHUT_RD)
                link.close()

    def close(self) -> None:
        self._door.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._door.accept()
                if time.monotonic() < self._until:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self.to), 5)
                except OSError:  # nobody is there
                    near.close()
                    continue
                far.settimeout(None)
                self._links += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(come: socket.socket, go: socket.socket) -> None:
    with suppress(OSError):
        while data := come.recv(65536):
            go.sendall(data)
    with suppress(OSError):
        go.shutdown(socket.SHUT_WR)
