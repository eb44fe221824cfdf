"""What a time was measured on, and how busy that was."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

_CPUINFO = Path("/proc/cpuinfo")


def device_name(device: torch.device) -> str:
    """The GPU's name, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine(device: torch.device) -> dict[str, Any]:
    """What a time depends on besides the model: the device, the processor and its cores, torch and its threads."""
    return {
        "device": device_name(device),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def load() -> float | None:
    """What waited for a core in the last minute, for each core: 1 is all of them busy. None where nobody counts it."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None


def processor() -> str:
    """The processor's own name where Linux tells it, and the widest instructions that torch uses on it."""
    lines = _CPUINFO.read_text("utf-8").splitlines() if _CPUINFO.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"
