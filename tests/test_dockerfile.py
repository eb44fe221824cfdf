"""The container's promises, without a container engine: what it copies, as whom it runs, and that it then answers.

The start takes what the Dockerfile copies out of `git archive HEAD`, makes it read-only, and runs the Dockerfile's own
command and health check with its own environment: as root under user 1000, and with every connection beyond this
machine refused. SURELOCK_FRESH_VENV=1 does so in a new virtual environment with requirements.txt alone.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.server import free_port

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[1]
HOME = "/home/user"
NO_NETWORK = """
import os, socket
here = (None, "", "127.0.0.1", "::1", "localhost", "0.0.0.0")
connect, lookup = socket.socket.connect, socket.getaddrinfo

def refuse(address):
    with open(os.environ["ATTEMPTS"], "a") as file:
        file.write(f"{address}\\n")
    raise OSError("no network here")

def connect_here(self, address):
    inside = self.family not in (socket.AF_INET, socket.AF_INET6) or address[0] in here
    return connect(self, address) if inside else refuse(address)

def look_up_here(host, *rest, **named):
    return lookup(host, *rest, **named) if host in here else refuse(host)

socket.socket.connect, socket.getaddrinfo = connect_here, look_up_here
"""


def instructions() -> list[tuple[str, str]]:
    """(INSTRUCTION, rest) of the Dockerfile, continuation lines joined."""
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


FILE = instructions()


def every(kind: str) -> list[str]:
    return [rest for name, rest in FILE if name == kind]


def sources() -> list[str]:
    """What is copied into the image, in order."""
    found = [[word for word in rest.split() if not word.startswith("--")] for rest in every("COPY")]
    return [source for words in found for source in words[:-1]]


def environment() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in " ".join(every("ENV")).split())


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path out of the build: the last rule that matches it or a parent decides."""
    parts = Path(path).parts
    paths = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    verdict = False
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        rule = line.strip().lstrip("!").removeprefix("**/")
        names = [*paths, *parts] if "**/" in line else paths
        if rule and not rule.startswith("#") and any(fnmatch.fnmatch(name, rule) for name in names):
            verdict = not line.startswith("!")
    return verdict


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    assert {"requirements.txt", "app.py", "surelock", "assets"} == set(sources())
    for source in sources():
        assert (ROOT / source).exists() and not ignored(source), source
    needed = (
        "assets/stories/config.json",
        "assets/scripts/page.js",
        "assets/runs/stories.json",
        "surelock/ui/stage.py",
    )
    assert not any(map(ignored, needed))
    assert all(map(ignored, [".git/config", "tests/run.py", "assets/pictures/x.png", "surelock/ui/__pycache__/x.pyc"]))


def test_it_is_slim_and_runs_as_a_user_of_its_own() -> None:
    assert every("FROM") == ["python:${PYTHON}-slim"]
    assert every("USER") == ["1000"] and "--uid 1000" in " ".join(every("RUN"))
    after_user = FILE[[name for name, _ in FILE].index("USER") :]
    assert {name for name, _ in after_user} <= {"USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert not [rest for rest in every("RUN") if "pip install" in rest and "--no-cache-dir" not in rest]


def test_port_health_check_and_writable_places() -> None:
    values = environment()
    assert every("EXPOSE") == ["7860"] == [values["GRADIO_SERVER_PORT"]]
    assert values["GRADIO_SERVER_NAME"] == "0.0.0.0" and values["HF_HUB_OFFLINE"] == "1"
    assert all(values[name].startswith(f"{HOME}/.cache/") for name in ("HF_HOME", "GRADIO_TEMP_DIR"))
    assert health_check("7860")[0] == "python" and "127.0.0.1:7860" in " ".join(health_check("7860"))
    assert json.loads(every("CMD")[-1]) == ["python", "app.py"]


def test_cpu_by_default_and_cuda_by_argument() -> None:
    assert "TORCH=cpu" in every("ARG")
    [install] = [rest for rest in every("RUN") if "${TORCH}" in rest]
    assert install.index("--index-url") < install.index("-r requirements.txt")
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pattern = re.search(r"grep '([^']+)'", install)
    assert pattern and [line for line in lines if re.match(pattern[1], line)] == [lines[0]]


def health_check(port: str) -> list[str]:
    """The health check's command, for another port."""
    words = every("HEALTHCHECK")[-1].split("CMD", 1)[1].replace("7860", port)
    return json.loads(words)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can enter."""
    path = Path(tempfile.mkdtemp(prefix="surelock-"))
    path.chmod(0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+w", str(path)], check=False)
    shutil.rmtree(path)


def unpack(place: Path) -> Path:
    """What the image would hold, from the commit, read-only."""
    done = subprocess.run(["git", "archive", "--format=tar", "HEAD", *sources()], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"no commit to take it from: {done.stderr.decode().strip()}")
    target = place / "app"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    for path in [target, *target.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return target


def as_user() -> list[str]:
    """The words that run a command as user 1000; none where this process is not root."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return []
    return ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]


def interpreter(place: Path) -> tuple[list[str], str]:
    """A Python that user 1000 may start, and where it has to look for the packages, if not at home."""
    if os.environ.get("SURELOCK_FRESH_VENV"):
        venv.create(place / "venv", with_pip=True)
        python = str(place / "venv" / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", ROOT / "requirements.txt"], check=True)
        candidates = [python]
    else:
        candidates = [sys.executable]
    candidates += [f"{folder}/python3.{sys.version_info.minor}" for folder in ("/usr/bin", "/usr/local/bin")]
    packages = Path(candidates[0]).parents[1] / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    path = str(packages) if packages.is_dir() else site.getsitepackages()[0]
    for python, extra in zip(candidates, ["", path, path], strict=True):
        trial = [*as_user(), python, "-c", "import torch, gradio"]
        values = {**os.environ, "PYTHONPATH": extra, "HOME": str(place)}
        if subprocess.run(trial, cwd="/", env=values, capture_output=True).returncode == 0:
            return [*as_user(), python], extra
    pytest.skip("user 1000 can read no Python with the requirements here")


def test_it_starts_and_answers(place: Path) -> None:
    source, port = unpack(place), str(free_port())
    command, packages = interpreter(place)
    home, hook = place / "home", place / "hook"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(NO_NETWORK, "utf-8")
    values = {name: value.replace(HOME, str(home)) for name, value in environment().items()}
    values |= {"GRADIO_SERVER_PORT": port, "HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(home)}
    values |= {"PYTHONPATH": f"{hook}:{packages}", "ATTEMPTS": str(home / "attempts"), "OMP_NUM_THREADS": "1"}
    with (place / "log").open("wb") as log:
        start = [*command, *json.loads(every("CMD")[-1])[1:]]
        process = subprocess.Popen(start, cwd=source, env=values, stdout=log, stderr=log)
    try:
        until, check = time.monotonic() + 120, [*command, *health_check(port)[1:]]
        while subprocess.run(check, cwd=source, env=values, capture_output=True).returncode:
            assert process.poll() is None and time.monotonic() < until, (place / "log").read_text("utf-8")[-2000:]
            time.sleep(0.5)
        run_once(port)
        if as_user():
            assert Path(f"/proc/{process.pid}").stat().st_uid == 1000
    finally:
        process.terminate()
        process.wait(20)
    assert not (home / "attempts").exists(), (home / "attempts").read_text("utf-8")
    assert not list(source.rglob("__pycache__"))


def run_once(port: str) -> None:
    """One run on the page that was started."""
    from tests.browser.visitor import Visitor

    visitor, until = Visitor(f"http://127.0.0.1:{port}"), time.monotonic() + 90
    while (state := visitor.call("model_state", "stories")) != "ready":
        assert state == "loading" and time.monotonic() < until, state
        time.sleep(0.5)
    assert list(visitor.run(Generated_length=8, Steps=8, Block_length=8))[-1]["end"] == "finished"
    visitor.close()
