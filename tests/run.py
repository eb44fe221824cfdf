"""`python tests/run.py [PYTEST FLAGS]`: install what the tests need into this Python environment, then run them.

With --all also those that take long.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
CHROMIUM = "chromium-headless-shell"  # Debian's; without windows a page costs half of the processor time


def install_chromium() -> None:
    """Chromium for the browser tests; where it cannot be installed they take another one, or are skipped."""
    if shutil.which(CHROMIUM):
        return
    if not shutil.which("apt-get") or os.geteuid() != 0:
        print(f"Without Chromium the browser tests are skipped, or slower with windows: apt-get install {CHROMIUM}")
        return
    quiet = {"stdout": subprocess.DEVNULL, "check": True, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-q"], **quiet)
    subprocess.run(["apt-get", "install", "-qy", "--no-install-recommends", CHROMIUM], **quiet)


def has_javascript() -> bool:
    """Whether node_modules holds what package-lock.json names; what is optional may be of another system."""
    held, lock = TESTS.parent / "node_modules" / ".package-lock.json", TESTS.parent / "package-lock.json"
    if not held.exists():
        return False
    there, named = (json.loads(path.read_text("utf-8"))["packages"] for path in (held, lock))
    del named[""]  # this project
    return there == {name: each for name, each in named.items() if name in there or not each.get("optional")}


def install_javascript() -> None:
    """What package-lock.json names, by the npm that tests/requirements.txt brought."""
    if has_javascript():
        return
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    npm = shutil.which("npm", path=path)
    if npm is None:
        sys.exit(f"npm is not in {beside}, where tests/requirements.txt should have put it")
    subprocess.run([npm, "ci", "--silent"], cwd=TESTS.parent, env=os.environ | {"PATH": path}, check=True)


def main() -> int:
    install = ["-m", "pip", "install", "-q", "-r", str(TESTS / "requirements.txt")]
    subprocess.run([sys.executable, *install], check=True)
    install_javascript()
    install_chromium()
    # Two at a time, each file by one of them; a model on two threads would only wait for the other's. What hangs fails.
    flags = ["--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--timeout", "600"]
    pytest = [sys.executable, "-m", "pytest", *flags, *sys.argv[1:]]
    return subprocess.run(pytest, cwd=TESTS.parent, env={"OMP_NUM_THREADS": "1"} | os.environ).returncode


if __name__ == "__main__":
    sys.exit(main())
