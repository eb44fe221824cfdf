"""Tables are what their cells make of them, byte for byte, and stand in the documents as the command writes them.

What stands beneath the tables of docs/results.md holds no figure but the papers'; `tests/test_claims.py` holds what it
says of them.
"""

import lzma
import re
import shutil
from pathlib import Path

import pytest

from surelock.research.cli import EXPERIMENTS, report
from surelock.research.lab import Lab
from surelock.research.runner import finished, merge
from surelock.research.tables import PLACE, TABLES, filled, main

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "assets" / "results"


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


DOCUMENTS = ("README.md", "docs/results.md", "docs/command-line.md", "docs/gpu.md")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "name the documents to write"),
        (["{}/none.md"], "No such file"),
        (["{}/odd.md"], "no table"),
    ],
)
def test_what_cannot_be_written_is_told(tmp_path, given, said):
    (tmp_path / "odd.md").write_text("<!-- table none -->\n<!-- end of table -->")
    with pytest.raises(SystemExit, match=f"^tables: .*{said}"):
        main([name.format(tmp_path) for name in given])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_are_as_the_command_writes_them(name):
    assert filled(text(name)) == text(name)


def test_every_table_is_in_a_document_and_every_experiment_in_the_results():
    shown = [found[2] for name in DOCUMENTS for found in PLACE.finditer(text(name))]
    assert sorted(shown) == sorted(TABLES)
    headings = re.findall(r"^## .*`(\w+)`$", text("docs/results.md"), re.MULTILINE)
    assert sorted(headings) == sorted(EXPERIMENTS)


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if (RESULTS / name / "table.csv").is_file()]
)
def test_tables_are_of_the_cells(
    name,
    stories_in_torch,
    tmp_path,
    capsys,
    monkeypatch,
):
    """The cells are those that the command measures, of the weights that ship or that the results name at their
    beginning, each judge's scores of their texts.
    """
    lab = Lab(stories_in_torch)
    grid = EXPERIMENTS[name].grids["stories"]
    kept = RESULTS / name
    measured = next(iter(finished(kept).values()))["setup"]
    setup = lab.setup()
    setup["data"] = measured["data"] | setup["data"]  # data that does not ship
    # of another version, here
    setup |= {key: measured[key] for key in ("engine",) if key in measured}
    beginning = text("docs/results.md").split("## ")[0]
    if measured["weights"] in re.findall(r"weights (\w{16})", beginning):
        setup["weights"] = measured["weights"]
    monkeypatch.setattr(Lab, "setup", lambda self: setup)
    shutil.copytree(kept, tmp_path / name)
    packed = lzma.compress  # packing well takes long, and the packed cells are not looked at
    monkeypatch.setattr(lzma, "compress", lambda data, preset: packed(data, preset=0))
    records = merge(grid, tmp_path / name, lab.setup())
    assert [record["cell"] for record in records] == grid and len(records) == len(finished(kept))
    table = (kept / "table.md").read_text("utf-8")
    (command,) = re.findall(r"^`(.*)`$", table.split("\n\n|")[0], re.MULTILINE)
    assert command.startswith(
        f"python -m surelock experiment {name} --model stories --preset stories "
    )
    assert "--out" not in command, "in that folder nothing is left to measure"
    for file in [*(tmp_path / name).rglob("*.csv"), tmp_path / name / "table.md"]:
        file.unlink()
    report(EXPERIMENTS[name], command, lab, records, tmp_path / name)
    for file in [each for pattern in ("*.md", "*.csv") for each in kept.rglob(pattern)]:
        made, committed = (
            (folder / file.relative_to(kept)).read_bytes() for folder in (tmp_path / name, kept)
        )
        assert made == committed, file
    assert capsys.readouterr().err == "", "a judge has read other texts"
