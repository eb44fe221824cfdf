"""Checkpoints of random weights: the size and the speed of a model without its files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from surelock.config import NetworkConfig
from surelock.model.checkpoint import SINGLE, row_counts
from surelock.model.families import A2D_QWEN3, LLADA, Family
from surelock.model.network import empty_network

_AT_ONCE = 2**20  # numbers that are drawn at once: the process keeps some of the memory that this takes


def write_random(config: NetworkConfig, directory: Path) -> None:
    """Write a checkpoint of random weights in bfloat16: config.json and one file of safetensors, without a tokenizer.

    config: a shape of the layout of Qwen3 or of LLaDA.
    """
    family, described = _described(config)
    (directory / "config.json").write_text(json.dumps(described | {"mask_token_id": 1, "eos_token_id": 0}), "utf-8")
    header, stop = {}, 0
    for name, parameter in empty_network(config).named_parameters():
        rows, *columns = parameter.shape
        sources = family.tensor_names(name)
        for source, count in zip(sources, row_counts(config, sources, rows), strict=True):
            start, stop = stop, stop + 2 * count * math.prod(columns)
            header[source] = {"dtype": "BF16", "shape": [count, *columns], "data_offsets": [start, stop]}
    described, generator = json.dumps(header).encode(), np.random.default_rng(0)
    with (directory / SINGLE).open("wb") as file:
        file.write(len(described).to_bytes(8, "little") + described)
        for entry in header.values():
            size, norm = math.prod(entry["shape"]), len(entry["shape"]) == 1
            for at in range(0, size, _AT_ONCE):
                count = min(_AT_ONCE, size - at)
                part = np.ones(count, np.float32) if norm else 0.02 * generator.standard_normal(count, np.float32)
                file.write((part.view(np.uint32) >> 16).astype(np.uint16).tobytes())  # its upper half is bfloat16


def _described(config: NetworkConfig) -> tuple[Family, dict[str, Any]]:
    """The family of a shape, and its config.json."""
    if config.qk_norm:
        return A2D_QWEN3, {
            "architectures": [A2D_QWEN3.architecture],
            "vocab_size": config.vocab_size,
            "hidden_size": config.d_model,
            "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads,
            "num_key_value_heads": config.n_kv_heads,
            "head_dim": config.head_size,
            "intermediate_size": config.d_ff,
            "max_position_embeddings": config.max_length,
            "rope_theta": config.rope_theta,
            "rms_norm_eps": config.norm_eps,
            "tie_word_embeddings": config.tied,
        }
    return LLADA, llada_config(config)


def llada_config(config: NetworkConfig) -> dict[str, Any]:
    """Return the config.json of a shape in the LLaDA layout, without the special tokens."""
    return {
        "architectures": [LLADA.architecture],
        "model_type": "llada",
        "d_model": config.d_model,
        "n_layers": config.n_layers,
        "n_heads": config.n_heads,
        "n_kv_heads": config.n_kv_heads,
        "mlp_hidden_size": config.d_ff,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "max_sequence_length": config.max_length,
        "rope": True,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "layer_norm_type": "rms",
        "activation_type": "silu",
        "block_type": "llama",
        "include_bias": False,
        "include_qkv_bias": config.qkv_bias,
        "weight_tying": config.tied,
    }
