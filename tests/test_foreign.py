"""The page's server uses other libraries by their public names alone, and changes none of their modules and classes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / "app.py", *sorted((ROOT / "surelock" / "ui").glob("*.py"))]
DOCUMENTED = ("os._exit",)  # underscored, and yet public
#: What cannot be done without, at most three: (file, name) -> the reason, with a link to where upstream knows of it.
EXCEPTIONS: dict[tuple[str, str], str] = {}


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
            names = [
                *module.split("."),
                *(part for each in node.names for part in each.name.split(".")),
            ]
            yield from (
                name for name in names if private(name) and not module.startswith("surelock")
            )
            imported |= {(each.asname or each.name).split(".")[0] for each in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if private(node.attr) and node.attr not in own and ast.unparse(node) not in DOCUMENTED:
                yield node.attr
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if (
                not isinstance(node.ctx, ast.Load)
                and isinstance(root, ast.Name)
                and root.id in imported
            ):
                yield f"{ast.unparse(node)} is assigned"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "setattr",
            "delattr",
            "getattr",
            "vars",
        ):
            first, *rest = node.args
            if (
                isinstance(first, ast.Name)
                and first.id in imported
                and ast.unparse(node.func) != "getattr"
            ):
                yield f"{ast.unparse(node)} assigns"
            yield from (
                each.value
                for each in rest
                if isinstance(each, ast.Constant) and private(str(each.value))
            )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_private_name_of_a_library_is_used_and_none_is_changed(path: Path) -> None:
    found = {
        name for name in breaches(path.read_text("utf-8")) if (path.name, name) not in EXCEPTIONS
    }
    assert found == set()


def test_the_exceptions_are_few_and_each_is_needed_and_has_its_reason() -> None:
    assert len(EXCEPTIONS) <= 3 and all("https://" in reason for reason in EXCEPTIONS.values())
    for (file, name), _ in EXCEPTIONS.items():
        (path,) = (each for each in SOURCES if each.name == file)
        assert name in breaches(path.read_text("utf-8"))


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
