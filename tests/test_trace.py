"""The trace: what is recorded, what survives reading, what is refused, and the replay page."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from surelock import (
    BlockCache,
    Decoder,
    DecodeSettings,
    Event,
    Everything,
    LockByAge,
    LockRule,
    Remask,
    Threshold,
)
from surelock.decoding.loop import decode
from surelock.model.language_model import LanguageModel
from surelock.quality.commit_error import Shadow, commit_error
from surelock.trace import format as fmt
from surelock.trace.figure import figure
from surelock.trace.format import compact_json
from surelock.trace.lanes import Lane
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.replay import embedded_json, replay_html
from surelock.trace.table import positions_of, read_trace, table

PROMPT = [3, 4, 5, 6]
SETTINGS = DecodeSettings(gen_length=12, temperature=0.7, seed=3)
RULE = LockRule(epsilon=0.05, percentile=60.0)
EVENTS = (
    Event(2, "lock", 1),
    Event(4, "write", 6, 9),
    Event(5, "mask", 6),
    Event(6, "rule", compute=LockByAge(2)),
)
DECODER_PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("Every position", {"compute": Everything()}),
    "locks": ("Locks", {"compute": RULE, "unmask": Remask(2, begins=0.5)}),
    "block": ("Dual", {"compute": BlockCache(), "unmask": Threshold(0.3)}),
    "hand": ("By hand", {"compute": RULE, "events": EVENTS}),
}
FIELD = [
    Lane(id=own, name=name, decoder=Decoder(settings=SETTINGS, **choices))
    for own, (name, choices) in DECODER_PARTS.items()
]


WORDS = [
    "<|mask|>",
    "<|end|>",
    "<img src=x onerror=alert(1)>",
    "${location}",
    "{{value}}",
    "</script><b>",
]
WORDS += ["\u202eabc", "\x00\x07", " a", "é"]
ODD = {30: "Ã", 31: "©", 32: "<0x0A>", 33: "▁house"}
RAW = {"Ã": b"\xc3", "©": b"\xa9"}  # the two bytes of "é", as a byte-level vocabulary writes them


class Words:
    """A tokenizer of hostile words, some of them bytes."""

    def convert_ids_to_tokens(self, token: int) -> str | None:
        return None if token >= 40 else ODD.get(token, WORDS[token % 10])

    def decode(self, ids: list[int], **_: Any) -> str:
        names = [self.convert_ids_to_tokens(token) or "" for token in ids]
        raw = b"".join(RAW.get(name, name.encode()) for name in names)
        return raw.decode("utf-8", "replace").replace("▁", " ")


@pytest.fixture(scope="module")
def lm(lm):
    return replace(lm, tokenizer=Words(), mask_id=0, pad_id=1, ends=(1,))  # type: ignore[arg-type]


def recorded(lm: LanguageModel, field: list[Lane]) -> Recorder:
    made = Recorder(make_header(lm, "a <b>prompt</b>", PROMPT, field), lm.tokenizer)
    for told in race(lm, PROMPT, field):
        for each in told:
            made.record(each.lane, each.step)
    return made


@pytest.fixture(scope="module")
def recorder(lm):
    return recorded(lm, FIELD)


@pytest.fixture
def document(recorder):
    return json.loads(json.dumps(recorder.document()))


def test_what_is_written_in_parts_is_the_document(recorder):
    for steps in (None, 0, 3):
        document = recorder.document(steps=steps)
        parts = list(recorder.written(steps))
        assert "".join(parts) == compact_json(document)
        assert len(parts) == 2 + len(document["records"])


def test_json_of_a_script_element_cannot_end_it_or_open_another() -> None:
    """A comment with an element in it would keep the script from ending."""
    text = "<!-- <script></script>\u2028\u2029"
    held = embedded_json({"prompt": text})
    assert not set("<\u2028\u2029") & set(held)
    assert json.loads(held) == {"prompt": text}


def test_what_is_written_while_errors_are_added_has_all_of_them_or_none(lm):
    """Another thread adds them to one record after the other."""
    recorder = recorded(lm, FIELD[:2])
    parts = recorder.written()
    written = [next(parts), next(parts)]
    for record, *_ in recorder._records:
        record |= {"commit_error": [0.5] * len(record["unmasked"]), "changed": [], "regret": 0.5}
    late = json.loads("".join([*written, *parts]))
    assert not any("regret" in record for record in late["records"])
    assert all("regret" in record for record in json.loads("".join(recorder.written()))["records"])
    del recorder._records[-1][0]["regret"]
    assert "regret" not in recorder.document()["records"][-1]


def test_what_is_read_back_equals_the_steps(lm, document):
    trace = read_trace(document)
    assert trace.lanes.lane.tolist() == ["all", "locks", "block", "hand"]
    assert trace.lanes.name.tolist() == ["Every position", "Locks", "Dual", "By hand"]
    assert trace.lanes.decoder.tolist() == [lane.decoder for lane in FIELD]
    for lane in FIELD:
        values = trace.values[trace.values.lane == lane.id]
        steps = trace.steps[trace.steps.lane == lane.id]
        positions = trace.positions[trace.positions.lane == lane.id]
        locked_at = {}
        unmasked_at = {}
        run = list(decode(lm, [PROMPT], **lane.decoder.keywords(), top_k=1))
        told = table(run, lm)
        cells = table(document).query("lane == @lane.id")
        for name in ("token", "text", "masked", "computed", "locked", "taken_back"):
            assert told[name].astype(str).tolist() == cells[name].astype(str).tolist(), name
        for step in run:
            mine = values[values.step == step.index]
            computed = step.computed[0]
            assert mine.position.tolist() == np.flatnonzero(computed).tolist()
            for name in ("kl", "confidence"):
                told = getattr(step, name)[0][computed].astype(np.float32)
                np.testing.assert_array_equal(mine[name].to_numpy().astype(np.float32), told)
            masks = (step.masked | step.newly_unmasked)[0][computed]
            assert (
                plain(mine.guess) == np.where(masks, step.top_ids[0][computed][:, 0], None).tolist()
            )
            row = steps[steps.step == step.index].iloc[0]
            told = (float(step.flops[0]), float(step.baseline_flops[0]), int(step.locked.sum()))
            assert (row.flops, row.baseline_flops, row.locked) == told
            told = (computed.sum(), int(step.newly_unmasked.sum()), int(step.taken_back.sum()))
            assert (row.computed, row.unmasked, row.taken_back) == told
            for i in range(16):
                if step.newly_locked[0, i]:
                    locked_at[i] = step.index
                if step.newly_unmasked[0, i] or (step.written[0, i] and i not in unmasked_at):
                    unmasked_at[i] = step.index
                if (step.newly_masked | step.taken_back)[0, i] and not step.newly_unmasked[0, i]:
                    unmasked_at.pop(i)
        assert len(steps) == step.index + 1
        assert positions.token.tolist() == step.tokens[0].tolist()
        locks = [locked_at[i] if step.locked[0, i] else None for i in range(16)]
        assert plain(positions.lock_step) == locks
        assert plain(positions.unmask_step) == [unmasked_at.get(i) for i in range(16)]
    assert trace.steps.groupby("lane").taken_back.sum().tolist() == [0, 0, 0, 2 * 12]


def plain(column: Any) -> list[int | None]:
    return column.astype(object).where(column.notna(), None).tolist()


def test_a_trace_with_a_rule_that_is_not_imported_is_read(document, stories):
    """As in a process that has not imported the rule: tables, figures and replays need none, its decoder does."""
    plain = read_trace(document)
    kinds = ["everything", "lock+odd", "odd", "lock"]
    locks, block = document["header"]["lanes"][1:3]
    locks["compute"] = {
        "kind": "both",
        "lock": locks["compute"],
        "select": {"kind": "odd", "gap": 3},
    }
    block["compute"] = {"kind": "odd", "gap": 3}
    with pytest.warns(
        UserWarning,
        match="of lane 'block' is None: compute must be one of .* not 'odd'; .* is imported",
    ):
        trace = read_trace(document)
    assert trace.lanes["compute"].tolist() == kinds
    assert [each is None for each in trace.lanes.decoder] == [False, True, True, False]
    assert trace.positions.equals(plain.positions) and trace.values.equals(plain.values)
    assert len(table(document)) and figure(document).data and "odd" in replay_html(document)
    with pytest.raises(ValueError, match=r"a rule from outside is known once .*: `import package"):
        commit_error(stories, document)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ([], "one to four lanes can race, not 0"),
        ([FIELD[0], FIELD[0]], "two lanes have the id 'all'"),
        ([FIELD[0], Lane(id="b", name="B", decoder=Decoder())], "gen_length must be the same"),
    ],
)
def test_fields_that_cannot_race(lm, field, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        make_header(lm, None, PROMPT, field)


def test_lanes_take_turns_in_going_first(lm, monkeypatch):
    asked: list[str] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        name = type(kwargs["compute"]).__name__
        for step in decode(*args, **kwargs):
            asked.append(name)
            yield step

    monkeypatch.setattr("surelock.trace.race.decode", watched)
    age = Decoder(settings=SETTINGS, compute=LockByAge())
    field = [FIELD[0], FIELD[1], Lane(id="age", name="Age", decoder=age)]
    told = list(race(lm, PROMPT, field))
    names = ["Everything", "LockRule", "LockByAge"]
    assert asked[:9] == names + names[1:] + names[:1] + names[2:] + names[:2]
    assert [[each.lane for each in steps] for steps in told] == [["all", "locks", "age"]] * 12 + [
        ["locks"]
    ] * 12


def test_a_race_says_that_all_have_ended_before_it_works_out_their_errors(
    lm,
):
    told = [
        [type(each).__name__ for each in at_once]
        for at_once in race(lm, PROMPT, FIELD, shadow=Shadow)
    ]
    ends = len(told) - len(FIELD)
    assert told[ends - 1 :] == [[], *[["Errors"]] * len(FIELD)] and all(told[: ends - 1])


def test_a_step_has_a_guess_for_each_computed_mask(document):
    assert fmt.token_width(2**16) == 2 and fmt.token_width(2**16 + 1) == 3
    ids = np.array([0, 255, 2**16 + 7])
    assert fmt.decode_tokens(fmt.encode_tokens(ids, 3), 3).tolist() == ids.tolist()
    document["records"][2]["guess"] = document["records"][2]["guess"][4:]
    with pytest.raises(fmt.TraceError, match="another number of guesses"):
        read_trace(document)


def test_a_token_that_somebody_wrote_has_no_commit_error() -> None:
    header = {"length": 3, "prompt_tokens": [5], "mask_id": 1}
    first = {"step": 0, "unmasked": [[1, 7], [2, 8]], "commit_error": [0.1, 0.2], "locked": []}
    positions = positions_of(
        header, {}, [first, {"step": 1, "unmasked": [], "written": [[1, 9]], "locked": []}], "own"
    )
    assert plain(positions.commit_error) == [None, None, 0.2] and plain(positions.unmask_step) == [
        None,
        0,
        0,
    ]


def test_more_records_than_steps_are_refused(document: dict[str, Any]) -> None:
    document["header"]["steps"] -= 1
    with pytest.raises(fmt.TraceError, match="not one per step and lane, in order"):
        read_trace(document)


def test_the_quantised_form_says_the_same_to_its_precision(recorder: Recorder) -> None:
    traces = [read_trace(recorder.document(exact=flag)) for flag in (True, False)]
    assert [set(trace.lanes.exact) for trace in traces] == [{True}, {False}]
    exact, rough = (trace.values for trace in traces)
    apart = fmt.bytes_to_kl(np.arange(1, 255, dtype=np.uint8))
    # as the docstring of `read_trace` says
    np.testing.assert_allclose(apart[1:] / apart[:-1], 1.14, atol=0.005)
    finite = np.isfinite(exact.kl) & (exact.kl > 1e-11)
    np.testing.assert_allclose(rough.kl[finite], exact.kl[finite], rtol=0.07)
    np.testing.assert_array_equal(np.isinf(rough.kl), np.isinf(exact.kl))
    np.testing.assert_allclose(rough.confidence, exact.confidence, atol=0.002)


def test_likely_tokens_carry_over_steps_that_did_not_list_them(
    lm: LanguageModel, recorder: Recorder
) -> None:
    (lane,) = (each for each in FIELD if each.id == "locks")
    for step in decode(lm, [PROMPT], **lane.decoder.keywords(), top_k=fmt.TOP_K):
        assert step.top_ids is not None and step.top_probs is not None
        for position in np.flatnonzero(step.computed[0]):
            listed = recorder.top("locks", step.index, int(position))
            assert [token for token, _, _ in listed] == step.top_ids[0, position].tolist()
            assert [p for _, _, p in listed] == pytest.approx(
                step.top_probs[0, position].tolist(), abs=0.013
            )
    slow = Recorder(recorder.header, None)
    for index in range(20):
        sure = 0.5 - 0.005 * index
        slow.record(
            "locks", replace(step, index=index, top_probs=np.full_like(step.top_probs, sure))
        )
        (_, _, found), *_ = slow.top("locks", index, position)
        assert found == pytest.approx(sure, abs=0.013), "however slowly it moves"
