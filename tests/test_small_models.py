"""mdlm-owt and LFM2.5-Encoder: their files' traps, what a convolution keeps, and their sizes."""

import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import write_lfm2_model, write_mdlm_model
from safetensors.torch import load_file, save_file
from test_adapter import llada_loop

import surelock
from surelock import CheckpointError, loading
from surelock.bench.random_weights import SHAPES
from surelock.browser_parts import browser_parts
from surelock.decoding.ends import text_of
from surelock.decoding.recommended import recommended
from surelock.model import families
from surelock.model.families import family_of
from surelock.model.network import empty_network
from surelock.record import record_run
from surelock.trace.format import compact_json
from surelock.trace.lanes import beside_every_position
from surelock.trace.replay import replay_html

KINDS = {
    "mdlm": write_mdlm_model,
    "bd3lm": partial(write_mdlm_model, block_size=4),
    "lfm2": write_lfm2_model,
}


@pytest.mark.parametrize(
    ("kind", "engine"), [("mdlm", "torch"), ("bd3lm", "onnx"), ("lfm2", "onnx")]
)
def test_the_adapter_under_lladas_loop_writes_what_decode_writes(
    tmp_path: Path, kind: str, engine: str
) -> None:
    lm = surelock.load(
        tmp_path / "model", engine=engine, device="cpu", **KINDS[kind](tmp_path / "model")
    )
    prompt = lm.encode("A dog")
    settings = surelock.DecodeSettings(gen_length=12, steps=6, block_length=6)
    for rule in (surelock.Everything(), surelock.LockRule(epsilon=0.1), surelock.BlockCache()):
        policy = surelock.LowConfidence()
        *_, last = surelock.decode(lm, [prompt], settings, compute=rule, unmask=policy)
        adapter = surelock.adapter(lm, rule, settings)
        found = llada_loop(adapter, prompt, settings, lm.mask_id)
        assert found == last.tokens[0].tolist()
    lm = surelock.load(tmp_path / "model", engine="onnx", tokenizer="")
    with pytest.raises(ValueError, match=r"layers of another kind|is block-causal"):
        browser_parts(lm, tmp_path / "model")


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_of_it_is_read_replayed_and_computed_again(tmp_path: Path, kind: str) -> None:
    lm = surelock.load(tmp_path / "model", device="cpu", **KINDS[kind](tmp_path / "model"))
    rule = surelock.LockRule(epsilon=1.0, percentile=None)
    settings = surelock.DecodeSettings(gen_length=12, block_length=6, temperature=1.0)
    events = surelock.Event(5, "write", 10, 40), surelock.Event(8, "mask", 10)
    decoder = surelock.Decoder(settings=settings, compute=rule, events=events)
    lanes = beside_every_position("Locks", decoder)
    document = record_run(lm, "A __ dog", lanes)
    assert compact_json(document["header"]["lanes"]) in replay_html(document)
    document = json.loads(compact_json(document))
    trace = surelock.read_trace(document)
    found = surelock.commit_error(lm, document)
    prompt = lm.encode("A __ dog", blanks=True)
    for number, lane in enumerate(lanes):
        *_, last = surelock.decode(lm, [prompt], **lane.decoder.keywords())
        positions = trace.positions.query("lane == @lane.id")
        assert positions.token.tolist() == last.tokens[0].tolist()
        assert "".join(positions.piece[3:7]) == " dog"
        records = [record for record in document["records"] if record["lane"] == lane.id]
        nats = [each for record in records for each in record["commit_error"]]
        np.testing.assert_allclose(found.of_sequence(number).error, nats, rtol=1e-6, atol=1e-9)
    assert found.of_sequence(1).error.max() > 0


def test_mdlm_takes_gpt2s_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hub, or from where it is said; its mask is the last id, and <|endoftext|> divides its texts."""
    path = tmp_path / "model"
    words = write_mdlm_model(tmp_path / "model")["tokenizer"]
    with pytest.warns(
        UserWarning, match=r"openai-community/gpt2 is not in the local cache.*\(--tokenizer\)"
    ):
        assert surelock.load(path).tokenizer is None
    found = {}
    find = lambda name, patterns: found.update({name: patterns}) or words  # noqa: E731
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, allow_patterns: find(name, allow_patterns)
    )
    for how in ({}, {"tokenizer": words}):
        lm = surelock.load(path, **how)
        assert (lm.mask_id, lm.ends, lm.pad_id) == (257, (256,), 256)
        assert lm.decode([*lm.encode("A dog"), lm.mask_id]) == "A dog"
        assert text_of(lm, [*lm.encode("It is"), 256, *lm.encode(" Other")]) == "It is"
    assert found == {"openai-community/gpt2": loading._TOKENIZER_FILES}
    settings = recommended(lm.generation, {}).settings
    assert (settings.gen_length, settings.temperature) == (256, 0.8)
    with warnings.catch_warnings(action="error"):
        assert surelock.load(path, tokenizer="").tokenizer is None
    with pytest.raises(CheckpointError, match="holds no tok"):
        surelock.load(path, tokenizer=path)


def test_the_traps_of_lfm2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its template and end are no tokens, and ids above the trained ones are no words, in argmax and in softmax."""
    write_lfm2_model(tmp_path / "whole", vocab=300, tied=False)
    tokens = torch.tensor([[20, 30, 16, 16]])
    every = surelock.load(tmp_path / "whole", device="cpu").network(tokens)
    monkeypatch.setattr(families, "_LFM2_TRAINED", 273)
    for engine in ("torch", "onnx"):
        lm = surelock.load(tmp_path / "whole", device="cpu", engine=engine)
        assert (lm.mask_id, lm.ends, lm.pad_id, lm.config.vocab_size) == (16, (2, 7), 0, 273)
        torch.testing.assert_close(lm.network(tokens), every[..., :273], rtol=0, atol=1e-6)
        first = next(
            surelock.decode(lm, [[20, 30]], surelock.DecodeSettings(gen_length=2), observe=True)
        )
        confidence = torch.from_numpy(first.confidence).float()
        torch.testing.assert_close(
            confidence, every[..., :273].softmax(-1).amax(-1), rtol=0, atol=1e-5
        )
    text = "<|startoftext|>[Question]\nWho?\n[/Question]\n\n[Answer]\n"
    assert lm.tokenizer.decode(lm.encode("Who?", chat=True)) == text
    assert text_of(lm, lm.encode("Liquid.[/Answer] and more")) == "Liquid."
    decoder = recommended(lm.generation, {})
    assert decoder.settings == surelock.DecodeSettings(gen_length=64, steps=32, block_length=16)
    assert decoder.unmask == surelock.Threshold(0.9)
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    save_file({k: v[:273] if k in ("lfm2.embed_tokens.weight", "lm_head.weight") else v for k, v in tensors.items()},
              tmp_path / "whole" / "model.safetensors")  # fmt: skip
    with pytest.raises(CheckpointError, match=r"has shape \[273, 32\], expected \[300, 32\]"):
        surelock.load(tmp_path / "whole")


@pytest.mark.parametrize(("shape", "gigabytes"), [("mdlm-owt", 0.7), ("lfm2.5-350m", 1.45)])
def test_a_network_at_its_real_shape_is_one_copy_of_its_weights(
    shape: str, gigabytes: float
) -> None:
    described = SHAPES[shape]
    network = empty_network(family_of(described).read_config(described))
    assert 0.9 * gigabytes < sum(each.nbytes for each in network.parameters()) / 1e9 < gigabytes
