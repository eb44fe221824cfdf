"""README and docs tell the truth: what needs neither hub, GPU nor container engine is run, the rest is parsed.

Commands, programs, links with their anchors, and what is named in code are held for every document.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import SpaceHardware, metadata_load
from lm_eval._cli import HarnessCLI
from packaging.requirements import Requirement

from surelock.__main__ import _parser, main
from surelock.decoding.choices import COMPUTE, UNMASK
from surelock.decoding.unmasking import Replay
from surelock.harness.model import SureLockLM
from surelock.model.language_model import LanguageModel
from surelock.ui.launch import parser
from tests.browser.server import App
from tests.soak.__main__ import parser as soak_parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:7860"


DOCUMENTS = {path.name: path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
TEXTS = {name: path.read_text("utf-8") for name, path in DOCUMENTS.items()}
GUIDE = TEXTS["researchers.md"]


def blocks(language: str, text: str = "\n".join(TEXTS.values())) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every command of the shell blocks, split where a shell would; `&&` parts one from the next."""
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return [shlex.split(part) for line in lines for part in line.split(" && ")]


def starting(*words: str) -> list[list[str]]:
    return [command for command in commands() if command[: len(words)] == list(words)]


def test_every_command_is_known_to_these_tests() -> None:
    known = ("pip install -r", "pip install .", "surelock", "python app.py", "python tests/run.py")
    known += (
        "python -m surelock",
        "python -m tests.soak",
        "accelerate launch",
        "curl -s",
        "hf upload",
        "docker build",
        "docker run",
    )
    lines = [" ".join(command) for command in commands()]
    assert [line for line in lines if not line.startswith(known)] == []
    assert "pip install -r requirements.txt && python app.py" in README
    assert "python tests/run.py" in lines


OWN = [command[3:] for command in starting("python", "-m", "surelock")] + [each[1:] for each in starting("surelock")]


@pytest.mark.parametrize("command", OWN, ids=" ".join)
def test_surelock_commands(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _parser().parse_args(command or ["page"])
    if {"--model", "--shape"} & set(command) or not command:
        return  # needs the hub, takes minutes, or does not end
    monkeypatch.chdir(tmp_path)
    assert main(command) == 0
    out, err = (text.strip().splitlines() for text in capsys.readouterr())
    if "--json" in command or "bench" in command:
        json.loads(out[-1])
    assert (err if command[:1] == ["site"] else out) and arguments.run


@pytest.mark.parametrize("command", starting("python", "-m", "surelock.harness"), ids=lambda command: command[-1])
def test_harness_commands(command: list[str], stories: LanguageModel) -> None:
    given = HarnessCLI()._parser.parse_args(command[3:])
    named = dict(given.model_args)
    assert given.model == "surelock" and named.pop("pretrained", "stories")
    assert SureLockLM(stories, **named).decoder_for({}).settings.gen_length == named["gen_length"]


@pytest.mark.parametrize("command", starting("python", "app.py"), ids=" ".join)
def test_app_commands(command: list[str]) -> None:
    parser().parse_args(command[2:])


@pytest.mark.parametrize("command", starting("python", "-m", "surelock.research.tables"), ids=" ".join)
def test_files_with_tables_exist(command: list[str]) -> None:
    assert command[3:] and all((ROOT / file).is_file() for file in command[3:])


@pytest.mark.parametrize("command", starting("python", "-m", "tests.soak"), ids=" ".join)
def test_soak_commands(command: list[str]) -> None:
    soak_parser().parse_args(command[3:])


def test_installed_files_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for command in starting("pip", "install"):
        if "-r" in command:
            assert (ROOT / command[command.index("-r") + 1]).is_file()
        else:
            assert Requirement(f"surelock{command[2].removeprefix('.')}").extras <= extras.keys()
    for command in starting("python", "tests/run.py"):
        assert (ROOT / command[1]).is_file()


@pytest.mark.parametrize("command", starting("hf", "upload"), ids=" ".join)
def test_hub_commands_have_the_options_they_use(command: list[str]) -> None:
    tool = Path(sys.executable).with_name("hf")
    shown = subprocess.run(
        [tool, "upload", "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert shown.returncode == 0
    assert [word for word in command if word.startswith("--") and word not in shown.stdout] == []


def docker_parser() -> argparse.ArgumentParser:
    """As much of docker's command line as the README uses."""
    made = argparse.ArgumentParser(exit_on_error=False)
    kinds = made.add_subparsers(required=True)
    build, run = kinds.add_parser("build"), kinds.add_parser("run")
    build.add_argument("-t", dest="tag", required=True)
    build.add_argument("--build-arg", action="append", default=[])
    build.add_argument("context")
    run.add_argument("--gpus", choices=["all"])
    run.add_argument("-p", dest="ports", required=True)
    run.add_argument("image")
    return made


@pytest.mark.parametrize("command", starting("docker"), ids=" ".join)
def test_docker_commands_fit_the_dockerfile(command: list[str]) -> None:
    given = docker_parser().parse_args(command[1:])
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    for argument in getattr(given, "build_arg", []):
        assert f"\nARG {argument.split('=')[0]}=" in dockerfile
    if hasattr(given, "ports"):
        assert f"\nEXPOSE {given.ports.split(':')[1]}\n" in dockerfile


PROGRAMS = blocks("python", README) + blocks("python", TEXTS["api.md"])
GO_ON = [block for block in PROGRAMS if "import" not in block]  # with what the library's ten lines have made


@pytest.mark.parametrize("block", PROGRAMS[:1] + [each for each in PROGRAMS[1:] if each not in GO_ON])
def test_python_blocks_run(block: str, app: App) -> None:
    program = block.replace(ADDRESS, app.url)
    if "surelock.load" in block:
        assert len([line for line in block.replace("\\\n", " ").splitlines() if line.strip()]) <= 10
    if block == PROGRAMS[0]:
        program += "".join(GO_ON)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 10


def test_curl_commands(app: App) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl on this machine")
    event = answer = ""
    for command in starting("curl"):
        words = [word.replace(ADDRESS, app.url).replace("EVENT_ID", event) for word in command]
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
        event = event or json.loads(answer)["event_id"]
    last = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: ")][-1]
    assert last[0]["done"] and last[0]["steps"] == 16


def test_the_guides_rule_computes_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python", GUIDE)
    (tmp_path / "guide.py").write_text(program, "utf-8")
    steps = runpy.run_path(str(tmp_path / "guide.py"))["steps"]
    told = re.fullmatch(r"(\d+) rows, (\S+) nats\n", capsys.readouterr().out)
    assert told and float(told[2]) > 0
    prompt = steps[0].tokens.shape[1] - 32
    masked_before = range(32, 0, -1)  # one is written in each step
    assert int(told[1]) == sum(prompt + 32 if step % 4 == 0 else masked for step, masked in enumerate(masked_before))


def test_the_table_of_choices_names_rules_and_policies_with_their_settings() -> None:
    rows = [line for line in README.splitlines() if re.match(r"\| `[A-Z]\w+\(", line)]
    told = dict(re.findall(r"`(\w+)\((.*?)\)`", "".join(rows)))
    classes = {each.__name__: each for each in (*COMPUTE.values(), *UNMASK.values(), Replay)}
    assert len(told) == 15 and told.keys() <= classes.keys()
    for name, arguments in told.items():
        assert set(filter(None, arguments.split(", "))) <= {field.name for field in fields(classes[name])}, name


LINKING = [*DOCUMENTS.values(), *sorted((ROOT / "assets").rglob("README.md"))]


def anchors(path: Path) -> set[str]:
    """Of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8"))
    for link in links:
        if not re.match(r"https?:", link):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists() and target.stat().st_size and target.is_relative_to(ROOT), link
            assert not anchor or anchor in anchors(target), link


def test_every_document_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"^- \[.*?\]\(docs/([\w-]+\.md)\)", README, re.MULTILINE))
    assert linked == DOCUMENTS.keys() - {"README.md"}


@pytest.mark.parametrize(
    ("said", "flag", "value"),
    [
        ("at most 512 positions (`--max-length`)", "max_length", 512),
        ("15 minutes (`--run-seconds`)", "run_seconds", 15 * 60),
        ("(`--queue-size`, 32)", "queue_size", 32),
    ],
)
def test_limits_are_the_flags_defaults(said: str, flag: str, value: int) -> None:
    assert said in TEXTS["security.md"] and vars(parser().parse_args([]))[flag] == value


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_are_named_exist(name: str) -> None:
    paths = re.findall(r"`((?:surelock|tests|assets|docs)/[\w/.-]+)`", TEXTS[name])
    assert [path for path in paths if not (ROOT / path).exists()] == []


# Of https://huggingface.co/docs/hub/spaces-config-reference, as it was in 2026, the keys that are used
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
KEYS: dict[str, Any] = {
    "title": str,
    "emoji": lambda value: isinstance(value, str) and not value.isascii(),
    "colorFrom": COLOURS,
    "colorTo": COLOURS,
    "sdk": {"gradio", "docker", "static"},
    "python_version": lambda value: isinstance(value, str) and re.fullmatch(r"3\.\d+(\.\d+)?", value),
    "sdk_version": lambda value: isinstance(value, str) and re.fullmatch(r"\d+\.\d+\.\d+", value),
    "suggested_hardware": {hardware.value for hardware in SpaceHardware},
    "app_file": lambda value: (ROOT / value).is_file(),
    "fullWidth": bool,
    "header": {"mini", "default"},
    "short_description": lambda value: isinstance(value, str) and len(value) <= 60,
    "models": list,
    "tags": list,
    "thumbnail": str,
    "license": {"mit"},  # ours; any identifier is allowed
}
SPACE: dict[str, Any] = metadata_load(ROOT / "README.md") or {}


@pytest.mark.parametrize("key", SPACE)
def test_the_front_matter_follows_the_reference(key: str) -> None:
    assert key in KEYS, "not a key of the configuration reference"
    rule, value = KEYS[key], SPACE[key]
    if isinstance(rule, set):
        assert value in rule
    elif isinstance(rule, type):
        assert isinstance(value, rule)
    else:
        assert rule(value)


def test_the_space_runs_what_is_required() -> None:
    needed = {"title", "emoji", "sdk", "sdk_version", "python_version", "app_file", "suggested_hardware", "license"}
    assert needed <= SPACE.keys() and SPACE["sdk"] == "gradio"
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    gradio = next(Requirement(line) for line in lines if line.startswith("gradio"))
    assert [(each.operator, each.version) for each in gradio.specifier] == [("~=", SPACE["sdk_version"])]
    target = re.search(r'target-version = "py3(\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert target and int(SPACE["python_version"].split(".")[1]) >= int(target[1])
    assert not {"datasets", "preload_from_hub"} & SPACE.keys(), "the Space fetches nothing: the embedded model ships"
    assert all(f"--model {name}" in README for name in SPACE["models"])
    assert (ROOT / SPACE["thumbnail"].partition("/resolve/main/")[2]).is_file()
    assert "(https://arxiv.org/abs/2602.06412)" in README
    assert parser().parse_args([]).model == ["stories"]
    assert "python:${PYTHON}-slim" in (ROOT / "Dockerfile").read_text("utf-8")
    assert f"\nARG PYTHON={SPACE['python_version']}\n" in (ROOT / "Dockerfile").read_text("utf-8")
