"""The parts of a step, and a clock that gives each its own time.

The library has no instrumentation. While a step is profiled, and only then, the functions below are
wrapped from here. A part's time is its own: what another part takes inside it is the other's. What none of them takes
is `rest`, so the parts always add up to the step; how much the wrapping costs is told beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from surelock.decoding import loop
from surelock.decoding.choosing import Chooser
from surelock.decoding.compute import ComputeRule
from surelock.decoding.posterior import PosteriorReader
from surelock.model import network as transformer
from surelock.model.cache import KVCache
from surelock.model.packed import PackedForward

#: Functions by part. "products" are those of queries, keys and values and of gate and up; "outputs" are those of
#: attention and feed-forward, added to the residual; "cache" is writing keys and values, and the views that attention
#: reads; "layers" is what these do beside the other parts, the gate's activation included.
FUNCTIONS: dict[str, tuple[tuple[Any, str], ...]] = {
    "embedding": ((F, "embedding"),),
    "rotary": ((transformer, "rotate"), (transformer, "rotary_table")),
    "norms": ((transformer, "rms_norm"),),
    "products": ((F, "linear"),),
    "cache": ((KVCache, "attend"),),
    "attention": ((F, "scaled_dot_product_attention"),),
    "outputs": ((transformer, "_add_product"),),
    "layers": ((PackedForward, "__call__"),),
    "head": ((transformer.Network, "logits"),),
    "posterior": ((PosteriorReader, "read"),),
    "choosing": ((Chooser, "choose"), (Chooser, "repeats"), (Chooser, "late")),
    "unmasking": ((loop._Run, "_unmask"),),
    "report": ((loop._Run, "_report"),),
}
#: In the order of a step.
NAMES: tuple[str, ...] = (
    "embedding", "norms", "products", "rotary", "cache", "attention", "outputs", "layers", "head", "posterior",
    "choosing", "unmasking", "rule", "report", "rest",
)  # fmt: skip


class Parts:
    """Own seconds by part, of what is called inside `watching`; on a GPU each part ends with the device idle."""

    def __init__(self, network: transformer.Network, rule: type[ComputeRule]) -> None:
        self._now = _clock(network.embed.weight.device)
        self._inside = 0.0  # seconds of the parts that the running one has called
        self.seconds: dict[str, float] = dict.fromkeys(NAMES, 0.0)
        places = [(owner, name, part) for part, all_of in FUNCTIONS.items() for owner, name in all_of]
        places += [(rule, "rows", "rule"), (rule, "after", "rule")]
        self._places = [(owner, name, self.wrapped(part, getattr(owner, name))) for owner, name, part in places]

    def wrapped(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with its own time counted to that part."""
        now = self._now

        def counted(*given: Any, **named: Any) -> Any:
            before, self._inside = self._inside, 0.0
            begun = now()
            result = call(*given, **named)
            took = now() - begun
            self.seconds[part] += took - self._inside
            self._inside = before + took
            return result

        return counted

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what is called inside, from zero; then everything is as it was."""
        self.seconds, self._inside = dict.fromkeys(NAMES, 0.0), 0.0
        before = [(owner, name, name in vars(owner), getattr(owner, name)) for owner, name, _ in self._places]
        for owner, name, counted in self._places:
            setattr(owner, name, counted)
        try:
            yield
        finally:
            for owner, name, own, was in before:
                if own:
                    setattr(owner, name, was)
                else:  # a module's forward is its class's, a rule's what it inherits
                    delattr(owner, name)

    def step(self, call: Callable[[], Any]) -> tuple[float, dict[str, float]]:
        """The seconds of a call, and those of each part of it, which add up to them."""
        with self.watching():
            begun = self._now()
            call()
            took = self._now() - begun
        return took, self.seconds | {"rest": took - self._inside}


def _clock(device: torch.device) -> Callable[[], float]:
    if device.type != "cuda":
        return time.perf_counter

    def idle() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return idle
