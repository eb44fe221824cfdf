"""Gen.-PPL (Experiment 3): what an autoregressive model makes of the continuations, micro-averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F


@dataclass(frozen=True, slots=True)
class Judge:
    """A causal language model of transformers with its tokenizer."""

    model: Any
    tokenizer: Any

    @staticmethod
    @lru_cache(maxsize=1)
    def load(name: str, device: torch.device) -> Judge:
        """name: a directory or a hub id. Raises ValueError when it is no causal model that transformers can load."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        dtype = "auto" if device.type == "cuda" else torch.float32
        try:
            model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
            tokenizer = AutoTokenizer.from_pretrained(name)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"judge {name!r} cannot be loaded as a causal language model: {error}") from error
        return Judge(model.to(device).eval(), tokenizer)

    @torch.no_grad()
    def nats(self, prompt: str, continuation: str) -> tuple[float, int]:
        """-log p(continuation | prompt) in nats, and the number of tokens it is summed over.

        The two are tokenized apart, the prompt with the tokenizer's own special tokens and the continuation without, so
        that the continuation's tokens are the same whatever comes before. Without any context its first is not counted.
        """
        given = self.tokenizer(prompt)["input_ids"]
        own = self.tokenizer(continuation, add_special_tokens=False)["input_ids"]
        counted = len(own) if given else len(own) - 1
        if counted < 1:
            return 0.0, 0
        ids = torch.tensor([[*given, *own]], device=self.model.device)
        logits = self.model(ids).logits[0, -counted - 1 : -1].float()
        return float(F.cross_entropy(logits, ids[0, -counted:], reduction="sum")), counted


def perplexity(nats: Sequence[float], tokens: Sequence[int]) -> float:
    """exp(sum of nats / sum of tokens), in natural logarithms as in the paper; NaN without tokens."""
    total = sum(tokens)
    return float(np.exp(sum(nats) / total)) if total else float("nan")
