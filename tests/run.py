"""`python tests/run.py [PYTEST FLAGS]`: install what the tests need into this Python environment, then run them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def main() -> int:
    install = ["-m", "pip", "install", "-q", "-r", str(TESTS / "requirements.txt")]
    subprocess.run([sys.executable, *install], check=True)
    return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=TESTS.parent).returncode


if __name__ == "__main__":
    sys.exit(main())
