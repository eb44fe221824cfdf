"""The time of a step on a GPU, predicted from its counted kernels: a model, whose assumptions are the rates here.

A kernel takes the longest of its bytes at the bandwidth, its operations at the products' rate (attention at half of
that) and the shortest time of a kernel. The host launches one after the other while the device computes: a step takes
the longer of the two. A graph is launched at once, and its kernels follow one another faster. Compiled reading takes
three passes over the logits, with KLs eight. Compiled layers take two kernels in place of six.
"""

from collections.abc import Sequence
from dataclasses import replace

from surelock.bench.counts import Counts, Kernel, count_step, meta_engine
from surelock.config import NetworkConfig
from surelock.decoding.step import Layout, Plan
from surelock.engines.break_even import is_faster
from surelock.engines.cuda_graph import bucket_of
from surelock.values import frozen

#: Kernels of a layer that compiled functions spare. The two that they leave move about the bytes of `mul` and `mul_`.
_SPARED = ("roll", "addcmul", "_to_copy", "silu")


@frozen
class Rates:
    """What a GPU and its host reach.

    bandwidth: bytes/s, read and written. flops: operations/s of its products in bfloat16.
    floor, floor_in_graph: seconds of the smallest kernel. launch: seconds of the host for a kernel.
    """

    bandwidth: float
    flops: float
    floor: float
    floor_in_graph: float
    launch: float


#: The prediction of docs/gpu.md, from before any GPU was used.
PREDICTED = Rates(
    bandwidth=3.0e12, flops=594e12, floor=2.5e-6, floor_in_graph=1.5e-6, launch=4.5e-6
)
#: By the card, after profiles, fitted to the measured steps of LLaDA-8B's shape with compiled layers.
CARDS = {
    "h100": Rates(bandwidth=2.6e12, flops=670e12, floor=8e-6, floor_in_graph=8e-6, launch=6.6e-6),
    "h200": Rates(bandwidth=3.7e12, flops=670e12, floor=8e-6, floor_in_graph=8e-6, launch=6.6e-6),
}
#: How far `as_launched` is at most from a measured step.
ERROR = 0.17


def predicted(counts: Counts, mode: str, config: NetworkConfig, rates: Rates = PREDICTED) -> float:
    """Return the seconds of a step. mode: "plain", "graphs" or "fused" (compiled reading)."""
    layers = [kernel for layer in counts.layers for kernel in layer]
    rest = counts.rest
    if mode == "fused":
        rest = _fused(rest, config)
    in_graph = mode == "graphs"
    device = _seconds(layers, rates, in_graph) + _seconds(rest, rates)
    launched = len(rest) if in_graph else len(layers) + len(rest)
    return max(device, launched * rates.launch)


def as_launched(layout: Layout, plan: Plan, config: NetworkConfig, card: str) -> float:
    """Return the seconds of a step on a card, in the form that the engine takes for so many rows."""
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
    flops = rates.flops / 2 if kernel.name == "_varlen_attn" else rates.flops
    return max(kernel.nbytes / rates.bandwidth, kernel.flops / flops, floor)


def _count(layout: Layout, plan: Plan, config: NetworkConfig) -> Counts:
    """The counts of a step. Layers of one kind are counted once."""
    if config.conv_layers or config.n_layers < 2:
        return count_step(meta_engine(config), layout, plan)
    counts = count_step(meta_engine(replace(config, n_layers=2)), layout, plan)
    first, last = counts.layers
    return replace(counts, layers=[first] * (config.n_layers - 1) + [last])


def _compiled(counts: Counts) -> Counts:
    """The counts with compiled layers."""
    layers = [[kernel for kernel in layer if kernel.name not in _SPARED] for layer in counts.layers]
    return replace(counts, layers=layers)


def _fused(rest: list[Kernel], config: NetworkConfig) -> list[Kernel]:
    """The kernels outside the layers if reading is compiled: products, small ones, and a few passes over the logits."""
    row = 2 * config.vocab_size  # bytes in bfloat16
    products = [kernel for kernel in rest if kernel.name == "mm"]
    rows = sum(kernel.flops for kernel in products) // (2 * config.d_model * config.vocab_size)
    # with what KLs read and what is kept
    passes = 8 if any(kernel.name == "expm1" for kernel in rest) else 3
    small = [kernel for kernel in rest if kernel.nbytes < row]
    return [*products, *small, Kernel("passes", passes * rows * row)]
