"""What a training run is told: each option once, as a field, a flag and its bounds."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from surelock.model.flags import check_threads

_MOST_PARAMETERS = 10**10  # beyond these nothing here could be allocated


def _told(
    text: str, default: Any = None, *, kind: Any = None, over: float | None = None, least: float | None = None,
    most: float = 1e9, **flag: Any,
) -> Any:  # fmt: skip
    """A field, and its flag. kind: of its values, by default the default's; over, least, most: its bounds."""
    if isinstance(default, bool):
        flag["action"] = "store_true"
    else:
        flag["type"] = kind or type(default)
        text += "" if default is None or isinstance(default, tuple) else " (default: %(default)s)"
    return field(default=default, metadata={"flag": {"help": text, **flag}, "over": over, "least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Every flag of `python -m surelock train`, checked where it is made (ValueError, the flag named first).

    minutes, steps: whichever ends first; at least one. The decay to zero fills the schedule behind warm_up.
    """

    data: tuple[Path, ...] = _told("text files of stories, each closed by <|endoftext|>", (), kind=Path, nargs="+")
    valid: Path = _told("held-out stories: validated on, never trained on", kind=Path)
    out: Path = _told("directory for the run's state, its log and the best model so far", kind=Path)
    init: Path | None = _told("start from this checkpoint: its weights, shape and tokenizer", kind=Path)
    resume: bool = _told("continue the interrupted run in --out", False)
    minutes: float | None = _told("lay a complete schedule into this much time", kind=float, over=0)
    steps: int | None = _told("lay a complete schedule into this many steps", kind=int, least=1)
    windows: tuple[int, ...] = _told(
        "lengths of the training windows, one per step in turn (default: 192 256)", (192, 256), kind=int, nargs="+"
    )
    device: str | None = _told("cpu or cuda (default: CUDA if there is one)", kind=str)
    dtype: str = _told("of the matrix products; weights stay float32", "bfloat16", choices=("bfloat16", "float32"))
    compile: bool = _told("compile forward and backward (needs a C++ compiler; a minute to start)", False)
    pieces: int = _told("entries of a new tokenizer", 4096, least=1, most=10**6)
    d_model: int = _told("width of a new network", 256, least=1)
    layers: int = _told("blocks of a new network", 6, least=1, most=1000)
    heads: int = _told("attention heads of a new network", 4, least=1)
    ffn: int = _told("feed-forward width of a new network", 704, least=1)
    max_length: int = _told("positions that a new network is made for", 1024, least=1, most=10**6)
    batch_tokens: int = _told("tokens per step", 12288, least=1, most=10**8)
    renamed: int = _told(
        "copies of every story with other names for its characters, beside the story itself", 0, least=0, most=1000
    )
    prompted: float = _told(
        "share of windows with a beginning, of random length, that is never masked, as a prompt", 0.0, least=0, most=1
    )
    muon_rate: float = _told("peak learning rate of the matrices", 0.02, over=0)
    adam_rate: float = _told("peak learning rate of embedding and norms", 3e-3, over=0)
    weight_decay: float = _told("decoupled decay of the matrices per unit of learning rate", 0.02, least=0)
    warm_up: float = _told("share of the schedule in which the learning rate rises", 0.02, least=0, most=1)
    seed: int = _told("of weights, order and masks", 0)
    threads: int | None = _told("threads of each process (default: torch's)", kind=int)
    processes: int = _told("processes on the CPU, each with its share of every batch", 1, least=1, most=1024)
    evaluate_minutes: float = _told("minutes between validations", 10.0, over=0)
    evaluate_draws: int = _told("masks per window in a validation", 8, least=1)
    save_minutes: float = _told("minutes between saved states", 5.0, over=0)

    @staticmethod
    def add_flags(parser: argparse.ArgumentParser) -> None:
        """One flag for each field."""
        for each in fields(TrainOptions):
            flag = f"--{each.name.replace('_', '-')}"
            required = {"required": True} if each.name in ("data", "valid", "out") else {}
            parser.add_argument(flag, default=each.default, **required, **each.metadata["flag"])

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
        if not self.windows or min(self.windows) < 2 or max(self.windows) > self.max_length:
            raise ValueError(f"windows: lengths must lie between 2 and {self.max_length}")
        if min(self.batch_tokens // length for length in self.windows) < self.processes:
            raise ValueError("batch_tokens: too few for a window in each process")

    def _check_numbers(self) -> None:
        for each in fields(self):
            value, over, least = (getattr(self, each.name), each.metadata["over"], each.metadata["least"])
            if value is None or over is least is None:
                continue
            most = each.metadata["most"]
            if not (value <= most and (value > over if least is None else value >= least)):
                low = f"above {over}" if least is None else f"at least {least}"
                raise ValueError(f"{each.name}: must be {low} and at most {most:g}, not {value}")
        parameters = self.d_model * (self.pieces + self.layers * (4 * self.d_model + 3 * self.ffn))
        if parameters > _MOST_PARAMETERS:
            raise ValueError(f"d_model: makes a network of {parameters:.1e} parameters with these layers and ffn")
        if self.threads is not None:
            check_threads(self.threads)
