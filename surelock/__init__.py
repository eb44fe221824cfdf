"""SureLock: masked diffusion decoding that stops computing tokens once their posterior has converged."""

from surelock.decoding.loop import NonFiniteLogits, Step, decode, generate
from surelock.decoding.settings import DecodeSettings, LockRule, UnlockRule
from surelock.model.families import CheckpointError
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load

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
]
