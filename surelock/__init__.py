"""SureLock: masked diffusion decoding that stops computing tokens once their posterior has converged."""

from typing import TYPE_CHECKING, Any

from surelock.decoding.loop import NonFiniteLogits, Step, decode, generate
from surelock.decoding.settings import DecodeSettings, LockRule, UnlockRule
from surelock.model.families import CheckpointError
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load

if TYPE_CHECKING:
    from surelock.trace.frames import read_trace

__all__ = [
    "CheckpointError",
    "DecodeSettings",
    "LanguageModel",
    "LockRule",
    "NonFiniteLogits",
    "Step",
    "UnlockRule",
    "decode",
    "generate",
    "load",
    "read_trace",
]


def __getattr__(name: str) -> Any:
    """`read_trace` needs pandas, which everything else does without: it is imported when first asked for."""
    if name == "read_trace":
        from surelock.trace.frames import read_trace

        return read_trace
    raise AttributeError(f"module 'surelock' has no attribute {name!r}")
