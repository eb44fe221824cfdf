"""The engine of browsers, in Node, beside the one of CPUs: the same graphs, the same weights, the same runs."""

import gzip
import json
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from checkpoints import write_dream, write_llada
from conftest import TINY
from safetensors.torch import save_file
from test_decode import RUNS
from test_javascript import ROOT, needs_node, needs_packages, node

import surelock
from surelock.browser_parts import FILE, browser_parts
from surelock.browser_parts import main as write_parts
from surelock.config import Shape
from surelock.decoding.decoder import Decoder, plain_event
from surelock.decoding.unmasking import Replay
from surelock.engines.onnx_graph import graphs
from surelock.places import ASSETS

pytestmark = needs_node
WEIGHTS = sorted((ASSETS / "stories").glob("*.safetensors"))
SHOWN = ("tokens", "locked", "computed", "kl", "confidence", "top_ids", "top_probs")


def decoders(gen_length: int, **more: Any) -> dict[str, Decoder]:
    """One for every rule and every policy that the page offers, as the tests of `decode` have them for 12 positions."""
    found = {}
    for name, (changes, choices) in RUNS.items():
        policy = choices.get("unmask")
        if (
            isinstance(policy, Replay)
            or getattr(policy, "server_only", False)
            or "events" in choices
        ):
            continue
        steps = {"steps": changes["steps"] * gen_length // 12} if "steps" in changes else {}
        settings = surelock.DecodeSettings(
            **{**changes, **steps, "gen_length": gen_length, "seed": 3, **more}
        )
        found[name] = Decoder(settings=settings, **choices)
    return found


def in_node(
    lm: Any, weights: list[Path], prompt: list[int], asked: list[tuple[Decoder, int]], folder: Path
) -> list[list[list[Any]]]:
    """What Node finds of each step of each run, in the order of SHOWN. asked: decoders, each with its top_k."""
    for name, graph in graphs(lm.config, lm.engine.tensors).items():
        (folder / name).write_bytes(graph.SerializeToString())
    shape = Shape(lm.config, lm.mask_id, lm.pad_id, lm.ends)
    plain = []
    for decoder, top_k in asked:
        events = [plain_event(event) for event in decoder.events]
        plain.append({"decoder": {**decoder.to_plain(), "events": events}, "top_k": top_k})
    told = {"shape": asdict(shape), "prompt": prompt, "decoders": plain}
    (folder / "asked.json").write_text(json.dumps(told))
    return [json.loads(line) for line in node("tests/js/runs.js", folder, *weights).splitlines()]


def in_python(lm: Any, prompt: list[int], decoder: Decoder, top_k: int) -> list[list[Any]]:
    """The same of `decode`."""
    found = surelock.decode(lm, [prompt], **decoder.keywords(), top_k=top_k)
    return [[getattr(step, name) for name in SHOWN] for step in found]


def first_difference(ours: list[list[Any]], theirs: list[list[Any]]) -> int | None:
    """The first step whose tokens, locks or rows differ; up to it all that was read is equal up to rounding."""
    for t, (mine, other) in enumerate(zip_longest(ours, theirs)):
        if mine is None or other is None:
            return t
        if any(
            not np.array_equal(np.ravel(a).astype(int), b)
            for a, b in zip(mine[:3], other[:3], strict=True)
        ):
            return t
        for name, a, b in zip(SHOWN[3:5], mine[3:5], other[3:5], strict=True):
            expected = np.where(np.isfinite(a), a, np.nan).ravel()
            np.testing.assert_allclose(
                np.array(b, float), expected, rtol=1e-2, atol=2e-5, err_msg=f"{name}, step {t}"
            )
        if mine[5] is not None:
            np.testing.assert_allclose(
                np.array(other[6], float), np.ravel(mine[6]), atol=2e-5, err_msg=f"step {t}"
            )
            assert np.mean(np.ravel(mine[5]) == other[5]) > 0.95
    return None


def test_a_browsers_engine_decodes_as_the_one_of_cpus(stories, tmp_path):
    prompt = stories.encode("Once upon a time there was a little")
    asked = []
    for name, decoder in decoders(12).items():
        asked.append((decoder, 3 if name in ("locked", "unlocking") else 0))
    write = surelock.Event(4, "write", len(prompt) + 2, prompt[1]), surelock.Event(5, "unlock", 1)
    lock = surelock.LockRule(epsilon=9.0, percentile=None)
    asked.append((replace(asked[0][0], compute=lock, events=write), 0))
    found = in_node(stories, WEIGHTS, prompt, asked, tmp_path)
    for (decoder, top_k), steps in zip(asked, found, strict=True):
        ours = in_python(stories, prompt, decoder, top_k)
        assert first_difference(ours, steps) is None, decoder


@pytest.mark.parametrize("write", [write_llada, write_dream])
def test_other_shapes(write, tmp_path):
    """Biases, shared heads, an untied head, a shifted network; prompts of unlike lengths."""
    model = tmp_path / "model"
    write(model, layers=2, d_model=24, heads=3, kv_heads=1, d_ff=40, vocab=40, tied=False, seed=2)
    lm = surelock.load(str(model), device="cpu", engine="onnx")
    prompts = [[5, 3, 9], [8, 30, 2, 36, 4, 11, 20], [6]]
    asked = [
        (decoder, 0)
        for name, decoder in decoders(12).items()
        if name in ("guided", "unrepeated", "unlocking")
    ]
    for prompt in prompts:
        found = in_node(lm, sorted(model.glob("*.safetensors")), prompt, asked, tmp_path)
        for (decoder, top_k), steps in zip(asked, found, strict=True):
            assert first_difference(in_python(lm, prompt, decoder, top_k), steps) is None, decoder


def test_logits_that_are_no_numbers_end_a_run(tmp_path):
    tensors = write_llada(model := tmp_path / "model", **TINY)
    tensors["model.transformer.ff_out.weight"][7] = torch.nan
    save_file(tensors, model / "model.safetensors")
    lm = surelock.load(str(model), device="cpu", engine="onnx")
    decoder = Decoder(settings=surelock.DecodeSettings(gen_length=2))
    with pytest.raises(AssertionError, match="NaN or infinite logits in step 0"):
        in_node(lm, [model / "model.safetensors"], [5], [(decoder, 0)], tmp_path)


@needs_packages
def test_what_a_browser_fetches_is_made_from_what_it_is_made_of(stories):
    """`npm run runtime` and `python -m surelock.browser_parts stories` write them: stale ones would be served."""
    modules = {
        "ort": "onnxruntime-web/dist/ort-wasm-simd-threaded.wasm",
        "quickjs": "@jitl/quickjs-wasmfile-release-sync/dist/emscripten-module.wasm",
    }
    for name, path in modules.items():
        packed = (ASSETS / "scripts" / f"{name}.wasm.gz").read_bytes()
        wasm = ROOT / "node_modules" / path
        assert gzip.decompress(packed) == wasm.read_bytes(), "npm run runtime"
    told = json.loads((ASSETS / "stories" / FILE).read_text("utf-8"))
    assert told == json.loads(json.dumps(browser_parts(stories, ASSETS / "stories")))
    assert told["weights"] == [file.name for file in WEIGHTS]


@needs_packages
def test_the_licenses_of_what_is_bundled_come_with_it():
    own = Path(onnxruntime.__file__).parent
    files = [own / "LICENSE", own / "ThirdPartyNotices.txt"]
    bundled = ("@huggingface/tokenizers", "@noble/hashes", "quickjs-emscripten-core")
    bundled += ("@jitl/quickjs-wasmfile-release-sync",)
    files += [ROOT / "node_modules" / name / "LICENSE" for name in bundled]
    told = (ASSETS / "scripts" / "licenses.txt").read_text("utf-8").split()
    assert all(" ".join(file.read_text("utf-8").split()) in " ".join(told) for file in files)


def test_only_what_onnx_runtime_computes_has_parts_for_a_browser(stories_in_torch, tmp_path):
    with pytest.raises(ValueError, match="a browser cannot decode it"):
        browser_parts(stories_in_torch, ASSETS / "stories")
    with pytest.raises(SystemExit):
        write_parts([str(tmp_path / "nowhere")])
