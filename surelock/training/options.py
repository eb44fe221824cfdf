"""What a training run is told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from surelock.model.flags import check_threads

_POSITIVE = (
    "minutes", "steps", "batch_tokens", "processes", "threads", "evaluate_draws", "pieces", "d_model", "layers",
    "heads", "ffn", "max_length", "muon_rate", "adam_rate", "evaluate_minutes", "save_minutes",
)  # fmt: skip

#: Beyond these nothing here could be allocated.
_MOST = {
    "pieces": 10**6, "layers": 1000, "max_length": 10**6, "batch_tokens": 10**8, "processes": 1024, "renamed": 1000,
}  # fmt: skip
_MOST_PARAMETERS = 10**10


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Every flag of `python -m surelock train`, checked where it is made (ValueError, the flag named first).

    data, valid: text files of stories. out: a directory for the run's state, log and the best model so far.
    init: a checkpoint directory to start from, tokenizer and shape included; resume: continue the run in `out`.
    minutes, steps: the schedule's length, whichever ends first; at least one. windows: lengths, one per step in turn.
    renamed: copies of every training story in which its characters bear other names, beside the story itself.
    prompted: share of windows whose beginning, of random length, is left unmasked as a prompt.
    muon_rate, adam_rate: peak learning rates; warm_up: share of the schedule; the decay to zero fills the rest.
    processes: on a CPU, each with `threads` threads and its share of every batch.
    """

    data: tuple[Path, ...]
    valid: Path
    out: Path
    init: Path | None = None
    resume: bool = False
    minutes: float | None = None
    steps: int | None = None
    pieces: int = 4096
    d_model: int = 256
    layers: int = 6
    heads: int = 4
    ffn: int = 704
    max_length: int = 1024
    batch_tokens: int = 12288
    windows: tuple[int, ...] = (192, 256)
    renamed: int = 0
    prompted: float = 0.0
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    weight_decay: float = 0.02
    warm_up: float = 0.02
    seed: int = 0
    device: str | None = None
    dtype: str = "bfloat16"
    threads: int | None = None
    processes: int = 1
    compile: bool = False
    evaluate_minutes: float = 10.0
    evaluate_draws: int = 8
    save_minutes: float = 5.0

    def __post_init__(self) -> None:
        if self.minutes is None and self.steps is None:
            raise ValueError("minutes: give --minutes, --steps or both")
        if self.processes > 1 and self.device not in (None, "cpu"):
            raise ValueError("processes: several processes train on the CPU only")
        if self.dtype not in ("bfloat16", "float32"):
            raise ValueError(f"dtype: must be bfloat16 or float32, not {self.dtype}")
        self._check_numbers()
        if self.d_model % self.heads:
            raise ValueError(f"heads: must divide d_model ({self.d_model}), {self.heads} does not")
        if not 0 <= self.prompted <= 1:
            raise ValueError(f"prompted: must lie between 0 and 1, not {self.prompted}")
        if self.renamed < 0:
            raise ValueError(f"renamed: must not be negative, {self.renamed} is")
        self._check_windows()

    def _check_numbers(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: must be positive, not {value}")
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name}: must be at most {most}, not {getattr(self, name)}")
        parameters = self.d_model * (self.pieces + self.layers * (4 * self.d_model + 3 * self.ffn))
        if parameters > _MOST_PARAMETERS:
            raise ValueError(f"d_model: makes a network of {parameters:.1e} parameters with these layers and ffn")
        if self.threads is not None:
            check_threads(self.threads)
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay: must not be negative, not {self.weight_decay}")
        if not 0 <= self.warm_up <= 1:
            raise ValueError(f"warm_up: is a share of the schedule, from 0 to 1, not {self.warm_up}")

    def _check_windows(self) -> None:
        if not self.windows or min(self.windows) < 2 or max(self.windows) > self.max_length:
            raise ValueError(f"windows: lengths must lie between 2 and {self.max_length}")
        if min(self.batch_tokens // length for length in self.windows) < self.processes:
            raise ValueError("batch_tokens: too few for a window in each process")
