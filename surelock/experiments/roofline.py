"""The least time a step can take on a device: reading the weights once, or doing its matrix products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from surelock.decoding.stopwatch import Stopwatch
from surelock.model.network import Network

_SIZES = {"cuda": (2**32, 8192), "cpu": (2**27, 1024)}  # bytes to copy, side of the square product


@dataclass(frozen=True, slots=True)
class Roofline:
    """bandwidth: measured copy bandwidth (read + write) in bytes/s. rate: measured matrix product rate in FLOP/s.

    weight_bytes: what a forward reads of the weights. head_flops: of one row's logits.
    """

    bandwidth: float
    rate: float
    weight_bytes: int
    head_flops: float

    @classmethod
    def measure(cls, network: Network) -> Roofline:
        """Measure the device of the network's embedding."""
        weight = network.embed.weight
        size, side = _SIZES.get(weight.device.type, _SIZES["cpu"])
        source = torch.ones(size, dtype=torch.uint8, device=weight.device)
        target = torch.empty_like(source)
        a, b = torch.randn(2, side, side, dtype=weight.dtype, device=weight.device)
        used = [p for p in network.parameters() if network.config.tied or p is not weight]
        return cls(
            bandwidth=2 * size / _best(lambda: target.copy_(source), weight.device),
            rate=2 * side**3 / _best(lambda: a @ b, weight.device),
            weight_bytes=sum(p.numel() * p.element_size() for p in used),
            head_flops=2.0 * weight.numel(),
        )

    def seconds(self, flops: float, rows: int) -> float:
        """max(weight bytes / bandwidth, FLOPs / rate) of a step that computes `rows` rows; the head's are added."""
        return max(self.weight_bytes / self.bandwidth, (flops + rows * self.head_flops) / self.rate)


def _best(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median seconds of a call."""
    seconds, watch = [], Stopwatch(device)
    for _ in range(repeats):
        watch.start()
        call()
        seconds.append(watch.seconds())
    return sorted(seconds)[repeats // 2]
