"""Networks with random weights, in memory or as a checkpoint: benchmarks need the size of a model, not its files."""

import json
import math
from pathlib import Path

import numpy as np
import torch

from surelock.config import LLADA_8B, NetworkConfig
from surelock.engines.torch import TorchEngine
from surelock.model.checkpoint import SINGLE, row_counts
from surelock.model.families import LLADA, LLADA_FIXED, LLADA_KEYS, family_of
from surelock.model.language_model import LanguageModel
from surelock.model.modulation import time_shapes
from surelock.model.network import empty_network
from surelock.values import Fields, Json

# how many numbers are drawn at once: a process keeps some of the memory that drawing takes
_AT_ONCE = 2**20
_STD = 0.02  # the standard deviation of weights, as at the beginning of a training


def write_random(described: Fields, directory: Path) -> None:
    """Write a checkpoint with random weights in bfloat16.

    described: the content of its config.json, without the ids of special tokens.
    """
    family = family_of(described)
    header = {}
    stop = 0
    config = family.read_config(described)
    ids = {"eos_token_id": 0}
    if family.mask_id is None:
        ids["mask_token_id"] = 1
    (directory / "config.json").write_text(json.dumps({**described, **ids}), "utf-8")
    shapes = time_shapes(config, described["cond_dim"]) if family.modulated else {}
    for name, parameter in empty_network(config).named_parameters():
        rows, *columns = parameter.shape
        sources = family.tensor_names(name)
        counts = row_counts(config, name, rows)
        if name in ("embed.weight", "head.weight"):
            counts = [rows + config.unused]
        if len(sources) < 2:
            counts = [sum(counts)]
        for source, count in zip(sources, counts, strict=bool(sources)):
            shapes[source] = (count, *columns)
    for name, shape in shapes.items():
        start = stop
        stop = stop + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, stop]}
    written = json.dumps(header).encode()
    generator = np.random.default_rng(0)
    with (directory / SINGLE).open("wb") as file:
        file.write(len(written).to_bytes(8, "little") + written)
        for name, shape in shapes.items():
            size = math.prod(shape)
            norm = len(shape) == 1 and not name.endswith("bias")
            for at in range(0, size, _AT_ONCE):
                count = min(_AT_ONCE, size - at)
                part = np.ones(count, np.float32)
                if not norm:
                    part = _STD * generator.standard_normal(count, np.float32)
                # the upper half of a float32 is a bfloat16
                halves = (part.view(np.uint32) >> 16).astype(np.uint16)
                file.write(halves.tobytes())


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """Return a model with random weights and without a tokenizer. shape: a key of SHAPES."""
    torch.manual_seed(0)
    described = SHAPES[shape]
    network = empty_network(family_of(described).read_config(described))
    network = network.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=_STD)
    return LanguageModel(shape, TorchEngine(network), None, mask_id=1, pad_id=0, ends=(0,))


def llada_config(config: NetworkConfig) -> Json:
    """Return the content of a config.json in the LLaDA layout, without the ids of special tokens."""
    return {
        "architectures": [LLADA.architecture],
        "model_type": LLADA.model_type,
        **{key: getattr(config, name) for name, key in LLADA_KEYS.items()},
        **dict.fromkeys(("vocab_size", "embedding_size"), config.vocab_size),
        "n_kv_heads": config.n_kv_heads,
        **LLADA_FIXED,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "include_bias": False,
        "include_qkv_bias": config.qkv_bias,
    }


_TINY = NetworkConfig(
    512, 32, 2, 2, 2, 16, 64, max_length=1024, rope_theta=1e4, norm_eps=1e-5, tied=True
)
#: The content of config.json, by name, for the networks that `--shape` offers.
SHAPES: dict[str, Json] = {
    "llada-8b": llada_config(LLADA_8B),
    "qwen3-0.6b": {
        "architectures": ["A2DQwen3LMHeadModel"], "vocab_size": 151936, "hidden_size": 1024, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
        "max_position_embeddings": 40960, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    },
    "mdlm-owt": {
        "architectures": ["MDLM"], "vocab_size": 50258, "model_length": 1024, "hidden_dim": 768, "cond_dim": 128,
        "n_blocks": 12, "n_heads": 12, "time_conditioning": False,
    },
    "lfm2.5-350m": {
        "architectures": ["Lfm2BidirectionalForMaskedLM"], "vocab_size": 65536, "hidden_size": 1024,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 6656,
        "max_position_embeddings": 128000, "rope_theta": 1e6, "norm_eps": 1e-5, "conv_L_cache": 3,
        "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
    },
    "tiny": llada_config(_TINY),
}  # fmt: skip
