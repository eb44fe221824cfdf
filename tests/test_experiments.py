"""The experiments: every one in `--quick`, what interruption leaves, several processes, and what they refuse."""

import csv
import errno
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from labs import quick

from surelock.__main__ import main
from surelock.research import runner
from surelock.research.cli import EXPERIMENTS
from surelock.research.runner import those_named

ROOT = Path(__file__).resolve().parents[1]
FILES = ("cells.jsonl", "table.csv", "table.md")
FIGURES = ("figure.html", "figure.svg")


@pytest.fixture(scope="module")
def flops(tmp_path_factory):
    """A finished experiment, not to be changed."""
    out = tmp_path_factory.mktemp("finished")
    assert quick("flops", out) == 0
    return out / "flops"


@pytest.fixture
def broken(flops, tmp_path):
    """A copy of it as an interruption leaves it: two cells, and the beginning of a third."""
    shutil.copytree(flops, tmp_path / "flops")
    lines = (flops / "cells.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "flops" / "cells.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    (tmp_path / "flops" / "table.csv").unlink()
    return tmp_path


LONG = ("selection", "frontier", "runtime", "parallel")
LONG_ONES = [pytest.param(name, marks=pytest.mark.long) for name in LONG]


@pytest.mark.parametrize("name", ["epsilon", "dynamics", *LONG_ONES])
def test_every_experiment_leaves_a_table(name, tmp_path, capsys, small_judge):
    """And a judge's, where it keeps texts."""
    texts = EXPERIMENTS[name].texts is not None
    assert quick(name, tmp_path, *["--judge", str(small_judge)] * texts) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["experiment"] == name
    judged = [f"judge-{small_judge.name}"] * texts
    drawn = FIGURES * (name in ("dynamics", "runtime"))
    assert {file.name for file in (tmp_path / name).iterdir()} == {*FILES, *judged, *drawn}
    for file in (tmp_path / name).rglob("table.csv"):
        header, *rows = csv.reader(file.read_text().splitlines())
        assert rows and all(len(row) == len(header) for row in rows)
        assert ("gen_ppl" in header) == (file.parent.name != name)
    assert (
        f"experiment {name} --model stories --quick" in (tmp_path / name / "table.md").read_text()
    )


def test_an_interrupted_experiment_goes_on_to_the_same_table(flops, broken, capsys):
    """What is left and how long it takes is said also to a file."""
    before = (broken / "flops" / "cells.jsonl").read_bytes().splitlines()[:2]
    assert quick("flops", broken) == 0
    assert (broken / "flops" / "table.csv").read_text() == (flops / "table.csv").read_text()
    after = (broken / "flops" / "cells.jsonl").read_bytes().splitlines()
    assert after[:2] == before
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("surelock: ")]
    left = len(after) - 2
    begins = rf"surelock: {left} cells are to be measured, 2 are finished; 2 of these took \d+ s, .* about \d+ s"
    assert re.fullmatch(begins, told[0]) and len(told) == 1 + left
    assert re.fullmatch(
        rf"surelock: cell 1 of {left} \(.*\) took \S+ s, about \d+ s are left", told[1]
    )


def test_cells_are_selected_by_name(tmp_path, capsys):
    assert quick("flops", tmp_path, "--cell", "epsilon=0.05") == 0
    cells = [
        json.loads(line)["cell"]
        for line in (tmp_path / "flops" / "cells.jsonl").read_text().splitlines()
    ]
    assert cells == [
        cell for cell in EXPERIMENTS["flops"].grids["quick"] if cell["epsilon"] == 0.05
    ]
    assert "--cell epsilon=0.05" in (tmp_path / "flops" / "table.md").read_text()
    values = (0.05, 0.1)
    cells = [{"epsilon": epsilon, "prompts": 2} for epsilon in (0.01, *values)]
    assert those_named(cells, [f"epsilon={value}" for value in values]) == cells[1:], "either one"
    capsys.readouterr()
    for flag, said in (
        ("epsilon=7", "--cell: no cell of this experiment and preset has epsilon=7: epsilon of"),
        ("size=7", "--cell must be NAME=VALUE with a name of source, prompts"),
    ):
        assert quick("flops", tmp_path, "--cell", flag) == 2
        assert said in capsys.readouterr().err


def test_a_figure_is_drawn_of_the_committed_cells(tmp_path):
    name = "runtime"
    assert main(["experiment", name, "--recorded", "--out", str(tmp_path)]) == 0
    made = tmp_path / "recorded" / name
    kept = ROOT / "assets" / "results" / name
    assert (made / "table.csv").read_bytes() == (kept / "table.csv").read_bytes()
    svg = ElementTree.parse(made / "figure.svg").getroot()
    titles = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    records = list(runner.finished(kept).values())
    panels = EXPERIMENTS[name].panels(records)
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}g"))) == len(panels)
    assert {panel.title for panel in panels} <= set(titles)
    assert {line.name for panel in panels for line in panel.lines} <= set(titles)
    assert "Plotly.newPlot" in (made / "figure.html").read_text()
    assert (
        main(["experiment", name, "--recorded", "--cell", "gen_length=64", "--out", str(tmp_path)])
        == 0
    )
    assert "N = 256" not in (made / "figure.svg").read_text()


def test_records_of_another_setup_are_kept_and_not_counted(flops, tmp_path):
    shutil.copytree(flops, tmp_path / "flops")
    file = tmp_path / "flops" / "cells.jsonl"
    other = [json.loads(line) for line in file.read_text().splitlines()]
    for record in other:
        record["setup"]["weights"] = "others"
        record["result"]["flops_ratio"] = 9.0
    file.write_text("".join(json.dumps(record) + "\n" for record in other))
    assert quick("flops", tmp_path) == 0
    assert (tmp_path / "flops" / "table.csv").read_text() == (flops / "table.csv").read_text()
    assert len(file.read_text().splitlines()) == 2 * len(other)


def test_packed_cells_are_read_and_merged_into(flops, broken):
    """What is not finished is measured beside them; one packed file stays."""
    plain = broken / "flops" / "cells.jsonl"
    packed = broken / "flops" / "cells.jsonl.xz"
    packed.write_bytes(lzma.compress(b"".join(plain.read_bytes().splitlines(keepends=True)[:2])))
    plain.unlink()
    assert quick("flops", broken) == 0
    assert (broken / "flops" / "table.csv").read_text() == (flops / "table.csv").read_text()
    assert not plain.exists()
    both = [lzma.decompress(packed.read_bytes()), (flops / "cells.jsonl").read_bytes()]
    merged, measured = (
        [json.loads(line) | {"seconds": 0} for line in lines.splitlines()] for lines in both
    )
    assert merged == measured
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ValueError, match=f"{packed} cannot be unpacked"):
        runner.finished(broken / "flops")


@pytest.mark.long
def test_two_processes_make_the_table_of_one(flops, tmp_path):
    launch = [
        "-m",
        "accelerate.commands.accelerate_cli",
        "launch",
        "--multi_gpu",
        "--num_processes",
        "2",
    ]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    run = ["-m", "surelock", "experiment", "flops", "--quick", "--device", "cpu", "--threads", "1"]
    subprocess.run(
        [sys.executable, *launch, *run, "--out", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=240,
    )
    assert (tmp_path / "flops" / "table.csv").read_text() == (flops / "table.csv").read_text()
    assert {file.name for file in (tmp_path / "flops").iterdir()} == set(FILES)


def test_a_full_disk_costs_nothing_that_was_finished(broken, monkeypatch, capsys):
    kept = sum(
        map(len, (broken / "flops" / "cells.jsonl").read_bytes().splitlines(keepends=True)[:2])
    )

    def torn(descriptor: int) -> None:
        os.ftruncate(descriptor, kept + 30)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", torn)
    assert quick("flops", broken) == 2
    lost, error = capsys.readouterr().err.splitlines()[-2:]
    assert "No space left" in error and "2 finished cells" in error
    assert json.loads(lost)["result"]["flops_ratio"] < 1
    assert len(runner.finished(broken / "flops")) == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--data wikitext=nowhere.txt", "there is no file nowhere.txt"),
        ("--data poems=nowhere.txt", "SOURCE=FILE with a source of wikitext, mt_bench, humaneval"),
        ("--preset paper", "--data mt_bench=FILE is needed: MT-Bench's question.jsonl"),
        ("--preset paper --data mt_bench=stories.txt", "line 1 is not JSON"),
        ("--quick --data wikitext=stories.txt", "--data wikitext: no cell"),
        ("--data mt_bench=stories.txt --data mt_bench=b", "--data mt_bench was given twice"),
        ("--quick --model tiny", "has no tokenizer"),
    ],
)
def test_bad_input_is_one_sentence(flags, said, llada, monkeypatch, capsys):
    monkeypatch.chdir(llada.parent)
    Path("stories.txt").write_text("A cat sat.\n<|endoftext|>\n")
    assert main(["experiment", "flops", "--device", "cpu", "--out", "out", *flags.split()]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[-1].startswith("surelock: ") and said in error[-1]
    assert not Path("out").exists()


def test_a_spoilt_record_is_named(broken, capsys):
    file = broken / "flops" / "cells.jsonl"
    file.write_text('{"no": "cell"}\n' + file.read_text())
    assert quick("flops", broken) == 2
    assert f"{file}, line 1 is not the record of a cell" in capsys.readouterr().err
