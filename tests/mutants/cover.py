"""Which test reaches which line: measured once and kept, Python by coverage.py, JavaScript by V8."""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import os
import re
import string
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from tests.mutants.draw import Covered
from tests.mutants.places import AT_ONCE, HERE, TOOLS, WORK, sources

_JAVASCRIPT = ("tests/js/*.test.js", "tests/test_vectors.py", "tests/test_web_*.py", "tests/test_lessons.py")
_MEASURED: defaultdict[str, Lock] = defaultdict(Lock)  # by test file: not by two at once
_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


def command(test: str, *flags: str) -> list[str]:
    """What runs a test file, or one of pytest's tests."""
    if test.endswith(".js"):
        return ["node", test]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider", *flags, test]


def covered(root: Path, browser: bool) -> Covered:
    """By JavaScript file and line the test files that reach it."""
    found: Covered = defaultdict(lambda: defaultdict(list))
    patterns = [*_JAVASCRIPT, *(["tests/browser/test_*.py"] if browser else [])]
    tests = [file.relative_to(root).as_posix() for each in patterns for file in sorted(root.glob(each))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for test, each in zip(tests, pool.map(partial(reached, root), tests), strict=True):
            for file, lines in each.items():
                for line in lines:
                    found[file][line].append(test)
    return found


def reached(root: Path, test: str) -> dict[str, list[int]]:
    """The lines that a test file reaches, by file. They are measured again when it or one of them has changed."""
    memo = WORK / "covered" / f"{test.replace('/', '-')}.json"
    memo.parent.mkdir(parents=True, exist_ok=True)
    with _MEASURED[test]:
        told = json.loads(memo.read_text()) if memo.exists() else {"lines": {}, "stamp": None}
        if told["stamp"] != _stamp(root, test, told["lines"]):
            lines = {file: sorted(each) for file, each in _measure(root, test).items()}
            told = {"stamp": _stamp(root, test, lines), "lines": lines}
            memo.write_text(json.dumps(told))
    return told["lines"]


def _stamp(root: Path, test: str, reached: Collection[str]) -> str:
    """Of the texts of a test file and of the files that it reaches."""
    texts = [(root / name).read_bytes() for name in (test, *sorted(reached)) if (root / name).exists()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()


def _measure(root: Path, test: str) -> dict[str, set[int]]:
    begun, of = time.monotonic(), set(sources(root))
    with tempfile.TemporaryDirectory() as data:
        told = {"MUTANTS_ROOT": str(root), "MUTANTS_DATA": data, "NODE_V8_COVERAGE": data}
        told |= {"PYTHONPATH": str(TOOLS), "COVERAGE_PROCESS_START": str(HERE / "coverage.ini"), "OMP_NUM_THREADS": "1"}
        flags = ["-p", "tests.mutants.browser"] if "/browser/" in test else []
        done = subprocess.run(
            [each for each in command(test, "--timeout", "300", *flags) if each != "-x"],
            cwd=root,
            env=os.environ | told,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        print(f"{test}: measured in {time.monotonic() - begun:.0f} s, status {done.returncode}", file=sys.stderr)
        lines = _of_python(root, Path(data)) | _of_v8(root, Path(data), test)
    return {file: each for file, each in lines.items() if each and file in of}


def _of_python(root: Path, data: Path) -> dict[str, set[int]]:
    import coverage

    if not list(data.glob("python.*")):
        return {}
    merged = coverage.Coverage(data_file=str(data / "python"), config_file=False)
    merged.combine([str(file) for file in data.glob("python.*")])
    read = merged.get_data()
    names = {file: Path(file).resolve().relative_to(root.resolve()).as_posix() for file in read.measured_files()}
    return {name: set(read.lines(file) or ()) for file, name in names.items()}


def _of_v8(root: Path, data: Path, test: str) -> dict[str, set[int]]:
    """The lines all of whose characters were run; those of the page's scripts are their modules' again."""
    found: dict[str, set[int]] = defaultdict(set)
    scripts = {name: _built(root, name) for name in ("page.js", "replay.js")} if "/browser/" in test else {}
    for file in data.glob("coverage-*.json"):
        for script in json.loads(file.read_text())["result"]:
            name = script["url"].rpartition("/surelock/scripts/")[2]
            if name in scripts:
                text, sources = scripts[name]
                places = [place for line in _ran(text, script) for place in sources[line - 1]]
            elif "/assets/js/" in script["url"]:
                name = "assets/js/" + script["url"].rpartition("/assets/js/")[2]
                places = [(name, line) for line in _ran((root / name).read_text("utf-8"), script)]
            else:
                continue
            for name, line in places:
                found[name].add(line)
    return found


def _ran(text: str, script: dict[str, Any]) -> set[int]:
    """The lines, from 1, of a script of which every character was run: of nested ranges the inner one tells."""
    ran = bytearray(b"\1") * len(text)
    ranges = [each for function in script["functions"] for each in function["ranges"]]
    for each in sorted(ranges, key=lambda each: (each["startOffset"], -each["endOffset"])):
        start, end = each["startOffset"], min(each["endOffset"], len(text))
        ran[start:end] = bytes([each["count"] > 0]) * (end - start)
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    missed = {bisect.bisect(starts, at) for at, one in enumerate(ran) if not one and not text[at].isspace()}
    return set(range(1, len(starts) + 1)) - missed


def _built(root: Path, name: str) -> tuple[str, list[set[tuple[str, int]]]]:
    """The page's script as `build` leaves it, and of each of its lines the lines of the modules that it comes from."""
    text = (root / "assets" / "scripts" / name).read_text("utf-8")
    told = json.loads(base64.b64decode(text.rpartition("base64,")[2]))
    names = [os.path.relpath(root / "assets" / "scripts" / each, root) for each in told["sources"]]
    source, line, found = 0, 0, []
    for segments in told["mappings"].split(";"):
        found.append(set())
        for segment in filter(None, segments.split(",")):
            fields = list(_numbers(segment))
            source, line = source + fields[1], line + fields[2]
            found[-1].add((names[source], line + 1))
    return text, found


def _numbers(segment: str) -> Iterator[int]:
    """Of a source map: digits of base 64, the lowest five bits first, the lowest bit of all the sign."""
    value, shift = 0, 0
    for digit in map(_DIGITS.index, segment):
        value, shift = value + ((digit & 31) << shift), shift + 5
        if digit < 32:
            yield -(value >> 1) if value & 1 else value >> 1
            value, shift = 0, 0
