"""The packed forward of few rows as CUDA graphs, each of which a host launches at once and not kernel by kernel.

A graph has a fixed number of rows, a multiple of 64. A step fills its rows up with rows of no effect, which write to
the spare slot of the cache. A run captures a graph when it needs a number of rows for the second time: the first time
it computes them without one, which prepares all that a capture must not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from surelock.engines.inputs import Rows
from surelock.environment import value_of

_STEP, _MOST = 64, 768  # rows of a graph: with more, launching takes less time than computing

Function = Callable[[Mapping[str, Tensor]], Tensor]


def bucket_of(rows: int) -> int:
    """Return the number of rows of the graph for so many rows; 0 if there is none."""
    return 0 if rows > _MOST else -(-rows // _STEP) * _STEP


def captures(devices: set[torch.device]) -> bool:
    """Return whether graphs are captured: on one GPU, and not on ZeroGPU, which lends one for seconds."""
    return len(devices) == 1 and next(iter(devices)).type == "cuda" and not value_of("SPACES_ZERO_GPU")


class Graph:
    """A captured function of tensors of fixed shapes, of which the graph reads copies.

    sibling: a graph whose memory this one may share; it is never replayed at the same time.
    """

    def __init__(self, function: Function, given: Mapping[str, Tensor], sibling: Graph | None) -> None:
        self._given = {name: tensor.clone() for name, tensor in given.items()}
        self._graph = torch.cuda.CUDAGraph()
        pool = None if sibling is None else sibling._graph.pool()
        with torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"):
            self._result = function(self._given)

    def __call__(self, given: Mapping[str, Tensor]) -> Tensor:
        """Run the function. Its result is overwritten by the next call of this graph or of a sibling."""
        for name, tensor in given.items():
            self._given[name].copy_(tensor)
        self._graph.replay()
        return self._result


class CapturedForward:
    """The packed forward of a run whose rows are filled up to multiples of 64. forward: see `PackedForward`."""

    def __init__(self, forward: Callable[[Rows], Tensor]) -> None:
        self._forward = forward
        self._graphs: dict[int, Graph | None] = {}  # by the number of rows; None after the first step of so many

    def __call__(self, inputs: Rows, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the hidden states of all rows. inputs: filled up. tensors: their arrays on the device."""

        def function(given: Mapping[str, Tensor]) -> Tensor:
            return self._forward(inputs.of(given))

        given, rows = inputs.of(tensors).arrays, inputs.bucket
        if rows not in self._graphs:
            self._graphs[rows] = None
            return function(given)
        graph = self._graphs[rows]
        if graph is None:
            siblings = [graph for graph in self._graphs.values() if graph is not None]
            graph = self._graphs[rows] = Graph(function, given, siblings[0] if siblings else None)
        return graph(given)
