"""Whether the tests see a fault: planted in a copy of the checkout, looked for by what reaches its line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from itertools import groupby
from pathlib import Path

from tests.mutants.cover import Covered, command
from tests.mutants.draw import Mutant
from tests.mutants.places import build

MOST_SECONDS = {"node": 60.0}  # a fault that makes the tests last longer is caught
OTHERS_SECONDS = 400.0
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::[^\n]+?)?)(?: - .*)?$", re.MULTILINE)


class Trial:
    """The copy, ``root``. Tests that fail without a fault, too, say nothing: they are left out from then on."""

    def __init__(self, root: Path, covered: Covered) -> None:
        self.root, self.covered = root, covered
        self.broken: set[str] = set()

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

    def _groups(self, mutant: Mutant) -> list[list[str]]:
        """What runs together, the cheapest first: Node's files; functions that reach the line; files that reach it
        outside of them, in another process or as they are imported; of each those first that reach most of the file.
        Node's are all that reach the file: of a line they may have run a part.
        """
        ranked = []
        lines = self.covered[mutant.file]
        parts = {each for tests in lines.values() for each in tests if each.endswith(".js")}
        for each in parts.union(lines[mutant.line]):
            file, browser = each.partition("::")[0], "/browser/" in each
            alone = browser or file.endswith(".js")
            function = not alone and "::" in each and self._is_there(each)
            rank = (3 if browser else 0) if alone else 2 - function
            ranked.append((rank, -self._lines(mutant.file, file), each if function else file, file if alone else ""))
        ordered = dict.fromkeys((name, (rank, alone)) for rank, _, name, alone in sorted(ranked))
        return [[name for name, _ in group] for _, group in groupby(ordered, key=lambda each: each[1])]

    def _is_there(self, function: str) -> bool:
        """Whether it is a test: what property tests are run by has such a name, too."""
        file, _, name = function.partition("::")
        return f"def {name}(" in (self.root / file).read_text("utf-8")

    def _lines(self, file: str, test: str) -> int:
        """How many of a file's lines a test file reaches."""
        return sum(any(each.partition("::")[0] == test for each in tests) for tests in self.covered[file].values())

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
        told = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        kept = {"cwd": self.root, "env": told, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(called, start_new_session=True, **kept) as process:
            try:
                said, _ = process.communicate(timeout=MOST_SECONDS.get(called[0], OTHERS_SECONDS))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
                return said or "no end"
        return (said or "no word") if process.returncode not in (0, 5) else None  # 5: all were left out
