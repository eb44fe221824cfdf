"""The trace: what is recorded, what survives reading, what is refused, and the replay page."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings, LockRule
from surelock.model.config import NetworkConfig
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.trace import format as fmt
from surelock.trace.frames import read_trace
from surelock.trace.pieces import Pieces
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.replay import replay_html

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((ROOT / "surelock" / "trace" / "schema.json").read_text("utf-8"))
PROMPT = [3, 4, 5, 6]
SETTINGS = DecodeSettings(gen_length=12, temperature=0.7, seed=3)
RULE = LockRule(epsilon=0.05, percentile=60.0)


WORDS = ["<|mask|>", "<|end|>", "<img src=x onerror=alert(1)>", "${location}", "{{value}}", "</script><b>"]
WORDS += ["\u202eabc", "\x00\x07", " a", "é"]
RAW = {"Ã": b"\xc3", "©": b"\xa9"}  # the two bytes of "é", as a byte-level vocabulary writes them


class Words:
    """A tokenizer of hostile words, some of them bytes."""

    def convert_ids_to_tokens(self, token: int) -> str | None:
        if token >= 40:
            return None
        return (
            "Ã"
            if token == 30
            else "©"
            if token == 31
            else "<0x0A>"
            if token == 32
            else "▁house"
            if token == 33
            else WORDS[token % 10]
        )

    def decode(self, ids: list[int], **_: Any) -> str:
        name = self.convert_ids_to_tokens(ids[0]) or ""
        return RAW[name].decode("utf-8", "replace") if name in RAW else name


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    torch.manual_seed(0)
    config = NetworkConfig(
        vocab_size=48,
        d_model=32,
        n_layers=2,
        n_heads=2,
        n_kv_heads=2,
        head_size=16,
        d_ff=48,
        max_length=64,
        rope_theta=1e4,
        norm_eps=1e-5,
        tied=False,
    )
    network = Network(config).eval().requires_grad_(False)
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return LanguageModel(name="tiny", network=network, tokenizer=Words(), mask_id=0, eos_id=1, eot_id=None, pad_id=1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recorder(lm: LanguageModel) -> Recorder:
    made = Recorder(make_header(lm, "a <b>prompt</b>", PROMPT, SETTINGS, RULE), lm.tokenizer)
    for pair in race(lm, PROMPT, SETTINGS, RULE):
        for facts in pair:
            made.record(facts)
    return made


@pytest.fixture
def document(recorder: Recorder) -> dict[str, Any]:
    return json.loads(json.dumps(recorder.document()))


def test_kl_bytes_keep_a_log_scale_within_seven_percent() -> None:
    kl = np.array([0.0, 1e-13, 1e-12, 3.7e-9, 5e-4, 0.2, 99.0, 1e9, np.inf])
    levels = fmt.kl_to_bytes(kl)
    back = fmt.bytes_to_kl(levels)
    assert levels.tolist()[0] == 0 and levels[-1] == fmt.KL_INFINITE and np.isinf(back[-1])
    assert levels.tolist()[:2] == [0, 0] and levels[-2] == 254
    np.testing.assert_allclose(back[2:7], kl[2:7], rtol=0.07)
    assert np.array_equal(fmt.kl_to_bytes(fmt.bytes_to_kl(np.arange(256, dtype=np.uint8))), np.arange(256))


@pytest.mark.parametrize("positions", [[], [0], [0, 1, 2], [1, 3, 4, 9], list(range(10))])
def test_runs_of_positions_come_back(positions: list[int]) -> None:
    mask = np.zeros(10, dtype=bool)
    mask[positions] = True
    assert fmt.from_runs(fmt.to_runs(mask), 10).tolist() == positions


@pytest.mark.parametrize("runs", [[0, 11], [-1, 2], [3, 2, 4, 1], [5, -2]])
def test_runs_outside_the_sequence_are_refused(runs: list[int]) -> None:
    with pytest.raises(fmt.TraceError):
        fmt.from_runs(runs, 10)


def test_documents_follow_the_schema(recorder: Recorder) -> None:
    for exact in (True, False):
        for top in (True, False):
            jsonschema.validate(
                json.loads(json.dumps(recorder.document(exact=exact, top=top), allow_nan=False)), SCHEMA
            )
    jsonschema.validate(json.loads((ROOT / "assets" / "runs" / "stories.json").read_text("utf-8")), SCHEMA)


def test_what_is_read_back_equals_the_steps(lm: LanguageModel, document: dict[str, Any]) -> None:
    trace = read_trace(document)
    for name, rule in (("baseline", None), ("surelock", RULE)):
        values = trace.values[trace.values.decoder == name]
        steps = trace.steps[trace.steps.decoder == name]
        positions = trace.positions[trace.positions.decoder == name]
        locked = 0
        for step in decode(lm, [PROMPT], SETTINGS, lock=rule, observe=True):
            mine = values[values.step == step.index]
            computed = step.computed[0].numpy()
            assert mine.position.tolist() == np.flatnonzero(computed).tolist()
            np.testing.assert_array_equal(
                mine.kl.to_numpy().astype(np.float32), step.kl[0].numpy()[computed].astype(np.float32)
            )
            np.testing.assert_array_equal(
                mine.confidence.to_numpy().astype(np.float32), step.confidence[0].numpy()[computed].astype(np.float32)
            )
            locked += int(step.newly_locked.sum())
            row = steps[steps.step == step.index].iloc[0]
            assert (row.flops, row.baseline_flops, row.locked) == (
                float(step.flops[0]),
                float(step.baseline_flops[0]),
                locked,
            )
        assert positions.token.tolist() == step.tokens[0].tolist()
        assert positions.lock_step.notna().tolist() == step.locked[0].tolist()
        assert positions.unmask_step.isna().tolist() == [True] * len(PROMPT) + [False] * SETTINGS.gen_length


def test_the_quantised_form_says_the_same_to_its_precision(recorder: Recorder) -> None:
    exact, rough = (read_trace(recorder.document(exact=flag)).values for flag in (True, False))
    finite = np.isfinite(exact.kl) & (exact.kl > 1e-11)
    np.testing.assert_allclose(rough.kl[finite], exact.kl[finite], rtol=0.07)
    np.testing.assert_array_equal(np.isinf(rough.kl), np.isinf(exact.kl))
    np.testing.assert_allclose(rough.confidence, exact.confidence, atol=0.002)


def test_likely_tokens_carry_over_steps_that_did_not_list_them(lm: LanguageModel, recorder: Recorder) -> None:
    for step in decode(lm, [PROMPT], SETTINGS, lock=RULE, top_k=fmt.TOP_K):
        assert step.top_ids is not None and step.top_probs is not None
        for position in np.flatnonzero(step.computed[0].numpy()):
            listed = recorder.top("surelock", step.index, int(position))
            assert [token for token, _, _ in listed] == step.top_ids[0, position].tolist()
            assert [p for _, _, p in listed] == pytest.approx(step.top_probs[0, position].tolist(), abs=0.013)


def test_pieces_are_text_or_bytes() -> None:
    pieces = Pieces(Words()).of([2, 30, 31, 32, 33, 45])
    assert pieces == {
        "2": "<img src=x onerror=alert(1)>",
        "30": [0xC3],
        "31": [0xA9],
        "32": [10],
        "33": " house",
        "45": "#45",
    }
    assert Pieces(None).of([1, 2]) == {}


def test_the_stream_names_every_piece_once(lm: LanguageModel) -> None:
    recorder = Recorder(make_header(lm, None, PROMPT, SETTINGS, RULE), lm.tokenizer)
    sent: list[str] = list(recorder.start()["pieces"])
    for pair in race(lm, PROMPT, SETTINGS, RULE):
        records = [recorder.record(facts) for facts in pair]
        recorder.top("surelock", records[0]["step"], 5)  # asking for likely tokens must not swallow a piece
        sent += recorder.fresh_pieces(records)
    assert len(sent) == len(set(sent))
    used = {str(token) for record in recorder.document()["records"] for _, token in record["unmasked"]}
    assert used <= set(sent)


def damage(document: dict[str, Any], how: str) -> Any:
    broken = copy.deepcopy(document)
    records = broken["records"]
    if how == "not an object":
        return [1, 2]
    changes = {
        "format": lambda: broken.update(format="x"),
        "version": lambda: broken.update(version=2),
        "no header": lambda: broken.pop("header"),
        "length": lambda: broken["header"].update(length=10**9),
        "steps": lambda: broken["header"].update(steps=True),
        "order": lambda: records.reverse(),
        "twice": lambda: records.append(records[-1]),
        "position": lambda: records[3]["locked"].append(999),
        "token pair": lambda: records[2]["unmasked"].append([1]),
        "kl": lambda: records[4]["kl"].pop(),
        "base64": lambda: records[4].update(kl="%%%"),
        "seconds": lambda: records[4].update(seconds="soon"),
        "top": lambda: records[0]["top"]["ids"].pop(),
        "no computed": lambda: records[5].pop("computed"),
    }
    changes[how]()
    return broken


@pytest.mark.parametrize(
    "how",
    [
        "not an object",
        "format",
        "version",
        "no header",
        "length",
        "steps",
        "order",
        "twice",
        "position",
        "token pair",
        "kl",
        "base64",
        "seconds",
        "top",
        "no computed",
    ],
)
def test_damaged_traces_are_refused_in_one_sentence(document: dict[str, Any], how: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(damage(document, how)), encoding="utf-8")
    with pytest.raises(fmt.TraceError, match=r"trace.*\.$") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"hello"])
def test_files_that_are_no_json_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(fmt.TraceError, match="not JSON"):
        read_trace(path)


def test_a_header_survives_infinite_epsilon(lm: LanguageModel) -> None:
    header = make_header(lm, None, PROMPT, SETTINGS, LockRule(epsilon=math.inf))
    assert header["lock"]["epsilon"] == "inf"
    json.dumps(header, allow_nan=False)


def test_no_token_can_end_the_replays_script(document: dict[str, Any]) -> None:
    page = replay_html(document)
    held = page.split('<script id="sl-trace" type="application/json">')[1].split("</script>")[0]
    assert "<" not in held
    assert json.loads(held) == document


def test_the_replay_names_no_other_host_to_load_from(document: dict[str, Any]) -> None:
    page = replay_html(document)
    assert 'src="http' not in page.split("<script>")[0] and "default-src 'none'" in page


def test_an_early_end_leaves_a_readable_trace(lm: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=12, remasking="threshold", threshold=0.05)
    recorder = Recorder(make_header(lm, None, PROMPT, settings, RULE), lm.tokenizer)
    for pair in race(lm, PROMPT, settings, RULE):
        for facts in pair:
            recorder.record(facts)
    trace = read_trace(json.loads(json.dumps(recorder.document())))
    assert trace.steps.step.max() < 11
    assert trace.positions.token.notna().all()
