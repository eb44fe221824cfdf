"""Engines compute the rows of a plan. They do not know why a run has chosen these rows."""

import os
from typing import Any, Protocol

from numpy.typing import NDArray

from surelock.decoding.step import Layout, Plan, Reading
from surelock.model.config import NetworkConfig

# ONNX Runtime 1.29 and later send telemetry unless this is set before the import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

#: The values of `engine=`. "auto" is ONNX Runtime for float32 on one CPU, torch for everything else.
ENGINES = ("auto", "torch", "onnx")


class Engine(Protocol):
    """Computes the rows of a model's runs.

    name: the name and version of the engine, as traces hold them.
    config: the shape of the network.
    device: the device of the logits, by its name in torch.
    dtype: the dtype of the computation, by its name in torch.
    network: the torch network of the same weights, for dense forwards.
    """

    name: str
    config: NetworkConfig

    @property
    def device(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def network(self) -> Any: ...

    def memory(self, layout: Layout, tell: bool = False) -> Any:
        """Allocate the memory of a run: an empty cache, and room for watched posteriors.

        layout: the shape of the run.
        tell: keep `memory.told` [slots, V], the logits of each slot as of the last time it was a candidate, 0 before.
        """
        ...

    def read(self, memory: Any, plan: Plan) -> Reading:
        """Compute the rows of a plan: write keys and values into the cache, and return the reading."""
        ...

    def logits(self, memory: Any, rows: NDArray) -> NDArray:
        """Return the logits [K, V] of rows of the last plan that was read; NaN for a row that was not read.

        rows: [K] int64, row numbers of the plan.
        """
        ...
