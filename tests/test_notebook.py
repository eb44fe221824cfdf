"""The example notebook runs from top to bottom on the embedded model, and holds what its cells put out."""

import io
import json
from contextlib import redirect_stdout

import surelock
from surelock.places import ASSETS


def test_the_notebook_runs_from_top_to_bottom():
    notebook = json.loads((ASSETS / "notebooks" / "race.ipynb").read_text("utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = {}
    with redirect_stdout(io.StringIO()) as printed:
        for cell in cells:
            exec("".join(cell["source"]), names)
    assert notebook["nbformat"] == 4 and all(cell["outputs"] for cell in cells)
    assert "sandbox=" in surelock.show(names["trace"])._repr_html_()
    assert len(cells[2]["outputs"][0]["data"]["application/vnd.plotly.v1+json"]["data"]) == 6
    work = names["work"] / names["work"].iloc[0]
    assert work.loc["everything", "flops"] == 1 and 0.3 < work.loc["own", "flops"] < 1
    told = printed.getvalue()
    assert "of 32 words locked, after" in told and "% of the rows were still" in told
