"""What a training run keeps of a model: its weights in the LLaDA layout, and the byte-level BPE tokenizer."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from surelock.model.checkpoint import row_counts
from surelock.model.families import LLADA, CheckpointError
from surelock.model.network import Network
from surelock.model.random_weights import llada_config

EOS, MASK = "<|endoftext|>", "<|mask|>"
EOS_ID, MASK_ID = 0, 1


def save_checkpoint(
    network: Network,
    directory: Path,
    *,
    mask_id: int,
    eos_id: int,
    pad_id: int,
    dtype: torch.dtype = torch.bfloat16,
    max_shard_bytes: int = 9 * 2**20,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write config.json and safetensors shards in the LLaDA layout, which `load` reads.

    mask_id, eos_id, pad_id: the ids of special tokens, for config.json.
    dtype: of the tensors.
    max_shard_bytes: the largest shard; a larger tensor has a shard of its own.
    extra: further keys for config.json.

    Raises CheckpointError for a network that the layout cannot describe.
    """
    config = network.config
    own = config.qk_norm or config.shifted or config.block_size
    if own or config.n_heads * config.head_size != config.d_model:
        raise CheckpointError(
            "the LLaDA layout has no query/key norms, shifted logits or blocks, "
            "and needs n_heads * head_size == d_model"
        )
    tensors = {}
    for name, parameter in network.named_parameters():
        sources = LLADA.tensor_names(name)
        parts = parameter.detach().split(row_counts(config, sources, len(parameter)))
        tensors |= {source: part.to("cpu", dtype, copy=True) for source, part in zip(sources, parts, strict=True)}
    described = llada_config(config) | {"torch_dtype": str(dtype).removeprefix("torch.")}
    described |= {"mask_token_id": mask_id, "eos_token_id": eos_id, "pad_token_id": pad_id, **(extra or {})}
    directory.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(tensors, directory, max_shard_size=max_shard_bytes)
    (directory / "config.json").write_text(json.dumps(described, indent=1) + "\n", "utf-8")


def train_tokenizer(stories: Iterable[str], pieces: int = 4096) -> Tokenizer:
    """Byte-level BPE of `pieces` entries: EOS (also the pad) is 0, the mask token 1, then 256 bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        special_tokens=[EOS, MASK],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, directory: Path, max_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json as transformers reads them."""
    special = {"eos_token": EOS, "pad_token": EOS, "mask_token": MASK}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=max_length, clean_up_tokenization_spaces=False, **special
    ).save_pretrained(directory)
