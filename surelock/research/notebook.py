"""`python -m surelock.research.notebook`: run the example notebook and keep what its cells put out.

A notebook's page shows it without running it. The stage is too large to be kept, so its place is taken by the figure of
the same run.
"""

import ast
import io
import json
from contextlib import redirect_stdout
from typing import Any

import surelock
from surelock.places import ASSETS
from surelock.trace.replay import Shown

NOTEBOOK = ASSETS / "notebooks" / "race.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell as a notebook does. Returns the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if isinstance(last, ast.Expr) else None


def outputs_of(value: Any, printed: str, count: int) -> list[dict[str, Any]]:
    """Return the outputs of code cell number `count`, of the value of its last expression and what it printed."""
    found: list[dict[str, Any]] = []
    if printed:
        found.append({"output_type": "stream", "name": "stdout", "text": printed})
    if value is not None:
        data = {"text/plain": repr(value)}
        if isinstance(value, Shown):
            data["application/vnd.plotly.v1+json"] = json.loads(surelock.figure(value.document).to_json() or "")
        elif hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_()
        found.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return found


def run(notebook: dict[str, Any]) -> list[Any]:
    """Run a notebook from top to bottom, and put the outputs into its cells. Returns the values of its code cells."""
    names: dict[str, Any] = {"__name__": "__main__"}
    values = []
    for count, cell in enumerate((each for each in notebook["cells"] if each["cell_type"] == "code"), start=1):
        with redirect_stdout(io.StringIO()) as printed:
            values.append(run_cell(cell["source"], names))
        cell |= {"outputs": outputs_of(values[-1], printed.getvalue(), count), "execution_count": count}
    return values


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    run(notebook)
    NOTEBOOK.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
