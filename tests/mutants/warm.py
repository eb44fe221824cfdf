"""A process that has imported what all tests need, none of it the package's, and runs pytest in a fork of itself.

Each line that it reads is a list, seconds and pytest's arguments. The answer is one line, [status or null, what was
said]: null where the fork did not end in so long. Importing takes longer than most tests, which a fault fails at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

MODULES = (
    "numpy pandas torch safetensors tokenizers transformers onnxruntime gradio httpx hypothesis starlette.testclient"
)
MODULES += " gradio.routes gradio.themes playwright.sync_api onnx pytest matplotlib.pyplot"


class Warm:
    """Such a process in the folder ``root``."""

    def __init__(self, root: Path) -> None:
        told = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        command, pipe = [sys.executable, __file__], subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=root, env=told, stdin=pipe, stdout=pipe, text=True)
        self._answer()

    def run(self, arguments: list[str], seconds: float) -> tuple[int | None, str]:
        """Pytest's status, None where it did not end in so many seconds, and what it said."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([seconds, *arguments]) + "\n")
        self._process.stdin.flush()
        status, said = self._answer()
        return status, said

    def _answer(self) -> list:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def main() -> None:
    sys.path[0] = os.getcwd()
    for name in MODULES.split():
        try:
            __import__(name)
        except ImportError:
            continue  # the tests that need it say so
    print("[]", flush=True)
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            seconds, *arguments = json.loads(line)
            status = _forked(arguments, said, seconds)
            said.seek(0)
            print(json.dumps([status, said.read().decode("utf-8", "replace")]), flush=True)


def _forked(arguments: list[str], said, seconds: float) -> int | None:
    child = os.fork()
    if child == 0:
        os.setsid()
        for stream in (1, 2):
            os.dup2(said.fileno(), stream)
        import pytest

        status = int(pytest.main(arguments))
        sys.stdout.flush()
        os._exit(status)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # it, and the servers that it has left
        if time.monotonic() >= until:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
