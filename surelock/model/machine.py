"""The names of GPU and processor, their memory, and the peak memory of the process."""

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import torch

_CPUINFO = Path("/proc/cpuinfo")
_MOST_THREADS = 1024
_SHARED = (0, 0)  # torch's memory pool for everything except captured graphs


def set_threads(threads: int | None) -> None:
    """Set the number of threads of torch; None changes nothing.

    Raises ValueError unless the number is 1 to 1024: a much larger number can crash the process.
    """
    if threads is not None:
        if not 0 < threads <= _MOST_THREADS:
            raise ValueError(f"threads: must be from 1 to {_MOST_THREADS}, not {threads}")
        torch.set_num_threads(threads)


def machine(device: torch.device) -> str:
    """Return the name of the GPU or the processor of a device, in at most 80 characters."""
    return (device_name(device) if device.type == "cuda" else processor())[:80]


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def processor() -> str:
    """Return "NAME (INSTRUCTION SET)".

    NAME is the model name in /proc/cpuinfo, or the architecture if there is no such name (always outside Linux). The
    instruction set is the one that torch uses.
    """
    lines = _CPUINFO.read_text("utf-8").splitlines() if _CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory of a GPU, or of the system."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return psutil.virtual_memory().total


def free_memory(device: torch.device) -> int:
    """Return the bytes that can be allocated on a device.

    Memory that torch has reserved and does not use is included, except for memory reserved for captured graphs.
    """
    if device.type != "cuda":
        return psutil.virtual_memory().available
    number = torch.cuda.current_device() if device.index is None else device.index
    held = 0
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] == number and tuple(segment["segment_pool_id"]) == _SHARED:
            held += segment["total_size"] - segment["allocated_size"]
    return torch.cuda.mem_get_info(device)[0] + held


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None on Windows."""
    if find_spec("resource") is None:  # on Windows
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
