"""Where things lie, what is drawn from, and how the drawing tools get there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUNS = ROOT / "runs" / "mutants"  # not tracked
WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "surelock-mutants"  # of all checkouts
TOOLS, NODE_TOOLS = WORK / "python", WORK / "node"
PYTHON = ("surelock/decoding", "surelock/trace", "surelock/ui", "surelock/model", "surelock/quality")
AREAS = (*PYTHON, "surelock/research/arena.py", "assets/js")
AT_ONCE = 2  # files measured, faults tried


def sources(root: Path) -> list[str]:
    """The files that faults are drawn in, relative to the checkout."""
    found = [file for area in AREAS for file in ([root / area] if area.endswith(".py") else (root / area).rglob("*.*"))]
    return sorted(file.relative_to(root).as_posix() for file in found if file.suffix in (".py", ".js"))


def install() -> None:
    """Put cosmic-ray, coverage and Stryker's instrumenter beside what they work on, once; no test needs them."""
    if not (TOOLS / "sitecustomize.py").exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(TOOLS)]
        subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)
        (TOOLS / "sitecustomize.py").write_text("import coverage\n\ncoverage.process_startup()\n")
    if not (NODE_TOOLS / "node_modules").exists():
        NODE_TOOLS.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", NODE_TOOLS)
        subprocess.run(["npm", "install", "--silent", "--prefix", str(NODE_TOOLS)], cwd=NODE_TOOLS, check=True)
    sys.path.append(str(TOOLS))


def build(root: Path) -> None:
    """The page's scripts from a checkout's modules, with a map back to their lines."""
    tool = [str((root / "node_modules" / ".bin" / "esbuild").resolve()), "assets/js/page.js", "assets/js/replay.js"]
    flags = ["--bundle", "--format=esm", "--sourcemap=inline", "--outdir=assets/scripts", "--log-level=error"]
    subprocess.run([*tool, *flags], cwd=root, check=True)


def copy_checkout(to: Path) -> None:
    """What git tracks or would, and the linters' node_modules, so that no fault is ever planted in the checkout."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    if not (to / "node_modules").exists():
        (to / "node_modules").symlink_to((ROOT / "node_modules").resolve())
    build(to)
