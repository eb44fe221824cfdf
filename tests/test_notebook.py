"""The example notebook runs from top to bottom on the embedded model."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "assets" / "notebooks" / "race.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does; its value is that of its last expression."""
    body = ast.parse(source).body
    last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return eval(compile(last, "<cell>", "eval"), names) if last else None


def test_the_notebook_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert notebook["nbformat"] == 4 and all(not cell.get("outputs") for cell in notebook["cells"])
    names: dict[str, Any] = {"__name__": "__main__"}
    values = [run_cell(cell["source"], names) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = [value for value in values if hasattr(value, "_repr_html_") and not hasattr(value, "columns")]
    assert len(shown) == 1 and "sandbox=" in shown[0]._repr_html_()
    work = values[3]
    assert work.loc["everything", "flops"] == 1 and 0.3 < work.loc["own", "flops"] < 1
    told = capsys.readouterr().out
    assert "of 32 words locked, after" in told and "% of the rows were still" in told
