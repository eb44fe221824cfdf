"""Whether the tests see a fault: planted in a copy of the checkout, looked for by what reaches its line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.mutants.cover import Covered, command, reached
from tests.mutants.draw import Mutant
from tests.mutants.nearest import nearest
from tests.mutants.places import build
from tests.mutants.warm import Warm

NODE_SECONDS, OTHERS_SECONDS = 60.0, 400.0  # a fault that makes the tests last longer is caught
FIRST = 3  # nearest test files that are asked before the others
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::[^\n]+?)?)(?: - .*)?$", re.MULTILINE)


class Trial:
    """The copy, ``root``. Tests that fail without a fault, too, say nothing: they are left out from then on."""

    def __init__(self, root: Path, covered: Covered) -> None:
        self.root, self.covered = root, covered
        self.broken: set[str] = set()
        self._warm: Warm | None = None

    def caught_by(self, mutant: Mutant) -> str | None:
        """The first test that sees it, None where it lives."""
        for tests in self._groups(mutant):
            failed = self._failed(tests, mutant)
            while failed and (anyway := self._failed([failed])) and anyway not in self.broken:
                self.broken.add(anyway)
                failed = self._failed(tests, mutant)
            if failed and not anyway and self._failed([failed], mutant):  # twice with it, never without
                return failed
        return None

    def reaches(self, mutant: Mutant) -> bool:
        """Whether any test that is asked reaches the line."""
        if mutant.file.endswith(".js"):
            return True  # it was drawn among such lines
        return any(mutant.line in reached(self.root, test).get(mutant.file, ()) for test in self._asked(mutant))

    def _asked(self, mutant: Mutant) -> list[str]:
        return nearest(self.root, mutant.file)

    def _groups(self, mutant: Mutant) -> list[list[str]]:
        """What runs together, the cheapest first. Of Python the nearest test files. Of JavaScript Node's files that
        reach the file, since of a line they may have run a part, then each other file that reaches the line, those in
        Chromium last; of each those first that reach most of the file.
        """
        if not mutant.file.endswith(".js"):
            near = self._asked(mutant)
            return [near[:FIRST], near[FIRST:]]
        lines = self.covered[mutant.file]
        node = {each for tests in lines.values() for each in tests if each.endswith(".js")}
        others = [each for each in lines[mutant.line] if each not in node]
        groups = [sorted(node, key=lambda each: -self._lines(mutant.file, each))] if node else []
        others.sort(key=lambda each: ("/browser/" in each, -self._lines(mutant.file, each)))
        return [*groups, *([each] for each in others)]

    def _lines(self, file: str, test: str) -> int:
        """How many of a file's lines a test file reaches."""
        return sum(test in tests for tests in self.covered[file].values())

    def _failed(self, tests: list[str], mutant: Mutant | None = None) -> str | None:
        """The first that fails, with the fault or without any."""
        if self.broken.issuperset(tests):
            return None
        left_out = [] if tests[0].endswith(".js") else [f"--deselect={each}" for each in sorted(self.broken)]
        if mutant is None:
            said = self._run(command(tests, *left_out))
        else:
            file = self.root / mutant.file
            plain = file.read_text("utf-8")
            in_browser = mutant.file.endswith(".js") and "/browser/" in tests[0]
            for text in (mutant.text, plain):
                file.write_text(text, "utf-8")
                if in_browser:
                    build(self.root)
                if text is not plain:
                    said = self._run(command(tests, *left_out))
        found = said and _FAILED.search(said)
        return (found[1] if found else tests[0]) if said else None

    def _run(self, called: list[str]) -> str | None:
        """What a run said that failed or did not end, None where all was well."""
        if called[0] != "node":
            self._warm = self._warm or Warm(self.root, OTHERS_SECONDS)
            status, said = self._warm.run(called[3:])
            return None if status in (0, 5) else said or "no word"  # 5: all were left out
        with subprocess.Popen(
            called, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as node:
            try:
                said, _ = node.communicate(timeout=NODE_SECONDS)
            except subprocess.TimeoutExpired:
                node.kill()
                return "no end"
        return (said or "no word") if node.returncode else None
