"""Tiny random checkpoints for tests: `config.json` and safetensors, in the LLaDA layout and in
those with Hugging Face's names.

The weights are scaled so that logits have a standard deviation near 2 and every committed token moves the other
positions' posteriors. No tokenizer is written: prompts are token ids.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from oracle import LFM2, LLADA, MDLM, QWEN3
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from surelock.loading import STORIES

Draw = Callable[..., Tensor]


@dataclass(kw_only=True)
class Shape:
    """Sizes of a checkpoint, and what else its config.json tells."""

    layers: int = 2
    d_model: int = 32
    heads: int = 4
    kv_heads: int = 2
    d_ff: int = 48
    vocab: int = 41
    tied: bool = False
    seed: int = 7
    head_dim: int = 0
    shards: int = 1
    qkv_bias: bool = False
    dtype: torch.dtype = torch.float32
    mask_id: int = 1
    eos_id: int = 0
    max_length: int = 64
    block_size: int | None = None

    def __post_init__(self) -> None:
        self.head_dim = self.head_dim or self.d_model // self.heads

    def config(self, names: dict[str, str]) -> dict[str, Any]:
        """The sizes under a layout's own names."""
        told = {
            "width": self.d_model, "layers": self.layers, "heads": self.heads, "kv_heads": self.kv_heads,
            "ff": self.d_ff, "length": self.max_length, "tied": self.tied,
        }  # fmt: skip
        special = {
            "mask_token_id": self.mask_id,
            "eos_token_id": self.eos_id,
            "pad_token_id": self.eos_id,
        }
        dtype = {"torch_dtype": str(self.dtype).removeprefix("torch.")}
        return (
            {names[name]: value for name, value in told.items()}
            | {"vocab_size": self.vocab}
            | special
            | dtype
        )


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
_QWEN = {
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
}


_NORMS = {"norms": True}
_BIASES = {"biases": True}
#: Of each family with Hugging Face's names: what its config.json has beside the sizes, and what its layers have.
_FAMILIES: dict[str, tuple[dict[str, Any], dict[str, bool]]] = {
    "qwen3": ({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}, _NORMS),
    "a2d-qwen3": ({"architectures": ["A2DQwen3LMHeadModel"], "model_type": "a2d-qwen3"}, _NORMS),
    "coda": (
        {"architectures": ["CoDALanguageModel"], "model_type": "CoDA", "rope_scaling": None},
        _NORMS,
    ),
    "a2d-qwen2": ({"architectures": ["A2DQwen2LMHeadModel"], "model_type": "a2d-qwen2"}, _BIASES),
    "sdar": (
        {"architectures": ["SDARForCausalLM"], "model_type": "sdar", "debug": False, "ep_size": 1},
        _NORMS,
    ),
    "dream": (
        {
            "architectures": ["DreamModel"],
            "model_type": "Dream",
            "use_mrope": False,
            "sliding_window": None,
        },
        _BIASES,
    ),
    "illada": (
        {"architectures": ["ILLaDAForCausalLM"], "model_type": "illada", "mlp_bias": False},
        {},
    ),
}


def write_hf(path: Path | str, family: str, **sizes: Any) -> dict[str, Tensor]:
    """Write a checkpoint with Hugging Face's keys and names into `path`, as the family's own code saves it; returns its
    tensors by name. Of one seed the families differ in nothing but their biases and norms.
    """
    shape = Shape(**sizes)
    (own, has) = _FAMILIES[family]
    tensors = draw_tensors(QWEN3, shape, norms=True)
    if "norms" not in has:
        tensors = {
            name: tensor
            for name, tensor in tensors.items()
            if "q_norm" not in name and "k_norm" not in name
        }
    draw = weights(shape.seed + 1, torch.float32)
    for layer in range(shape.layers if "biases" in has else 0):
        for part, heads in (("q", shape.heads), ("k", shape.kv_heads), ("v", shape.kv_heads)):
            tensors[f"{QWEN3['layer'].format(layer)}{QWEN3[part]}.bias"] = draw(
                heads * shape.head_dim
            )
    config = (
        shape.config(_HF) | _QWEN | own | ({"head_dim": shape.head_dim} if "norms" in has else {})
    )
    config |= {} if shape.block_size is None else {"block_size": shape.block_size}
    if family == "a2d-qwen3" and shape.tied:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    if family == "coda":
        del config["tie_word_embeddings"]  # it is not, and the file does not say so
    if family == "illada":
        del config["mask_token_id"]
    write_files(Path(path), config, tensors, shape.shards)
    return tensors


def write_mdlm(path: Path | str, adaln: bool = True, **sizes: Any) -> dict[str, Tensor]:
    """Write a checkpoint as kuleshov-group's MDLM or, with a block_size, BD3LM saves it; returns its tensors by name.

    adaln: whether its layers have a time condition. The gates of a trained one are no zeros.
    """
    sizes = {"d_model": 32} | sizes
    shape = Shape(**sizes, kv_heads=sizes["heads"], d_ff=4 * sizes["d_model"])
    cond = 12
    draw = weights(shape.seed, shape.dtype)
    d = shape.d_model
    logits = 2 / math.sqrt(shape.d_model)
    made = {
        f"{MDLM['embed']}.embedding": draw(shape.vocab, d, std=1.0),
        f"{MDLM['norm']}.weight": draw(d, mean=1.0),
    }
    made |= {
        f"{MDLM['head']}.weight": draw(shape.vocab, d, std=logits),
        f"{MDLM['head']}.bias": draw(shape.vocab),
    }
    owners = {"backbone.output_layer": 2}
    for layer in range(shape.layers):
        own = MDLM["layer"].format(layer)
        owners[own[:-1]] = 6
        made |= {
            f"{own}{MDLM[norm]}.weight": draw(d, mean=1.0, std=0.2)
            for norm in ("attn_norm", "ff_norm")
        }
        made |= {f"{own}attn_qkv.weight": draw(3 * d, d), f"{own}attn_out.weight": draw(d, d)}
        made |= {f"{own}mlp.0.weight": draw(4 * d, d), f"{own}mlp.0.bias": draw(4 * d, std=0.3)}
        made |= {f"{own}mlp.2.weight": draw(d, 4 * d), f"{own}mlp.2.bias": draw(d, std=0.3)}
    for owner, parts in owners.items() if adaln else ():
        made |= {f"{owner}.adaLN_modulation.{kind}": draw(parts * d, *more, std=0.3) for kind, more in
                 (("weight", (cond,)), ("bias", ()))}  # fmt: skip
    for number, width in ((0, 256), (2, cond)) if adaln else ():
        made |= {f"backbone.sigma_map.mlp.{number}.weight": draw(cond, width)}
        made |= {f"backbone.sigma_map.mlp.{number}.bias": draw(cond, std=0.3)}
    made["backbone.rotary_emb.inv_freq"] = torch.ones(shape.head_dim // 2)
    config: dict[str, Any] = {
        "architectures": ["MDLM"], "model_type": "mdlm", "hidden_dim": d, "cond_dim": cond, "n_blocks": shape.layers,
        "n_heads": shape.heads, "dropout": 0.1, "model_length": shape.max_length, "vocab_size": shape.vocab,
        "time_conditioning": False, "return_dict": False, "torch_dtype": "float32",
    }  # fmt: skip
    if shape.block_size is not None:
        config |= {
            "architectures": ["BD3LM"],
            "model_type": "bd3lm",
            "block_size": shape.block_size,
            "adaln": adaln,
        }
        config |= {"cross_attn": True, "attn_backend": "flex", "var_min": True, "causal": False}
        made |= {
            f"sampling_eps_{end}": torch.tensor(value)
            for end, value in (("min", 1e-3), ("max", 1.0))
        }
    write_files(Path(path), config, made, shape.shards)
    return made


def write_lfm2(
    path: Path | str, convs: tuple[int, ...] = (0, 2), **sizes: Any
) -> dict[str, Tensor]:
    """Write a checkpoint as LFM2.5-Encoder-350M-Diffusion is published, without a tokenizer; returns its tensors by
    name. convs: the layers that do not attend. The feed-forward is 256 wide, whatever the file says.
    """
    shape = Shape(**{"d_ff": 256, "tied": True} | sizes)
    made = draw_tensors(LFM2, shape, norms=True)
    draw = weights(shape.seed + 1, shape.dtype)
    d = shape.d_model
    for layer in convs:
        own = LFM2["layer"].format(layer)
        made = {
            name: tensor for name, tensor in made.items() if not name.startswith(f"{own}self_attn")
        }
        made |= {
            f"{own}conv.in_proj.weight": draw(3 * d, d, std=1 / math.sqrt(d)),
            f"{own}conv.out_proj.weight": draw(d, d),
        }
        made[f"{own}conv.conv.weight"] = draw(d, 1, 3, std=0.6)
    config = shape.config(_HF) | {
        "architectures": ["Lfm2BidirectionalForMaskedLM"], "model_type": "lfm2", "rope_theta": 1e6, "norm_eps": 1e-5,
        "layer_types": ["conv" if layer in convs else "full_attention" for layer in range(shape.layers)],
        "intermediate_size": 100, "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "use_cache": False,
        "block_multiple_of": 256, "conv_L_cache": 3, "conv_bias": False, "pad_token_id": 0, "bos_token_id": 1,
    }  # fmt: skip
    write_files(Path(path), config, made, shape.shards)
    return made


def write_words(path: Path, **special: int) -> None:
    """A byte-level tokenizer: special tokens by their ids, and behind them the letters; GPT-2's begins with letters and
    ends with <|endoftext|>.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    first = max(special.values(), default=-1) + 1
    words = {letter: first + i for i, letter in enumerate(letters)}
    words |= special or {"<|endoftext|>": len(letters)}
    whole = Tokenizer(models.BPE(vocab=words, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    whole.decoder = decoders.ByteLevel()
    whole.add_special_tokens([*special] or ["<|endoftext|>"])
    path.mkdir(parents=True, exist_ok=True)
    whole.save(str(path / "tokenizer.json"))
    named = {
        "bos_token": "<|startoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "mask_token": "<|mask|>",
    }
    (path / "tokenizer_config.json").write_text(
        json.dumps(named if special else {"model_max_length": 1024})
    )


#: LFM2's special tokens.
LFM2_TOKENS = {
    "<|pad|>": 0,
    "<|startoftext|>": 1,
    "<|endoftext|>": 2,
    "<|im_end|>": 7,
    "<|mask|>": 16,
}


def write_mdlm_model(path: Path, **sizes: Any) -> dict[str, str]:
    """A small mdlm-owt, with a block_size a bd3lm-owt; returns how it is loaded with a tokenizer of GPT-2's kind, which
    lies beside it.
    """
    write_mdlm(path, heads=2, vocab=258, seed=21, max_length=1024, **sizes)
    write_words(path.with_name("gpt2"))
    return {"tokenizer": str(path.with_name("gpt2"))}


def write_lfm2_model(path: Path, **sizes: Any) -> dict[str, str]:
    """A small LFM2.5-Encoder-350M-Diffusion with its tokenizer; returns how it is loaded."""
    shape = {"layers": 3, "heads": 2, "kv_heads": 1, "vocab": 273, "seed": 22, "max_length": 1024}
    write_lfm2(path, mask_id=16, eos_id=7, **shape | sizes)
    write_words(path, **LFM2_TOKENS)
    return {}


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def write_chat_model(path: Path) -> None:
    """A small checkpoint as Qwen3-0.6B-diffusion-mdlm is published, with the embedded model's words: its mask is the
    tokenizer's alone, its EOS ends a turn, and its generation_config.json was written for next-token sampling.
    """
    vocab = 4100
    end = 4097
    write_hf(
        path, "a2d-qwen3", layers=2, d_model=64, heads=4, kv_heads=2, d_ff=96, vocab=vocab, tied=True, seed=5,
        head_dim=24, max_length=256, eos_id=end,
    )  # fmt: skip
    config = json.loads((path / "config.json").read_text())
    del config["mask_token_id"], config["pad_token_id"]
    words = json.loads((STORIES / "tokenizer.json").read_text("utf-8"))
    (special,) = (each for each in words["added_tokens"] if each["content"] == "<|endoftext|>")
    words["added_tokens"] += [special | {"id": 4096, "content": "<|im_start|>"}]
    words["added_tokens"] += [special | {"id": end, "content": "<|im_end|>"}]
    described = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHAT}
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.95}
    for name, content in {
        "config": config, "tokenizer": words, "tokenizer_config": described, "generation_config": sampling
    }.items():  # fmt: skip
        (path / f"{name}.json").write_text(json.dumps(content), "utf-8")


write_qwen3 = partial(write_hf, family="qwen3")
write_dream = partial(write_hf, family="dream")


def draw_tensors(names: dict[str, str], shape: Shape, norms: bool) -> dict[str, Tensor]:
    """Random tensors under a layout's names; what makes the logits is scaled to a standard deviation of about 2.

    norms: of queries and keys, too.
    """
    draw = weights(shape.seed, shape.dtype)
    d = shape.d_model
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
        return (mean + scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(
            dtype
        )

    return draw


def write_files(
    path: Path, config: dict[str, Any], tensors: dict[str, Tensor], shards: int
) -> None:
    """`config.json` with `model.safetensors`, or with `shards` files and their index; names go round robin."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {
        name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors"
        for i, name in enumerate(sorted(tensors))
    }
    for file in sorted(set(weight_map.values())):
        part = {name: tensors[name] for name in weight_map if weight_map[name] == file}
        save_file(part, path / file, metadata={"format": "pt"})
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
