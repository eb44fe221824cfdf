"""Which test reaches which line: measured once for a commit's texts, Python by coverage.py, JavaScript by V8."""

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
from pathlib import Path
from typing import Any

from tests.mutants.draw import Covered
from tests.mutants.places import AT_ONCE, HERE, TOOLS, sources

#: Not measured: they look at other areas, need what is not here, or run the JavaScript tests again.
_LEFT_OUT = "javascript cuda packaging package readme dockerfile space_python notebook harness training damage results"
_LEFT_OUT += " bench claims figures frontier experiments experiments_values agents zero_gpu one_edit"
_PATTERNS = {".py": ["tests/test_*.py"], ".js": ["tests/js/*.test.js", "tests/test_vectors.py"]}
_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
LEFT_OUT = {f"tests/test_{name}.py" for name in _LEFT_OUT.split()}


def test_files(root: Path, kinds: Collection[str], browser: bool) -> list[str]:
    """Those that can reach a file of these suffixes."""
    patterns = [each for kind in kinds for each in _PATTERNS[kind]]
    patterns += ["tests/browser/test_*.py"] if browser else []
    found = [file.relative_to(root).as_posix() for pattern in patterns for file in sorted(root.glob(pattern))]
    return [name for name in dict.fromkeys(found) if name not in LEFT_OUT]


def command(tests: list[str], *more: str) -> list[str]:
    """What runs these tests, of one kind."""
    if tests[0].endswith(".js"):
        return ["node", "--test", *tests]
    return [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-p", "no:cacheprovider", *more, *tests]


def covered(root: Path, kept: Path, kinds: Collection[str], browser: bool) -> Covered:
    """By file and line the tests that reach it: files, and of Python's also functions. Kept for as long as the test
    file and what it reaches stay as they are.
    """
    found: Covered = defaultdict(lambda: defaultdict(list))
    texts = [(root / name).read_bytes() for name in sources(root)]

    def measured(test: str) -> dict[str, dict[str, list[str]]]:
        stamp = hashlib.sha256(b"".join([*texts, (root / test).read_bytes()])).hexdigest()[:12]
        memo = kept / f"{test.replace('/', '-')}-{stamp}.json"
        if not memo.exists():
            memo.parent.mkdir(parents=True, exist_ok=True)
            memo.write_text(json.dumps(_measure(root, test)))
        return json.loads(memo.read_text())

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for each in pool.map(measured, test_files(root, kinds, browser)):
            for file, lines in each.items():
                for line, tests in lines.items():
                    found[file][int(line)] += tests
    return found


def _measure(root: Path, test: str) -> dict[str, dict[int, list[str]]]:
    begun, of = time.monotonic(), set(sources(root))
    with tempfile.TemporaryDirectory() as data:
        told = {"MUTANTS_ROOT": str(root), "MUTANTS_DATA": data, "MUTANTS_TEST": test, "NODE_V8_COVERAGE": data}
        told |= {"PYTHONPATH": str(TOOLS), "COVERAGE_PROCESS_START": str(HERE / "coverage.ini"), "OMP_NUM_THREADS": "1"}
        more = ["-p", "tests.mutants.browser"] if "/browser/" in test else []
        done = subprocess.run(
            [each for each in command([test], *more) if each != "-x"],
            cwd=root,
            env=os.environ | told,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        print(f"{test}: measured in {time.monotonic() - begun:.0f} s, status {done.returncode}", file=sys.stderr)
        lines = _of_python(root, Path(data)) | _of_v8(root, Path(data), test)
    return {file: each for file, each in lines.items() if file in of}


def _of_python(root: Path, data: Path) -> dict[str, dict[int, list[str]]]:
    import coverage

    merged = coverage.CoverageData(str(data / "python"))
    each = coverage.Coverage(data_file=str(data / "python"), config_file=False)
    if list(data.glob("python.*")):
        each.combine([str(file) for file in data.glob("python.*")])
        merged = each.get_data()
    found = {}
    for file in merged.measured_files():
        by_line = merged.contexts_by_lineno(file)
        name = Path(file).resolve().relative_to(root.resolve()).as_posix()
        found[name] = {line: sorted({_test(told) for told in contexts}) for line, contexts in by_line.items()}
    return found


def _test(context: str) -> str:
    """A file, or a function of it: "tests/test_form.py|test_form.test_fit"."""
    file, _, function = context.partition("|")
    return f"{file}::{function.rpartition('.')[2]}" if function else file


def _of_v8(root: Path, data: Path, test: str) -> dict[str, dict[int, list[str]]]:
    """The lines all of whose characters were run; those of the page's scripts are their modules' again."""
    found: dict[str, dict[int, list[str]]] = defaultdict(dict)
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
                found[name][line] = [test]
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
