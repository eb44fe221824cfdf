"""The JavaScript that needs no browser, by node's own test runner."""

from __future__ import annotations

import json
import os
import shlex
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


@pytest.mark.parametrize("name", ["page.js", "replay.js", "worker.js", "stage.css", "page.css"])
def test_the_scripts_are_built_from_the_modules(name: str, tmp_path: Path) -> None:
    """`npm run build` writes them: a stale one would be served."""
    build = shlex.split(json.loads((ROOT / "package.json").read_text())["scripts"]["build"])
    build[build.index("--outdir=assets/scripts")] = f"--outdir={tmp_path}"
    subprocess.run(
        [str(ROOT / "node_modules" / ".bin" / build[0]), *build[1:], "--log-level=error"], cwd=ROOT, check=True
    )
    assert (tmp_path / name).read_bytes() == (ROOT / "assets" / "scripts" / name).read_bytes(), "npm run build"
