"""What is committed of each experiment comes out of its cells, byte for byte."""

from __future__ import annotations

import lzma
import re
import shutil
from pathlib import Path

import pytest

import surelock
from surelock.research.cli import EXPERIMENTS, report
from surelock.research.lab import Lab
from surelock.research.runner import finished, merge

RESULTS = Path(__file__).resolve().parents[1] / "assets" / "results"


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if (RESULTS / name / "table.csv").is_file()])
def test_tables_and_pictures_are_of_the_cells(
    name: str,
    stories_in_torch: surelock.LanguageModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the cells are those that the command measures, of the weights that ship, each judge's scores of their texts.

    What a picture is drawn with (the part before `newPlot`) is of plotly's version.
    """
    lab, grid, kept = Lab(stories_in_torch), EXPERIMENTS[name].grids["stories"], RESULTS / name
    (engine,) = {record["setup"].get("engine") for record in finished(kept).values()}
    if engine is not None:  # of another version, here, than the one that measured
        setup = lab.setup() | {"engine": engine}
        monkeypatch.setattr(Lab, "setup", lambda self: setup)
    shutil.copytree(kept, tmp_path / name)
    packed = lzma.compress  # packing well takes long, and the packed cells are not looked at
    monkeypatch.setattr(lzma, "compress", lambda data, preset: packed(data, preset=0))
    records = merge(grid, tmp_path / name, lab.setup())
    assert [record["cell"] for record in records] == grid and len(records) == len(finished(kept))
    table = (kept / "table.md").read_text("utf-8")
    (command,) = re.findall(r"^`(.*)`$", table.split("\n\n|")[0], re.MULTILINE)
    assert command.startswith(f"python -m surelock experiment {name} --model stories --preset stories ")
    assert command.endswith("--out assets/results")
    for file in [*(tmp_path / name).rglob("*.csv"), tmp_path / name / "table.md", tmp_path / name / "picture.html"]:
        file.unlink()
    report(EXPERIMENTS[name], command, lab, records, tmp_path / name)
    for file in [each for pattern in ("*.md", "*.csv", "*.html") for each in kept.rglob(pattern)]:
        made, committed = ((folder / file.relative_to(kept)).read_bytes() for folder in (tmp_path / name, kept))
        if file.suffix == ".html":
            made, committed = (content.partition(b"newPlot")[2] for content in (made, committed))
        assert made == committed, file
    assert capsys.readouterr().err == "", "a judge has read other texts"
