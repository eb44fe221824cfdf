"""`surelock.load`: what loads, and one clear error for whatever does not."""

import importlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import pytest
import torch
from checkpoints import write_chat_model, write_dream, write_hf, write_llada, write_qwen3
from conftest import TINY
from huggingface_hub import errors as hub_errors
from safetensors.torch import load_file, save_file
from test_oracle import ADDED, MODELS
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import surelock
from surelock import CheckpointError
from surelock.decoding.ends import text_of
from surelock.decoding.recommended import recommended
from surelock.loading import find_device
from surelock.model.families import family_of
from surelock.model.tokenizer import load_tokenizer
from surelock.ui.models import Models

QWEN3 = TINY | {"head_dim": 8, "tied": True}
DREAM = {name: value for name, value in QWEN3.items() if name != "head_dim"}
HEAD = torch.tensor([[3, 4]])
KINDS = MODELS | ADDED
both_engines = pytest.mark.parametrize("engine", ["torch", "onnx"])


def load(path: Path | str, **options: Any) -> surelock.LanguageModel:
    return surelock.load(path, **{"device": "cpu"} | options)


def refuses(path: Path | str, *words: str, **options: Any) -> None:
    """Loading fails with one CheckpointError, on one line, that holds all the words."""
    with pytest.raises(CheckpointError) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def edit_json(file: Path, **changes: Any) -> None:
    """Set keys of a JSON object; None removes a key."""
    content = (json.loads(file.read_text()) if file.is_file() else {}) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


Tensors = dict[str, torch.Tensor]


def with_tensors(directory: Path, change: Callable[[Tensors], Tensors]) -> None:
    file = directory / "model.safetensors"
    changed = change(load_file(file))
    save_file({name: value.contiguous() for name, value in changed.items()}, file)


def tensor_faults(whole: Tensors, name: str) -> dict[str, Tensors]:
    """What can be wrong with a tensor, by words of the sentence that then names it."""
    value = whole[name]
    longer = value.new_zeros(value.shape[0] + 1, *value.shape[1:])
    others = {each: whole[each] for each in whole if each != name}
    other = next(each for each in others if others[each].shape != value.shape)
    return {
        "lacks": others,
        "unknown": whole | {f"{name}.more": value.clone()},
        str(list(longer.shape)): others | {name: longer},
        "has shape []": others | {name: value.new_zeros(())},
        # sums of rows alone prove nothing
        "has shape": others | {name: others[other], other: value},
        "twice": whole | {f"module.{name}": value.clone()},
        "holds I8": others | {name: value.to(torch.int8)},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_that_does_not_fit_is_named(tmp_path: Path, kind: str) -> None:
    whole = dict(sorted(KINDS[kind](tmp_path, shards=1).items()))
    config = json.loads((tmp_path / "config.json").read_text())
    shape = family_of(config).read_config(config)
    names = [name for name in whole if "rotary" not in name and "sampling" not in name]
    rng = Random(kind)
    for name in rng.sample(names, 6):
        faults = tensor_faults(whole, name)
        if shape.tied and ("embed" in name or "wte" in name or "lm_head" in name):
            del faults["lacks"]
        said = rng.choice(list(faults))
        save_file(faults[said], tmp_path / "model.safetensors")
        refuses(tmp_path, said, *([] if said == "has shape" else [name]), tokenizer="")


EMBED = "model.embed_tokens.weight"
LM_HEAD = "lm_head.weight"
BUFFERS = [
    f"{owner}rotary_emb.{name}"
    for owner in ("", "a.0.")
    for name in ("inv_freq", "original_inv_freq", "cos_cached")
]
WRAPPERS = ("", "_orig_mod.module.", "module._fsdp_wrapped_module.")
HARMLESS: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "buffers": (lambda w: w | {name: torch.ones(4) for name in BUFFERS}, ""),
    "wrapped": (
        lambda w: {WRAPPERS[i % 3] + name: value for i, (name, value) in enumerate(w.items())},
        "'_orig_mod.module.' and 'module._fsdp_wrapped_module.'",
    ),
    "the head alone": (
        lambda w: {LM_HEAD if name == EMBED else name: value for name, value in w.items()},
        "",
    ),
    "the head, too": (lambda w: w | {LM_HEAD: w[EMBED].clone()}, ""),
    "another head": (lambda w: w | {LM_HEAD: w[EMBED] + 1}, r"differs from .* it is passed over"),
}


@both_engines
@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.filterwarnings("error")
def test_what_makes_no_other_network_is_passed_over(
    tmp_path: Path, change: str, engine: str
) -> None:
    write_dream(tmp_path, **DREAM)
    expected = load(tmp_path).network(HEAD)
    changed, said = HARMLESS[change]
    with_tensors(tmp_path, changed)
    with pytest.warns(UserWarning, match=said) if said else nullcontext():
        found = load(tmp_path, engine=engine).network(HEAD)
    assert torch.equal(found, expected)


@both_engines
def test_of_two_sets_of_weights_the_single_file_is_read(tmp_path: Path, engine: str) -> None:
    """As in transformers: a newer save beside the index and the shards of an older one."""
    write_qwen3(tmp_path / "new", **QWEN3 | {"seed": 8})
    write_qwen3(tmp_path / "both", **QWEN3, shards=3)
    expected = load(tmp_path / "new").network(HEAD)
    shutil.copy(tmp_path / "new" / "model.safetensors", tmp_path / "both")
    with pytest.warns(UserWarning, match=r"model\.safetensors is read.*\.index\.json") as warned:
        lm = load(tmp_path / "both", engine=engine)
    assert torch.equal(lm.network(HEAD), expected)
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("mark", "described", "word"),
    [
        (".qzeros", '{"load_in_8bit": false}', "GPTQ or AWQ"), (".SCB", "{}", "bitsandbytes"),
        (".weight_packed", "{}", "compressed-tensors"), (".weight_scale_inv", "{}", "fp8"),
        ("", '{"quant_method": "awq"}', "AWQ by"), ("", '{"load_in_4bit": true}', "bitsandbytes"),
    ],
)  # fmt: skip
def test_a_quantised_checkpoint_is_refused_by_what_it_is(
    tmp_path: Path, mark: str, described: str, word: str
) -> None:
    write_hf(tmp_path, "a2d-qwen3", **QWEN3)
    if mark:
        with_tensors(tmp_path, lambda w: w | {f"model.norm{mark}": torch.ones(1)})
    edit_json(tmp_path / "config.json", quantization_config=json.loads(described))
    refuses(tmp_path, "quantised", word)


@pytest.mark.parametrize(("name", "word"), [("adapter_model.bin", "PEFT"), ("model.gguf", "GGUF")])
def test_another_kind_of_checkpoint_is_named(tmp_path: Path, name: str, word: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text("{}")
    refuses(tmp_path, word)
    refuses(tmp_path / name, "GGUF" if word == "GGUF" else "is a file")


INDEX = "model.safetensors.index.json"
SHARD = "model-00002-of-00003.safetensors"
SPOILT: list[tuple[str, bytes | int | None, str]] = [  # a file's content or end, None for gone
    ("model.safetensors", 100, "model.safetensors"), ("model.safetensors", None, "model.safetensors"),
    ("config.json", None, "does not exist"), ("config.json", b"[1]", "config.json must hold a JSON object"),
    ("config.json", 2**28 + 1, "at most 268,435,456 bytes"), ("config.json", b"\xff\xfe", "config.json cannot"),
    ("tokenizer.json", b"{", "tokenizer.json"), ("generation_config.json", b"{", "generation_config.json"),
    (SHARD, None, SHARD), (INDEX, b"{", INDEX), (INDEX, b"{}", "weight_map"),
    (INDEX, b'{"weight_map": {"a": 3}}', "weight_map"), (INDEX, b'{"weight_map": {"a": "../b"}}', "outside"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "word"), SPOILT, ids=lambda value: ascii(value)[:20])
def test_a_spoilt_file_is_named(
    tmp_path: Path, name: str, content: bytes | int | None, word: str
) -> None:
    write_llada(tmp_path, **TINY, shards=3 if name in (SHARD, INDEX) else 1)
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
    refuses(tmp_path, SHARD, "model.transformer.")


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


def test_a_network_is_read_after_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_qwen3(tmp_path / "here" / "model", **QWEN3)
    monkeypatch.chdir(tmp_path / "here")
    lm = load(Path("../here/model"), engine="onnx")
    monkeypatch.chdir(tmp_path)
    assert lm.network(HEAD).isfinite().all()


#: What no family reads, or not where it stands.
UNREAD = [
    "vocab_size",
    "embedding_size",
    "dropout",
    "cond_dim",
    "ep_size",
    "block_multiple_of",
    "block_ffn_dim_multiplier",
]
#: Without them there is a default. The network's own name of the field is said.
OPTIONAL = ["n_kv_heads", "num_key_value_heads", "head_dim", "block_size"]
#: Of a family, what only another network can have.
SWITCHES = {
    "llada": """{"alibi": true, "include_bias": true, "attention_layer_norm": true, "input_emb_norm": true,
        "scale_logits": true, "clip_qkv": 8.0, "rope": false, "layer_norm_type": "low_precision",
        "activation_type": "gelu", "block_type": "sequential", "weight_tying": null, "n_heads": 5}""",
    "qwen3": """{"attention_bias": true, "mlp_bias": true, "use_sliding_window": true, "hidden_act": "gelu",
        "tie_word_embeddings": null, "num_key_value_heads": 3}""",
    "dream": '{"use_mrope": true, "block_size": 32}',
    "sdar": '{"block_size": null}',
    "mdlm": '{"time_conditioning": true, "causal": true}',
    "lfm2": '{"conv_bias": true, "conv_L_cache": 4, "layer_types": ["conv", "sliding_attention", "conv"]}',
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_configuration_cannot_say_is_named(tmp_path: Path, kind: str) -> None:
    """A number that is gone, or of another kind or size, and all that would be another network."""
    KINDS[kind](tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    numbers = {
        name: value
        for name, value in config.items()
        if type(value) in (int, float) and not name.endswith("_id") and name not in UNREAD
    }
    faults = list(json.loads(SWITCHES.get(kind, "{}")).items())
    for name, value in numbers.items():
        odd = [-1, "4", math.inf, [value]]
        if name not in OPTIONAL:
            odd += [0, None, True]
        if isinstance(value, int):
            odd.append(2.5)
        faults += [(name, each) for each in odd]
    for name, value in faults:
        changed = config | {name: value}
        with pytest.raises(CheckpointError) as caught:
            family_of(changed).read_config(changed)
        said = str(caught.value)
        assert "config.json" in said, (name, value)
        assert name in OPTIONAL or name in said or "layer_types" in said, (name, value)
    name, value = Random(kind).choice(faults)
    edit_json(tmp_path / "config.json", **{name: value})
    refuses(tmp_path, "config.json", tokenizer="")


@pytest.mark.parametrize("token", ["mask", "eos", "pad"])
def test_an_id_that_is_no_token_is_named(llada: Path, token: str) -> None:
    for value in (41, -2, "1", True, [0, 41]):
        edit_json(llada / "config.json", **{f"{token}_token_id": value})
        refuses(llada, f"{token}_token_id", repr(value))
    edit_json(llada / "config.json", mask_token_id=None, eos_token_id=None, pad_token_id=None)
    refuses(llada, "no mask token")


SCALED = """
{"KEY": "yarn", "factor": 4.0}
{"KEY": "linear", "factor": "2"}
{"KEY": "yarn"}
{"KEY": "linear", "factor": 1.0, "attention_factor": 1.2}
{"KEY": "longrope", "factor": 1, "long_factor": [1, 2]}
{"type": "dynamic", "rope_type": "default", "factor": 2.0}
{"factor": 2.0}
{"partial_rotary_factor": 0.5}
"""
UNSCALED = """
{}
{"type": null, "factor": null}
{"rope_type": "default"}
{"type": "default", "factor": 4.0}
{"partial_rotary_factor": 1.0}
{"KEY": "dynamic", "factor": 1.0}
"""


def ropes(lines: str) -> list[dict[str, Any]]:
    """What config.json may hold, with the key of the kind as it was and as it is."""
    both = lines.replace("KEY", "type") + lines.replace("KEY", "rope_type")
    return [json.loads(line) for line in both.split("\n") if line]


@pytest.mark.parametrize("kind", ["llada", "qwen3"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_rotary_embeddings_are_not_scaled_and_their_base_stands_inside_or_outside(
    tmp_path: Path, kind: str, key: str
) -> None:
    KINDS[kind](tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    read = family_of(config).read_config
    expected = read(config)
    for scaled in ropes(SCALED):
        for inner in (scaled, {"rope_theta": 1e4, "full_attention": scaled}):
            with pytest.raises(CheckpointError, match=f"scales rotary embeddings.*{key} holds"):
                read(config | {key: inner})
    for unscaled in ropes(UNSCALED):
        for inner in (unscaled, {"full_attention": unscaled}):
            assert read(config | {key: inner}) == expected
    inside = {"rope_type": "default", "rope_theta": 321.0}
    for inner in (inside, {"full_attention": inside}):
        assert read({**config, key: inner, "rope_theta": None}).rope_theta == 321.0
        with pytest.warns(UserWarning, match="321.*goes before the outer one"):
            assert read(config | {key: inner}).rope_theta == 321.0
    two = {"a": inside, "b": inside | {"rope_theta": 5.0}}
    for wrong in (two, {}, inside | {"rope_theta": "x"}):
        with pytest.raises(CheckpointError, match="rope_theta"):
            read({**config, key: wrong, "rope_theta": None})


@pytest.mark.parametrize(
    ("architecture", "model_type", "words"),
    [
        ("LLaDAMoEModelLM", "llada", ["LLaDAMoEModelLM", "mixture of experts"]),
        ("SomethingOfTheirOwn", "qwen3", ["unknown", "Something"]),  # as Efficient-DLM: its model_type is Qwen3's
        ("DiffusionGemmaForBlockDiffusion", "diffusion_gemma", ["no mask token"]),
        ("LlamaForCausalLM", "llama", ["LlamaForCausalLM is by its name a causal model", "LLaDAModelLM"]),
        ("SEDD", "mdlm", ["SEDD cannot be decoded here: its posteriors depend on the time"]),
        ("Lfm2ForCausalLM", "lfm2", ["the causal LFM2"]), (None, "lfm2", ["the causal LFM2"]),
        (None, "gpt2", ["architecture gpt2", "LLaDAModelLM", "Qwen3ForCausalLM"]), (None, None, ["architecture none"]),
    ],
)  # fmt: skip
def test_what_would_be_mistaken_is_refused_by_its_architecture(
    llada: Path, architecture: str | None, model_type: str | None, words: list[str]
) -> None:
    named = architecture and [architecture]
    edit_json(llada / "config.json", architectures=named, model_type=model_type)
    refuses(llada, *words)


def test_sedd_is_known_though_it_names_no_architecture(llada: Path) -> None:
    edit_json(llada / "config.json", architectures=None, model_type=None, graph={}, noise={})
    refuses(llada, "SEDD cannot be decoded here")


@pytest.mark.parametrize("architectures", [["Qwen3ForCausalLM"], None])
def test_a_mask_in_its_config_says_that_a_qwen3_is_a_diffusion_model(
    tmp_path: Path, architectures: list[str] | None
) -> None:
    """Its tokenizer may have a mask: that of a causal model may, too."""
    write_qwen3(tmp_path, **QWEN3)
    write_tokenizer(tmp_path)
    edit_json(tmp_path / "config.json", architectures=architectures)
    assert load(tmp_path).mask_id == 1
    edit_json(tmp_path / "config.json", mask_token_id=None)
    refuses(tmp_path, "Qwen3ForCausalLM is a causal model", "has a mask_token_id in config.json")


@pytest.mark.parametrize(
    ("name", "declared", "found"),
    [
        ("A-bd3lm-v0.1", None, 32), ("OPDLM", None, 4), ("b-bd3lm", 8, 8), ("bd3lm/mdlm", None, None),
        ("m", None, None),
    ],
)  # fmt: skip
def test_block_causal_siblings_are_told_by_config_or_name(
    tmp_path: Path, name: str, declared: int | None, found: int | None
) -> None:
    """Their config.json differs in nothing from that of the bidirectional one. They have blocks of their own."""
    write_hf(tmp_path / name, "a2d-qwen3", **QWEN3, block_size=declared)
    lm = load(tmp_path / name)
    assert lm.config.block_size == found
    assert recommended(lm.generation, {}).settings.block_length == (32 if found is None else None)


ENDS = [  # of config.json and of generation_config.json, the ends, and the padding where nothing names one
    ([7, 9], None, (7, 9)), (None, 7, (7,)), (7, [9, 7, 12], (7, 9, 12)), ([], [9], (9,)), (-1, 9, (9,)),
    ([-1, 7], [], (7,)), (-1, [], ()), (None, None, ()),
]  # fmt: skip


@pytest.mark.parametrize(("config", "generation", "ends"), ENDS)
def test_every_end_that_a_file_names_ends_a_text(
    llada: Path, config: Any, generation: Any, ends: tuple
) -> None:
    files = llada / "config.json", llada / "generation_config.json"
    for file, value in zip(files, (config, generation), strict=True):
        edit_json(file, eos_token_id=value, pad_token_id=None)
    lm = load(llada)
    assert (lm.ends, lm.eos_id) == (ends, ends[0] if ends else None)
    assert lm.pad_id == (ends[0] if ends else lm.mask_id)
    for file, value in zip(files, (config, generation), strict=True):
        edit_json(file, eos_token_id=None, pad_token_id=value)
    assert load(llada).pad_id == lm.pad_id


def test_mask_tokens_that_disagree_are_refused(tmp_path: Path) -> None:
    write_hf(tmp_path / "illada", "illada", **QWEN3)
    edit_json(tmp_path / "illada" / "config.json", mask_token_id=4)
    said = "4 by config.json", "5 by the architecture of illada"
    refuses(tmp_path / "illada", "more than one mask token", *said)
    write_llada(tmp_path / "llada", **TINY)
    write_tokenizer(tmp_path / "llada")
    edit_json(tmp_path / "llada" / "config.json", mask_token_id=2)
    refuses(tmp_path / "llada", "2 by config.json", "1 by the tokenizer")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ('{"mask_token_id": 4}', "mask_token_id is 4, which is the text 'a' in the tokenizer"),
        ('{"eos_token_id": 5}', "eos_token_id is 5, which is the text 'b' in the tokenizer"),
        ('{"eos_token_id": [0, 40]}', "eos_token_id is 40, which is no piece in the tokenizer"),
    ],
)
def test_a_mask_and_an_end_are_no_text_of_the_tokenizer(llada: Path, ids: str, said: str) -> None:
    """The network has 41 rows, the tokenizer 9 pieces, as where an embedding is padded."""
    write_tokenizer(llada)
    edit_json(llada / "tokenizer_config.json", mask_token=None)
    edit_json(llada / "config.json", mask_token_id=40, eos_token_id=[0, 3])
    with pytest.warns(
        UserWarning, match="has 9 pieces, and the network embeds 41: is it the model's"
    ):
        assert load(llada).mask_id == 40
    edit_json(llada / "config.json", **json.loads(ids))
    refuses(llada, said, "they belong to two models")


@pytest.mark.parametrize("options", [{}, {"tokenizer": "words"}])
def test_a_tokenizer_of_more_pieces_than_the_network_embeds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_llada(tmp_path / "model", **TINY | {"vocab": 8})
    words = options.get("tokenizer", "model")
    write_tokenizer(tmp_path / words)
    said = "9 pieces with ids up to 8, and the network embeds the ids up to 7; they belong to two models"
    refuses("model", words, said, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": torch.int64}, {"dtype": "float23"}, {"device": "gpu"}, {"device": "cuda:99"},
        {"device": "cpu", "device_map": "auto"}, {"device": None, "device_map": "balanced"},
        {"device": None, "device_map": {"": "nowhere"}}, {"device": None, "device_map": {"embed": "cpu"}},
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
    with pytest.raises(ValueError, match=f"'{missing}' is not there: .* has {count} CUDA devices"):
        find_device(missing)


def test_a_device_map_may_be_chosen(llada: Path) -> None:
    lm = load(llada, device=None, device_map="auto")
    assert lm.network(HEAD).isfinite().all()


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
    assert load("owner/model").name == "owner/model"
    patterns = download.call_args.kwargs["allow_patterns"]
    code = ["modeling_llada.py", "pytorch_model.bin", "README.md"]
    files = [
        "model-00001-of-00002.safetensors", "model.safetensors.index.json", "config.json", "tokenizer.json",
        "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
    ]  # fmt: skip
    taken = [name for name in code + files if any(fnmatch(name, pattern) for pattern in patterns)]
    assert taken == files


@pytest.mark.parametrize("name", ["no-such-directory", "~/no", "a/b/c", "", "x" * 1000])
def test_names_that_are_neither_directory_nor_hub_id(name: str) -> None:
    refuses(name, "no directory", repr(name))


def test_code_of_a_checkpoint_is_never_run(llada: Path) -> None:
    write_tokenizer(llada)
    marker = llada / "marker"
    (llada / "anything.py").write_text(f"open({str(marker)!r}, 'w')\nclass Anything: pass\n")
    name = "anything.Anything"
    auto_map = {"AutoConfig": name, "AutoModel": name, "AutoTokenizer": [name, name]}
    edit_json(llada / "config.json", auto_map=auto_map)
    edit_json(llada / "tokenizer_config.json", auto_map=auto_map, tokenizer_class="Anything")
    lm = load(llada)
    assert lm.decode(lm.encode("a b")) == "a b"
    assert not marker.exists()
    with pytest.raises(ValueError, match="chat template"):
        lm.encode("a", chat=True)


@pytest.mark.parametrize(
    ("family", "own", "found"),
    [
        ("a2d-qwen3", '{"steps": 512, "max_new_tokens": 512}', '{"gen_length": 512, "steps": 512}'),
        ("a2d-qwen3", '{"steps": 512}', '{"gen_length": 512, "steps": 512}'),  # as Dream publishes it
        ("a2d-qwen3", '{"max_new_tokens": 96, "gen_length": 96, "max_length": 20}', '{"gen_length": 96}'),
        ("a2d-qwen3", '{"temperature": null, "top_p": null, "steps": null, "max_new_tokens": null}', "{}"),
        ("a2d-qwen3", '{"do_sample": null, "temperature": 0.5, "block_length": null}', '{"temperature": 0.5}'),
        ("a2d-qwen3", '{"do_sample": false, "temperature": 0.5}', "{}"),
        ("a2d-qwen3", '{"steps": 64, "block_length": null}', '{"steps": 64}'),
        ("sdar", '{"do_sample": true, "temperature": 0.6, "top_k": 20}', '{"block_length": null}'),
    ],
)  # fmt: skip
def test_a_generation_config_of_a_user_of_transformers(
    tmp_path: Path, family: str, own: str, found: str
) -> None:
    """The library and the page agree, also before the model is loaded."""
    block_size = 4 if family == "sdar" else None
    write_hf(tmp_path, family, **DREAM | {"max_length": 1024, "block_size": block_size})
    (tmp_path / "generation_config.json").write_text(own)
    lm = load(tmp_path)
    assert Models([str(tmp_path)]).recommended(tmp_path.name) == lm.generation
    expected = surelock.DecodeSettings(
        **{"gen_length": 128, "block_length": 32} | json.loads(found)
    )
    settings = recommended(lm.generation, {}).settings
    assert replace(settings, steps=expected.steps) == expected
    assert settings.total_steps == expected.total_steps


@pytest.mark.parametrize(
    ("own", "word"),
    [
        ('{"max_new_tokens": "64"}', "max_new_tokens"), ('{"max_new_tokens": 64, "gen_length": 32}', "max_new_tokens"),
        ('{"gen_length": 100, "block_length": 32}', "block_length"), ('{"unmask": "best"}', "unmask"),
        ('{"steps": 512, "max_new_tokens": 128}', "steps"), ('{"epsilon": "x"}', "epsilon"),
        ('{"max_new_tokens": 1024}', "no room"),
    ],
)  # fmt: skip
def test_what_a_generation_config_cannot_ask_for_names_the_file(
    tmp_path: Path, own: str, word: str
) -> None:
    write_dream(tmp_path, **DREAM | {"max_length": 1024})
    file = tmp_path / "generation_config.json"
    file.write_text(own)
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
    ids = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", mask_token="<mask>", pad_token="<pad>",
        extra_special_tokens=["<|eot_id|>"], **options,
    ).save_pretrained(directory)  # fmt: skip


def test_a_tokenizer_of_vocabulary_and_merges_alone_is_qwens(tmp_path: Path) -> None:
    """As Dream publishes it: no tokenizer.json, and a class that lies in a file of code, which is not run."""
    write_dream(tmp_path, **DREAM | {"vocab": 300})
    words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "Ġthe", "on"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\nth e\nĠ the\no n\n")
    added = {
        str(i): {"content": token, "special": True} for i, token in enumerate(special, len(words))
    }
    edit_json(
        tmp_path / "tokenizer_config.json", tokenizer_class="DreamTokenizer", added_tokens_decoder=added,
        auto_map={"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]}, eos_token=special[0],
        chat_template="{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}", mask_token=special[3],
    )  # fmt: skip
    edit_json(tmp_path / "config.json", mask_token_id=None, eos_token_id=None, pad_token_id=None)
    lm = load(tmp_path)
    assert (lm.ends, lm.mask_id) == ((260, 262), 263)
    assert lm.encode("on the") == [259, 258]
    assert lm.decode([259, 258, 260]) == "on the"
    assert lm.encode("the", chat=True) == [261, 257, 262]
    for content, said in (("[", "vocab.json"), ("{}", "cannot be read")):
        (tmp_path / "vocab.json").write_text(content)
        refuses(tmp_path, said)


def test_the_traps_of_a_qwen3_chat_model(tmp_path: Path) -> None:
    """Its mask is the tokenizer's, two tokens end a text, its template thinks unless told, its head is stored twice,
    its generation_config.json is of next-token sampling.
    """
    write_chat_model(tmp_path)
    lm = load(tmp_path)
    settings = recommended(lm.generation, {}).settings
    assert (settings.temperature, settings.gen_length, settings.block_length) == (0.0, 128, 32)
    assert recommended(lm.generation, {"gen_length": 8}).settings.block_length is None
    # the end of the text, then, and not of a turn
    edit_json(tmp_path / "tokenizer_config.json", pad_token=None)
    for config, generation in ((4097, None), ([4097, 0], None), (None, 4097), (None, None)):
        edit_json(tmp_path / "config.json", eos_token_id=config)
        edit_json(tmp_path / "generation_config.json", eos_token_id=generation)
        lm = load(tmp_path)
        assert (lm.mask_id, lm.ends, lm.pad_id) == (1, (0, 4097), 0), (config, generation)
    assert lm.decode(lm.encode("Hello", chat=True)).endswith("assistant\n<think>\n\n</think>\n\n")
    for end in lm.ends:
        assert text_of(lm, [*lm.encode("Hello there"), end, 9, 9]) == "Hello there"
