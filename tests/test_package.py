"""The wheel, built from the sdist, installs into a new environment, decodes, and serves the page.

The environment borrows the requirements from the one that runs the tests.
"""

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import hatchling.build
import httpx
import pytest
from checkpoints import write_chat_model

import surelock
from tests.browser.server import ROOT, serve
from tests.waiting import HANGS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the new environment's commands."""
    place = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        sdist = place / hatchling.build.build_sdist(str(place))
        with tarfile.open(sdist) as archive:
            archive.extractall(place / "source", filter="data")
        patch.chdir(next((place / "source").iterdir()))
        wheel = place / hatchling.build.build_wheel(str(place))
    assert wheel.stat().st_size < 15e6
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "borrowed.pth").write_text("\n".join(borrowed), "utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python)]
    install += ["install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--no-compile", str(wheel)], check=True, cwd=place)
    return python.parent


def run(commands: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in an empty folder, with nothing of the checkout in reach."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    whole = [str(commands / "surelock"), *words]
    return subprocess.run(
        whole, cwd=folder, env=clean, capture_output=True, text=True, timeout=HANGS
    )


def test_it_decodes_as_the_checkout_does(commands: Path, tmp_path: Path) -> None:
    words = ["decode", "Tom had a red ball. He", "--gen-length", "8", "--device", "cpu", "--json"]
    done = run(commands, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    here = [sys.executable, "-m", "surelock", *words]
    same = subprocess.run(here, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (
        json.loads(done.stdout.splitlines()[-1])["text"]
        == json.loads(same.splitlines()[-1])["text"]
    )
    assert run(commands, tmp_path, "--version").stdout == f"surelock {surelock.__version__}\n"
    listed = (
        run(commands, tmp_path, "--help").stdout + run(commands, tmp_path, "bench", "--help").stdout
    )
    assert "decode" in listed and not any(
        name in listed for name in ("experiment", "train", "llada", "gpu")
    )
    research = run(commands, tmp_path, "bench", "llada")
    where = "run `python -m surelock bench llada` in a clone of the repository"
    sentence = f"surelock: `surelock bench llada` is research, which is not installed: {where}\n"
    assert (research.returncode, research.stderr) == (2, sentence)


def test_its_page_opens_without_an_argument(commands: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [str(commands / "surelock")]
    with serve(command=command, cwd=tmp_path / "empty", log=tmp_path / "log") as app:
        for file in ("runs/stories.json", "scripts/page.js", "scripts/stage.css", "plotly.min.js"):
            assert httpx.get(f"{app.url}/surelock/{file}").status_code == 200, file
    assert list((tmp_path / "empty").iterdir()) == []


TRIAL = """
import sys
from pathlib import Path
from surelock.model.trial import check_tokenizer
check_tokenizer(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_a_tokenizer_is_tried_wherever_the_package_lies(
    commands: Path, tmp_path: Path, how: str
) -> None:
    """In the folder of the checkpoint; `python app.py` in a clone is among the soak's and the page's tests."""
    write_chat_model(tmp_path / "model")
    packages = next((commands.parent / "lib").glob("python*/site-packages"))
    if how == "editable":  # as hatchling writes it
        (packages / "surelock").rename(packages / "away")
        (packages / "_editable.pth").write_text(str(ROOT), "utf-8")
    try:
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [str(commands / "python"), "-c", TRIAL, str(tmp_path / "model")]
        done = subprocess.run(
            command, cwd=tmp_path / "model", env=clean, capture_output=True, text=True, timeout=300
        )
    finally:
        if how == "editable":
            (packages / "_editable.pth").unlink()
            (packages / "away").rename(packages / "surelock")
    assert done.returncode == 0, done.stderr
