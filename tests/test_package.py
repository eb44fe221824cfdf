"""The package: built as sdist, the wheel built from that, and used from an empty directory with nothing of the checkout
in reach. The environment is a new one that borrows the requirements from the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import hatchling.build
import httpx
import pytest
from packaging.requirements import Requirement

import surelock
from surelock.__main__ import main
from tests.browser.server import serve
from tests.test_dockerfile import run_once

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MOST_BYTES = 15e6
UNUSED = ("assets/pictures/", "assets/results/", "assets/notebooks/", "assets/css/")  # by the page and the library
BUILT = re.compile(r"assets/js/(?!load/)")  # into assets/scripts


@dataclass(frozen=True)
class Installed:
    """The two files, the new environment's commands, and an empty directory to use them from."""

    sdist: Path
    wheel: Path
    commands: Path
    empty: Path

    def run(self, command: str, *words: str) -> str:
        """What a command prints."""
        whole = [str(self.commands / command), *words]
        done = subprocess.run(whole, cwd=self.empty, env=clean(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout


def clean() -> dict[str, str]:
    """This environment without what could lead to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    place = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        sdist = place / hatchling.build.build_sdist(str(place))
        with tarfile.open(sdist) as archive:
            archive.extractall(place / "source", filter="data")
        patch.chdir(next((place / "source").iterdir()))
        wheel = place / hatchling.build.build_wheel(str(place))
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), "utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-compile", str(wheel)], check=True, cwd=place)
    (place / "empty").mkdir()
    return Installed(sdist, wheel, python.parent, place / "empty")


def test_it_says_its_version_and_has_types(installed: Installed) -> None:
    assert installed.run("surelock", "--version") == f"surelock {surelock.__version__}\n"
    assert f"surelock-{surelock.__version__}-" in installed.wheel.name
    with zipfile.ZipFile(installed.wheel) as wheel:
        assert {"surelock/py.typed", "surelock/__init__.pyi"} <= {*wheel.namelist()}


def tracked(*folders: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no repository to ask: {done.stderr.strip()}")
    return set(done.stdout.splitlines())


def test_both_are_small_and_hold_what_is_used(installed: Installed) -> None:
    assert max(installed.sdist.stat().st_size, installed.wheel.stat().st_size) < MOST_BYTES
    with zipfile.ZipFile(installed.wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        model = archive.read("surelock/assets/stories/model-00001-of-00002.safetensors")
    assets = {f"surelock/{path}" for path in tracked("assets") if not (path.startswith(UNUSED) or BUILT.match(path))}
    assert held == assets | {path for path in tracked("surelock") if not path.startswith("surelock/research/")}
    assert model == (ROOT / "assets" / "stories" / "model-00001-of-00002.safetensors").read_bytes()


def test_its_requirements_are_those_of_the_one_list(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = Parser().parsestr(archive.read(name).decode())
    needed = [Requirement(each) for each in told.get_all("Requires-Dist", [])]
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    assert {str(each) for each in needed if each.marker is None} == {str(Requirement(line)) for line in lines}
    assert set(told.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])


def test_it_decodes_and_is_imported(installed: Installed, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["decode", "Tom had a red ball. He", "--gen-length", "8", "--device", "cpu", "--json"]
    told = json.loads(installed.run("surelock", *words).splitlines()[-1])
    assert main(words) == 0
    assert told["text"] == json.loads(capsys.readouterr().out.splitlines()[-1])["text"]
    where = installed.run("python", "-c", "import surelock, surelock.places as p; print(surelock.__file__, p.ASSETS)")
    assert all(Path(path).is_relative_to(installed.commands.parent) for path in where.split())


def test_research_is_told_to_be_in_a_clone(installed: Installed) -> None:
    for words in ("experiment flops --quick", "bench table", "train --steps 1", "evaluate --help"):
        done = subprocess.run(
            [str(installed.commands / "surelock"), *words.split()],
            cwd=installed.empty,
            env=clean(),
            capture_output=True,
        )
        command = words.partition(" --")[0].removesuffix(" flops")
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode() == (
            f"surelock: `surelock {command}` is research, which is not installed: "
            f"run `python -m surelock {command}` in a clone of the repository\n"
        )


def test_it_times_both_samplers(installed: Installed) -> None:
    words = ["bench", "decode", "--gen-length", "8", "--repeats", "3", "--batch", "2", "--device", "cpu"]
    told = json.loads(installed.run("surelock", *words).splitlines()[-1])
    assert (told["benchmark"], told["gen_length"], told["batch"], told["tokens"]) == ("decode", 8, 2, 16)
    assert told["locked_tps"] > 0 < told["baseline_step_ms"] and 0 < told["flops_ratio"] <= 1
    assert (told["speedup"] is None) == ("speedup" in told["refused"]) and told["processor"]


def test_its_page_opens_and_runs_without_an_argument(installed: Installed, tmp_path: Path) -> None:
    command = [str(installed.commands / "surelock")]
    with serve(command=command, cwd=installed.empty, log=tmp_path / "log") as app:
        page = httpx.get(app.url)
        assert "sl-lessons" in page.text and httpx.get(f"{app.url}/surelock/runs/stories.json").status_code == 200
        for file in ("scripts/page.js", "scripts/stage.css", "plotly.min.js"):
            assert httpx.get(f"{app.url}/surelock/{file}").status_code == 200, file
        run_once(app.url.rpartition(":")[2])
    assert list(installed.empty.iterdir()) == []
