"""The packed forward of few rows as CUDA graphs: the host launches a graph at once, not kernel by kernel.

A graph has a fixed number of rows, a multiple of 64. A step adds rows of no effect up to this number; they
write to the spare slot of the cache. All graphs of a memory are captured when it is made: no run waits.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from surelock.engines.break_even import FASTER
from surelock.engines.inputs import Rows, upload
from surelock.environment import value_of

_STEP = 64  # rows

Function = Callable[[], Tensor]


class Replayable(Protocol):
    def __call__(self) -> Tensor: ...


#: Captures a function. Called with the function, and with a graph that is never replayed at the same time, or None.
Capture = Callable[[Function, "Replayable | None"], Replayable]


def bucket_of(rows: int, compiled: bool = True) -> int:
    """Return the rows of the smallest graph that takes `rows` rows; 0 if none does. compiled: whether layers are."""
    _, most = FASTER["graph of compiled layers" if compiled else "graph"]
    return 0 if rows > most else -(-rows // _STEP) * _STEP


def buckets(rows: int, compiled: bool) -> list[int]:
    """Return the rows of all graphs of a memory, descending. rows: the most that a step computes."""
    _, most = FASTER["graph of compiled layers" if compiled else "graph"]
    largest = bucket_of(min(rows, int(most)), compiled)
    return list(range(largest, 0, -_STEP))


def captures(devices: set[torch.device]) -> bool:
    """Return whether graphs are captured: on one GPU, and not on ZeroGPU, which lends a GPU for seconds."""
    return (
        len(devices) == 1 and next(iter(devices)).type == "cuda" and not value_of("SPACES_ZERO_GPU")
    )


class CapturedGraph:
    """A captured function; its tensors keep their addresses. sibling: the graph of `Capture`; the two share memory."""

    def __init__(self, function: Function, sibling: Replayable | None) -> None:
        self._graph = torch.cuda.CUDAGraph()
        pool = sibling._graph.pool() if isinstance(sibling, CapturedGraph) else None
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._result = function()

    def __call__(self) -> Tensor:
        """Run the function. Its result is overwritten by the next call of this graph or of a sibling."""
        self._graph.replay()
        return self._result


class CapturedForward:
    """The packed forward of a memory as graphs, which read the same arrays.

    forward: see `PackedForward`.
    fillers: called with a number, returns so many rows of no effect, with arrays of numpy.
    sizes: the numbers of rows, descending: smaller graphs use the memory of the largest.
    """

    def __init__(
        self,
        forward: Callable[[Rows], Tensor],
        fillers: Callable[[int], Rows],
        sizes: Sequence[int],
        device: torch.device,
        capture: Capture,
    ) -> None:
        largest = fillers(sizes[0])
        self._arrays = {
            name: tensor.clone() for name, tensor in upload(largest.arrays, device).items()
        }
        self._graphs: dict[int, Replayable] = {}
        for size in sizes:
            rows = fillers(size)
            function = partial(forward, rows.with_tensors(self._put(upload(rows.arrays, device))))
            function()  # allocates and compiles, which a capture must not do
            self._graphs[size] = capture(function, self._graphs.get(sizes[0]))

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._arrays.values())

    def __call__(self, inputs: Rows, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the hidden states of all rows. inputs: filled up to a size. tensors: their arrays on the device."""
        self._put({name: tensors[name] for name in inputs.arrays})
        return self._graphs[inputs.bucket]()

    def _put(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors to the places that the graphs read. Return the places, as tensors."""
        places = {name: self._arrays[name][: len(tensor)] for name, tensor in tensors.items()}
        for name, place in places.items():
            place.copy_(tensors[name])
        return places
