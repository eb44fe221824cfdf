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


def test_the_scripts_are_built_from_the_modules(tmp_path: Path) -> None:
    """`npm run build` writes them: a stale one would be served."""
    scripts = json.loads((ROOT / "package.json").read_text())["scripts"]
    for name in ("pages", "worker"):
        build = shlex.split(scripts[name])
        build[build.index("--outdir=assets/scripts")] = f"--outdir={tmp_path}"
        tool = str(ROOT / "node_modules" / ".bin" / build[0])
        subprocess.run([tool, *build[1:], "--log-level=error"], cwd=ROOT, check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(made) == 7
    assert {name: (ROOT / "assets" / "scripts" / name).read_bytes() for name in made} == made, "npm run build"
