"""Which test files are likely to see a Python fault, told by what they import and name: nothing has to be run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_LEFT_OUT = "javascript cuda package packaging dockerfile space_python notebook"  # they look at something else
_STUB = "surelock/__init__.pyi"  # the names that `import surelock` brings, and where each comes from


@cache
def nearest(root: Path, file: str, line: int) -> list[str]:
    """The test files: first those that import the file, then those that import what imports it; of these first those
    that speak most of the file, and of the function, class or variable that the line is a part of.
    """
    left_out = {f"test_{name}" for name in _LEFT_OUT.split()}
    tests = [path.relative_to(root).as_posix() for path in root.glob("tests/test_*.py") if path.stem not in left_out]
    distance = {file: 0}
    imports = _imports(root)
    while new := {each for each, used in imports.items() if each not in distance and used & distance.keys()}:
        distance |= dict.fromkeys(new, max(distance.values()) + 1)
    stem = Path(file).stem
    spoken = re.compile(rf"\b(?:{'|'.join({stem, *_around((root / file).read_text('utf-8'), line)})})\b")
    ranks = {}
    for test in tests:
        text = (root / test).read_text("utf-8")
        used = _used(root, text)
        near = min((distance[each] for each in used if each in distance), default=len(distance))
        near = min(near, 1) if "import_module" in text else near  # it looks at every file
        own = stem in Path(test).stem.removeprefix("test_").split("_") or Path(test).stem == f"test_{stem}"
        ranks[test] = (not own, near, -len(spoken.findall(text)) - 5 * (file in used), test)
    return sorted(tests, key=ranks.__getitem__)


def _around(text: str, line: int) -> Iterator[str]:
    """The names of what is defined around a line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", ())
            yield from (each.id for each in targets if isinstance(each, ast.Name))


@cache
def _imports(root: Path) -> dict[str, set[str]]:
    """Of each file of the package the files that it imports, wherever in it."""
    files = [path.relative_to(root).as_posix() for path in sorted((root / "surelock").rglob("*.py"))]
    return {file: _used(root, (root / file).read_text("utf-8")) for file in files}


def _used(root: Path, text: str) -> set[str]:
    """The package's files that a text imports, and those of the names that it takes from `surelock` itself."""
    tree, found = ast.parse(text), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(_files(root, node.module, [each.name for each in node.names]))
        elif isinstance(node, ast.Import):
            found.update(file for each in node.names for file in _files(root, each.name, []))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "surelock":
            found.update(_files(root, "surelock", [node.attr]))
    return found


def _files(root: Path, module: str, names: list[str]) -> Iterator[str]:
    """The files behind `from module import names`."""
    place = module.replace(".", "/")
    for name in names:
        if module == "surelock" and name in _public(root):
            yield _public(root)[name]
        elif (root / place / f"{name}.py").exists():
            yield f"{place}/{name}.py"
    if (root / f"{place}.py").exists():
        yield f"{place}.py"


@cache
def _public(root: Path) -> dict[str, str]:
    nodes = ast.parse((root / _STUB).read_text("utf-8")).body
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {each.name: f"surelock/{node.module.replace('.', '/')}.py" for node in froms for each in node.names}
