"""The names of GPU and processor, and the peak memory of the process."""

import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")


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
