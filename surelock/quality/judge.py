"""An outside judge: what a causal language model makes of a text, token by token."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from surelock.model.checkpoint import check_files
from surelock.model.errors import first_line
from surelock.model.language_model import encoding
from surelock.model.loading import check_name, find_device
from surelock.model.tokenizer import check_patterns, tried

# What transformers raises for damaged files, from a number of heads that is 0 to a list where a table should be.
_DAMAGES = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError, RuntimeError,
    SafetensorError, StrictDataclassError,
)  # fmt: skip
_BATCH_TOKENS = {"cpu": 2**10, "cuda": 2**14}


@dataclass(frozen=True, slots=True)
class Score:
    """What a judge makes of one text. nats: -log p of each counted token, given all before it. tokens: their pieces of
    the text. characters: of the text, without the first token's where that has nothing before it and cannot be counted.
    """

    nats: tuple[float, ...]
    tokens: tuple[str, ...]
    characters: int

    @property
    def bits_per_character(self) -> float:
        """The sum in bits over the characters; NaN where none was counted."""
        return sum(self.nats) / math.log(2) / self.characters if self.characters else math.nan


@dataclass(frozen=True, slots=True)
class Judge:
    """A causal language model of transformers with its tokenizer. name: of its directory, file or hub repository."""

    name: str
    model: Any
    tokenizer: Any

    @staticmethod
    @lru_cache(maxsize=1)
    def load(name: str, device: str | torch.device | None = None) -> Judge:
        """name: a hub id, a directory, or a .gguf file, for which the package `gguf` is needed.

        Weights in float32 on the CPU, as stored on a GPU; pickled ones are not read, and no code of a checkpoint is
        run. device: CUDA if there is one, else the CPU. Raises ValueError, one sentence, when it is no causal model
        that transformers can load, and for a device that is not there.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = find_device(device)
        place, options = _place(name)
        dtype = "auto" if device.type == "cuda" else torch.float32
        try:
            tokenizer: Any = tried(
                "its tokenizer or configuration",
                lambda: AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options),
            )
            if tokenizer.is_fast:
                check_patterns(json.loads(tokenizer.backend_tokenizer.to_str()), Path("its tokenizer"))
            options |= {"dtype": dtype, "use_safetensors": not options, "output_loading_info": True}
            loaded: Any = AutoModelForCausalLM.from_pretrained(place, trust_remote_code=False, **options)
            model, told = loaded
            if told["missing_keys"]:
                raise ValueError(f"it has no weights for {min(told['missing_keys'])}")
            for parameter in model.parameters():
                parameter.data = parameter.data.clone()  # transformers maps the file, which may be written over
            judge = Judge(Path(name).resolve().name.removesuffix(".gguf"), model.to(device).eval(), tokenizer)
            judge._check()
        except _DAMAGES as error:
            raise _refused(name, first_line(error)) from error
        return judge

    def setup(self) -> dict[str, str]:
        """What scores depend on besides the texts. weights: a hash of some of each tensor."""
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.flatten()[:256].float().numpy(force=True).tobytes())
        dtype = str(self.model.dtype).removeprefix("torch.")
        return {"name": self.name, "weights": digest.hexdigest()[:16], "dtype": dtype}

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[Score]:
        """The score of each (prompt, text).

        The two are tokenized apart, the prompt with the tokenizer's own special tokens and the text without, so that
        the text's tokens are the same whatever comes before. Where both together are longer than the judge's context,
        the prompt's beginning is left out. Raises ValueError for a text that alone is too long, and for what its
        tokenizer cannot read.
        """
        jobs = [self._encode(*pair) for pair in pairs]
        nats: list[tuple[float, ...]] = [()] * len(jobs)
        for batch in self._batches(jobs):
            for number, own in zip(batch, self._nats([jobs[number] for number in batch]), strict=True):
                nats[number] = own
        return [self._score(text, own, told) for (_, text), (_, own), told in zip(pairs, jobs, nats, strict=True)]

    def reads(self, text: str) -> bool:
        """Whether the text alone fits into the judge's context."""
        most = self._most_tokens
        return most is None or len(self._tokens(text)) <= most

    @property
    def _most_tokens(self) -> int | None:
        return getattr(self.model.config, "max_position_embeddings", None)

    def _tokens(self, text: str, whole: bool = False) -> list[int]:
        """Text that spells a special token is text. whole: with the special tokens that the tokenizer itself adds."""
        with encoding(f"the judge {self.name!r}", text, "text"):
            ids = self.tokenizer(text, add_special_tokens=whole, split_special_tokens=True)["input_ids"]
        if max(ids, default=0) >= (known := self.model.get_input_embeddings().num_embeddings):
            raise ValueError(f"the judge {self.name!r} has {known} tokens, its tokenizer knows others")
        return ids

    def _score(self, text: str, own: list[int], nats: tuple[float, ...]) -> Score:
        pieces = [self.tokenizer.decode([token]) for token in own]
        left_out = len(own) - len(nats)
        return Score(nats, tuple(pieces[left_out:]), max(0, len(text) - len("".join(pieces[:left_out]))))

    def _encode(self, prompt: str, text: str) -> tuple[list[int], list[int]]:
        given = self._tokens(prompt, whole=True)
        own, most = self._tokens(text), self._most_tokens
        if most is None:
            return given, own
        if len(own) > most:
            raise ValueError(f"the judge {self.name!r} reads {most} tokens at most, the text has {len(own)}")
        return given[max(0, len(given) + len(own) - most) :], own

    def _batches(self, jobs: list[tuple[list[int], list[int]]]) -> list[list[int]]:
        """Numbers of the jobs that are computed together, of similar lengths; those with nothing to count are in none.

        What has a token to count has two or more in all.
        """
        most = _BATCH_TOKENS.get(self.model.device.type, _BATCH_TOKENS["cpu"])
        lengths = {i: len(given) + len(own) for i, (given, own) in enumerate(jobs) if own and len(given) + len(own) > 1}
        batches: list[list[int]] = []
        for number in sorted(lengths, key=lambda i: lengths[i]):
            if not batches or (len(batches[-1]) + 1) * lengths[number] > most:
                batches.append([])
            batches[-1].append(number)
        return batches

    def _nats(self, jobs: list[tuple[list[int], list[int]]]) -> list[tuple[float, ...]]:
        """-log p of each counted token of each job: one forward, padded on the left."""
        width = max(len(given) + len(own) for given, own in jobs)
        ids = torch.zeros(len(jobs), width, dtype=torch.int64)
        seen = torch.zeros_like(ids)
        for row, mask, (given, own) in zip(ids, seen, jobs, strict=True):
            both = torch.tensor([*given, *own], dtype=torch.int64)
            row[width - len(both) :], mask[width - len(both) :] = both, 1
        logits = self._logits(ids, seen)
        told = []
        for z, row, (given, own) in zip(logits, ids.to(logits.device), jobs, strict=True):
            counted = len(own) if given else len(own) - 1
            nats = F.cross_entropy(z[width - counted - 1 : -1].float(), row[width - counted :], reduction="none")
            told.append(tuple(nats.tolist()))
        return told

    @torch.inference_mode()
    def _logits(self, ids: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """[B, N, V]; seen [B, N]: 0 on padding. Positions count from the first token that is none."""
        inputs = {"input_ids": ids, "attention_mask": seen}
        if "position_ids" in inspect.signature(self.model.forward).parameters:
            inputs["position_ids"] = (seen.cumsum(1) - 1).clamp_(min=0)
        return self.model(**{name: value.to(self.model.device) for name, value in inputs.items()}).logits

    def _check(self) -> None:
        """Raise ValueError where a text cannot be read, or another last token changes the logits before it."""
        self._tokens("A word, two")
        ids = torch.tensor([[1, 2, 3], [1, 2, 4]])
        first, second = self._logits(ids, torch.ones_like(ids))[:, :-1].float()
        if not (first.isfinite().all() and second.isfinite().all()):
            raise ValueError("its logits are not finite")
        if not torch.allclose(first, second, rtol=1e-3, atol=1e-3):
            raise ValueError("a token's logits depend on those after it")


def score(judge: Judge | str, prompt: str, text: str) -> Score:
    """What a judge makes of `text` after `prompt`. judge: a loaded one, or a name as `Judge.load` takes it.

    Raises ValueError where it cannot be loaded, and for a text longer than its context.
    """
    return (Judge.load(judge) if isinstance(judge, str) else judge).scores([(prompt, text)])[0]


def _place(name: str) -> tuple[str, dict[str, Any]]:
    """What `from_pretrained` takes: a GGUF file is its folder and its own name."""
    check_name(name)
    file = Path(name)
    if file.suffix != ".gguf":
        if file.is_dir():
            check_files(file)
        return name, {}
    if not file.is_file():
        raise _refused(name, "there is no such file")
    if find_spec("gguf") is None:
        raise _refused(name, "a GGUF file needs the package gguf (pip install gguf)")
    return str(file.parent), {"gguf_file": file.name}


def _refused(name: str, why: str) -> ValueError:
    return ValueError(f"judge {name!r} cannot be loaded as a causal language model: {why}")
