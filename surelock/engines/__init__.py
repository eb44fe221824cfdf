"""Who computes rows: an engine reads what a run's plan names, and knows nothing of why."""

from __future__ import annotations

import os
from typing import Any, Protocol

from numpy.typing import NDArray

from surelock.decoding.step import Layout, Plan, Reading
from surelock.model.config import NetworkConfig

# ONNX Runtime 1.29 and later send events to its makers unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

#: What can be asked for: "auto" is ONNX Runtime for float32 on one CPU, torch for everything else.
ENGINES = ("auto", "torch", "onnx")


class Engine(Protocol):
    """Computes the rows of a model's runs.

    name: with its version, as a trace tells it. config: the network's shape.
    device, dtype: where logits come out and what the network computes in, as torch calls them.
    network: the torch network of the same weights, for what is no step.
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
        """What is kept of a run of that layout; nothing is cached yet.

        tell: its `told` [slots, V] holds the logits of each slot from when its row was last read, 0 before.
        """
        ...

    def read(self, memory: Any, plan: Plan) -> Reading:
        """Compute a step."""
        ...

    def logits(self, memory: Any, rows: NDArray) -> NDArray:
        """Logits of rows of the step that was read last, [K, V]: NaN where a row was not read."""
        ...
