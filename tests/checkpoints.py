"""Tiny random checkpoints for tests: `config.json` and safetensors, in the LLaDA and the Qwen3 layout.

The weights are scaled so that logits have a standard deviation near 2 and every committed token moves the other
positions' posteriors. No tokenizer is written: prompts are token ids.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

Draw = Callable[..., Tensor]


def write_llada(
    path: Path | str,
    *,
    layers: int,
    d_model: int,
    heads: int,
    kv_heads: int,
    d_ff: int,
    vocab: int,
    tied: bool,
    shards: int = 1,
    qkv_bias: bool = False,
    dtype: torch.dtype = torch.float32,
    seed: int,
    mask_id: int = 1,
    eos_id: int = 0,
    max_length: int = 64,
) -> dict[str, Tensor]:
    """Write a LLaDA-layout checkpoint into the directory `path`; returns its tensors by name."""
    draw, head_size = weights(seed, dtype), d_model // heads
    root = "model.transformer."
    tensors = outer_tensors(draw, root + "wte", root + "ln_f", None if tied else root + "ff_out", vocab, d_model)
    for layer in range(layers):
        block = f"{root}blocks.{layer}."
        for name in ("attn_norm", "ff_norm"):
            tensors[f"{block}{name}.weight"] = draw(d_model, mean=1.0, std=0.2)
        for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            tensors[f"{block}{name}.weight"] = draw(rows * head_size, d_model)
            if qkv_bias:
                tensors[f"{block}{name}.bias"] = draw(rows * head_size, std=0.3)
        tensors[f"{block}attn_out.weight"] = draw(d_model, d_model)
        tensors[f"{block}ff_proj.weight"] = draw(d_ff, d_model)
        tensors[f"{block}up_proj.weight"] = draw(d_ff, d_model)
        tensors[f"{block}ff_out.weight"] = draw(d_model, d_ff)
    config = {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "d_model": d_model,
        "n_layers": layers,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "mlp_hidden_size": d_ff,
        "vocab_size": vocab,
        "embedding_size": vocab,
        "max_sequence_length": max_length,
        "rope": True,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "layer_norm_type": "rms",
        "activation_type": "silu",
        "block_type": "llama",
        "include_bias": False,
        "include_qkv_bias": qkv_bias,
        "weight_tying": tied,
        "mask_token_id": mask_id,
        "eos_token_id": eos_id,
        "pad_token_id": eos_id,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    write_files(Path(path), config, tensors, shards)
    return tensors


def write_qwen3(
    path: Path | str,
    *,
    layers: int,
    d_model: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    d_ff: int,
    vocab: int,
    tied: bool,
    shards: int = 1,
    dtype: torch.dtype = torch.float32,
    seed: int,
    mask_id: int = 1,
    eos_id: int = 0,
    max_length: int = 64,
) -> dict[str, Tensor]:
    """Write a Qwen3-layout checkpoint (Hugging Face keys and names) into `path`; returns its tensors by name."""
    draw = weights(seed, dtype)
    tensors = outer_tensors(draw, "model.embed_tokens", "model.norm", None if tied else "lm_head", vocab, d_model)
    for layer in range(layers):
        block = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{block}{name}.weight"] = draw(d_model, mean=1.0, std=0.2)
        for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            tensors[f"{block}self_attn.{name}.weight"] = draw(rows * head_dim, d_model)
        for name in ("q_norm", "k_norm"):
            tensors[f"{block}self_attn.{name}.weight"] = draw(head_dim, mean=1.0, std=0.2)
        tensors[f"{block}self_attn.o_proj.weight"] = draw(d_model, heads * head_dim)
        tensors[f"{block}mlp.gate_proj.weight"] = draw(d_ff, d_model)
        tensors[f"{block}mlp.up_proj.weight"] = draw(d_ff, d_model)
        tensors[f"{block}mlp.down_proj.weight"] = draw(d_model, d_ff)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": d_model,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": d_ff,
        "vocab_size": vocab,
        "max_position_embeddings": max_length,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": tied,
        "mask_token_id": mask_id,
        "eos_token_id": eos_id,
        "pad_token_id": eos_id,
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    write_files(Path(path), config, tensors, shards)
    return tensors


def weights(seed: int, dtype: torch.dtype) -> Draw:
    """A seeded normal sampler; without `std`, a matrix [out, in] gets 1.5 / sqrt(in)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, mean: float = 0.0, std: float | None = None) -> Tensor:
        scale = 1.5 / math.sqrt(shape[-1]) if std is None else std
        return (mean + scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)

    return draw


def outer_tensors(draw: Draw, embed: str, norm: str, head: str | None, vocab: int, d: int) -> dict[str, Tensor]:
    """Embedding, last norm and (untied) head; what makes the logits is scaled to a standard deviation of about 2."""
    tensors = {f"{embed}.weight": draw(vocab, d, std=1.0 if head else 2 / math.sqrt(d))}
    tensors[f"{norm}.weight"] = draw(d, mean=1.0, std=0.2)
    if head:
        tensors[f"{head}.weight"] = draw(vocab, d, std=2 / math.sqrt(d))
    return tensors


def write_dream(
    path: Path | str,
    *,
    layers: int,
    d_model: int,
    heads: int,
    kv_heads: int,
    d_ff: int,
    vocab: int,
    tied: bool,
    seed: int,
    shards: int = 1,
) -> dict[str, Tensor]:
    """Write a Dream-layout checkpoint into `path`: Qwen3's names, biases instead of norms; returns its tensors."""
    shape = {"layers": layers, "d_model": d_model, "heads": heads, "kv_heads": kv_heads, "d_ff": d_ff, "vocab": vocab}
    head_dim = d_model // heads
    tensors = write_qwen3(path, **shape, head_dim=head_dim, tied=tied, seed=seed)
    draw = weights(seed + 1, torch.float32)
    for layer in range(layers):
        attention = f"model.layers.{layer}.self_attn."
        del tensors[f"{attention}q_norm.weight"], tensors[f"{attention}k_norm.weight"]
        for name, rows in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
            tensors[f"{attention}{name}.bias"] = draw(rows * head_dim)
    config = json.loads((Path(path) / "config.json").read_text())
    config |= {"architectures": ["DreamModel"], "model_type": "Dream", "use_mrope": False, "sliding_window": None}
    del config["head_dim"]
    (Path(path) / "model.safetensors").unlink()
    write_files(Path(path), config, tensors, shards)
    return tensors


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
