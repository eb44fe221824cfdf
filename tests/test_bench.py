"""What benchmarks are made of: refusals, shapes without weights, LLaDA's loop."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import write_llada

import surelock
from surelock import BudgetRule, DecodeSettings, Everything, LockRule
from surelock.__main__ import main
from surelock.bench.random_weights import SHAPES
from surelock.bench.timing import refusal, summary
from surelock.decoding.decoder import Decoder
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.engines import onnx
from surelock.research.bench import llada
from surelock.research.bench.llada import llada_generate, plain_llama

CPU = torch.device("cpu")
SPANS = (
    "the middle half of the repeats spans {}, which is more than the ratio's distance from 1 ({})"
)


@pytest.mark.parametrize(
    ("ratio", "repeats", "why"),
    [
        (1.5, [1.4, 1.5, 1.6], None),
        (1.5, [1.0, 1.5, 2.1], SPANS.format("1.25 to 1.8", 0.5)),
        (1.5, [1.0, 1.5, 2.0], None),  # as wide as the effect is not wider
        (2.0, [2.0, 2.0], "2 of the 3 repeats that a spread takes"),
        (2.0, [2.0, 2.0, 2.0, 2.0, 99.0], None),  # one disturbed repeat of five
    ],
)
def test_a_ratio_is_refused_when_its_spread_is_wider_than_its_effect(ratio, repeats, why):
    assert refusal(ratio, repeats) == why
    figures = summary(
        lambda which: {"speedup": ratio if len(which) > 1 else repeats[which[0]]},
        len(repeats),
        ["speedup"],
    )
    assert figures["speedup"] == (ratio if why is None else None), "a refused ratio is no number"
    assert figures["refused"] == ({} if why is None else {"speedup": why})


def test_a_shape_without_its_weights_is_loaded_by_either_engine(capsys, monkeypatch):
    """Of every kind; and in parts, with a head that is not packed, as a large network is."""
    width = {
        "vocab_size": 512,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    for shape, small in {
        "qwen3-0.6b": width | {"num_hidden_layers": 3, "intermediate_size": 64, "head_dim": 16},
        "lfm2.5-350m": width
        | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
        "mdlm-owt": {"hidden_dim": 32, "n_heads": 2, "n_blocks": 2, "vocab_size": 512},
    }.items():
        monkeypatch.setitem(SHAPES, shape, SHAPES[shape] | small)
    found = []
    kinds = ("qwen3-0.6b", "mdlm-owt", "lfm2.5-350m")
    for shape, engine, most in (
        ("tiny", "torch", 2**27),
        *product(kinds, ("onnx",), (2**27, 2**14)),
    ):
        monkeypatch.setattr(onnx, "_PART_BYTES", most)
        flags = [
            "--shape",
            shape,
            "--random-weights",
            "--gen-length",
            "4",
            "--repeats",
            "1",
            "--device",
            "cpu",
        ]
        assert main(["bench", "decode", *flags, "--engine", engine]) == 0
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert told["model"] == shape and told["engine"].startswith(
            "onnxruntime" if engine == "onnx" else "torch"
        )
        found.append(told["loading_seconds"])
    assert min(found) > 0


def test_bench_decode_names_the_decoder_that_decode_uses(capsys, stories):
    """The model's recommended settings, under the flags, and no setting of another rule."""
    for flags, given in (
        ([], {}),
        (["--compute", "age", "--temperature", "0"], {"compute": "age", "temperature": 0}),
    ):
        assert (
            main(
                [
                    "bench",
                    "decode",
                    "--gen-length",
                    "4",
                    "--repeats",
                    "1",
                    "--device",
                    "cpu",
                    *flags,
                ]
            )
            == 0
        )
        told = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (
            told["settings"]
            == recommended(stories.generation, {"gen_length": 4, **given}).to_plain()
        )
        assert "epsilon" not in told and ("epsilon" in told["settings"]["compute"]) == (not given)
        assert told["steps"] == 4


def random_model(path: Path, **changed: Any) -> surelock.LanguageModel:
    """float32 and random; its mask is never the likeliest token, which LLaDA's loop would commit."""
    shape = {
        "layers": 2,
        "d_model": 32,
        "heads": 4,
        "kv_heads": 2,
        "d_ff": 48,
        "vocab": 61,
        "tied": False,
        "seed": 3,
    }
    write_llada(path, **{**shape, **changed})
    lm = surelock.load(path, device="cpu", engine="torch")
    with torch.inference_mode():
        lm.network.head_weight[lm.mask_id] = 0
    return lm


PROMPTS = [[5, 6, 7, 8, 9], [10, 4, 3, 2, 11]]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"block_length": 8, "steps": 15},
    ],
    ids=["one a step", "uneven shares"],
)
@pytest.mark.parametrize(
    "changed", [{}, {"kv_heads": 4, "tied": True, "qkv_bias": True, "seed": 4}], ids=["gqa", "tied"]
)
def test_llada_writes_the_tokens_that_ours_does_unlocked(tmp_path, asked, changed):
    lm = random_model(tmp_path, **changed)
    settings = DecodeSettings(gen_length=24, **asked)
    *_, last = decode(lm, PROMPTS, settings, compute=Everything())
    theirs = llada_generate(plain_llama(lm.network), torch.tensor(PROMPTS), settings, lm.mask_id)
    assert theirs.tolist() == last.tokens.tolist()
    assert theirs[:, :5].tolist() == PROMPTS and len(set(theirs[0, 5:].tolist())) > 3
    assert not (theirs == lm.mask_id).any()


def test_the_plain_network_is_ours_in_the_same_memory(tmp_path):
    lm = random_model(tmp_path, qkv_bias=True)
    plain = plain_llama(lm.network)
    tokens = torch.tensor(PROMPTS)
    with torch.inference_mode():
        torch.testing.assert_close(plain(tokens).logits, lm.network(tokens), rtol=1e-4, atol=1e-4)
        half = plain_llama(lm.network.to(torch.bfloat16))
        assert half(tokens).logits.dtype == torch.bfloat16
    packed = lm.network.blocks[1].qkv.weight
    key = half.model.layers[1].self_attn.k_proj.weight
    assert key.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()


def test_all_take_turns_and_their_figures_by_hand(tmp_path, monkeypatch):
    lm = random_model(tmp_path)
    chosen = DecodeSettings(gen_length=4)
    rules = {
        "unlocked": Everything(),
        "locked": LockRule(epsilon=9.0, percentile=None),
        "budget": BudgetRule(),
    }
    decoders = {name: Decoder(settings=chosen, compute=rule) for name, rule in rules.items()}
    bench = llada.LladaBench(lm, PROMPTS, chosen, decoders)
    order: list[str] = []
    names = {call: name for name, call in bench._calls.items()}

    def timed(_: torch.device, call: Any) -> tuple[float, torch.Tensor]:
        order.append(names[call])
        return {"llada": 8.0, "unlocked": 5.0, "locked": 2.0, "budget": 1.0}[names[call]] + len(
            order
        ) // 5, call()

    monkeypatch.setattr(llada, "timed", timed)
    for _ in range(4):
        bench.repeat()
    first = ["llada", "unlocked", "locked", "budget"]
    assert order == [first[(turn + at) % 4] for turn in range(4) for at in range(4)]
    bench.seconds = {
        "llada": [8.0, 10.0, 9.0],
        "unlocked": [6.0, 5.0, 6.0],
        "locked": [2.0, 2.0, 3.0],
    }
    bench.seconds["budget"] = [1.0, 1.5, 2.0]
    figures = bench.result()
    assert (figures["llada_seconds"], figures["unlocked_seconds"], figures["locked_seconds"]) == (
        9,
        6,
        2,
    )
    assert (figures["unlocked_over_llada"], figures["locked_over_llada"], figures["speedup"]) == (
        1.5,
        4.5,
        3,
    )
    assert (figures["budget_seconds"], figures["budget_over_llada"]) == (1.5, 6)
    assert figures["spread"]["unlocked_over_llada"] == pytest.approx([(8 / 6 + 1.5) / 2, 1.75])
    assert figures["refused"] == {} and figures["tokens_equal"] is True
    bench.tokens["unlocked"] = bench.tokens["unlocked"] + 1
    assert bench.result()["tokens_equal"] is False


def test_sizes_are_measured_by_the_recorded_schedule(tmp_path):
    """What a GPU measures at LLaDA-8B's shape, here with tiny weights: whole runs, and a step of them."""
    figures = llada.measure_size(random_model(tmp_path, max_length=128), 24, 2, steps=8, repeats=1)
    assert (figures["gen_length"], figures["batch"], figures["steps"]) == (24, 2, 8)
    assert figures["tokens_equal"] is True
    for name in ("llada", "unlocked", "locked"):
        assert figures[f"{name}_step_ms"] == pytest.approx(1e3 * figures[f"{name}_seconds"] / 8)
