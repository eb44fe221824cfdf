"""The time of a step. The device is synchronised when the time begins and ends. Observation is excluded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Measures wall-clock seconds since `start`, without the time inside `excluded`.

    device: the device to synchronise.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start = self._excluded = 0.0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def start(self) -> None:
        self._start = self._now()
        self._excluded = 0.0

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """A context manager: the time of its body does not count."""
        before = self._now()
        yield
        self._excluded += self._now() - before

    def seconds(self) -> float:
        """Return the seconds since `start`."""
        return self._now() - self._start - self._excluded
