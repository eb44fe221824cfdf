"""Memory that the process has freed."""

import ctypes
import sys


def trim_memory() -> None:
    """Return freed memory to the system, where the C library is glibc.

    It keeps memory that many threads have allocated and freed: after fifty visitors a server would stay a third larger.
    What a session of ONNX Runtime is made of lies scattered.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
