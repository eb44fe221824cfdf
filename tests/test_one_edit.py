"""Adding a setting is one edit, a rule is two: a copy of the package gets both, found wherever such are told or read.

The rule is the researchers' guide's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

import pytest
from test_javascript import ROOT, needs_node, node

FIELD = '    {} = setting({}, "{}", "What {} does.", low=0, offered=(0, 8, 1))\n'
EDITS = {  # file: (what the new line goes before, the new line)
    "decoding/settings.py": ("    temperature: float", FIELD.format("grace: int", '"whole", 3', "Grace", "grace")),
    "decoding/locking.py": ("    steps: int = setting(", FIELD.format("lag: float", '"number", 0.5', "Lag", "lag")),
}
GUIDE = (ROOT / "docs" / "researchers.md").read_text("utf-8")
RULE = GUIDE[GUIDE.index("@dataclass(frozen=True, slots=True)\nclass NowAndThen") : GUIDE.index("\n\n\nlm = ")]
EDITS["decoding/compute.py"] = (
    "@dataclass(frozen=True, slots=True)\nclass Both",
    RULE.replace("surelock.", "") + "\n\n\n",
)
EDITS["decoding/choices.py"] = ("BlockCache, DelayedCache)", "NowAndThen, ")
IMPORT = "from surelock.decoding.compute import NowAndThen\n"
FIND = """
import contextlib, inspect, io, json
import gradio as gr
from surelock.__main__ import _parser
from surelock.decoding.choices import COMPUTE, Decoder, from_flat, read_compute
from surelock.decoding.described import describe
from surelock.trace.lanes import Lane
from surelock.trace.format import TraceError
from surelock.trace.frames import read_trace
from surelock.trace.record import main as record
from surelock.ui.endpoint import make_endpoint
from surelock.ui.parameters import description
from surelock.ui.form import Form
from surelock.ui.link import read_link
from surelock.ui.models import Models
from surelock.ui.request import read_lanes, read_shared

models = Models(["stories"])
given = vars(_parser().parse_args(["decode", "x", "--compute", "age", "--grace", "5", "--lag", "0.25"]))
with contextlib.redirect_stdout(io.StringIO()) as told, contextlib.suppress(SystemExit):
    record(["--help"])
endpoint = inspect.signature(make_endpoint(models, None, 512))
with gr.Blocks():
    form = Form(models, 512)
query = {"grace": "5", "contestants": json.dumps([{"name": "a", "compute": {"kind": "age", "lag": 0.25}}])}
link = read_link(query, ["stories"], form.suits)
(lane,) = link.lanes
held = {name: field.value for name, field in form.fields.items()}
(own,) = read_lanes([{"id": "a", **lane}], read_shared(held | {"grace": 5}))
plain = own.to_plain()
lanes = json.loads(form.lanes_value("stories", [lane]))["lanes"]
rule = {"name": "a", "compute": {"kind": "now_and_then", "period": 2}}
(raced,) = read_lanes([{"id": "a", **rule}], read_shared(held))
flags = _parser().parse_args(["decode", "x", "--compute", "now_and_then", "--period", "2"])
trace = json.loads(open("assets/runs/stories.json").read())
trace["header"]["lanes"][0] |= {name: plain[name] for name in ("compute", "settings")}
read_trace(trace)
refused = []
for name, kind in (("grace", "settings"), ("lag", "compute")):
    bad = json.loads(json.dumps(trace))
    bad["header"]["lanes"][0][kind][name] = -1
    try:
        read_trace(bad)
    except TraceError as error:
        refused.append(str(error))
print(json.dumps({
    "flags": [given["grace"], given["lag"]],
    "record": ["--grace" in told.getvalue(), "--lag" in told.getvalue()],
    "describe": [describe()["settings"]["grace"]["label"], describe()["compute"]["age"]["settings"]["lag"]["label"]],
    "endpoint": [endpoint.parameters["grace"].default, endpoint.parameters["lag"].annotation.__name__],
    "api": ["\\ngrace" in description(), "\\nlag" in description()],
    "form": [form.fields["grace"].label, lanes[0]["compute"]["lag"]],
    "link": link.settings,
    "read": [own.decoder.settings.grace, own.decoder.compute.lag],
    "back": Lane.from_plain(plain) == own,
    "rule": [
        type(raced.decoder.compute).__name__, raced.decoder.compute.period,
        Lane.from_plain(raced.to_plain()) == raced,
        flags.period, endpoint.parameters["period"].default, "\\nperiod" in description(),
        describe()["compute"]["now_and_then"]["label"],
    ],
    "refused": refused,
    "described": describe(),
    "lane": plain,
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "surelock", copy / "surelock", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "assets").symlink_to(ROOT / "assets")
    for name, (before, line) in EDITS.items():
        path = copy / "surelock" / name
        text = path.read_text("utf-8")
        assert text.count(before) == 1
        imported = IMPORT if "choices" in name else ""
        path.write_text(
            text.replace(before, line + before).replace("from dataclasses", f"{imported}from dataclasses"), "utf-8"
        )
    done = subprocess.run([sys.executable, "-c", FIND], cwd=copy, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("flags", [5, 0.25]),
        ("record", [True, True]),
        ("describe", ["Grace", "Lag"]),
        ("endpoint", [3, "float"]),
        ("api", [True, True]),
        ("form", ["Grace", 0.25]),
        ("link", {"grace": 5}),
        ("read", [5, 0.25]),
        ("back", True),
        ("rule", ["NowAndThen", 2, True, 2, 4, True, "Written rows now and then"]),
    ],
)
def test_one_edit_is_found(found: dict[str, Any], where: str, expected: Any) -> None:
    assert found[where] == expected


def test_the_traces_check_knows_it(found: dict[str, Any]) -> None:
    assert len(found["refused"]) == 2
    assert "grace must be a whole number of at least 0, not -1" in found["refused"][0]
    assert "lag must be" in found["refused"][1]


@needs_node
def test_the_pages_tables_tell_it(found: dict[str, Any]) -> None:
    """Runs and inspector name a lane's settings from the descriptions."""
    code = """
        import { described, facts } from "./assets/js/trace/described.js";
        const [told, lane] = JSON.parse(process.argv[1]);
        Object.assign(described, told);
        console.log(JSON.stringify(facts(lane)));
    """
    given = json.dumps([found["described"], found["lane"]])
    told = dict(json.loads(node("--input-type=module", "-e", code, given)))
    assert told["Grace"] == "5" and told["Lag"] == "0.25"
