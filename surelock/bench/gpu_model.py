"""Predicts the time of a step on a GPU from its counted kernels. The model assumes the rates below, and what follows.

The time of a kernel is the longest of three times: its bytes at the bandwidth, its operations at the rate of matrix
products (at half of that rate for attention), and the shortest time of any kernel. The device takes the sum of its
kernels' times, and the host takes a fixed time per launch. A step takes the longer of these two times.

If the layers are launched as a graph, the host's time for the layers is neglected, and the layers' kernels have another
shortest time, `floor_in_graph`. Compiled reading (posteriors from logits) moves three times the bytes of the logits,
or eight times with KLs, which also read and write the kept posteriors. Compiled layers launch two kernels in place of
six.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from surelock.bench.counts import Counts, Kernel, count_step, meta_engine
from surelock.config import NetworkConfig
from surelock.decoding.step import Layout, Plan
from surelock.engines.break_even import is_faster
from surelock.engines.cuda_graph import bucket_of
from surelock.values import frozen

#: Kernels of a layer that are not launched when the layer is compiled. Compiled functions replace six kernels by two.
#: Of the six, these four are removed; `mul` and `mul_` stay and stand for the two new kernels, which move about as many
#: bytes.
_SPARED = ("roll", "addcmul", "_to_copy", "silu")


@frozen
class Rates:
    """The rates of a GPU and its host."""

    bandwidth: float  # bytes a second, read and written
    flops: float  # operations a second of matrix products in bfloat16
    floor: float  # seconds of the smallest kernel
    floor_in_graph: float  # seconds of the smallest kernel in a graph
    launch: float  # seconds that the host takes to launch a kernel


#: The rates of the prediction in docs/gpu.md. They were assumed before any GPU was measured.
PREDICTED = Rates(
    bandwidth=3.0e12, flops=594e12, floor=2.5e-6, floor_in_graph=1.5e-6, launch=4.5e-6
)
#: The rates by card. They were fitted to measured steps of LLaDA-8B's shape with compiled layers.
CARDS = {
    "h100": Rates(bandwidth=2.6e12, flops=670e12, floor=8e-6, floor_in_graph=8e-6, launch=6.6e-6),
    "h200": Rates(bandwidth=3.7e12, flops=670e12, floor=8e-6, floor_in_graph=8e-6, launch=6.6e-6),
}
#: The greatest relative error of `as_launched` over the steps of LLaDA-8B's shape that were measured with compiled
#: layers (docs/gpu.md; the step of 1,049 rows is left out).
ERROR = 0.17


def predicted(counts: Counts, mode: str, config: NetworkConfig, rates: Rates = PREDICTED) -> float:
    """Return the predicted seconds of a step.

    mode: how the step is launched: "plain", "graphs" or "fused" (compiled reading).
    """
    layers = list(chain.from_iterable(counts.layers))
    rest = counts.rest
    if mode == "fused":
        rest = _fused(rest, config)
    in_graph = mode == "graphs"
    device = _seconds(layers, rates, in_graph) + _seconds(rest, rates)
    launched = len(rest) if in_graph else len(layers) + len(rest)
    return max(device, launched * rates.launch)


def as_launched(layout: Layout, plan: Plan, config: NetworkConfig, card: str) -> float:
    """Return the predicted seconds of a step on a card, launched as the engine launches a step of this size."""
    rates = CARDS[card]
    counts = _compiled(_count(layout, plan, config))
    rows = layout.passes * len(plan.slots)
    read = len(plan.read)
    mode = "plain"
    if is_faster("compiled reading", read):
        mode = "fused"
    elif bucket_of(rows) > 0:
        mode = "graphs"
    return predicted(counts, mode, config, rates)


def _seconds(kernels: Sequence[Kernel], rates: Rates, in_graph: bool = False) -> float:
    floor = rates.floor_in_graph if in_graph else rates.floor
    return sum(kernel_seconds(kernel, rates, floor) for kernel in kernels)


def kernel_seconds(kernel: Kernel, rates: Rates, floor: float) -> float:
    """Return the seconds of a kernel. floor: the seconds of the smallest kernel."""
    flops = rates.flops / 2 if kernel.name == "_varlen_attn" else rates.flops
    return max(kernel.nbytes / rates.bandwidth, kernel.flops / flops, floor)


def _count(layout: Layout, plan: Plan, config: NetworkConfig) -> Counts:
    """Return the counts of a step.

    Without convolution layers all layers but the last are equal, so a network of two layers is counted.
    """
    if config.conv_layers or config.n_layers < 2:
        return count_step(meta_engine(config), layout, plan)
    counts = count_step(meta_engine(replace(config, n_layers=2)), layout, plan)
    first, last = counts.layers
    return replace(counts, layers=[first] * (config.n_layers - 1) + [last])


def _compiled(counts: Counts) -> Counts:
    """Return the counts of a step with compiled layers."""
    layers = []
    for layer in counts.layers:
        layers.append([kernel for kernel in layer if kernel.name not in _SPARED])
    return replace(counts, layers=layers)


def _fused(rest: list[Kernel], config: NetworkConfig) -> list[Kernel]:
    """Return what `rest`, the kernels outside the layers, becomes with compiled reading.

    The matrix products and the small kernels stay; one kernel stands for the passes over the logits.
    """
    row = 2 * config.vocab_size  # bytes of a row of logits in bfloat16
    products = [kernel for kernel in rest if kernel.name == "mm"]
    rows = sum(kernel.flops for kernel in products) // (2 * config.d_model * config.vocab_size)
    # KLs read and write the kept posteriors, too
    passes = 8 if any(kernel.name == "expm1" for kernel in rest) else 3
    small = [kernel for kernel in rest if kernel.nbytes < row]
    return [*products, *small, Kernel("passes", passes * rows * row)]
