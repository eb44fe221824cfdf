"""A run that is touched in the browser is the library's run with the same events, token for token, up to a tie."""

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
from surelock.engines.graph import graphs
from surelock.places import ASSETS
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
    """Two touches, the second on top of the first: another word in an early cell, then one in a locked or late cell."""
    early, late = 2, len(steps) - 3
    first = int(np.flatnonzero(steps[early].newly_unmasked[0])[0])
    locked = np.flatnonzero(steps[late - 1].locked[0] & ~steps[0].given[0])
    others = [int(position) for position in locked if position != first]
    position = others[0] if others else int(np.flatnonzero(steps[late].newly_unmasked[0])[0])
    write = Event(early, "write", first, token=700)
    return [[write], [write, Event(late, "write", position, token=701)]]


@needs_node
@needs_packages
def test_a_touched_run_is_the_librarys(stories: Any, tmp_path: Path) -> None:
    lm, lanes, expected = stories, [], []
    prompt = lm.encode(PROMPT, blanks=True)
    for number, (rule, more) in enumerate(RULES):
        settings = surelock.DecodeSettings(gen_length=12, seed=3, **more)
        decoder = Decoder(settings=settings, compute=rule)
        steps = list(surelock.decode(lm, [prompt], **decoder.keywords()))
        lists = touched(steps)
        ends = [steps[-1].tokens[0].tolist()]
        for events in lists:
            found = list(surelock.decode(lm, [prompt], settings, compute=rule, events=events))
            ends.append(found[-1].tokens[0].tolist())
        expected.append(ends)
        lane = Lane(id=f"lane-{number}", name="Own", decoder=decoder).to_plain()
        lanes.append({"lane": lane, "touches": [[plain_event(event) for event in events] for events in lists]})
    for name, graph in graphs(lm.config, lm.engine.tensors).items():
        (tmp_path / name).write_bytes(graph.SerializeToString())
    shape = asdict(Shape(lm.config, lm.mask_id, lm.pad_id, lm.ends)) | {"length": len(prompt) + 12}
    (tmp_path / "asked.json").write_text(json.dumps({"shape": shape, "prompt": prompt, "lanes": lanes}))
    found = [json.loads(line) for line in node("tests/js/touched.js", tmp_path, *WEIGHTS).splitlines()]
    assert [[each["tokens"] for each in own] for own in found] == expected
