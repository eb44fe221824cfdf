"""The packed forward of few rows as CUDA graphs: the host launches a whole graph instead of single kernels.

A graph has a fixed number of rows, a multiple of 64. A step with fewer rows is padded with rows that write to the spare
slot of the cache. All graphs of a memory are captured when the memory is made, so a run need not wait for them.
"""

import math
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


#: Captures a function as a graph. Arguments: the function, and another graph that is never replayed at the same time or
#: None.
Capture = Callable[[Function, "Replayable | None"], Replayable]


def bucket_of(rows: int, compiled: bool = True) -> int:
    """Return the number of rows of the smallest graph for `rows` rows, or 0 if there is no such graph.

    compiled: whether the layers are compiled.
    """
    if rows > _most_rows(compiled):
        return 0
    return math.ceil(rows / _STEP) * _STEP


def buckets(rows: int, compiled: bool) -> list[int]:
    """Return the numbers of rows of all graphs of a memory, descending.

    rows: the largest number of rows of a step. compiled: whether the layers are compiled.
    """
    largest = bucket_of(min(rows, _most_rows(compiled)), compiled)
    return list(range(largest, 0, -_STEP))


def _most_rows(compiled: bool) -> int:
    _, most = FASTER["graph of compiled layers" if compiled else "graph"]
    return int(most)


def captures(devices: set[torch.device]) -> bool:
    """Return whether graphs are captured: on a single GPU, but not on ZeroGPU, which lends a GPU only for seconds."""
    return (
        len(devices) == 1 and next(iter(devices)).type == "cuda" and not value_of("SPACES_ZERO_GPU")
    )


class CapturedGraph:
    """A captured function. Its tensors keep their addresses.

    sibling: another graph, which shares its memory with this graph, or None. See `Capture`.
    """

    def __init__(self, function: Function, sibling: Replayable | None) -> None:
        self._graph = torch.cuda.CUDAGraph()
        pool = sibling._graph.pool() if isinstance(sibling, CapturedGraph) else None
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._result = function()

    def __call__(self) -> Tensor:
        """Run the function and return its result. The next call of this graph or of a sibling overwrites the result."""
        self._graph.replay()
        return self._result


class CapturedForward:
    """The packed forward of a memory as graphs. All graphs read their inputs from the same tensors.

    forward: the `PackedForward`.
    fillers: a function that returns the requested number of padding rows, with arrays of numpy.
    sizes: the numbers of rows of the graphs, descending. Smaller graphs use the memory of the largest.
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
            function()  # the first call allocates and compiles, which a capture must not do
            self._graphs[size] = capture(function, self._graphs.get(sizes[0]))

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._arrays.values())

    def __call__(self, inputs: Rows, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the hidden states of all rows, [bucket, d_model].

        inputs: rows that are padded to the size of a graph. tensors: the arrays of `inputs`, on the device.
        """
        self._put({name: tensors[name] for name in inputs.arrays})
        return self._graphs[inputs.bucket]()

    def _put(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copy tensors to the memory that the graphs read. Return tensors of that memory."""
        places = {name: self._arrays[name][: len(tensor)] for name, tensor in tensors.items()}
        for name, place in places.items():
            place.copy_(tensors[name])
        return places
