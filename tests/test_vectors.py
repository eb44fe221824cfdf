"""The decisions in JavaScript are those in Python: Node repeats random runs, plans and steps equal to the last bit."""

import json
from collections import Counter

import pytest
from test_javascript import needs_node, node
from vectors import vectors

from surelock.decoding.rules import COMPUTE, UNMASK


@needs_node
@pytest.mark.parametrize(
    ("count", "most"), [(180, 0.3), pytest.param(5000, 0.3, marks=pytest.mark.long)]
)
def test_node_repeats_random_runs(count: int, most: float) -> None:
    told = vectors(count)
    found = json.loads(node("tests/js/vectors.js", given=json.dumps(told)))
    assert found["cases"] == len(told) >= count and found["turns"] == sum(
        len(each["turns"]) for each in told
    )
    assert 0 < found["refused"] < most * len(told)

    decoders = [each["decoder"] for each in told]
    parts = [
        list(d["compute"].values()) if d["compute"]["kind"] == "both" else [d["compute"]]
        for d in decoders
    ]
    kinds = Counter(part["kind"] for each in parts for part in each if isinstance(part, dict))
    policies = {kind for kind, policy in UNMASK.items() if not policy.server_only}
    assert kinds.keys() >= COMPUTE.keys() and {d["unmask"]["kind"] for d in decoders} == policies
    events = Counter(event["kind"] for d in decoders for event in d["events"])
    assert events.keys() == {"lock", "unlock", "write", "mask", "rule"}
