"""The example notebook runs from top to bottom on the embedded model, and holds what its cells put out."""

import json

from surelock.research.notebook import NOTEBOOK, run
from surelock.trace.replay import Shown


def test_the_notebook_runs_from_top_to_bottom_and_shows_what_comes_of_it() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    kept = [[output["output_type"] for output in cell.get("outputs", [])] for cell in notebook["cells"]]
    values = run(notebook)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    made = [[output["output_type"] for output in cell.get("outputs", [])] for cell in notebook["cells"]]
    assert notebook["nbformat"] == 4 and kept == made and all(cell["outputs"] for cell in cells)
    (at,) = (i for i, value in enumerate(values) if isinstance(value, Shown))
    assert "sandbox=" in values[at]._repr_html_()
    assert len(cells[at]["outputs"][0]["data"]["application/vnd.plotly.v1+json"]["data"]) == 6
    work = values[3]
    assert work.loc["everything", "flops"] == 1 and 0.3 < work.loc["own", "flops"] < 1
    told = "".join(cell["outputs"][0].get("text", "") for cell in cells)
    assert "of 32 words locked, after" in told and "% of the rows were still" in told
