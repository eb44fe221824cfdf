"""The Python that a Space runs on, where this machine has one: it reads every file; with PyTorch, too, it runs the
library's tests. SURELOCK_SPACE_PYTHON names another interpreter, one of an environment with the requirements.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import metadata_load

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[1]
VERSION = str((metadata_load(ROOT / "README.md") or {})["python_version"])
LIBRARY = (
    "test_decode",
    "test_network",
    "test_loading",
    "test_settings",
    "test_events",
    "test_posterior",
    "test_flops",
)


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter of that version."""
    found = os.environ.get("SURELOCK_SPACE_PYTHON") or shutil.which(f"python{VERSION}")
    if found is None or ran(found, "-c", "").returncode:
        pytest.skip(f"no Python {VERSION} on this machine")
    return found


def ran(python: str, *words: str) -> subprocess.CompletedProcess[str]:
    values = {**os.environ, "PYENV_VERSION": VERSION, "OMP_NUM_THREADS": "1"}
    return subprocess.run([python, *words], cwd=ROOT, env=values, capture_output=True, text=True)


def test_it_reads_every_file(python: str, tmp_path: Path) -> None:
    assert ran(python, "--version").stdout.startswith(f"Python {VERSION}.")
    done = ran(python, "-X", f"pycache_prefix={tmp_path}", "-m", "compileall", "-q", "app.py", "surelock", "tests")
    assert done.returncode == 0, done.stdout


def test_the_library_works_on_it(python: str) -> None:
    if ran(python, "-c", "import torch, transformers, pytest, hypothesis").returncode:
        pytest.skip(f"that Python {VERSION} has no PyTorch")
    done = ran(python, "-m", "pytest", "-p", "no:cacheprovider", *(f"tests/{name}.py" for name in LIBRARY))
    assert done.returncode == 0, done.stdout[-4000:]
