"""The names of GPU and processor, and the memory of the process."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch

from surelock.model.families import SHOW_PROGRESS_FROM

_CPUINFO = Path("/proc/cpuinfo")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt


def machine(device: torch.device) -> str:
    """Return the name of the GPU or the processor of a device, in at most 80 characters."""
    return (device_name(device) if device.type == "cuda" else processor())[:80]


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def processor() -> str:
    """Return the name of the processor, if Linux knows it, and the widest instructions that torch uses."""
    lines = _CPUINFO.read_text("utf-8").splitlines() if _CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None on Windows."""
    if find_spec("resource") is None:  # on Windows
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


@contextmanager
def weights_apart(parameters: int) -> Iterator[None]:
    """A context in which a network is loaded: on Linux with glibc the weights of a large one get mappings of their own.

    parameters: their number.

    Elsewhere they lie in the heap, between what is freed while they are made, and all that is allocated later is
    scattered over these gaps: the process takes a tenth more. The thresholds that are set afterwards are those that
    glibc itself comes to when a table of 32 MB has been freed.
    """
    large = parameters >= SHOW_PROGRESS_FROM and sys.platform == "linux"
    library = ctypes.CDLL(None) if large else None
    set_option, trim = (getattr(library, name, None) for name in ("mallopt", "malloc_trim"))
    if set_option is None or trim is None:
        yield
        return
    set_option(_MMAP_THRESHOLD, 2**20)
    try:
        yield
    finally:
        set_option(_MMAP_THRESHOLD, 2**25)
        set_option(_TRIM_THRESHOLD, 2**26)
        trim(0)
