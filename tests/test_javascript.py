"""The JavaScript that needs no browser, by node's own test runner."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surelock.ui.serving import first_parts

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "assets" / "scripts"
IMPORTS = re.compile(r'(?:from|import)"\./([\w.-]+)"')
FILES = sorted((ROOT / "tests" / "js").glob("*.test.js"))
# first beside Python: that is where tests/requirements.txt installs it
NODE = shutil.which(
    "node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
)


needs_packages = pytest.mark.skipif(
    not (ROOT / "node_modules").is_dir(), reason="no node_modules: npm ci"
)
needs_node = pytest.mark.skipif(NODE is None, reason="no node on this machine")


def node(*words: str | Path, given: str | None = None) -> str:
    """What node prints; given: its standard input."""
    if NODE is None:
        pytest.skip("no node on this machine")
    command = [str(NODE), *map(str, words)]
    done = subprocess.run(
        command, cwd=ROOT, input=given, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stdout


@needs_node
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_node_tests(file):
    done = subprocess.run(
        [str(NODE), "--test", str(file)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_node
@needs_packages
def test_the_scripts_are_built_from_the_modules(tmp_path):
    """`npm run build` writes them: a stale one would be served."""
    scripts = json.loads((ROOT / "package.json").read_text())["scripts"]
    for name in ("page", "pages", "worker"):
        build = shlex.split(scripts[name])
        build[build.index("--outdir=assets/scripts")] = f"--outdir={tmp_path}"
        tool = str(ROOT / "node_modules" / ".bin" / build[0])
        subprocess.run([tool, *build[1:], "--log-level=error"], cwd=ROOT, check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name for path in SCRIPTS.iterdir()} - {
        "licenses.txt",
        "ort.wasm.gz",
        "quickjs.wasm.gz",
    }
    assert set(made) == kept, "npm run build"
    assert {name: (SCRIPTS / name).read_bytes() for name in made} == made, "npm run build"


def test_what_shows_and_plays_the_race_is_small():
    """At most a tenth more than the 47,769 bytes, by gzip, of the scripts at 58d78f8: touches and links that are
    computed at once came since. What a press opens comes later.
    """
    first = ["page.js", *first_parts()]
    assert (
        sum(len(gzip.compress((SCRIPTS / name).read_bytes(), 9)) for name in first) <= 47_769 * 1.1
    )
    imported = set().union(
        *(IMPORTS.findall((SCRIPTS / name).read_text("utf-8")) for name in first)
    )
    assert imported == set(first_parts()), "a part is fetched before it is needed"
