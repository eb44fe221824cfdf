"""The page's server uses other libraries by their public names alone, and changes none of their modules and classes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / "app.py", *sorted((ROOT / "surelock" / "ui").glob("*.py"))]
DOCUMENTED = ("os._exit",)  # underscored, and yet public


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def defined(tree: ast.AST) -> Iterator[str]:
    """The private names that a source defines: functions, classes, variables, attributes of self."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node.value, ast.Name) and node.value.id == "self":
                yield node.attr


def breaches(source: str) -> Iterator[str]:
    """Private names of others that are imported or read, and assignments to what is imported."""
    tree = ast.parse(source)
    own = set(defined(tree))
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            names = [module, *(each.name for each in node.names)]
            parts = ".".join(names).split(".")
            if not module.startswith("surelock"):
                yield from filter(private, parts)
            imported |= {(each.asname or each.name).split(".")[0] for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if private(node.attr) and node.attr not in own and ast.unparse(node) not in DOCUMENTED:
                yield node.attr
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            named = isinstance(root, ast.Name) and root.id in imported
            if named and not isinstance(node.ctx, ast.Load):
                yield f"{ast.unparse(node)} is assigned"
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function not in ("setattr", "delattr", "getattr", "vars"):
                continue
            first, *rest = node.args
            named = isinstance(first, ast.Name) and first.id in imported
            if named and function != "getattr":
                yield f"{ast.unparse(node)} assigns"
            values = [str(each.value) for each in rest if isinstance(each, ast.Constant)]
            yield from filter(private, values)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_private_name_of_a_library_is_used_and_none_is_changed(path: Path) -> None:
    assert set(breaches(path.read_text("utf-8"))) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("page._queue.max_size = 1", "_queue"),
        ("import gradio as gr\ngr.Slider.preprocess = f", "gr.Slider.preprocess is assigned"),
        (
            "from uvicorn import Server\nsetattr(Server, 'run', f)",
            "setattr(Server, 'run', f) assigns",
        ),
        ("from gradio import _simple_templates", "_simple_templates"),
        ("getattr(event, '_data')", "_data"),
        ("class A:\n    def f(self):\n        self._a = 1\n        return self._a, other._a", None),
        ("page.server.config.limit_concurrency = 1", None),
    ],
)
def test_a_breach_is_found(source: str, found: str | None) -> None:
    assert [*breaches(source)] == ([] if found is None else [found])
