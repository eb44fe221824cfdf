"""A small causal model that reads what the embedded model writes."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from surelock.loading import STORIES

CONTEXT = 64


def tokenizer() -> PreTrainedTokenizerFast:
    """The embedded model's."""
    return PreTrainedTokenizerFast(tokenizer_file=str(STORIES / "tokenizer.json"))


def small_llama(spread: float) -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer()),
            max_position_embeddings=CONTEXT,
            initializer_range=spread,
            **shape,
        )
    )


def write_judge(path: Path) -> None:
    """One of random weights, as transformers saves it."""
    small_llama(0.5).save_pretrained(path)
    tokenizer().save_pretrained(path)
