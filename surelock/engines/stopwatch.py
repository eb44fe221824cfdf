"""The time of a step: the device is synchronised at both ends, and observation is excluded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Stopwatch:
    """Wall-clock seconds since `start`, without the time inside `excluded`.

    device: the device to synchronise; None if every call is finished when it returns.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device
        self._start = self._excluded = 0.0

    def _now(self) -> float:
        if self._device is not None and self._device.type == "cuda":
            from torch import cuda

            cuda.synchronize(self._device)
        return time.perf_counter()

    def start(self) -> None:
        self._start, self._excluded = self._now(), 0.0

    @contextmanager
    def excluded(self) -> Iterator[None]:
        before = self._now()
        yield
        self._excluded += self._now() - before

    def seconds(self) -> float:
        return self._now() - self._start - self._excluded
