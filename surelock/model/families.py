"""The checkpoint families: how their config.json is read, and the names of their tensors.

A family is data: the keys of its config.json, the values that these keys must have, and a table from the network's
parameters to the tensors of the checkpoint. With other values, `Network` would not compute the model. If a parameter
has several tensors, they are stacked along the rows, in order.
"""

import json
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from surelock.config import NetworkConfig
from surelock.errors import CheckpointError
from surelock.values import Fields, Json, frozen

CONFIG = "config.json"
GENERATION = "generation_config.json"
_MOST_JSON = 2**28  # bytes: the largest tokenizers take a tenth
SHOW_PROGRESS_FROM = 2**28  # parameters: loading a smaller network shows no progress


_EXPERTS = "its feed-forward is a mixture of experts, and this network's is one product"
_CAUSAL = (
    "it is the causal LFM2, as LFM2.5-Encoder loads without its own code: no mask stands for a word"
)
_NEXT_TOKEN = "a causal model, which predicts the next token from those before it"
_CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")  # ends of the names of causal models in transformers
_TIMED = "its posteriors depend on the time of a step, so kept keys and values are stale in every other step"
#: By architecture that resembles a family but cannot be decoded, the reason.
REFUSED = {
    "LLaDAMoEModel": _EXPERTS,
    "LLaDAMoEModelLM": _EXPERTS,
    "LLaDA2MoeModelLM": _EXPERTS,
    **dict.fromkeys(("lfm2", "Lfm2Model", "Lfm2ForCausalLM"), _CAUSAL),
    **dict.fromkeys(("SEDD", "UDLM", "DUO"), _TIMED),
    "DiffusionGemmaForBlockDiffusion": "it starts from random words and has no mask token",
}


@frozen
class Family:
    """A checkpoint family. model_type, architecture: the family's names in config.json."""

    model_type: str
    architecture: str
    tensors: Mapping[str, tuple[str, ...]]  # by parameter of the network, its tensor names
    read_config: Callable[[Fields], NetworkConfig]  # returns the network's shape for a config.json
    # id of the mask if the checkpoint's files name no mask; -1 is the last id of the vocabulary
    mask_id: int | None = None
    generation: Fields = field(default_factory=dict)  # recommended settings, a short spelling
    # by word in the name of a block-causal checkpoint, the size of its blocks
    named: Mapping[str, int] = field(default_factory=dict)
    modulated: bool = (
        False  # whether a checkpoint may have a time condition, see `surelock.model.modulation`
    )
    tokenizer: str = ""  # hub id of the tokenizer for checkpoints without one
    template: str = ""  # chat template that replaces the tokenizer's; "": none
    stop: str = ""  # text that ends an answer, in addition to the ids that end it; "": none
    declared: str = (
        ""  # key of config.json that causal models of the same architecture lack; "": none
    )

    def tensor_names(self, parameter: str) -> tuple[str, ...]:
        """Return the tensor names of a parameter such as 'blocks.3.qkv.weight'."""
        parts = parameter.split(".")
        if parts[0] != "blocks":
            return self.tensors[parameter]
        template = ".".join(("blocks", "{i}", *parts[2:]))
        return tuple(name.format(i=parts[1]) for name in self.tensors[template])


def read_json(path: Path) -> Json:
    """Return the object in a JSON file. Raises CheckpointError, which names the file."""
    try:
        if path.stat().st_size > _MOST_JSON:
            raise CheckpointError(
                f"{path} is too large: at most {_MOST_JSON:,} bytes of JSON are read"
            )
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (OSError, ValueError, RecursionError) as error:
        # ValueError: not UTF-8, not JSON, or a number with too many digits
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return content


def family_of(config: Fields) -> Family:
    """Return the family of a config.json by its architectures, or by its model_type if it names no architecture.

    Architectures have precedence, since model_type often names the model from which a checkpoint was made.

    Raises CheckpointError for an unknown architecture, and for a causal model.
    """
    model_type = config.get("model_type")
    type_text = "" if model_type is None else model_type
    named = config.get("architectures") or []
    texts = [*named, type_text] if isinstance(named, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise CheckpointError(
            "config.json must name its architectures in a list of texts, its model_type in a text"
        )
    for family in FAMILIES:
        if family.architecture in named or (not named and family.model_type == model_type):
            _refuse_causal(family, config)
            return family
    # The config.json of SEDD names no architecture.
    if not texts[-1] and {"graph", "noise"} <= config.keys():
        named = ["SEDD"]
    for name in named or texts:
        if name in REFUSED:
            raise CheckpointError(f"{name} cannot be decoded here: {REFUSED[name]}")
    supported = ", ".join(sorted(family.architecture for family in FAMILIES))
    architecture = ", ".join(sorted(named)) or model_type or "none"
    if any(name.endswith(_CAUSAL_NAMES) for name in named):
        raise CheckpointError(
            f"{architecture} is by its name {_NEXT_TOKEN}; config.json must name one of {supported}"
        )
    raise CheckpointError(
        f"unknown architecture {architecture}: config.json must name one of {supported}"
    )


def _refuse_causal(family: Family, config: Fields) -> None:
    """Raise CheckpointError for a causal model that has the architecture of a family."""
    if family.declared and config.get(family.declared) in (None, -1, []):
        other = f"a diffusion model of this architecture has a {family.declared} in {CONFIG}"
        raise CheckpointError(f"{family.architecture} is {_NEXT_TOKEN}; {other}")


def shape_of(family: Family, config: Fields, name: str) -> NetworkConfig:
    """Return the shape of a checkpoint. It is read from config.json; only the block size may also come from the name.

    name: the hub id or the path that was loaded. Some block-causal checkpoints have the same config.json as other
    checkpoints of their family. The last word of `Family.named` in the name then decides. A block_size in config.json
    has precedence over the name.

    Raises CheckpointError for a config.json that the network cannot compute.
    """
    shape = family.read_config(config)
    kinds = re.findall("|".join(("mdlm", *family.named)), name.lower()) if family.named else []
    if shape.block_size is None and kinds and kinds[-1] in family.named:
        return replace(shape, block_size=family.named[kinds[-1]])
    return shape


def _require(config: Fields, *keys: str) -> None:
    """Raise CheckpointError for keys that a config.json lacks. The message names the first ten."""
    if missing := [key for key in keys if config.get(key) is None]:
        raise CheckpointError(f"{CONFIG} has no {', '.join(map(repr, missing[:10]))}")


def _number(config: Fields, key: str, kind: type = int) -> Any:
    """Return a required number above 0. kind: int for a whole number, float for any number.

    Raises CheckpointError for a missing key and for other values.
    """
    _require(config, key)
    value = config[key]
    wanted = int if kind is int else (int, float)
    if (
        isinstance(value, bool)
        or not isinstance(value, wanted)
        or not 0 < value <= sys.float_info.max
    ):
        raise CheckpointError(
            f"config.json sets {key} to {value!r:.40}, which is no number above 0"
        )
    return kind(value)


def _refuse_unless(config: Fields, off: str, **required: tuple[Any, ...]) -> None:
    """Raise CheckpointError for values of a config.json that are not supported.

    off: keys that must be false, null or missing, separated by spaces. required: by other key, the values that it may
    have if it is there.
    """
    for key, allowed in (dict.fromkeys(off.split(), (False, None)) | required).items():
        if key in config and config[key] not in allowed:
            raise CheckpointError(
                f"config.json sets {key} to {config[key]!r}; only {allowed[0]!r} is supported"
            )


def _rope_theta(config: Fields) -> float:
    """Return the base of rotary embeddings.

    rope_theta is a key of config.json, or of its objects rope_parameters (transformers 5) or rope_scaling, where it may
    also be listed by kind of layer. As in transformers, a value in an object has precedence.

    Raises CheckpointError for scaled embeddings, and for several different values.
    """
    inner: set[float] = set()
    for key in ("rope_parameters", "rope_scaling"):
        outer = config.get(key) or {}
        if not isinstance(outer, Mapping):
            raise CheckpointError(f"config.json sets {key} to what is no object")
        for rope in (outer, *(value for value in outer.values() if isinstance(value, Mapping))):
            _refuse_scaling(key, rope)
            if rope.get("rope_theta") is not None:
                inner.add(_number(rope, "rope_theta", float))
    _refuse_scaling("it", {"partial_rotary_factor": config.get("partial_rotary_factor")})
    if len(inner) > 1:
        raise CheckpointError(
            f"config.json sets rope_theta to {sorted(inner)}; only one value is supported"
        )
    if not inner:
        return _number(config, "rope_theta", float)
    (theta,) = inner
    if config.get("rope_theta") not in (None, theta):
        order = f"the rope_theta of its rotary embeddings ({theta:g}) goes before the outer one"
        warnings.warn(f"config.json: {order} ({config['rope_theta']!r:.40})", stacklevel=2)
    return theta


def _refuse_scaling(key: str, rope: Fields) -> None:
    """Raise CheckpointError for scaled or partial rotary embeddings. A factor of 1 is allowed. key: name of `rope`."""
    kinds = [rope[name] for name in ("rope_type", "type") if rope.get(name) is not None]
    scales = any(kind != "default" for kind in kinds)
    if not kinds:
        scales = rope.get("factor") is not None
    factors = [rope.get("factor"), rope.get("attention_factor") or 1]
    for name in ("short_factor", "long_factor"):
        factors += rope.get(name) or ()
    is_scaled = scales and any(factor != 1 for factor in factors)
    is_partial = rope.get("partial_rotary_factor") not in (None, 1)
    if is_scaled or is_partial:
        scaling = {name: value for name, value in rope.items() if value is not None}
        raise CheckpointError(
            f"config.json scales rotary embeddings, which is unsupported: {key} holds {scaling!r:.120}"
        )


def _read(config: Fields, keys: Mapping[str, str], **fields: Any) -> NetworkConfig:
    """Return the shape of a network.

    keys: by field of `NetworkConfig`, the required key of config.json. fields: further fields.
    """
    d_model = _number(config, keys["d_model"])
    n_heads = _number(config, keys["n_heads"])
    shape = {name: _number(config, key) for name, key in keys.items() if name != "tied"} | fields
    if "tied" in keys:
        shape["tied"] = bool(config[keys["tied"]])
    shape["n_kv_heads"] = fields.get("n_kv_heads") or n_heads
    shape["head_size"] = fields.get("head_size") or d_model // n_heads
    try:
        return NetworkConfig(**shape)
    except ValueError as error:
        raise CheckpointError(f"config.json: {error}") from error


LLADA_KEYS = {
    "d_model": "d_model",
    "n_layers": "n_layers",
    "n_heads": "n_heads",
    "d_ff": "mlp_hidden_size",
}
LLADA_KEYS |= {"max_length": "max_sequence_length", "tied": "weight_tying"}
LLADA_FIXED = {
    "layer_norm_type": "rms",
    "activation_type": "silu",
    "block_type": "llama",
    "rope": True,
}


def _read_llada(config: Fields) -> NetworkConfig:
    """Return the shape of an LLaDA checkpoint."""
    _require(config, *LLADA_KEYS.values(), "rms_norm_eps")
    off = "alibi include_bias attention_layer_norm input_emb_norm scale_logits"
    _refuse_unless(
        config, off, clip_qkv=(None,), **{key: (value,) for key, value in LLADA_FIXED.items()}
    )
    d_model = _number(config, "d_model")
    n_heads = _number(config, "n_heads")
    if d_model % n_heads:
        raise CheckpointError(f"config.json: n_heads ({n_heads}) must divide d_model ({d_model})")
    return _read(
        config,
        LLADA_KEYS,
        vocab_size=config.get("embedding_size") or _number(config, "vocab_size"),
        n_kv_heads=config.get("n_kv_heads"),
        rope_theta=_rope_theta(config),
        norm_eps=_number(config, "rms_norm_eps", float),
        qkv_bias=bool(config.get("include_qkv_bias")),
    )


def _read_coda(config: Fields) -> NetworkConfig:
    """Return the shape of a CoDA checkpoint: Qwen3, with shifted logits. Its config.json does not say it is untied."""
    return _read_qwen({"tie_word_embeddings": False, **config}, qk_norm=True, shifted=True)


def _read_sdar(config: Fields) -> NetworkConfig:
    """Return the shape of an SDAR checkpoint: block-causal Qwen3."""
    _number(config, "block_size")
    return _read_qwen(config, qk_norm=True)


def _read_dream(config: Fields) -> NetworkConfig:
    """Return the shape of a Dream or DiffuCoder checkpoint: Qwen2.5, with shifted logits as in next-token models."""
    _refuse_unless(config, "use_mrope")
    return _read_qwen(config, qkv_bias=True, shifted=True)


QWEN_KEYS = {"vocab_size": "vocab_size", "d_model": "hidden_size", "n_layers": "num_hidden_layers"}
QWEN_KEYS |= {
    "n_heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "max_length": "max_position_embeddings",
}
QWEN_KEYS |= {"tied": "tie_word_embeddings"}


def _read_qwen(config: Fields, **more: Any) -> NetworkConfig:
    """Return the shape of a checkpoint with the keys of Qwen. more: further fields of `NetworkConfig`."""
    _require(config, *QWEN_KEYS.values(), "rms_norm_eps")
    _refuse_unless(config, "attention_bias mlp_bias use_sliding_window", hidden_act=("silu",))
    theta = _rope_theta(config)
    eps = _number(config, "rms_norm_eps", float)
    heads = _number(config, "num_attention_heads")
    kv_heads = config.get("num_key_value_heads")
    if isinstance(kv_heads, int) and kv_heads > 0 and heads % kv_heads:
        divides = f"num_key_value_heads ({kv_heads}) must divide num_attention_heads ({heads})"
        raise CheckpointError(f"config.json: {divides}")
    more |= {"n_kv_heads": kv_heads, "head_size": config.get("head_dim")}
    return _read(
        config,
        QWEN_KEYS,
        rope_theta=theta,
        norm_eps=eps,
        block_size=config.get("block_size"),
        **more,
    )


def _read_mdlm(config: Fields) -> NetworkConfig:
    """Return the shape of an MDLM or BD3LM checkpoint. BD3LM without cross_attn is not block-causal, as MDLM."""
    if config.get("time_conditioning") not in (False, None):
        raise CheckpointError(
            f"config.json sets time_conditioning, which is not supported: {_TIMED}"
        )
    _refuse_unless(config, "causal")
    keys = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_dim",
        "n_layers": "n_blocks",
        "n_heads": "n_heads",
    }
    keys["max_length"] = "model_length"
    _require(config, *keys.values())
    block_size = config.get("block_size") if config.get("cross_attn", True) else None
    fixed = {
        "rope_theta": 10_000.0,
        "norm_eps": 1e-5,
        "tied": False,
        "d_ff": 4 * _number(config, "hidden_dim"),
    }
    fixed |= dict.fromkeys(("layer_norm", "gelu", "head_bias"), True)
    return _read(config, keys, block_size=block_size, **fixed)


def _read_lfm2(config: Fields) -> NetworkConfig:
    """Return the shape of a bidirectional LFM2 checkpoint, with centred convolutions. Untrained ids are left out."""
    _refuse_unless(config, "conv_bias", conv_L_cache=(3,))
    _require(config, "layer_types", "num_hidden_layers")
    kinds = config["layer_types"]
    vocab = _number(config, "vocab_size")
    are_known = isinstance(kinds, list) and all(
        kind in ("conv", "full_attention") for kind in kinds
    )
    if not are_known or len(kinds) != config["num_hidden_layers"]:
        raise CheckpointError(
            "config.json must name each layer 'conv' or 'full_attention' in its layer_types"
        )
    width = _number(
        {"intermediate_size": config.get("block_ff_dim"), **config}, "intermediate_size"
    )
    if config.get("block_auto_adjust_ff_dim", True):
        # as in transformers: two thirds, times a multiplier, rounded up to a multiple of `unit`
        unit = config.get("block_multiple_of", 256)
        multiplier = config.get("block_ffn_dim_multiplier") or 1
        width = int(multiplier * int(2 * width / 3))
        width = -(width // -unit) * unit
    tied = config.get("tie_embedding", config.get("tie_word_embeddings", True))
    shape = {
        "vocab_size": min(vocab, _LFM2_TRAINED),
        "intermediate_size": width,
        "tie_word_embeddings": tied,
    }
    names = {**config, **shape, "rms_norm_eps": _number(config, "norm_eps", float)}
    convs = tuple(layer for layer, kind in enumerate(kinds) if kind == "conv")
    return _read_qwen(names, qk_norm=True, conv_layers=convs, unused=vocab - shape["vocab_size"])


def _block_tensors(prefix: str, names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return a part of `Family.tensors`, for layers.

    names: by parameter of a layer, its modules in the checkpoint, separated by spaces. For example, 'attn_norm.weight':
    'a b' becomes 'blocks.{i}.attn_norm.weight': ('prefix.a.weight', 'prefix.b.weight').
    """
    tensors = {}
    for parameter, modules in names.items():
        kind = parameter.rsplit(".", 1)[1]
        sources = tuple(f"{prefix}.{module}.{kind}" for module in modules.split())
        tensors[f"blocks.{{i}}.{parameter}"] = sources
    return tensors


def _layout(
    outside: tuple[str, str, str], prefix: str, names: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return `Family.tensors`. outside: names of embedding, norm and head. prefix, names: see `_block_tensors`."""
    around = zip(("embed.weight", "norm.weight", "head.weight"), outside, strict=True)
    return {name: (tensor,) for name, tensor in around} | _block_tensors(prefix, names)


_LLADA = _layout(
    (
        "model.transformer.wte.weight",
        "model.transformer.ln_f.weight",
        "model.transformer.ff_out.weight",
    ),
    "model.transformer.blocks.{i}",
    {
        "attn_norm.weight": "attn_norm",
        "qkv.weight": "q_proj k_proj v_proj",
        "qkv.bias": "q_proj k_proj v_proj",
        "attn_out.weight": "attn_out",
        "ff_norm.weight": "ff_norm",
        "gate_up.weight": "ff_proj up_proj",
        "ff_out.weight": "ff_out",
    },
)
_QKV = "self_attn.q_proj self_attn.k_proj self_attn.v_proj"
_LLAMA = _layout(
    ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
    "model.layers.{i}",
    {
        "attn_norm.weight": "input_layernorm",
        "qkv.weight": _QKV,
        "attn_out.weight": "self_attn.o_proj",
        "ff_norm.weight": "post_attention_layernorm",
        "gate_up.weight": "mlp.gate_proj mlp.up_proj",
        "ff_out.weight": "mlp.down_proj",
    },
)
_NORMS = {"q_norm.weight": "self_attn.q_norm", "k_norm.weight": "self_attn.k_norm"}
_QWEN3 = _LLAMA | _block_tensors("model.layers.{i}", _NORMS)
_QWEN2 = _LLAMA | _block_tensors("model.layers.{i}", {"qkv.bias": _QKV})
_OUTPUT = "backbone.output_layer"
_MDLM = _layout(
    ("backbone.vocab_embed.embedding", f"{_OUTPUT}.norm_final.weight", f"{_OUTPUT}.linear.weight"),
    "backbone.blocks.{i}",
    {
        "attn_norm.weight": "norm1",
        "attn_norm.bias": "",
        "qkv.weight": "attn_qkv",
        "attn_out.weight": "attn_out",
        "ff_norm.weight": "norm2",
        "ff_norm.bias": "",
        "gate_up.weight": "mlp.0",
        "gate_up.bias": "mlp.0",
        "ff_out.weight": "mlp.2",
        "ff_out.bias": "mlp.2",
    },
) | {"norm.bias": (), "head.bias": (f"{_OUTPUT}.linear.bias",)}
_LFM2 = _layout(
    ("lfm2.embed_tokens.weight", "lfm2.embedding_norm.weight", "lm_head.weight"),
    "lfm2.layers.{i}",
    {
        "attn_norm.weight": "operator_norm",
        "qkv.weight": _QKV,
        "q_norm.weight": "self_attn.q_layernorm",
        "k_norm.weight": "self_attn.k_layernorm",
        "attn_out.weight": "self_attn.out_proj",
        "conv_in.weight": "conv.in_proj",
        "conv.weight": "conv.conv",
        "conv_out.weight": "conv.out_proj",
        "ff_norm.weight": "ffn_norm",
        "gate_up.weight": "feed_forward.w1 feed_forward.w3",
        "ff_out.weight": "feed_forward.w2",
    },
)
_read_qwen3 = partial(_read_qwen, qk_norm=True)
_read_qwen2 = partial(_read_qwen, qkv_bias=True)

#: The authors sample in blocks. Without blocks the padding after a short answer is committed first.
_TINY_A2D = {"gen_length": 128, "steps": 128, "block_length": 32}
#: Block-causal checkpoints that only differ by name: dllm's bd3lm checkpoints and OPDLM.
_SIBLINGS = {"bd3lm": 32, "opdlm": 4}

#: Number of ids of LFM2 that were trained, of 65,536.
_LFM2_TRAINED = 64_402
_LFM2_CHAT = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYS]\n{{ m.content }}\n[/SYS]\n\n"
    "{% elif m.role == 'user' %}[Question]\n{{ m.content }}\n[/Question]\n\n"
    "{% else %}[Answer]\n{{ m.content }}\n[/Answer]\n\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[Answer]\n{% endif %}"
)
#: The settings of the authors' Space, which in addition never commits two neighbours in one step.
_LFM2_SPACE = {
    "gen_length": 64,
    "steps": 32,
    "block_length": 16,
    "unmask": "threshold",
    "threshold": 0.9,
}
#: The model was trained for temperature 1 and random order. With the most confident positions first, it repeats itself.
_MDLM_SAMPLING = {"gen_length": 256, "steps": 256, "temperature": 0.8}
_of_mdlm = partial(
    Family, tensors=_MDLM, read_config=_read_mdlm, mask_id=-1, generation=_MDLM_SAMPLING, modulated=True,
    tokenizer="openai-community/gpt2",
)  # fmt: skip

LLADA = Family("llada", "LLaDAModelLM", _LLADA, _read_llada)
A2D_QWEN3 = Family(
    "a2d-qwen3", "A2DQwen3LMHeadModel", _QWEN3, _read_qwen3, generation=_TINY_A2D, named=_SIBLINGS
)
FAMILIES = (
    LLADA,
    Family("qwen3", "Qwen3ForCausalLM", _QWEN3, _read_qwen3, declared="mask_token_id"),
    A2D_QWEN3,
    Family(
        "a2d-qwen2",
        "A2DQwen2LMHeadModel",
        _QWEN2,
        _read_qwen2,
        generation=_TINY_A2D,
        named=_SIBLINGS,
    ),
    Family(
        "sdar", "SDARForCausalLM", _QWEN3, _read_sdar, generation={"gen_length": 128, "steps": 128}
    ),
    Family("Dream", "DreamModel", _QWEN2, _read_dream),
    Family("CoDA", "CoDALanguageModel", _QWEN3, _read_coda),
    Family("illada", "ILLaDAForCausalLM", _LLAMA, _read_qwen, mask_id=5),
    _of_mdlm("mdlm", "MDLM"),
    _of_mdlm("bd3lm", "BD3LM"),
    Family(  # without a model_type, which is the causal model's
        "",
        "Lfm2BidirectionalForMaskedLM",
        _LFM2,
        _read_lfm2,
        generation=_LFM2_SPACE,
        template=_LFM2_CHAT,
        stop="[/Answer]",
    ),
)
