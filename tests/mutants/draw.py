"""All single faults that cosmic-ray and Stryker can plant in a file, and a fair draw of them.

Neither language's texts are touched: cosmic-ray has no operator for them, and Stryker's is left out.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.mutants.places import HERE, NODE_TOOLS, WORK, sources

Covered = dict[str, dict[int, list[str]]]  # by file and line the tests that reach it


@dataclass(frozen=True)
class Mutant:
    """A file's fault: where it begins (line from 1, column from 0), whose, and the file's text with it."""

    file: str
    line: int
    column: int
    operator: str
    text: str

    def told(self, before: str) -> dict[str, str | int]:
        """It in plain form, without the text: the lines that change, before and after, tell it from all others."""
        was, now = before.splitlines(), self.text.splitlines()
        differ = difflib.unified_diff(was, now, n=0, lineterm="")
        changed = [line for line in differ if not line.startswith(("---", "+++", "@@"))]
        sides = ["\n".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+"]
        return {k: v for k, v in asdict(self).items() if k != "text"} | {"was": sides[0], "is": sides[1]}


@dataclass(frozen=True)
class Fault:
    """One that could be planted there; ``make`` gives the file's text with it, None where that means the same."""

    file: str
    line: int
    column: int
    operator: str
    make: Callable[[], str | None]


Planned = tuple[Mutant, dict[str, Any]]


def drawn(root: Path, suffix: str, covered: Covered | None, seed: int, known: set[str]) -> Iterator[Planned]:
    """Faults of a suffix without end, each at a place of its own, and what is told of it: on ``covered`` lines, or on
    any. Every place is as likely as another, then each of its faults; those that are ``known`` (see `key`) to be
    equivalent are left out. A place's turn depends on the seed and itself: where tests reach more, the others keep it.
    """
    places: dict[tuple[str, int, int], list[Fault]] = defaultdict(list)
    names = [name for name in sources(root) if name.endswith(suffix) and (covered is None or name in covered)]
    for fault in (_python if suffix == ".py" else _javascript)(root, names):
        if covered is None or fault.line in covered[fault.file]:
            places[fault.file, fault.line, fault.column].append(fault)
    turns = {place: random.Random(f"{seed} {place}") for place in places}
    for place in sorted(places, key=lambda place: turns[place].random()):
        fault = turns[place].choice(places[place])
        if (text := fault.make()) is not None:
            mutant = Mutant(fault.file, fault.line, fault.column, fault.operator, text)
            told = mutant.told((root / fault.file).read_text("utf-8"))
            if key(told) not in known:
                yield mutant, told


def key(told: dict[str, str | int]) -> str:
    return "\n".join(str(told[name]) for name in ("file", "was", "is"))


def _python(root: Path, names: list[str]) -> Iterator[Fault]:
    from cosmic_ray.operators.provider import OperatorProvider

    provider = OperatorProvider()
    operators = {name: provider[name]() for name in provider if not provider[name].arguments()}
    for file in names:
        text = (root / file).read_text("utf-8")
        for name, occurrence, line, column in _listed(text, operators):
            yield Fault(file, line, column, name, partial(_mutated, text, operators[name], occurrence))


def _listed(text: str, operators: dict[str, Any]) -> list[list[Any]]:
    """[[operator, which of its places, line, column], ...] of a text. Kept, since finding them takes half a minute."""
    memo = WORK / "faults" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
    if not memo.exists():
        from cosmic_ray.ast import ast_nodes, get_ast

        nodes, silent, found = list(ast_nodes(get_ast(text))), _silent(ast.parse(text)), []
        for name, operator in operators.items():
            starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
            for occurrence, (line, column) in enumerate(starts):
                if not any(start <= (line, column) < stop for start, stop in silent):
                    found.append([name, occurrence, line, column])
        memo.parent.mkdir(parents=True, exist_ok=True)
        memo.write_text(json.dumps(found))
    return json.loads(memo.read_text())


def _mutated(text: str, operator: Any, occurrence: int) -> str | None:
    """The text with the operator's change at its n-th place; None where that is no Python or means the same."""
    from cosmic_ray.ast import Visitor, get_ast

    class Planter(Visitor):
        left = occurrence

        def visit(self, node: Any) -> Any:
            for index, _ in enumerate(list(operator.mutation_positions(node))):
                node = operator.mutate(node, index) if self.left == 0 else node
                self.left -= 1
            return node

    try:
        made = Planter().walk(get_ast(text)).get_code()
    except AttributeError:  # cosmic-ray replaces no exception of a module, as in ``except zipfile.BadZipFile``
        return None
    try:
        return made if ast.dump(ast.parse(made)) != ast.dump(ast.parse(text)) else None
    except SyntaxError:
        return None


def _silent(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where no change is one: types, which nothing evaluates, what they need imported, and the slots of dataclasses."""
    found: list[Any] = []
    for node in ast.walk(tree):
        found += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        found += [node.test] if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
        found += [node.value] if isinstance(node, ast.keyword) and node.arg == "slots" else []
    spans = ((each.lineno, each.col_offset, each.end_lineno, each.end_col_offset) for each in found if each is not None)
    return [((line, column), (last, end)) for line, column, last, end in spans]


def _javascript(root: Path, names: list[str]) -> Iterator[Fault]:
    texts = {name: (root / name).read_text("utf-8") for name in names}
    called = ["node", str(HERE / "stryker.js"), str(NODE_TOOLS), *texts]
    made = subprocess.run(called, cwd=root, check=True, capture_output=True, text=True).stdout if texts else "[]"
    for each in json.loads(made):
        text, place = texts[each["fileName"]], each["location"]
        lines = text.splitlines(keepends=True)
        start, end = (sum(map(len, lines[: at["line"]])) + at["column"] for at in (place["start"], place["end"]))
        new = f"({each['replacement']})" if each["mutatorName"] == "LogicalOperator" else each["replacement"]
        line, column = place["start"]["line"] + 1, place["start"]["column"]
        whole = text[:start] + new + text[end:]
        yield Fault(each["fileName"], line, column, each["mutatorName"], partial(str, whole))
