"""The documents are right: their commands parse or run, their programs run, their links lead somewhere."""

import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import metadata_load
from lm_eval._cli import HarnessCLI
from packaging.requirements import Requirement
from test_javascript import ROOT

import surelock
from surelock.__main__ import _parser, main
from surelock.decoding.rules import COMPUTE, UNMASK
from surelock.decoding.spelling import flat_settings
from surelock.decoding.step import Reading
from surelock.decoding.unmasking import Replay
from surelock.harness.model import SureLockLM
from surelock.research.cli import EXPERIMENTS, with_data
from surelock.ui.launch import parser
from tests.soak.__main__ import parser as soak_parser
from tests.waiting import HANGS

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {path.name: path.read_text("utf-8") for path in DOCUMENTS}
README = TEXTS["README.md"]
RULE, GUIDE = re.findall(
    r"^```python\n(.*?)^```", TEXTS["researchers.md"], re.DOTALL | re.MULTILINE
)
ADDRESS = "http://127.0.0.1:7860"


def blocks(language: str, text: str = "\n".join(TEXTS.values())) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every command of the shell blocks, split where a shell would; `&&` parts one from the next."""
    lines = [
        line
        for block in blocks("sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]
    return [shlex.split(part) for line in lines for part in line.split(" && ")]


def starting(*words: str) -> list[list[str]]:
    return [command for command in commands() if command[: len(words)] == list(words)]


#: The commands that are only parsed, by their first words.
PARSED = {"python app.py": parser, "python -m tests.soak": soak_parser}
SURELOCK = [command[3:] for command in starting("python", "-m", "surelock")]
SURELOCK += [command[1:] for command in starting("surelock")]


def test_every_command_is_known_to_these_tests():
    known = "pip install,surelock,python tests/run.py,python -m surelock,accelerate launch,curl -s,docker build"
    known = (*PARSED, *known.split(","), "docker run", "hf upload", "INSTRUCT=", "BASE=")
    lines = [" ".join(command) for command in commands()]
    assert [line for line in lines if not line.startswith(known)] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for _, _, name, *_ in starting("pip", "install", "."):
        assert Requirement(f"surelock{name.removeprefix('.')}").extras <= extras.keys()
    for words, made in PARSED.items():
        for command in starting(*words.split()):
            made().parse_args(command[len(words.split()) :])


def test_each_experiment_has_its_command_for_llada():
    """In its section of the results, with the variables that stand there."""
    variables = dict(
        shlex.split(line)[0].split("=", 1)
        for line in blocks("sh", TEXTS["results.md"])[1].splitlines()
    )
    text = " ".join(TEXTS["results.md"].split())
    named = set()
    for command in re.findall(r"`surelock (experiment [^`]*)`", text):
        for name, value in variables.items():
            command = command.replace(f"${name}", value)
        if "--list" not in command and "--recorded" not in command:
            arguments = _parser().parse_args(command.split())
            named.add(arguments.name)
            data = {source.partition("=")[0]: Path() for source in arguments.data}
            assert with_data(EXPERIMENTS[arguments.name].grids["paper"], data)
    ours = {"frontier", "taking_back", "parallel", "fill", "sampler"}  # on the embedded model
    assert named == EXPERIMENTS.keys() - ours


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the guide's rule as a module, and a file of prompts; the tables are then as before."""
    (tmp_path / "my_rules.py").write_text(RULE, "utf-8")
    (tmp_path / "prompts.txt").write_text("Tom found a key. He\nOnce upon a time\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_rules", None)
    COMPUTE.pop("my_rules:StableArgmax", None)
    flat_settings.cache_clear()


def test_surelock_commands(capsys, folder):
    """All are parsed; those of the guide's rule run. What the others do has tests of its own."""
    for command in SURELOCK:
        assert _parser().parse_args(command or ["page"]).run
        if "my_rules" in " ".join(command):
            assert main(command) == 0
            out, err = (text.strip().splitlines() for text in capsys.readouterr())
            assert json.loads(out[-1]) if "bench" in command else out + err


@pytest.mark.parametrize(
    "command", starting("python", "-m", "surelock.harness"), ids=lambda command: command[-1]
)
def test_harness_commands(command, stories, folder):
    given = HarnessCLI()._parser.parse_args(command[3:])
    named = dict(given.model_args)
    assert given.model == "surelock" and named.pop("pretrained", "stories")
    decoder = SureLockLM(stories, **named).decoder_for({})
    assert decoder.settings.gen_length == named["gen_length"]
    assert decoder.compute.kind == ("stable_argmax" if "my_rules" in str(named) else "lock")


def test_programs_run_as_they_stand(capsys, monkeypatch, app):
    """And the commands of curl."""
    monkeypatch.chdir(ROOT)
    for block in blocks("python", README) + blocks("python", TEXTS["api.md"]):
        exec(block.replace(ADDRESS, app.url), {})
        assert capsys.readouterr().out
    event = answer = ""
    for command in starting("curl") if shutil.which("curl") else []:
        words = [word.replace(ADDRESS, app.url).replace("EVENT_ID", event) for word in command]
        answer = subprocess.check_output(words, text=True, timeout=HANGS)
        event = event or json.loads(answer)["event_id"]
    told = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: ")]
    assert not event or (told[-1][0]["done"] and told[-1][0]["steps"] == 16)


def test_the_guides_rule_locks_what_it_says(folder, capsys):
    """By the likeliest tokens that an observed run reports; nothing is locked otherwise where nothing is observed."""
    (folder / "guide.py").write_text(GUIDE, "utf-8")
    made = runpy.run_path(str(folder / "guide.py"))
    printed = re.fullmatch(r"(\d+) rows, (\S+) nats\n", capsys.readouterr().out)
    assert printed and float(printed[2]) > 0
    rule = made["StableArgmax"](3)
    settings = made["settings"]
    observed = list(
        surelock.decode(made["lm"], ["Tom found a key. He"], settings, compute=rule, top_k=1)
    )
    rows = 0
    masked = ~observed[0].given[0]
    streaks = [[] for _ in observed[0].given[0]]
    for step, plain in zip(observed, made["steps"], strict=True):
        locks = []
        for position in np.flatnonzero(step.computed[0]).tolist():
            streaks[position].append(int(step.top_ids[0, position, 0]))
            stands = len(streaks[position]) >= 3 and len(set(streaks[position][-3:])) == 1
            if stands and not masked[position]:
                locks.append(position)
        assert np.flatnonzero(step.newly_locked[0]).tolist() == locks
        assert np.array_equal(step.newly_locked, plain.newly_locked)
        rows = rows + int(plain.computed.sum())
        masked = step.masked[0]
    assert rows == int(printed[1]) and observed[-1].locked.sum() > 20


def test_the_api_page_lists_every_field_that_a_rule_sees(lm):
    section = TEXTS["api.md"].split("## What a rule sees")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)[`(]", section))
    run = surelock.decode(lm, [[5, 6]], surelock.DecodeSettings(gen_length=8)).run
    for each in (run.state, run.canvas, run.schedule):
        assert {name for name in vars(each) if not name.startswith("_")} <= named
    assert {each.name for each in fields(Reading) if not each.name.startswith("_")} | {
        "likeliest"
    } <= named
    assert {"LockingRule", "ComputeRule", "Changes"} <= set(
        re.findall(r"`surelock\.(\w+)", section)
    )


def test_the_table_of_choices_names_rules_and_policies_with_their_settings():
    rows = [line for line in README.splitlines() if re.match(r"\| `[A-Z]\w+\(", line)]
    named = dict(re.findall(r"`(\w+)\((.*?)\)`", "".join(rows)))
    classes = {each.__name__: each for each in (*COMPUTE.values(), *UNMASK.values(), Replay)}
    assert named.keys() == classes.keys()
    for name, arguments in named.items():
        assert set(filter(None, arguments.split(", "))) <= {
            field.name for field in fields(classes[name])
        }, name


def anchors(path: Path) -> set[str]:
    """Of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "path", [*DOCUMENTS, *(ROOT / "assets").rglob("README.md")], ids=lambda path: path.parent.name
)
def test_links_lead_somewhere(path):
    text = path.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:", link):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists() and target.is_relative_to(ROOT), link
            assert not anchor or anchor in anchors(target), link
    named = re.findall(r"`((?:surelock|tests|assets|docs)/[\w/.-]+)`", text)
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_the_space_runs_what_is_required():
    space = metadata_load(ROOT / "README.md") or {}
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    gradio = next(Requirement(line) for line in lines if line.startswith("gradio"))
    assert gradio.specifier.contains(space["sdk_version"])
    assert (ROOT / space["app_file"]).is_file() and (
        ROOT / space["thumbnail"].partition("/resolve/main/")[2]
    ).is_file()
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    assert f"\nARG PYTHON={space['python_version']}\n" in dockerfile
    copied = re.findall(r"^COPY (?:--\S+ )*(.*) \S+$", dockerfile, re.MULTILINE)
    assert copied and all((ROOT / source).exists() for line in copied for source in line.split())
