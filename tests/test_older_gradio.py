"""The page with the oldest Gradio that requirements.txt allows: form, calls, routes, and a browser on it."""

import os
import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = (
    "test_form.py",
    "test_calls.py",
    "test_run_routes.py",
    "browser/test_page.py",
    "browser/test_connection.py",
)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_page_works_with_the_oldest_gradio_that_is_allowed(tmp_path: Path) -> None:
    found = re.search(
        r"^gradio>=([\d.]+)", (ROOT / "requirements.txt").read_text("utf-8"), re.MULTILINE
    )
    assert found, "requirements.txt names the oldest Gradio"
    install(tmp_path, f"gradio=={found[1]}.*")
    (gradio,) = distributions(name="gradio", path=[str(tmp_path)])
    install(
        tmp_path, *(need for need in gradio.requires or () if re.match(r"gradio[-_]client\b", need))
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    version = [sys.executable, "-c", "import gradio; print(gradio.__version__)"]
    assert subprocess.check_output(version, env=environment, text=True).strip() == gradio.version
    files = [str(ROOT / "tests" / name) for name in FILES]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


def install(folder: Path, *needs: str) -> None:
    """Install packages into a folder, without what they need."""
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *needs],
        check=True,
    )
