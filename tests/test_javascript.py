"""The JavaScript that needs no browser, by node's own test runner."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "tests" / "js").glob("*.test.js"))
# first beside Python: that is where tests/requirements.txt installs it
NODE = shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_node_tests(file: Path) -> None:
    done = subprocess.run([str(NODE), "--test", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
