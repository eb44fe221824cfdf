"""The README tells the truth: what needs neither hub, GPU nor container engine is run, the rest is parsed."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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
from tests.browser.server import App, serve, wait_for_model
from tests.soak.__main__ import parser as soak_parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:7860"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """Every command of the shell blocks, split where a shell would; `&&` parts one from the next."""
    lines = [line for block in blocks("sh") for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    return [shlex.split(part) for line in lines for part in line.split(" && ")]


def starting(*words: str) -> list[list[str]]:
    return [command for command in commands() if command[: len(words)] == list(words)]


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with serve() as served:
        wait_for_model(served)
        yield served


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
def test_surelock_commands(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments = _parser().parse_args(command or ["page"])
    if "--model" in command or not command:
        return  # needs the hub, or does not end
    assert main(command) == 0
    out = capsys.readouterr().out.strip().splitlines()
    if "--json" in command or "bench" in command:
        json.loads(out[-1])
    assert out and arguments.run


@pytest.mark.parametrize("command", starting("python", "-m", "surelock.harness"), ids=lambda command: command[-1])
def test_harness_commands(command: list[str], stories: LanguageModel) -> None:
    given = HarnessCLI()._parser.parse_args(command[3:])
    named = dict(given.model_args)
    assert given.model == "surelock" and named.pop("pretrained", "stories")
    assert SureLockLM(stories, **named).decoder_for({}).settings.gen_length == named["gen_length"]


@pytest.mark.parametrize("command", starting("python", "app.py"), ids=" ".join)
def test_app_commands(command: list[str]) -> None:
    parser().parse_args(command[2:])


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


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.splitlines()[0])
def test_python_blocks_run(block: str, app: App) -> None:
    goes_on = "import" not in block  # with what the library's ten lines have made
    program = blocks("python")[0] * goes_on + block.replace(ADDRESS, app.url)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 10
    if "surelock.load" in block:
        assert len([line for line in block.replace("\\\n", " ").splitlines() if line.strip()]) <= 10


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


def test_the_parameters_are_the_librarys(app: App) -> None:
    """What the page lists under "Use via API"."""
    import httpx

    info = httpx.get(f"{app.url}/gradio_api/info").json()["named_endpoints"]["/decode"]
    names = {parameter["parameter_name"] for parameter in info["parameters"]}
    assert names >= {"prompt", "gen_length", "steps", "epsilon", "percentile", "visible_steps", "temperature", "seed"}


def test_the_table_of_choices_names_all_of_them_with_their_settings() -> None:
    rows = [line for line in README.splitlines() if re.match(r"\| `[A-Z]\w+\(", line)]
    told = dict(re.findall(r"`(\w+)\((.*?)\)`", "".join(rows)))
    classes = {each.__name__: each for each in (*COMPUTE.values(), *UNMASK.values(), Replay)}
    assert told.keys() == classes.keys()
    for name, arguments in told.items():
        assert set(filter(None, arguments.split(", "))) <= {field.name for field in fields(classes[name])}, name


def test_links_and_files_that_are_named_exist() -> None:
    paths = re.findall(r"`((?:surelock|tests|assets)/[\w/.]+)`", README) + re.findall(r"\]\((assets/[^)]+)\)", README)
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


# https://huggingface.co/docs/hub/spaces-config-reference, as it was in 2026
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
    "suggested_storage": {"small", "medium", "large"},
    "app_file": lambda value: (ROOT / value).is_file(),
    "app_build_command": str,
    "app_port": int,
    "base_path": lambda value: value.startswith("/"),
    "fullWidth": bool,
    "header": {"mini", "default"},
    "short_description": lambda value: isinstance(value, str) and len(value) <= 60,
    "models": list,
    "datasets": list,
    "tags": list,
    "thumbnail": str,
    "pinned": bool,
    "hf_oauth": bool,
    "hf_oauth_scopes": list,
    "hf_oauth_expiration_minutes": int,
    "hf_oauth_authorized_org": (str, list),
    "disable_embedding": bool,
    "startup_duration_timeout": str,
    "custom_headers": dict,
    "preload_from_hub": list,
    "license": {"mit"},  # ours; any identifier is allowed
}
SPACE: dict[str, Any] = metadata_load(ROOT / "README.md") or {}


@pytest.mark.parametrize("key", SPACE)
def test_the_front_matter_follows_the_reference(key: str) -> None:
    assert key in KEYS, "not a key of the configuration reference"
    rule, value = KEYS[key], SPACE[key]
    if isinstance(rule, set):
        assert value in rule
    elif isinstance(rule, type | tuple):
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
