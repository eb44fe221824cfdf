"""What the form asks for, read in JavaScript as the server reads it: the same lanes, the same refusals."""

import json
from typing import Any

from test_javascript import needs_node, node

from surelock.decoding.described import describe, presets_for
from surelock.decoding.rules import UNMASK
from surelock.decoding.settings import DecodeSettings, to_plain
from surelock.ui.request import read_job, read_lanes, read_shared
from surelock.ui.wording import in_words

FORM = to_plain(DecodeSettings()) | {
    "model": "stories",
    "prompt": "Tom had",
    "chat": True,
    "steps": 128,
}
PRESETS = presets_for({})
LANES = [
    {"id": each["id"], "name": each["name"], "preset": each["id"], **each} for each in PRESETS[:4]
]
CHANGES: list[dict[str, Any]] = [
    {},
    {
        "gen_length": 24,
        "steps": 12,
        "block_length": "8",
        "temperature": 0.5,
        "seed": 3.0,
        "suppress_eos": True,
    },
    {"steps": None, "block_length": None},
    {"prompt": "  "},
    {"prompt": "x" * 20_001},
    *({"prompt": text} for text in ("\x85\x1c\u2028", "\ufeff", "🙂" * 20_001)),
    *({"seed": value} for value in (-1, 1.5, None, "many")),
    {"temperature": 1001},
    {"cfg_scale": -0.1},
    {"gen_length": -1},
]


def in_python(lm: Any, form: dict[str, Any]) -> Any:
    try:
        shared = read_shared({name: form[name] for name in to_plain(DecodeSettings())})
        job = read_job(lm, "stories", form["prompt"], True, read_lanes(form["lanes"], shared), 512)
    except ValueError as error:
        return in_words(str(error))
    return [lane.to_plain() for lane in job.lanes]


#: What a trace of another edition, or a damaged one, may say of a lane that is branched from.
ODD_LANES: list[dict[str, Any]] = [
    {},
    {"compute": {"kind": "budget"}},  # without its settings
    {"compute": {"kind": "budget", "near": 2.5, "share": 0.25}},
    {"compute": {"kind": "budget", "near": None}},
    {"compute": {"kind": "lock", "epsilon": "inf", "unlock": {"period": 3}}},
    {"compute": {"kind": "lock", "epsilon": "-inf", "unlock": None}},
    {
        "compute": {
            "kind": "both",
            "lock": {"kind": "lock"},
            "select": {"kind": "select", "fraction": 0.5},
        }
    },
    {"compute": {"kind": "lock", "percentile": "inf"}},
    {"compute": {"kind": "lock", "unlock": {"period": 0}}},
    {"compute": {"kind": "age", "steps": "inf"}},
    {"compute": {"kind": "__proto__"}},
    {"compute": {"kind": "both", "lock": {"kind": "both"}, "select": None}},
    {"unmask": None},
    {"unmask": {"kind": "replay"}},
    {"unmask": {"kind": "threshold", "threshold": 7}},
    {"settings": {"gen_length": 16}},
    {"settings": {"gen_length": 16, "steps": 10**9}},
    {"settings": {"gen_length": 16, "block_length": 5}},
    {"settings": {"gen_length": 16, "temperature": "inf"}},
    {"settings": {"gen_length": 16, "nonsense": 1}},
    {"events": [{"step": 1, "kind": "rule", "compute": {"kind": "budget"}}]},
    {"events": [{"step": 1, "kind": "rule", "compute": {"kind": "nonsense"}}]},
]
BRANCH = {
    "id": "a",
    "name": "A",
    "settings": to_plain(DecodeSettings(gen_length=16)),
    "parent": None,
}
BRANCH |= {"compute": {"kind": "everything"}, "unmask": {"kind": "entropy"}, "events": []}


def read_in_node(forms: list[dict[str, Any]]) -> list[Any]:
    return json.loads(
        node("tests/js/asked.js", given=json.dumps({"described": describe(), "forms": forms}))
    )


@needs_node
def test_a_branch_is_made_whole_or_refused_as_on_the_server():
    """A trace from elsewhere reaches the decoder by a what-if: a billion steps, unchecked, would end the tab."""
    lanes = [BRANCH | odd for odd in ODD_LANES]
    forms = [
        {"model": "stories", "prompt": "A", "prompt_tokens": [5, 6], "lanes": [lane]}
        for lane in lanes
    ]
    for lane, found in zip(lanes, read_in_node(forms), strict=True):
        try:
            expected = [read.to_plain() for read in read_lanes([lane], None)]
        except ValueError:
            assert isinstance(found, str) and found and "\n" not in found, (lane, found)
        else:
            assert found == json.loads(json.dumps(expected)), lane


@needs_node
def test_a_form_is_read_as_the_server_reads_it(stories):
    forms = [FORM | {"lanes": LANES} | change for change in CHANGES]
    for form, found in zip(forms, read_in_node(forms), strict=True):
        assert found == json.loads(json.dumps(in_python(stories, form))), form


@needs_node
def test_what_no_browser_has_is_refused_in_a_sentence_where_no_server_is():
    lanes = [
        BRANCH | {"unmask": {"kind": kind}} for kind, policy in UNMASK.items() if policy.server_only
    ]
    assert len(lanes) == 2
    forms = [
        {"model": "stories", "prompt": "A", "prompt_tokens": [5, 6], "lanes": [lane]}
        for lane in lanes
    ]
    labels = [UNMASK[lane["unmask"]["kind"]].label for lane in lanes]
    assert read_in_node(forms) == [
        f"“{label}” is computed on a server, and here is none" for label in labels
    ]
