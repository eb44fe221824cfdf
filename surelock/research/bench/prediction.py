"""The time of a step on a GPU, predicted from its counted kernels: a model, whose assumptions are the constants here.

A kernel takes the longest of its bytes at BANDWIDTH, its operations at FLOPS (attention at half of that) and FLOOR. The
host launches one after the other, LAUNCH each, while the device computes: a step takes the longer of the two. A graph
is launched at once, and its kernels follow one another faster. Compiled reading takes three passes over the logits,
with KLs eight.
"""

from surelock.config import NetworkConfig
from surelock.research.bench.counts import Counts, Kernel

BANDWIDTH = 3.0e12  # bytes/s, read and written, that an H100 reaches
FLOPS = 594e12  # of its bfloat16 products
FLOOR, FLOOR_IN_GRAPH = 2.5e-6, 1.5e-6  # seconds of a kernel
LAUNCH = 4.5e-6  # seconds of the host for a kernel
WITHIN = 0.25  # what the model is expected to be off by


def kernel_seconds(kernel: Kernel, floor: float = FLOOR) -> float:
    rate = FLOPS / 2 if kernel.name == "_varlen_attn" else FLOPS
    return max(kernel.nbytes / BANDWIDTH, kernel.flops / rate, floor)


def predicted(counts: Counts, mode: str, config: NetworkConfig) -> float:
    """Return the seconds of a step. mode: "plain", "graphs" or "fused" (compiled reading)."""
    layers = [kernel for layer in counts.layers for kernel in layer]
    rest = counts.rest
    if mode == "fused":
        rest = _fused(rest, config)
    floor = FLOOR_IN_GRAPH if mode == "graphs" else FLOOR
    device = sum(kernel_seconds(kernel, floor) for kernel in layers) + sum(map(kernel_seconds, rest))
    launched = len(rest) if mode == "graphs" else len(layers) + len(rest)
    return max(device, launched * LAUNCH)


def _fused(rest: list[Kernel], config: NetworkConfig) -> list[Kernel]:
    """The kernels outside the layers if reading is compiled: products, small ones, and a few passes over the logits."""
    row = 2 * config.vocab_size  # bytes in bfloat16
    products = [kernel for kernel in rest if kernel.name == "mm"]
    rows = sum(kernel.flops for kernel in products) // (2 * config.d_model * config.vocab_size)
    passes = 8 if any(kernel.name == "expm1" for kernel in rest) else 3  # with what KLs read and what is kept
    small = [kernel for kernel in rest if kernel.nbytes < row]
    return [*products, *small, Kernel("passes", passes * rows * row)]
