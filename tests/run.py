"""`python tests/run.py [PYTEST FLAGS]`: install what the tests need into this Python environment, then run them.

With --all also those that take long. Of a selection (`-k oracle`, `tests/test_cli.py`) only the files that it runs
count: npm's packages and Chromium are installed where one of them needs those.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).resolve().parent
# Debian's; without windows a page costs half of the processor time
CHROMIUM = "chromium-headless-shell"
#: What stands in a test file that runs JavaScript.
_RUNS_JAVASCRIPT = re.compile(r"test_javascript|node_modules|lesson_answers")


def files_of(listed: str) -> list[Path]:
    """Return the test files that `pytest --collect-only -q` lists: "tests/test_cli.py::test_a" a line."""
    names = re.findall(r"^(tests/\S+?\.py)\b", listed, re.MULTILINE)
    return [TESTS.parent / name for name in sorted(set(names))]


def needs_of(files: Iterable[Path]) -> set[str]:
    """Return which of "javascript" and "chromium" the tests of these files need."""
    needs = set()
    for file in files:
        if file.parent.name == "browser":
            needs |= {"chromium", "javascript"}
        elif _RUNS_JAVASCRIPT.search(file.read_text("utf-8")):
            needs.add("javascript")
    return needs


def selected(flags: list[str]) -> list[Path]:
    """Return the test files that pytest runs with these flags."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", *flags]
    done = subprocess.run(collect, cwd=TESTS.parent, capture_output=True, text=True)
    return files_of(done.stdout)


def say(text: str) -> None:
    print(f"tests/run.py: {text}", flush=True)


def install_chromium() -> None:
    """Chromium for the browser tests; where it cannot be installed they take another one, or are skipped."""
    if shutil.which(CHROMIUM):
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        print(
            f"Without Chromium the browser tests are skipped, or slower with windows: apt-get install {CHROMIUM}"
        )
        return
    say(f"{CHROMIUM}, by apt-get")
    quiet = {
        "stdout": subprocess.DEVNULL,
        "check": True,
        "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    }
    subprocess.run(["apt-get", "update", "-q"], **quiet)
    subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", CHROMIUM], **quiet)


def has_javascript() -> bool:
    """Whether node_modules holds what package-lock.json names; what is optional may be of another system."""
    held = TESTS.parent / "node_modules" / ".package-lock.json"
    lock = TESTS.parent / "package-lock.json"
    if not held.exists():
        return False
    there, named = (json.loads(path.read_text("utf-8"))["packages"] for path in (held, lock))
    del named[""]  # this project
    return there == {
        name: each for name, each in named.items() if name in there or not each.get("optional")
    }


def install_javascript() -> None:
    """What package-lock.json names, by the npm that tests/requirements.txt brought."""
    if has_javascript():
        return
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    npm = shutil.which("npm", path=path)
    if npm is None:
        sys.exit(f"npm is not in {beside}, where tests/requirements.txt should have put it")
    say("package-lock.json, by npm")
    subprocess.run(
        [npm, "ci", "--silent"], cwd=TESTS.parent, env=os.environ | {"PATH": path}, check=True
    )


def main() -> int:
    flags = sys.argv[1:]
    say("tests/requirements.txt, by pip, where packages are missing")
    install = ["-m", "pip", "install", "-q", "-r", str(TESTS / "requirements.txt")]
    subprocess.run([sys.executable, *install], check=True)
    needs = {"javascript", "chromium"}
    if any(flag.startswith(("-k", "-m")) or not flag.startswith("-") for flag in flags):
        files = selected(flags)
        needs = needs_of(files)
        say(
            f"{len(files)} test files are selected; they need {' and '.join(sorted(needs)) or 'nothing else'}"
        )
    if "javascript" in needs:
        install_javascript()
    if "chromium" in needs:
        install_chromium()
    # Two at a time, a file by one of them: a model on two threads would only wait for the other's. What hangs fails.
    how = [
        "--numprocesses",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "--timeout",
        "600",
    ]
    pytest = [sys.executable, "-m", "pytest", *how, *flags]
    return subprocess.run(
        pytest, cwd=TESTS.parent, env={"OMP_NUM_THREADS": "1"} | os.environ
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
