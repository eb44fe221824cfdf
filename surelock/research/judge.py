"""A judge: another, causal language model that scores a text, token by token."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from surelock.errors import first_line
from surelock.loading import check_name, find_device
from surelock.model.encoding import encoding
from surelock.model.tokenizer import reading
from surelock.research.runner import fingerprint
from surelock.values import Json, frozen

# The errors that transformers raises for damaged files, such as a number of heads that is 0.
_DAMAGES = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError, RuntimeError,
    SafetensorError, StrictDataclassError,
)  # fmt: skip


class Score(NamedTuple):
    """The score of one text. If there is no prompt, the first token of the text is not counted."""

    nats: tuple[float, ...]  # -log p of a token after all tokens before it
    characters: int  # the number of characters of the counted tokens


@frozen
class Judge:
    """A causal language model of transformers with its tokenizer."""

    name: str  # the name of its directory, file or hub repository
    model: Any
    tokenizer: Any

    @staticmethod
    def load(name: str, device: str | torch.device | None = None) -> Judge:
        """Load a judge.

        name: a hub id, a directory, or a .gguf file (which needs the package `gguf`).
        device: a device of torch; None for CUDA if there is one, else the CPU.

        On the CPU the weights are float32, on a GPU they keep their dtype. Pickled weights are refused, and no code of
        a checkpoint is run.

        Raises ValueError, one sentence, for anything but a causal model that transformers can load.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        device = find_device(device)
        place, options = _place(name)
        dtype = "auto" if device.type == "cuda" else torch.float32
        try:
            with reading("its tokenizer or configuration", Exception):
                tokenizer: Any = AutoTokenizer.from_pretrained(
                    place, trust_remote_code=False, **options
                )
            options |= {"dtype": dtype, "use_safetensors": not options, "output_loading_info": True}
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place, trust_remote_code=False, **options
            )
            model, info = loaded
            if info["missing_keys"]:
                raise ValueError(f"it has no weights for {min(info['missing_keys'])}")
            judge = Judge(
                Path(name).resolve().name.removesuffix(".gguf"), model.to(device).eval(), tokenizer
            )
            judge._check()
        except _DAMAGES as error:
            raise _refused(name, first_line(error)) from error
        return judge

    def setup(self) -> dict[str, str]:
        """Return the properties of the judge that scores depend on: name, dtype, and a hash of the weights."""
        dtype = str(self.model.dtype).removeprefix("torch.")
        return {"name": self.name, "weights": fingerprint(self.model, 256), "dtype": dtype}

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[Score]:
        """Return the scores of (prompt, text) pairs.

        The tokens of a text do not depend on its prompt. If prompt and text exceed the judge's context, the prompt
        loses its beginning.

        Raises ValueError for a text that exceeds the context by itself, and for a text that the tokenizer cannot read.
        """
        jobs = [self._encode(*pair) for pair in pairs]
        return [self._score(text, *job) for (_, text), job in zip(pairs, jobs, strict=True)]

    def _tokens(self, text: str, whole: bool = False) -> list[int]:
        """Return the token ids of a text. The spelling of a special token is read as text.

        whole: whether the tokenizer's special tokens are added.
        """
        with encoding(f"the judge {self.name!r}", text, "text"):
            ids = self.tokenizer(text, add_special_tokens=whole, split_special_tokens=True)[
                "input_ids"
            ]
        if max(ids, default=0) >= (size := self.model.get_input_embeddings().num_embeddings):
            raise ValueError(
                f"the judge {self.name!r} has {size} tokens, its tokenizer knows others"
            )
        return ids

    def _score(self, text: str, prompt_ids: list[int], ids: list[int]) -> Score:
        """Return the score of a text by one forward pass. prompt_ids: the tokens of its prompt. ids: its tokens."""
        start = max(1, len(prompt_ids))
        row = torch.tensor([*prompt_ids, *ids], device=self.model.device)
        if not len(row[start:]):
            return Score((), 0)
        nats = F.cross_entropy(
            self._logits(row[None])[0, start - 1 : -1].float(), row[start:], reduction="none"
        )
        left_out = self.tokenizer.decode(ids[: len(ids) - len(nats)])
        return Score(tuple(nats.tolist()), max(0, len(text) - len(left_out)))

    def _encode(self, prompt: str, text: str) -> tuple[list[int], list[int]]:
        """Return the token ids of a prompt and of a text, which together fit the context. Raises ValueError."""
        prompt_ids = self._tokens(prompt, whole=True)
        ids = self._tokens(text)
        most = getattr(self.model.config, "max_position_embeddings", None)
        if most is None:
            return prompt_ids, ids
        if len(ids) > most:
            raise ValueError(
                f"the judge {self.name!r} reads {most} tokens at most, the text has {len(ids)}"
            )
        return prompt_ids[max(0, len(prompt_ids) + len(ids) - most) :], ids

    @torch.inference_mode()
    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids.to(self.model.device)).logits

    def _check(self) -> None:
        """Raise ValueError if the tokenizer fails, if logits are not finite, and if the model is not causal.

        In a causal model the last token does not change the logits before it.
        """
        self._tokens("A word, two")
        ids = torch.tensor([[1, 2, 3], [1, 2, 4]])
        first, second = self._logits(ids)[:, :-1].float()
        if not (first.isfinite().all() and second.isfinite().all()):
            raise ValueError("its logits are not finite")
        if not torch.allclose(first, second, rtol=1e-3, atol=1e-3):
            raise ValueError("a token's logits depend on those after it")


def _place(name: str) -> tuple[str, Json]:
    """Return the arguments of `from_pretrained`. For a GGUF file they are its folder and its name."""
    check_name(name)
    file = Path(name)
    if file.suffix != ".gguf":
        return name, {}
    if not os.path.isfile(name):
        raise _refused(name, "there is no such file")
    if find_spec("gguf") is None:
        raise _refused(name, "a GGUF file needs the package gguf (pip install gguf)")
    return str(file.parent), {"gguf_file": file.name}


def _refused(name: str, why: str) -> ValueError:
    return ValueError(f"judge {name!r} cannot be loaded as a causal language model: {why}")
