"""`surelock.load`: what loads, and one clear error for whatever does not."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import pytest
import torch
from checkpoints import write_chat_model, write_dream, write_hf, write_llada, write_qwen3
from conftest import TINY
from huggingface_hub import errors as hub_errors
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import surelock
from surelock import CheckpointError
from surelock.config import LLADA_8B
from surelock.decoding.ends import text_of
from surelock.decoding.recommended import recommended
from surelock.loading import find_device
from surelock.model.families import FAMILIES, Family, family_of
from surelock.model.generation import generation_of
from surelock.model.tokenizer import load_tokenizer
from surelock.ui.models import Models

ROOT = "model.transformer."
QWEN3 = TINY | {"head_dim": 8, "tied": True}
DREAM = {name: value for name, value in QWEN3.items() if name != "head_dim"}


def load(path: Path, **options: Any) -> surelock.LanguageModel:
    return surelock.load(path, **{"device": "cpu"} | options)


def refuses(path: Path | str, *words: str, **options: Any) -> None:
    """Loading fails with one CheckpointError, on one line, that holds all the words."""
    with pytest.raises(CheckpointError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def edit_tensors(directory: Path, drop: tuple[str, ...] = (), **new: torch.Tensor) -> None:
    """Drop and add tensors of a single file; new ones by their name with _ for the dots of the root."""
    file = directory / "model.safetensors"
    tensors = {name: value for name, value in load_file(file).items() if name not in drop}
    save_file(tensors | {ROOT + name: value for name, value in new.items()}, file)


def edit_json(file: Path, **changes: Any) -> None:
    """Set keys of a JSON object; None removes a key."""
    content = (json.loads(file.read_text()) if file.is_file() else {}) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


TENSORS: list[tuple[str, tuple[int, ...] | None]] = [  # without a shape it is left out
    *((name, None) for name in ("wte.weight", "ln_f.weight", "ff_out.weight", "blocks.1.k_proj.weight")),
    *((name, (32,)) for name in ("blocks.2.attn_norm.weight", "blocks.0.q_proj.bias", "wpe.weight")),
    ("wte.weight", (40, 32)), ("ff_out.weight", (32, 41)), ("ln_f.weight", (31,)), ("blocks.0.attn_norm.weight", ()),
    ("blocks.0.k_proj.weight", (15, 32)), ("blocks.0.v_proj.weight", (16, 33)), ("blocks.0.q_proj.weight", (32,)),
    ("blocks.1.up_proj.weight", (47, 32)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), TENSORS)
def test_a_tensor_that_does_not_fit_is_named(
    llada: Path, name: str, shape: tuple[int, ...] | None
) -> None:
    if shape is None:
        edit_tensors(llada, drop=(ROOT + name,))
    else:
        edit_tensors(llada, **{name: torch.zeros(shape)})
    refuses(
        llada,
        ROOT + name,
        "lacks"
        if shape is None
        else "unknown"
        if shape == (32,) and "q_proj.w" not in name
        else str(list(shape)),
    )


def test_wrong_shapes_that_add_up_are_refused(llada: Path) -> None:
    """q, k and v share one matrix: the sum of the rows alone proves nothing."""
    edit_tensors(
        llada,
        **{
            "blocks.0.q_proj.weight": torch.zeros(16, 32),
            "blocks.0.k_proj.weight": torch.zeros(32, 32),
        },
    )
    refuses(llada, "blocks.0.q_proj.weight")


def test_a_duplicate_head_of_a_tied_checkpoint(tmp_path: Path) -> None:
    head = write_llada(tmp_path, **TINY | {"tied": True})[ROOT + "wte.weight"]
    expected = load(tmp_path).network(torch.tensor([[3, 4]]))
    edit_tensors(tmp_path, **{"ff_out.weight": head})
    assert torch.equal(load(tmp_path).network(torch.tensor([[3, 4]])), expected)
    edit_tensors(tmp_path, **{"ff_out.weight": head + 1})
    for engine in ("torch", "onnx"):
        with pytest.warns(UserWarning, match=r"ff_out\.weight differs from .* it is passed over"):
            lm = load(tmp_path, engine=engine)
        assert torch.equal(lm.network(torch.tensor([[3, 4]])), expected)


def with_tensors(
    directory: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    file = directory / "model.safetensors"
    save_file({name: value.contiguous() for name, value in change(load_file(file)).items()}, file)


HEAD = torch.tensor([[3, 4]])


@pytest.mark.parametrize(
    "prefixes", [["module."], ["_orig_mod.module."], ["", "module._fsdp_wrapped_module."]]
)
def test_prefixes_of_wrappers_are_passed_over_and_said(tmp_path: Path, prefixes: list[str]) -> None:
    write_qwen3(tmp_path, **QWEN3)
    expected = load(tmp_path).network(HEAD)
    with_tensors(
        tmp_path,
        lambda w: {prefixes[i % len(prefixes)] + k: v for i, (k, v) in enumerate(w.items())},
    )
    for engine in ("torch", "onnx"):
        with pytest.warns(UserWarning, match=prefixes[-1]):
            lm = load(tmp_path, engine=engine)
        assert torch.equal(lm.network(HEAD), expected)
    norms = dict.fromkeys(("model.norm.weight", "module.model.norm.weight"), torch.ones(32))
    with_tensors(tmp_path, lambda w: w | {k: v.clone() for k, v in norms.items()})
    refuses(tmp_path, "twice", "model.norm.weight")


def test_buffers_of_rotary_embeddings_are_passed_over(llada: Path) -> None:
    expected = load(llada).network(HEAD)
    names = [
        f"{owner}rotary_emb.{name}"
        for owner in ("", "a.0.")
        for name in ("inv_freq", "original_inv_freq")
    ]
    with_tensors(
        llada, lambda w: w | {name: torch.ones(4) for name in (*names, "rotary_emb.cos_cached")}
    )
    assert torch.equal(load(llada).network(HEAD), expected)


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_tied_checkpoint_may_hold_the_head_alone(tmp_path: Path, engine: str) -> None:
    write_hf(tmp_path, "dream", **DREAM)
    expected = load(tmp_path).network(HEAD)
    embed = "model.embed_tokens.weight"
    with_tensors(
        tmp_path, lambda w: {"lm_head.weight" if k == embed else k: v for k, v in w.items()}
    )
    assert torch.equal(load(tmp_path, engine=engine).network(HEAD), expected)
    with_tensors(tmp_path, lambda w: {k: v for k, v in w.items() if k != "lm_head.weight"})
    refuses(tmp_path, "lacks", embed)


def stored_as(
    dtype: torch.dtype, more: str = ""
) -> Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """Projections of another dtype, and beside each a tensor of another name."""

    def change(w: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        marks = (
            {k.replace(".weight", more): torch.ones(1) for k in w if "proj" in k} if more else {}
        )
        return {k: v.to(dtype) if "proj" in k else v for k, v in w.items()} | marks

    return change


@pytest.mark.parametrize(
    ("change", "described", "word"),
    [
        (
            lambda w: {k.replace("proj.weight", "proj.qweight"): v for k, v in w.items()},
            None,
            "GPTQ",
        ),
        (stored_as(torch.int32, ".qzeros"), {"quant_method": "awq"}, "AWQ"),
        (stored_as(torch.int8, ".SCB"), None, "bitsandbytes"),
        (stored_as(torch.uint8, ".weight.absmax"), {"load_in_4bit": True}, "bitsandbytes"),
        (stored_as(torch.int32, ".weight_packed"), None, "compressed-tensors"),
        (stored_as(torch.float8_e4m3fn, ".weight_scale_inv"), None, "fp8"),
        (stored_as(torch.float8_e4m3fn), {"quant_method": "fp8"}, "fp8"),
        (stored_as(torch.int8), None, "I8"),
        (stored_as(torch.float32), {"quant_method": "compressed-tensors"}, "compressed-tensors"),
    ],
)
def test_a_quantised_checkpoint_is_refused_by_what_it_is(
    tmp_path: Path, change: Any, described: Any, word: str
) -> None:
    write_hf(tmp_path, "a2d-qwen3", **QWEN3)
    with_tensors(tmp_path, change)
    edit_json(tmp_path / "config.json", quantization_config=described or {"load_in_8bit": False})
    refuses(tmp_path, "quantised", word)


@pytest.mark.parametrize(
    ("names", "word"),
    [(["config.json", "adapter_model.bin"], "PEFT"), (["config.json", "model.gguf"], "GGUF")],
)
def test_another_kind_of_checkpoint_is_named(tmp_path: Path, names: list[str], word: str) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    refuses(tmp_path, word)
    refuses(tmp_path / names[-1], "GGUF" if word == "GGUF" else "is a file")


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_of_two_sets_of_weights_the_single_file_is_read(tmp_path: Path, engine: str) -> None:
    """As in transformers: a newer save beside the index and the shards of an older one."""
    write_qwen3(tmp_path / "new", **QWEN3 | {"seed": 8})
    write_qwen3(tmp_path / "both", **QWEN3, shards=3)
    expected = load(tmp_path / "new").network(HEAD)
    shutil.copy(tmp_path / "new" / "model.safetensors", tmp_path / "both")
    with pytest.warns(
        UserWarning, match=r"model\.safetensors is read.*model\.safetensors\.index\.json"
    ) as warned:
        lm = load(tmp_path / "both", engine=engine)
    assert torch.equal(lm.network(HEAD), expected) and len(warned) == 1


INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"
SPOILT: list[tuple[int, str, bytes | int | None, str]] = [  # shards, a file's content or end, None for gone
    *((1, "model.safetensors", end, "model.safetensors") for end in (0, 4, 100, 5000, None)),
    *((1, "config.json", content, "config") for content in (b"", b"{'a': 1}", b"[1]", b"\xff\xfe", b'{"d_model": 32')),
    (1, "tokenizer.json", b"{", "tokenizer"), (1, "generation_config.json", b"{", "generation_config"),
    (1, "config.json", None, "does not exist"), (1, "config.json", 2**28 + 1, "at most 268,435,456 bytes"),
    (3, SHARD, None, SHARD), (3, INDEX, b"{", "JSON"),
    *((3, INDEX, content, "weight_map") for content in (b"{}", b'{"weight_map": 3}', b'{"weight_map": {"a": 3}}')),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shards", "name", "content", "word"), SPOILT, ids=lambda value: ascii(value)[:20]
)
def test_a_spoilt_file_is_named(
    tmp_path: Path, shards: int, name: str, content: bytes | int | None, word: str
) -> None:
    write_llada(tmp_path, **TINY, shards=shards)
    file = tmp_path / name
    if content is None:
        file.unlink()
    elif isinstance(content, int):
        os.truncate(file, content)
    else:
        file.write_bytes(content)
    refuses(tmp_path, str(tmp_path), word)


def test_a_shard_without_its_tensor_is_named(tmp_path: Path) -> None:
    write_llada(tmp_path, **TINY, shards=3)
    save_file({"other": torch.zeros(1)}, tmp_path / SHARD)
    refuses(tmp_path, SHARD, ROOT)


def test_two_threads_load_while_transformers_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As two models of a server do: a module that puts another in its place is half a module until then."""
    package = tmp_path / "packages" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        """import pathlib, sys, time, types
pathlib.Path(__file__).with_name("begun").touch()
time.sleep(0.3)
made = types.ModuleType(__name__)
made.PreTrainedTokenizerFast = made.Qwen2Tokenizer = None
sys.modules[__name__] = made"""
    )
    monkeypatch.syspath_prepend(package.parent)
    for name in [*filter(lambda name: name.partition(".")[0] == "transformers", sys.modules)]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "tokenizer.json").write_text("no tokenizer")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(load_tokenizer, tmp_path)
        while not (package / "begun").exists():
            time.sleep(0.01)
        for loading in (first, pool.submit(load_tokenizer, tmp_path)):
            with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
                loading.result()


def test_a_text_at_which_a_pattern_gives_up_is_one_error(llada: Path) -> None:
    """Many ways to read it, though not without end: the library's panic is no Exception."""
    write_tokenizer(llada, chat_template="{{ messages[0].content }}")
    split = {
        "type": "Split",
        "pattern": {"Regex": r"\s*\s*\s*[\r\n]b"},
        "behavior": "Isolated",
        "invert": False,
    }
    edit_json(llada / "tokenizer.json", pre_tokenizer=split)
    for chat in (False, True):
        with pytest.raises(ValueError, match=r"the tokenizer of .* cannot read this text: Onig"):
            load(llada).encode(" " * 500 + "ab\n", chat=chat)


def test_nothing_that_is_loaded_is_a_compiler() -> None:
    """torch's, with sympy, takes 70 MB and a second, and is imported by what a network on the meta device may call."""
    code = "import sys, surelock\nfor engine in ('onnx', 'torch'):\n"
    code += "    lm = surelock.load('stories', device='cpu', engine=engine)\n"
    code += "    list(surelock.decode(lm, ['A dog'], surelock.DecodeSettings(gen_length=4)))\n"
    code += "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_a_network_is_read_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    write_qwen3(tmp_path / "here" / "model", **QWEN3)
    monkeypatch.chdir(tmp_path / "here")
    lm = load(Path("../here/model"), engine=engine)
    monkeypatch.chdir(tmp_path)
    assert lm.network(HEAD).isfinite().all()


SCALES: list[dict[str, Any]] = [
    {"factor": 4.0}, {"factor": "2"}, {}, {"factor": 1.0, "attention_factor": 1.2}, {"factor": 1, "long_factor": [1, 2]}
]  # fmt: skip
SCALED = [
    {name: kind} | each
    for name in ("type", "rope_type")
    for kind in ("yarn", "linear")
    for each in SCALES
]
SCALED += [
    {"type": "dynamic", "rope_type": "default", "factor": 2.0},
    {"factor": 2.0},
    {"partial_rotary_factor": 0.5},
]
UNSCALED: list[dict[str, Any]] = [
    {}, {"type": None, "factor": None}, {"rope_type": "default"}, {"type": "default", "factor": 4.0},
    {"partial_rotary_factor": 1.0}, {"type": "yarn", "factor": 1.0}, {"rope_type": "dynamic", "factor": 1.0},
]  # fmt: skip


def write_layout(directory: Path, layout: str) -> None:
    write_llada(directory, **TINY) if layout == "llada" else write_hf(directory, layout, **DREAM)


LLADA: dict[str, Any] = {
    "alibi": True, "rope": False, "include_bias": True, "layer_norm_type": "low_precision", "activation_type": "gelu",
    "block_type": "sequential", "attention_layer_norm": True, "input_emb_norm": True, "scale_logits": True,
    "clip_qkv": 8.0, "d_model": None, "mlp_hidden_size": None, "weight_tying": None, "rms_norm_eps": None,
    "n_heads": 5, "n_kv_heads": 3,
}  # fmt: skip
SENSELESS = [
    ("n_heads", 0), ("n_heads", "4"), ("n_layers", 2.5), ("mlp_hidden_size", 0), ("max_sequence_length", 0),
    ("rope_theta", "big"), ("rope_theta", -1.0), ("rms_norm_eps", "small"), ("embedding_size", "41"),
]  # fmt: skip
SENSELESS += [
    (f"{token}_token_id", value)
    for token in ("mask", "eos", "pad")
    for value in (41, -2, "1", True, [0, 41])
]
QWEN = {
    "attention_bias": True, "hidden_act": "gelu", "use_sliding_window": True, "rope_theta": None, "hidden_size": None,
}  # fmt: skip
CONFIGURED: list[tuple[str, str, Any, str]] = [
    *(("llada", key, value, key) for key, value in LLADA.items()),
    *(("llada", key, value, repr(value)) for key, value in SENSELESS),
    *(("qwen3", key, value, key) for key, value in QWEN.items()),
    ("qwen3", "num_attention_heads", 5, "must divide num_attention_heads"),
    ("qwen3", "num_hidden_layers", 0, "num_hidden_layers"),
    ("dream", "use_mrope", True, "use_mrope"), ("dream", "block_size", 32, "block_size"),
    ("llada", "mask_token_id", None, "no mask token"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "key", "value", "word"), CONFIGURED)
def test_what_a_configuration_cannot_say_is_named(
    tmp_path: Path, layout: str, key: str, value: Any, word: str
) -> None:
    write_layout(tmp_path, layout)
    edit_json(tmp_path / "config.json", **{key: value})
    refuses(tmp_path, word)


@pytest.mark.parametrize("layout", ["llada", "qwen3"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rotary_embeddings_are_not_scaled_and_their_base_stands_inside_or_outside(
    tmp_path: Path, layout: str, key: str
) -> None:
    write_layout(tmp_path, layout)
    config = json.loads((tmp_path / "config.json").read_text())
    read = family_of(config).read_config
    expected = family_of(config).read_config(config)
    outer = config["rope_theta"]
    for inner in (
        each
        for scaled in SCALED
        for each in (scaled, {"rope_theta": 1e4, "full_attention": scaled})
    ):
        with pytest.raises(CheckpointError, match=f"scales rotary embeddings.*{key} holds"):
            read(config | {key: inner})
    for unscaled in UNSCALED:
        assert (
            read(config | {key: unscaled})
            == read(config | {key: {"full_attention": unscaled}})
            == expected
        )
    inside = {"rope_type": "default", "rope_theta": 321.0}
    for inner in (inside, {"full_attention": inside}):
        assert read({**config, key: inner, "rope_theta": None}).rope_theta == 321.0
        with pytest.warns(UserWarning, match="321.*goes before the outer one"):
            assert read(config | {key: inner, "rope_theta": outer}).rope_theta == 321.0
    for wrong in (
        {"a": inside, "b": inside | {"rope_theta": 5.0}},
        {},
        inside | {"rope_theta": "x"},
    ):
        with pytest.raises(CheckpointError, match="rope_theta"):
            read({**config, key: wrong, "rope_theta": None})


@pytest.mark.parametrize(
    ("architecture", "model_type", "words"),
    [
        ("LLaDAMoEModelLM", "llada", ["LLaDAMoEModelLM", "mixture of experts"]),
        ("SomethingOfTheirOwn", "qwen3", ["unknown", "Something"]),  # as Efficient-DLM: its model_type is Qwen3's
        ("DiffusionGemmaForBlockDiffusion", "diffusion_gemma", ["no mask token"]),
        ("LlamaForCausalLM", "llama", ["LlamaForCausalLM is by its name a causal model", "LLaDAModelLM"]),
        (None, "gpt2", ["architecture gpt2", "LLaDAModelLM", "Qwen3ForCausalLM"]), (None, None, ["architecture none"]),
    ],
)  # fmt: skip
def test_what_would_be_mistaken_is_refused_by_its_architecture(
    llada: Path, architecture: str | None, model_type: str | None, words: list[str]
) -> None:
    edit_json(
        llada / "config.json", architectures=architecture and [architecture], model_type=model_type
    )
    refuses(llada, *words)


def test_a_causal_qwen3_is_refused_and_its_mask_says_that_it_is_a_diffusion_model(
    tmp_path: Path,
) -> None:
    """Its tokenizer may have a mask: that of a causal model may, too."""
    write_qwen3(tmp_path, **QWEN3)
    write_tokenizer(tmp_path)
    for architectures in (["Qwen3ForCausalLM"], None):
        edit_json(tmp_path / "config.json", architectures=architectures, mask_token_id=None)
        refuses(
            tmp_path, "Qwen3ForCausalLM is a causal model", "has a mask_token_id in config.json"
        )
        edit_json(tmp_path / "config.json", mask_token_id=1)
        assert load(tmp_path).mask_id == 1


@pytest.mark.parametrize(
    ("name", "declared", "found"),
    [
        ("A-bd3lm-v0.1", None, 32),
        ("OPDLM", None, 4),
        ("b-bd3lm", 8, 8),
        ("bd3lm/mdlm", None, None),
        ("m", None, None),
    ],
)
def test_block_causal_siblings_are_told_by_config_or_name(
    tmp_path: Path, name: str, declared, found
) -> None:
    """Their config.json differs in nothing from that of the bidirectional one. They have blocks of their own."""
    write_hf(tmp_path / name, "a2d-qwen3", **QWEN3, block_size=declared)
    lm = load(tmp_path / name)
    assert lm.config.block_size == found
    assert recommended(lm.generation, {}).settings.block_length == (32 if found is None else None)


def test_the_traps_of_sdar(tmp_path: Path) -> None:
    """Its size of blocks is declared or the model is another one, and its sampling settings are of next-token kind."""
    write_hf(tmp_path, "sdar", **QWEN3 | {"tied": False}, block_size=4)
    (tmp_path / "generation_config.json").write_text(
        '{"do_sample": true, "temperature": 0.6, "top_k": 20}'
    )
    lm = load(tmp_path)
    assert lm.config.block_size == 4 and not lm.config.tied and not lm.config.shifted
    assert recommended(lm.generation, {}).settings == surelock.DecodeSettings(
        gen_length=128, steps=128
    )
    for size, word in (
        (None, "no 'block_size'"),
        (0, "block_size to 0"),
        ("4", "block_size to '4'"),
    ):
        edit_json(tmp_path / "config.json", block_size=size)
        refuses(tmp_path, word)


ENDS = [  # of config.json and of generation_config.json, the ends, and the padding where nothing names one
    (7, None, (7,)), ([7, 9], None, (7, 9)), (None, 7, (7,)), (7, [9, 7, 12], (7, 9, 12)), ([], [9], (9,)),
    (-1, 9, (9,)), ([-1, 7], [], (7,)), (-1, [], ()), (None, None, ()),
]  # fmt: skip


@pytest.mark.parametrize(("config", "generation", "ends"), ENDS)
def test_every_end_that_a_file_names_ends_a_text(
    llada: Path, config: Any, generation: Any, ends: tuple
) -> None:
    edit_json(llada / "config.json", eos_token_id=config, pad_token_id=None)
    edit_json(llada / "generation_config.json", eos_token_id=generation)
    lm = load(llada)
    assert (lm.ends, lm.eos_id, lm.pad_id) == (
        ends,
        ends[0] if ends else None,
        ends[0] if ends else lm.mask_id,
    )
    edit_json(llada / "config.json", eos_token_id=None, pad_token_id=config)
    edit_json(llada / "generation_config.json", eos_token_id=None, pad_token_id=generation)
    assert load(llada).pad_id == (ends[0] if ends else lm.mask_id)


def test_mask_tokens_that_disagree_are_refused(tmp_path: Path) -> None:
    write_hf(tmp_path / "illada", "illada", **QWEN3 | {"mask_id": 4})
    edit_json(tmp_path / "illada" / "config.json", mask_token_id=4)
    refuses(
        tmp_path / "illada",
        "more than one mask token",
        "4 by config.json",
        "5 by the architecture of illada",
    )
    write_llada(tmp_path / "llada", **TINY)
    write_tokenizer(tmp_path / "llada")
    edit_json(tmp_path / "llada" / "config.json", mask_token_id=2)
    refuses(tmp_path / "llada", "2 by config.json", "1 by the tokenizer")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (
            {"mask_token_id": 4},
            "config.json's mask_token_id is 4, which is the text 'a' in the tokenizer",
        ),
        (
            {"eos_token_id": 5},
            "config.json's eos_token_id is 5, which is the text 'b' in the tokenizer",
        ),
        (
            {"eos_token_id": [0, 40]},
            "config.json's eos_token_id is 40, which is no piece in the tokenizer",
        ),
        # a row that the tokenizer has no piece for
        ({"mask_token_id": 40, "eos_token_id": [0, 3]}, ""),
    ],
)
def test_a_mask_and_an_end_are_no_text_of_the_tokenizer(
    llada: Path, ids: dict[str, Any], said: str
) -> None:
    """The network has 41 rows, the tokenizer 9 pieces, as where an embedding is padded."""
    write_tokenizer(llada)
    edit_json(llada / "tokenizer_config.json", mask_token=None)
    edit_json(llada / "config.json", **ids)
    if said:
        refuses(llada, said, "they belong to two models", "--tokenizer")
    else:
        assert load(llada).mask_id == 40


@pytest.mark.parametrize("named", [False, True])
def test_a_tokenizer_of_more_pieces_than_the_network_embeds_is_refused(
    tmp_path: Path, named: bool
) -> None:
    write_llada(tmp_path / "model", **TINY | {"vocab": 8})
    words = tmp_path / ("words" if named else "model")
    write_tokenizer(words)
    said = "9 pieces with ids up to 8, and the network embeds the ids up to 7; they belong to two models"
    refuses(tmp_path / "model", str(words), said, **({"tokenizer": words} if named else {}))


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.int64}, {"dtype": "float23"}, {"device": "gpu"}, {"device": "cuda:99"},
        {"device": "cpu", "device_map": "auto"}, {"device": None, "device_map": "balanced"},
        {"device": None, "device_map": {"": "nowhere"}}, {"device": None, "device_map": {"": "cuda:99"}},
        {"device": None, "device_map": {"embed": "cpu"}},
        {"device": None, "device_map": {"": "cpu", "block.0": "cpu"}}, {"device": None, "device_map": ["cpu"]},
    ],
)  # fmt: skip
def test_bad_arguments_are_named(llada: Path, options: dict) -> None:
    with pytest.raises(ValueError, match="|".join(options)):
        load(llada, **options)


@pytest.mark.parametrize(("count", "missing"), [(2, "cuda:2"), (0, "cuda")])
def test_a_gpu_is_one_of_those_that_are_there(
    monkeypatch: pytest.MonkeyPatch, count: int, missing: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert [str(find_device(f"cuda:{i}")) for i in range(count)] == ["cuda:0", "cuda:1"][:count]
    with pytest.raises(
        ValueError, match=f"'{missing}' is not there: this machine has {count} CUDA devices"
    ):
        find_device(missing)


@pytest.mark.parametrize("device_map", ["auto", {"": "cpu"}])
def test_device_maps(llada: Path, device_map: Any) -> None:
    lm = load(llada, device=None, device_map=device_map)
    assert lm.network(torch.tensor([[3, 4]])).isfinite().all()


HTTP = importlib.import_module(hub_errors.HfHubHTTPError.__mro__[1].__module__)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (hub_errors.RepositoryNotFoundError, "no model"), (hub_errors.GatedRepoError, "gated"),
        (hub_errors.LocalEntryNotFoundError, "reached"), (hub_errors.HFValidationError, "valid"),
        *((each, "downloaded") for each in (hub_errors.HfHubHTTPError, hub_errors.OfflineModeIsEnabled)),
        *((each, "downloaded") for each in (HTTP.ProxyError, ConnectionResetError)),  # its client lets these through
    ],
)  # fmt: skip
def test_a_failing_hub_is_one_error(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception], word: str
) -> None:
    error = kind.__new__(kind)
    Exception.__init__(error, "the hub says no")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
    refuses("some-owner/some-model", "some-owner/some-model", word)


def test_a_hub_model_is_read_from_its_snapshot(
    monkeypatch: pytest.MonkeyPatch, llada: Path
) -> None:
    download = Mock(return_value=str(llada))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert surelock.load("owner/model", device="cpu").name == "owner/model"
    patterns = download.call_args.kwargs["allow_patterns"]
    code = ("modeling_llada.py", "tokenization_llada.py", "pytorch_model.bin", "README.md")
    files = ("model-00001-of-00002.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json",
             "tokenizer_config.json", "generation_config.json", "special_tokens_map.json")  # fmt: skip
    assert [
        file for file in (*code, *files) if any(fnmatch(file, pattern) for pattern in patterns)
    ] == [*files]


@pytest.mark.parametrize("name", ["no-such-directory", "~/no", "a/b/c", "", "x" * 1000])
def test_names_that_are_neither_directory_nor_hub_id(name: str) -> None:
    refuses(name, "no directory", repr(name))


def test_code_of_a_checkpoint_is_never_run(llada: Path) -> None:
    write_tokenizer(llada)
    (llada / "anything.py").write_text(
        f"open({str(llada / 'marker')!r}, 'w')\nclass Anything: pass\n"
    )
    auto_map: dict[str, Any] = dict.fromkeys(("AutoConfig", "AutoModel"), "anything.Anything")
    auto_map["AutoTokenizer"] = ["anything.Anything"] * 2
    edit_json(llada / "config.json", auto_map=auto_map)
    edit_json(llada / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="Anything")
    lm = load(llada)
    assert lm.decode(lm.encode("a b")) == "a b" and not (llada / "marker").exists()


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"steps": 512, "max_new_tokens": 512}, {"gen_length": 512, "steps": 512}),
        ({"steps": 512}, {"gen_length": 512, "steps": 512}),  # as Dream publishes it
        ({"max_new_tokens": 96, "gen_length": 96, "max_length": 20}, {"gen_length": 96}),
        ({"temperature": None, "top_p": None, "steps": None, "max_new_tokens": None}, {}),
        ({"do_sample": None, "temperature": 0.5, "block_length": None}, {"temperature": 0.5}),
        ({"do_sample": False, "temperature": 0.5}, {}),
    ],
)
def test_a_generation_config_of_a_user_of_transformers(
    tmp_path: Path, own: dict, found: dict
) -> None:
    """The library and the page agree, also before the model is loaded."""
    write_hf(tmp_path, "a2d-qwen3", **DREAM | {"max_length": 1024})
    (tmp_path / "generation_config.json").write_text(json.dumps(own))
    models = Models([str(tmp_path)])
    lm = load(tmp_path)
    assert models.recommended(tmp_path.name) == lm.generation
    settings = surelock.DecodeSettings(**{"gen_length": 128, "block_length": 32} | found)
    assert replace(recommended(lm.generation, {}).settings, steps=settings.steps) == settings
    assert recommended(lm.generation, {}).settings.total_steps == settings.total_steps


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ({"max_new_tokens": "64"}, "max_new_tokens"), ({"max_new_tokens": 64, "gen_length": 32}, "max_new_tokens"),
        ({"gen_length": 100, "block_length": 32}, "block_length"), ({"steps": 512, "max_new_tokens": 128}, "steps"),
        ({"unmask": "best"}, "unmask"), ({"epsilon": "x"}, "epsilon"), ({"max_new_tokens": 1024}, "no room"),
    ],
)  # fmt: skip
def test_what_a_generation_config_cannot_ask_for_names_the_file(
    tmp_path: Path, own: dict, word: str
) -> None:
    write_hf(tmp_path, "dream", **DREAM | {"max_length": 1024})
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps(own))
    refuses(tmp_path, str(file), word)
    assert Models([str(tmp_path)]).recommended(tmp_path.name) == {}


def test_without_a_tokenizer(lm: surelock.LanguageModel) -> None:
    for call in (
        lambda: lm.encode("a"),
        lambda: lm.decode([2]),
        lambda: surelock.generate(lm, [[2]]),
    ):
        with pytest.raises(ValueError, match="no tokenizer"):
            call()


def write_tokenizer(directory: Path, **options: Any) -> None:
    words = ["</s>", "<mask>", "<pad>", "<|eot_id|>", "a", "b", "user", "asks", ":"]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", mask_token="<mask>", pad_token="<pad>",
        extra_special_tokens=["<|eot_id|>"], **options,
    ).save_pretrained(directory)  # fmt: skip


def test_encode_decode_and_ids_from_the_tokenizer(llada: Path) -> None:
    write_tokenizer(llada)
    edit_json(llada / "config.json", mask_token_id=None, eos_token_id=None, pad_token_id=None)
    lm = load(llada)
    assert (lm.mask_id, lm.ends, lm.pad_id) == (1, (0, 3), 2)
    assert lm.encode("a b a") == [4, 5, 4] and lm.decode(torch.tensor([4, 0, 5])) == "a b"
    with pytest.raises(ValueError, match="chat template"):
        lm.encode("a", chat=True)


def test_a_tokenizer_of_vocabulary_and_merges_alone_is_qwens(tmp_path: Path) -> None:
    """As Dream publishes it: no tokenizer.json, and a class that lies in a file of code, which is not run."""
    write_dream(tmp_path, **DREAM | {"vocab": 300})
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "Ġthe", "on"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\nĠ the\no n\n")
    added = {
        str(len(words) + i): {"content": token, "special": True} for i, token in enumerate(special)
    }
    edit_json(
        tmp_path / "tokenizer_config.json", tokenizer_class="DreamTokenizer", added_tokens_decoder=added,
        auto_map={"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}, eos_token=special[0],
        chat_template="{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}", mask_token=special[3],
    )  # fmt: skip
    edit_json(tmp_path / "config.json", mask_token_id=None, eos_token_id=None, pad_token_id=None)
    lm = load(tmp_path)
    assert (lm.ends, lm.mask_id) == ((260, 262), 263)
    assert lm.encode("on the") == [259, 258] and lm.decode([259, 258, 260]) == "on the"
    assert lm.encode("the", chat=True) == [261, 257, 262]
    assert not {261, 262, 263} & set(lm.encode("<|mask|><|im_end|>"))
    (tmp_path / "vocab.json").write_text("[")
    refuses(tmp_path, "vocab.json")
    (tmp_path / "vocab.json").write_text("{}")
    refuses(tmp_path, "tokenizer", "cannot be read")


def test_the_traps_of_a_qwen3_chat_model(tmp_path: Path) -> None:
    """Its mask is the tokenizer's, two tokens end a text, its template thinks unless told, its head is stored twice,
    its generation_config.json is of next-token sampling.
    """
    write_chat_model(tmp_path)
    lm = load(tmp_path)
    # the end of the text, then, and not of a turn
    edit_json(tmp_path / "tokenizer_config.json", pad_token=None)
    for config, generation in ((4097, None), ([4097, 0], None), (None, 4097), (None, None)):
        edit_json(tmp_path / "config.json", eos_token_id=config)
        edit_json(tmp_path / "generation_config.json", eos_token_id=generation)
        lm = load(tmp_path)
        assert (lm.mask_id, lm.ends, lm.pad_id) == (1, (0, 4097), 0), (config, generation)
    assert lm.decode(lm.encode("Hello", chat=True)).endswith("assistant\n<think>\n\n</think>\n\n")
    assert [text_of(lm, [*lm.encode("Hello there"), end, 9, 9]) for end in (0, 4097)] == [
        "Hello there"
    ] * 2
    settings = recommended(lm.generation, {}).settings
    assert (settings.temperature, settings.gen_length, settings.block_length) == (0.0, 128, 32)
    assert recommended(lm.generation, {"gen_length": 8}).settings.block_length is None


@pytest.mark.parametrize("family", [each for each in FAMILIES if "gen_length" in each.generation])
def test_steps_without_a_length_are_beside_the_familys(family: Family, tmp_path: Path) -> None:
    length = family.generation["gen_length"]
    for steps, expected in ((length + 1, length + 1), (length // 2, length)):
        (tmp_path / "generation_config.json").write_text(
            json.dumps({"steps": steps, "block_length": None})
        )
        family = replace(family, generation={"gen_length": length})
        assert generation_of(family, LLADA_8B, tmp_path)["gen_length"] == expected
