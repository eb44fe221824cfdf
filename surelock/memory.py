"""Memory that the process has freed."""

import ctypes
import sys


def trim_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    glibc keeps freed memory that many threads have allocated. After fifty visitors, a server would stay a third larger.
    Making a session of ONNX Runtime also leaves much freed memory in many small pieces.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
