"""The figures of the documents: tables are as the command writes them.

What stands beneath the tables of docs/results.md holds no figure but the papers'; `tests/test_claims.py` holds what it
says of them. What an experiment's table makes of its cells is held by `tests/test_results.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surelock.research.cli import EXPERIMENTS
from surelock.research.tables import PLACE, TABLES, filled, main

ROOT = Path(__file__).resolve().parents[1]


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


DOCUMENTS = ("README.md", "docs/results.md", "docs/command-line.md")


@pytest.mark.parametrize(
    ("given", "said"),
    [([], "name the documents to write"), (["{}/none.md"], "No such file"), (["{}/odd.md"], "no table")],
)
def test_what_cannot_be_written_is_told(tmp_path: Path, given: list[str], said: str) -> None:
    (tmp_path / "odd.md").write_text("<!-- table none -->\n<!-- end of table -->")
    with pytest.raises(SystemExit, match=f"^tables: .*{said}"):
        main([name.format(tmp_path) for name in given])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_are_as_the_command_writes_them(name: str) -> None:
    assert filled(text(name)) == text(name)


def test_every_table_is_in_a_document_and_every_experiment_in_the_results() -> None:
    shown = [found[2] for name in DOCUMENTS for found in PLACE.finditer(text(name))]
    assert sorted(shown) == sorted(TABLES)
    headings = re.findall(r"^## .*`(\w+)`$", text("docs/results.md"), re.MULTILINE)
    assert sorted(headings) == sorted(EXPERIMENTS)


def test_beneath_the_tables_no_figure_stands_but_the_papers() -> None:
    """In code and in names figures are no results: `5e-4`, Experiment 1, SmolLM2-135M."""
    prose = re.sub(r"```.*?```", "", PLACE.sub("", text("docs/results.md")), flags=re.DOTALL)
    own = [part for part in prose.split("\n\n") if not part.startswith(("**The paper", "#"))]
    named = r"`[^`]*`|\]\([^)]*\)|Algorithm 1|Theorem 1|\bA2\b|LLaDA-8B|SmolLM2-135M|float32"
    assert re.findall(r".*\d.*", re.sub(named, "", "\n\n".join(own))) == []
