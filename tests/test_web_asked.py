"""What the form asks for, read in JavaScript as the server reads it: the same lanes, the same refusals."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_javascript import NODE, ROOT

from surelock.decoding.described import describe, presets_for
from surelock.decoding.settings import DecodeSettings, to_plain
from surelock.ui.request import read_job, read_lanes, read_shared
from surelock.ui.wording import in_words

FORM = to_plain(DecodeSettings()) | {"model": "stories", "prompt": "Tom had", "chat": True, "steps": 128}
PRESETS = presets_for({})
LANES = [{"id": each["id"], "name": each["name"], "preset": each["id"], **each} for each in PRESETS[:4]]
CHANGES: list[dict[str, Any]] = [
    {},
    {"gen_length": 24, "steps": 12, "block_length": "8", "temperature": 0.5, "seed": 3.0, "suppress_eos": True},
    {"steps": None, "block_length": None},
    {"prompt": "  "},
    {"prompt": "x" * 20_001},
    *({"seed": value} for value in (-1, 1.5, None, "many")),
    {"temperature": 1001},
    {"cfg_scale": -0.1},
    {"gen_length": 0},
    {"gen_length": 24, "block_length": 7},
    {"gen_length": 24, "steps": 25, "block_length": 24},
    {"gen_length": 24, "steps": 10, "block_length": 8},
]


def in_python(lm: Any, form: dict[str, Any]) -> Any:
    try:
        shared = read_shared({name: form[name] for name in to_plain(DecodeSettings())})
        job = read_job(lm, "stories", form["prompt"], True, read_lanes(form["lanes"], shared), 512)
    except ValueError as error:
        return in_words(str(error))
    return [lane.to_plain() for lane in job.lanes]


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_a_form_is_read_as_the_server_reads_it(stories: Any, tmp_path: Path) -> None:
    forms = [FORM | {"lanes": LANES} | change for change in CHANGES]
    (tmp_path / "forms.json").write_text(json.dumps({"described": describe(), "forms": forms}))
    command = [str(NODE), "tests/js/asked.js", str(tmp_path / "forms.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[:2000]
    for change, found in zip(CHANGES, json.loads(done.stdout), strict=True):
        expected = in_python(stories, FORM | {"lanes": LANES} | change)
        assert found == json.loads(json.dumps(expected)), change
