"""Whether the tests see a fault: planted in a copy of the checkout, looked for by what reaches its line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tests.mutants.cover import Covered, command, reached
from tests.mutants.draw import Mutant
from tests.mutants.nearest import nearest
from tests.mutants.places import build
from tests.mutants.warm import Warm

FILE_SECONDS, TEST_SECONDS = 900, 180  # a fault that makes a test file, or one test, last longer is caught
AT_EASE = 3  # times faster it must be without the fault: a busy machine catches nothing
UNMEASURED = 8  # nearest test files that are asked before it is known which of the others reach the line
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::[^\n]+?)?)(?: - .*)?$", re.MULTILINE)


class Trial:
    """The copy, ``root``. Of Python's test files the ``most`` nearest are asked, None is all. Tests that fail without a
    fault, too, say nothing: they are left out from then on.
    """

    def __init__(self, root: Path, covered: Covered, most: int | None = None) -> None:
        self.root, self.covered, self.most = root, covered, most
        self.broken: set[str] = set()
        self._warm: Warm | None = None

    def caught_by(self, mutant: Mutant) -> str | None:
        """The first test that fails twice with it and never without, None where it lives."""
        for test in self._asked(mutant):
            left_out = set(self.broken)
            while (failed := self._failed(test, left_out, mutant)) and failed not in left_out:
                if self._failed(failed):
                    print(f"{failed} fails without a fault, too: it is left out", file=sys.stderr)
                    self.broken.add(failed)
                elif self._failed(failed, (), mutant):
                    return failed
                left_out.add(failed)
        return None

    def reaches(self, mutant: Mutant) -> bool:
        """Whether any test that is asked reaches the line."""
        if mutant.file.endswith(".js"):
            return True  # it was drawn among such lines
        return any(self._reaches(test, mutant) for test in nearest(self.root, mutant.file, mutant.line)[: self.most])

    def _reaches(self, test: str, mutant: Mutant) -> bool:
        return mutant.line in reached(self.root, test).get(mutant.file, ())

    def _asked(self, mutant: Mutant) -> Iterator[str]:
        """The test files that are asked, one after the other. About Python the nearest, then all others that reach the
        line. About JavaScript Node's that reach the file, since of a line they may have run a part, then all others
        that reach the line, those in Chromium last; of each those first that reach most of the file.
        """
        if not mutant.file.endswith(".js"):
            for rank, test in enumerate(nearest(self.root, mutant.file, mutant.line)[: self.most]):
                if rank < UNMEASURED or self._reaches(test, mutant):
                    yield test
            return
        lines = self.covered[mutant.file]
        node = {each for tests in lines.values() for each in tests if each.endswith(".js")}
        asked = node.union(lines[mutant.line])
        yield from sorted(asked, key=lambda each: (each not in node, "/browser/" in each, -self._lines(mutant, each)))

    def _lines(self, mutant: Mutant, test: str) -> int:
        """How many of the file's lines a test file reaches."""
        return sum(test in tests for tests in self.covered[mutant.file].values())

    def _failed(self, test: str, left_out: Collection[str] = (), mutant: Mutant | None = None) -> str | None:
        """The first that fails of a test file, or of one test, with the fault or without any."""
        if test in left_out:
            return None
        if mutant is None:
            said = self._run(test, left_out, AT_EASE)
        else:
            file = self.root / mutant.file
            plain = file.read_text("utf-8")
            in_browser = mutant.file.endswith(".js") and "/browser/" in test
            for text in (mutant.text, plain):
                file.write_text(text, "utf-8")
                if in_browser:
                    build(self.root)
                if text is not plain:
                    said = self._run(test, left_out)
        found = said and _FAILED.search(said)
        return (found[1] if found else test) if said else None

    def _run(self, test: str, left_out: Collection[str], faster: int = 1) -> str | None:
        """What a run said that failed or did not end in time, None where all was well."""
        if not test.endswith(".js"):
            self._warm = self._warm or Warm(self.root)
            flags = ["--timeout", str(TEST_SECONDS // faster), *(f"--deselect={each}" for each in sorted(left_out))]
            status, said = self._warm.run(command(test, *flags)[3:], FILE_SECONDS // faster)
            return None if status in (0, 5) else said or "no word"  # 5: all were left out
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command(test), cwd=self.root, text=True, start_new_session=True, **pipes) as node:
            try:
                said, _ = node.communicate(timeout=TEST_SECONDS // faster)
            except subprocess.TimeoutExpired:
                os.killpg(node.pid, signal.SIGKILL)  # with what it has started
                return "no end"
        return (said or "no word") if node.returncode else None
