"""A run that is touched in the browser, an own one or a recording, is the library's run with the same events, token for
token, up to a tie.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from test_javascript import needs_node, needs_packages, node

import surelock
from surelock.config import Shape
from surelock.decoding.decoder import Decoder, plain_event
from surelock.decoding.events import Event
from surelock.engines.onnx_graph import graphs
from surelock.places import ASSETS
from surelock.record import record_run
from surelock.trace.lanes import Lane

WEIGHTS = sorted((ASSETS / "stories").glob("*.safetensors"))
PROMPT = "Tom found a __ in the garden. He"
RULES: list[tuple[Any, dict[str, Any]]] = [
    (surelock.Everything(), {}),
    (surelock.LockRule(), {"temperature": 0.8}),
    (surelock.BlockCache(), {"block_length": 7}),
    (surelock.BudgetRule(), {"temperature": 0.8}),
    (surelock.LockByAge(2), {}),
]


def touched(steps: list[Any]) -> list[list[Event]]:
    """Two touches, the second on top of the first: another word in an early cell, then one in a late cell."""
    writes = []
    for step, token in ((2, 700), (len(steps) - 3, 701)):
        first = int(np.flatnonzero(steps[step].newly_unmasked[0])[0])
        writes.append(Event(step, "write", first, token=token))
    return [writes[:1], writes]


def lane_of(number: int, rule: Any, more: dict[str, Any]) -> Lane:
    settings = surelock.DecodeSettings(gen_length=12, seed=3, **more)
    return Lane(id=f"lane-{number}", name="Own", decoder=Decoder(settings=settings, compute=rule))


def write_engine(lm: surelock.LanguageModel, folder: Path, length: int, **asked: Any) -> None:
    """Write what tests/js/library.js reads: the graphs, the shape of a run of so many positions, and what is asked."""
    for name, graph in graphs(lm.config, lm.engine.tensors).items():
        (folder / name).write_bytes(graph.SerializeToString())
    shape = asdict(Shape(lm.config, lm.mask_id, lm.pad_id, lm.ends)) | {"length": length}
    (folder / "asked.json").write_text(json.dumps({"shape": shape, **asked}))


def presses(steps: list[Any]) -> list[dict[str, int]]:
    """Two presses at the end of a recorded run: on a cell that was written early, and on one that is locked by then if
    the rule locks, else on one that was written late.
    """
    last = len(steps) - 1
    early = int(np.flatnonzero(steps[2].newly_unmasked[0])[0])
    locked = np.flatnonzero(steps[-1].locked[0] & ~steps[0].given[0])
    late = np.flatnonzero(steps[last - 2].newly_unmasked[0])
    others = [int(position) for position in (*locked[::-1], *late) if position != early]
    return [
        {"cell": early, "step": last, "token": 700},
        {"cell": others[0], "step": last, "token": 701},
    ]


@needs_node
@needs_packages
def test_a_touched_run_is_the_librarys(stories, tmp_path):
    """An own one, and a recording, which comes again as it was."""
    prompt = stories.encode(PROMPT, blanks=True)
    lanes = []
    asked = []
    recordings = []
    expected = []

    def ends(lane: Lane, events: list[Event]) -> list[int]:
        keywords = lane.decoder.keywords() | {"events": events}
        *_, last = surelock.decode(stories, [prompt], **keywords)
        return last.tokens[0].tolist()

    for number, (rule, more) in enumerate(RULES):
        lane = lane_of(number, rule, more)
        steps = list(surelock.decode(stories, [prompt], **lane.decoder.keywords()))
        lists = touched(steps)
        expected.append([ends(lane, events) for events in ([], *lists)])
        touches = [[plain_event(event) for event in events] for events in lists]
        asked.append({"lane": lane.to_plain(), "touches": touches})
        document = json.loads(json.dumps(record_run(stories, PROMPT, [lane], exact=False)))
        recordings.append({"document": document, "presses": presses(steps)})
        lanes.append(lane)
    write_engine(
        stories, tmp_path, len(prompt) + 12, prompt=prompt, lanes=asked, recordings=recordings
    )
    lines = node("tests/js/touched.js", tmp_path, *WEIGHTS).splitlines()
    assert [[each["tokens"] for each in json.loads(line)] for line in lines] == expected
    lines = node("tests/js/touched_recordings.js", tmp_path, *WEIGHTS).splitlines()
    for lane, line in zip(lanes, lines, strict=True):
        for found in json.loads(line):
            events = [Event(**event) for event in found["events"]]
            assert found["tokens"] == ends(lane, events), lane.decoder.compute
            assert found["repeats"], "the recording itself comes again as it was"
