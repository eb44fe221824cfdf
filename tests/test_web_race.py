"""A race in JavaScript tells what one in Python tells, on the same readings: messages, document, likely tokens."""

import base64
import json
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up import made_up
from numpy.typing import NDArray
from test_decode import RUNS
from test_javascript import needs_node, node
from vectors import packed, packed_fields, packed_plan

import surelock
from surelock.decoding.decoder import Decoder
from surelock.decoding.step import Layout, Plan, Reading
from surelock.decoding.unmasking import Replay
from surelock.quality import commit_error
from surelock.quality.commit_error import Shadow
from surelock.trace.format import TOP_K
from surelock.trace.lanes import Lane
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header

pytestmark = needs_node
ROUGH = ("kl", "confidence")  # of a record, bytes: numpy rounds their logarithm as a float32
ASKED = ("tokens", "blind", "slots", "chooses", "banned", "barred", "scores")  # of a plan
#: The runs that a browser can compute.
NAMES = [
    name
    for name, (_, choices) in RUNS.items()
    if not isinstance(choices.get("unmask"), Replay)
    and not getattr(choices.get("unmask"), "server_only", False)
]


class Told:
    """An engine that makes its readings up, a lane's own, and keeps what it told of each lane."""

    name = "made up"
    device = "cpu"
    dtype = "float32"

    def __init__(self, config: Any) -> None:
        self.config = config
        self.readings = []

    def memory(self, layout: Layout, keep_logits: bool = False) -> list[Any]:
        self.readings.append([])
        return self.readings[-1]

    def release(self, memory: list[Any]) -> None:
        """A memory of one run serves no other: what was told stays in it."""

    def read(self, memory: list[Any], plan: Plan) -> Reading:
        rng = np.random.default_rng((len(memory), self.readings.index(memory)))
        vocab = self.config.vocab_size
        reading = made_up(plan, rng, vocab)
        rows = len(plan.slots)
        # likely tokens that mostly stay, with probabilities that mostly move by little
        reading.top_ids = np.tile(np.arange(TOP_K), (rows, 1)) + (rng.random((rows, 1)) < 0.2)
        reading.top_probs = 0.5 / (1 + np.arange(TOP_K)) + rng.normal(0, 0.003, (rows, TOP_K))
        memory.append(
            {
                "asked": {name: packed_plan(plan)[name] for name in ASKED},
                "found": packed_fields(reading),
            }
        )
        return reading

    def logits(self, memory: list[Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        rng = np.random.default_rng((len(memory), self.readings.index(memory)))
        found = rng.normal(0, 3, (len(rows), self.config.vocab_size)).astype(np.float32)
        memory.append(packed(found))
        return found


def told(
    lm: Any, names: list[str], prompt: list[int]
) -> tuple[Told, Recorder, list[dict[str, Any]]]:
    """A race of some of the runs of the tests of `decode`: its engine, its recorder and the stream's messages."""
    engine = Told(lm.config)
    lm = replace(lm, engine=engine)
    lanes = []
    for number, name in enumerate(names):
        changes, choices = RUNS[name]
        if "steps" in changes:
            changes = changes | {"steps": changes["steps"] + 1}  # the blank's block takes one
        more = {"gen_length": 12, "suppress_eos": number % 2 > 0}
        settings = surelock.DecodeSettings(**{**more, **changes, "seed": 3})
        lanes.append(
            Lane(id=name, name=name.title(), decoder=Decoder(settings=settings, **choices))
        )
    recorder = Recorder(make_header(lm, "Once", prompt, lanes), lm.tokenizer)
    messages = [recorder.start()]
    told = race(lm, prompt, lanes, shadow=Shadow)
    messages += [recorder.take(steps) for steps in told if steps]
    return engine, recorder, messages


def check_records(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Equal but for the time, which races.js checks; a byte in a hundred may be the next one."""
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name in mine.keys() - {"seconds"}:
            if name in ROUGH and isinstance(mine[name], str):
                a, b = (
                    np.frombuffer(base64.b64decode(each[name]), np.uint8).astype(int)
                    for each in (mine, other)
                )
                assert (
                    len(a) == len(b)
                    and np.abs(a - b).max(initial=0) <= 1
                    and (a != b).mean() <= 0.01
                )
            else:
                assert mine[name] == other[name], (name, mine["lane"], mine["step"])


@pytest.mark.parametrize("names", [NAMES[i : i + 4] for i in range(0, len(NAMES), 4)], ids="-".join)
def test_a_race_in_javascript_tells_what_one_in_python_does(stories, names, monkeypatch):
    monkeypatch.setattr(commit_error, "_ROWS", {"cpu": 1})  # as there, a step at a time
    lm = replace(stories, ends=(*stories.ends, 300))
    prompt = lm.encode("Once upon __ time", blanks=True)
    if "events" in names:  # on made-up readings what they ask for may not be possible
        names = [name for name in names if name != "events"] or ["baseline"]
    engine, recorder, messages = told(lm, names, prompt)
    document = recorder.document()
    asked = [
        [name, step, at]
        for name in names
        for step in (0, 3, 99)
        for at in (0, len(prompt), len(prompt) + 11)
    ]
    vectors = {
        "shape": asdict(lm.shape),
        "header": recorder.header,
        "pieces": document["pieces"]
        | {str(t): f"<{t}>" for t in range(4096) if str(t) not in document["pieces"]},
        "readings": engine.readings,
        "asked": asked,
    }
    found = SimpleNamespace(**json.loads(node("tests/js/races.js", given=json.dumps(vectors))))

    assert found.messages[0] == messages[0] and len(found.messages) == len(messages)
    for mine, other in zip(messages[1:], found.messages[1:], strict=True):
        assert mine.get("errors") == other.get("errors")
        assert mine.get("pieces") == other.get("pieces")
        check_records(mine.get("records", []), other.get("records", []))
    assert {k: v for k, v in found.document.items() if k != "records"} == {
        k: v for k, v in document.items() if k != "records"
    }
    check_records(document["records"], found.document["records"])
    assert found.tops == [recorder.top(*place) for place in asked]
    assert any(found.tops) and all(
        len(record["top"]["ids"]) % TOP_K == 0 for record in document["records"]
    )
