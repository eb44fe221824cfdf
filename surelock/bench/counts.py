"""`bench counts` counts the kernels that one step launches on a GPU, and its copies to and from the GPU.

No GPU is needed: the engine runs at LLaDA-8B's shape on tensors without data (torch's device "meta"). Two steps are
counted: one computes every row, in the other a rule has locked half of the rows. CUDA graphs and fused reading need a
GPU and are left out; they can only lower the counts.

Reading a value of a tensor without data is an error. So the count also shows that a step waits for the GPU only at its
download.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, product
from math import prod
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from surelock.bench.timing import Figures
from surelock.config import LLADA_8B, NetworkConfig
from surelock.decoding.step import Choice, Layout, Plan, lent
from surelock.engines.torch import TorchEngine
from surelock.model.network import empty_network
from surelock.values import frozen

#: The (generated tokens, batch) of the counted steps. A prompt has PROMPT tokens.
SIZES = ((64, 1), (256, 4), (1024, 8))
PROMPT = 64
#: Operators that launch no kernel: they make views, or allocate memory.
_VIEWS = (
    "_reshape_alias _unsafe_view alias as_strided detach empty empty_like empty_strided expand lift_fresh new_empty "
    "permute reshape select slice split split_with_sizes squeeze t transpose unbind unflatten unsqueeze view"
)
_FREE = frozenset(_VIEWS.split())


@frozen
class Kernel:
    """One launch of a kernel."""

    name: str  # the operator
    nbytes: int = 0  # bytes that it reads and writes
    flops: int = 0  # floating-point operations


@dataclass(slots=True)
class Counts:
    """The kernels and copies of a step."""

    layers: list[list[Kernel]] = field(default_factory=list)  # the kernels of every layer
    rest: list[Kernel] = field(default_factory=list)  # the kernels outside the layers
    uploads: int = 0  # copies to the device
    downloads: int = 0  # copies from the device
    inside: int = 0  # uploads and downloads inside a layer

    @property
    def a_layer(self) -> int:
        """The number of kernels in a layer. The last layer has others, since it picks the rows that are read."""
        (count,) = {len(layer) for layer in self.layers[:-1]}
        return count

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels of the step."""
        return [*chain.from_iterable(self.layers), *self.rest]


class _Fused(TorchFunctionMode):
    """Counts a norm as one kernel, as on a GPU. On tensors without data torch splits a norm into several operators."""

    def __init__(self, counter: "_Counter") -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (F.rms_norm, torch.rms_norm):
            return func(*args, **(kwargs or {}))
        self._counter.add(Kernel("rms_norm", 2 * _bytes(args[0])))
        return torch.empty_like(args[0])


class _Counter(TorchDispatchMode):
    """Counts the operators on tensors without data. A download returns a tensor of ones."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self._inside = False

    def add(self, kernel: Kernel) -> None:
        """Add a kernel to the present layer, or outside a layer to the rest."""
        kernels = self.counts.layers[-1] if self._inside else self.counts.rest
        kernels.append(kernel)

    def begin_layer(self, *_: Any) -> None:
        self.counts.layers.append([])
        self._inside = True

    def end_layer(self, *_: Any) -> None:
        self._inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        to_cpu = kwargs.get("device") == torch.device("cpu")
        if name == "_to_copy" and tensors[0].is_meta and to_cpu:
            self._copied("downloads")
            return torch.ones(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        out = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        places = {tensor.device.type for tensor in (*tensors, *made)}
        if places == {"meta", "cpu"} and name in ("_to_copy", "copy_"):
            self._copied("uploads")
        elif "meta" in places and name not in _FREE:
            for kernel in _kernels(name, func._overloadname, tensors, made):
                self.add(kernel)
        return out

    def _copied(self, way: str) -> None:
        """Count a copy. way: "uploads" or "downloads"."""
        setattr(self.counts, way, getattr(self.counts, way) + 1)
        self.counts.inside += self._inside


def _kernels(
    name: str, overload: str, tensors: Sequence[Tensor], made: Sequence[Tensor]
) -> list[Kernel]:
    """Return the kernels of an operator. tensors: its inputs. made: its outputs."""
    written = sum(map(_bytes, made))
    if name == "_varlen_attn":  # attention also fills 16 bytes with zeros
        q, k, _, edges = tensors[:4]
        seen = len(k) // (len(edges) - 1)  # keys of a sequence, the mean over sequences
        attention = Kernel(name, 2 * _bytes(q) + 2 * _bytes(k), 4 * q.numel() * seen)
        return [attention, Kernel("zeros", 16)]
    if name in ("mm", "addmm", "addmm_"):
        a, b = tensors[:2] if name == "mm" else tensors[-2:]
        nbytes = sum(map(_bytes, tensors)) + written
        flops = 2 * a.shape[0] * a.shape[1] * b.shape[1]
        return [Kernel(name, nbytes, flops)]
    if name in ("index", "embedding"):
        return [Kernel(name, 2 * written)]
    if name in ("index_put_", "index_copy_"):
        return [Kernel(name, 2 * _bytes(tensors[-1]))]
    if name in ("fill_", "zeros", "full"):
        return [Kernel(name, written)]
    nbytes = sum(map(_bytes, tensors))
    if "out" not in overload:  # an output that was passed in is counted among the inputs
        nbytes += written
    if name == "_softmax":  # a row exceeds shared memory, so that it is passed three times
        nbytes += 2 * written
    return [Kernel(name, nbytes)]


def _bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor in memory. A dimension that only repeats values (stride 0) does not count."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = prod(size for size, stride in sizes if stride)
    return elements * tensor.element_size()


@cache
def meta_engine(config: NetworkConfig = LLADA_8B) -> TorchEngine:
    """Return an engine in bfloat16 with tensors without data."""
    return TorchEngine(empty_network(config).to(torch.bfloat16).eval().requires_grad_(False))


def plan_of(engine: TorchEngine, gen_length: int, batch: int, locked: bool) -> tuple[Layout, Plan]:
    """Return the layout and the plan of a step in the middle of a run.

    gen_length: generated tokens of a sequence. batch: the number of sequences.
    locked: whether half of all positions are locked, while the others are compared with their last posterior.
    """
    length = PROMPT + gen_length
    rng = np.random.default_rng(0)
    masked = gen_length // 2
    slots = []
    chooses = []
    for b in range(batch):
        active = length
        if locked:
            active = length // 2
            if batch > 1:  # sequences of a batch differ a little
                active += int(rng.integers(-length // 20, length // 20 + 1))
        shown = min(masked, int(0.8 * active))
        rows = np.sort(rng.choice(length - shown, active - shown, replace=False))
        rows = np.concatenate((rows, np.arange(length - shown, length)))
        slots.append(rows + b * length)
        chooses.append(rows >= length - shown)
    flat = np.concatenate(slots)
    candidates = np.concatenate(chooses)
    none = np.zeros(len(flat), dtype=bool)
    watches = np.full(len(flat), locked)
    plan = Plan(
        step=gen_length // 2,
        slots=flat,
        counts=[len(rows) for rows in slots],
        tokens=np.zeros(len(flat), dtype=np.int64),
        positions=flat % length,
        probed=none,
        watches=watches,
        compares=watches & ~candidates,
        choice=Choice(candidates, "confidence", banned=[1]),
    )
    return Layout((length,) * batch, 1), plan


@contextmanager
def counted(engine: TorchEngine) -> Iterator[Counts]:
    """Return a context that counts the kernels and copies of the engine inside it."""
    counter = _Counter()
    with ExitStack() as stack:
        for block in cast("Sequence[nn.Module]", engine.network.blocks):
            stack.callback(block.register_forward_pre_hook(counter.begin_layer).remove)
            stack.callback(block.register_forward_hook(counter.end_layer).remove)
        stack.enter_context(_Fused(counter))
        stack.enter_context(counter)
        yield counter.counts


def count_step(engine: TorchEngine, layout: Layout, plan: Plan) -> Counts:
    """Return the counts of a step. The step is computed twice: the second time there are posteriors to compare with."""
    with lent(engine, layout) as memory:
        with counted(engine):
            engine.read(memory, plan)
        with counted(engine) as counts:
            engine.read(memory, plan)
    return counts


def table() -> list[Figures]:
    """Return the counts of all sizes, one JSON object per step."""
    engine = meta_engine()
    lines = []
    for (gen_length, batch), locked in product(SIZES, (False, True)):
        counts = count_step(engine, *plan_of(engine, gen_length, batch, locked))
        line = {
            "gen": gen_length,
            "batch": batch,
            "locked": locked,
            "kernels_a_layer": counts.a_layer,
        }
        line |= {
            "kernels": len(counts.kernels),
            "uploads": counts.uploads,
            "downloads": counts.downloads,
        }
        lines.append(line)
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench counts`."""
    parser.set_defaults(run=lambda _: table())
