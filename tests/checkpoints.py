"""Tiny random checkpoints for tests: `config.json` and safetensors, in the LLaDA and the Qwen3 layout.

The weights are scaled so that logits have a standard deviation near 2 and every committed token moves the other
positions' posteriors. No tokenizer is written: prompts are token ids.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from oracle import LLADA, QWEN3
from safetensors.torch import save_file
from torch import Tensor

Draw = Callable[..., Tensor]


@dataclass(kw_only=True)
class Shape:
    """Sizes of a checkpoint, and what else its config.json tells."""

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_ff: int
    vocab: int
    tied: bool
    seed: int
    head_dim: int = 0
    shards: int = 1
    qkv_bias: bool = False
    dtype: torch.dtype = torch.float32
    mask_id: int = 1
    eos_id: int = 0
    max_length: int = 64

    def __post_init__(self) -> None:
        self.head_dim = self.head_dim or self.d_model // self.heads

    def config(self, names: dict[str, str]) -> dict[str, Any]:
        """The sizes under a layout's own names."""
        told = {
            "width": self.d_model, "layers": self.layers, "heads": self.heads, "kv_heads": self.kv_heads,
            "ff": self.d_ff, "length": self.max_length, "tied": self.tied,
        }  # fmt: skip
        special = {"mask_token_id": self.mask_id, "eos_token_id": self.eos_id, "pad_token_id": self.eos_id}
        dtype = {"torch_dtype": str(self.dtype).removeprefix("torch.")}
        return {names[name]: value for name, value in told.items()} | {"vocab_size": self.vocab} | special | dtype


def write_llada(path: Path | str, **sizes: Any) -> dict[str, Tensor]:
    """Write a LLaDA-layout checkpoint into the directory `path`; returns its tensors by name."""
    shape = Shape(**sizes)
    tensors = draw_tensors(LLADA, shape, norms=False)
    names = {
        "width": "d_model", "layers": "n_layers", "heads": "n_heads", "kv_heads": "n_kv_heads",
        "ff": "mlp_hidden_size", "length": "max_sequence_length", "tied": "weight_tying",
    }  # fmt: skip
    config = shape.config(names) | {
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "embedding_size": shape.vocab, "rope": True,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "layer_norm_type": "rms", "activation_type": "silu",
        "block_type": "llama", "include_bias": False, "include_qkv_bias": shape.qkv_bias,
    }  # fmt: skip
    write_files(Path(path), config, tensors, shape.shards)
    return tensors


_HF = {
    "width": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "ff": "intermediate_size", "length": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}  # fmt: skip
_QWEN = {"rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu", "attention_bias": False}


def write_qwen3(path: Path | str, **sizes: Any) -> dict[str, Tensor]:
    """Write a Qwen3-layout checkpoint (Hugging Face keys and names) into `path`; returns its tensors by name."""
    shape = Shape(**sizes)
    tensors = draw_tensors(QWEN3, shape, norms=True)
    own = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": shape.head_dim}
    write_files(Path(path), shape.config(_HF) | _QWEN | own, tensors, shape.shards)
    return tensors


def write_dream(path: Path | str, **sizes: Any) -> dict[str, Tensor]:
    """Write a Dream-layout checkpoint into `path`: Qwen3's names, biases instead of norms; returns its tensors."""
    shape = Shape(**sizes)
    drawn = draw_tensors(QWEN3, shape, norms=True)  # as Qwen3's, so that the two differ in nothing else
    tensors = {name: tensor for name, tensor in drawn.items() if "q_norm" not in name and "k_norm" not in name}
    draw = weights(shape.seed + 1, torch.float32)
    for layer in range(shape.layers):
        for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            tensors[f"{QWEN3['layer'].format(layer)}{QWEN3[part]}.bias"] = draw(heads * shape.head_dim)
    own = {"architectures": ["DreamModel"], "model_type": "Dream", "use_mrope": False, "sliding_window": None}
    write_files(Path(path), shape.config(_HF) | _QWEN | own, tensors, shape.shards)
    return tensors


def draw_tensors(names: dict[str, str], shape: Shape, norms: bool) -> dict[str, Tensor]:
    """Random tensors under a layout's names; what makes the logits is scaled to a standard deviation of about 2.

    norms: of queries and keys, too.
    """
    draw, d = weights(shape.seed, shape.dtype), shape.d_model
    logits = 2 / math.sqrt(d)
    tensors = {names["embed"]: draw(shape.vocab, d, std=logits if shape.tied else 1.0)}
    tensors[names["norm"]] = draw(d, mean=1.0, std=0.2)
    if not shape.tied:
        tensors[names["head"]] = draw(shape.vocab, d, std=logits)
    made = {f"{name}.weight": tensor for name, tensor in tensors.items()}
    for layer in range(shape.layers):
        own = {part: names["layer"].format(layer) + name for part, name in names.items()}
        for part in ("attn_norm", "ff_norm"):
            made[f"{own[part]}.weight"] = draw(d, mean=1.0, std=0.2)
        for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            made[f"{own[part]}.weight"] = draw(heads * shape.head_dim, d)
            if shape.qkv_bias:
                made[f"{own[part]}.bias"] = draw(heads * shape.head_dim, std=0.3)
        for part in ("q_norm", "k_norm") if norms else ():
            made[f"{own[part]}.weight"] = draw(shape.head_dim, mean=1.0, std=0.2)
        made[f"{own['out']}.weight"] = draw(d, shape.heads * shape.head_dim)
        made[f"{own['gate']}.weight"] = draw(shape.d_ff, d)
        made[f"{own['up']}.weight"] = draw(shape.d_ff, d)
        made[f"{own['down']}.weight"] = draw(d, shape.d_ff)
    return made


def weights(seed: int, dtype: torch.dtype) -> Draw:
    """A seeded normal sampler; without `std`, a matrix [out, in] gets 1.5 / sqrt(in)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, mean: float = 0.0, std: float | None = None) -> Tensor:
        scale = 1.5 / math.sqrt(shape[-1]) if std is None else std
        return (mean + scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    return draw


def write_files(path: Path, config: dict[str, Any], tensors: dict[str, Tensor], shards: int) -> None:
    """`config.json` with `model.safetensors`, or with `shards` files and their index; names go round robin."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {
        name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(sorted(tensors))
    }
    for file in sorted(set(weight_map.values())):
        part = {name: tensors[name] for name in weight_map if weight_map[name] == file}
        save_file(part, path / file, metadata={"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
