"""The command line and its benchmark: what they print, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from surelock.__main__ import main


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    out, err = capsys.readouterr()
    return status, out, err


def last_json(out: str) -> dict:
    return json.loads(out.strip().splitlines()[-1])


FLOPS = ["--d-model", "4096", "--layers", "32", "--heads", "32", "--kv-heads", "32", "--ffn", "12288"]


def test_flops_prints_the_papers_figure(capsys):
    status, out, _ = run(capsys, "flops", *FLOPS, "--seq-len", "128", "--steps", "64", "--json")
    result = last_json(out)
    assert status == 0
    assert set(result) == {"flops_per_run", "flops_per_position"}
    assert result["flops_per_position"] == pytest.approx(8.976e11, rel=5e-4)
    assert result["flops_per_run"] == pytest.approx(128 * result["flops_per_position"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seq-len", "0", "--steps", "4"], "--seq-len"),
        (["--seq-len", "8", "--steps", "-1"], "--steps"),
        (["--seq-len", "8", "--steps", "4", "--heads", "0"], "--heads (0) must divide --d-model (4096)"),
        (["--seq-len", "8", "--steps", "4", "--heads", "33"], "--heads (33) must divide --d-model (4096)"),
    ],
)
def test_flops_refuses_impossible_sizes(capsys, flags, said):
    status, out, err = run(capsys, "flops", *FLOPS, *flags)
    assert (status, out) == (2, "")
    assert said in err


def test_decode_prints_text_and_totals(capsys):
    argv = ["decode", "Tom had a red ball. He", "--gen-length", "12", "--temperature", "0", "--device", "cpu", "--json"]
    status, out, _ = run(capsys, *argv)
    result = last_json(out)
    assert status == 0 and out.startswith("Tom had a red ball. He")
    assert all(not isinstance(value, dict | list) for value in result.values())
    assert result["lock"] is True and result["steps"] == result["tokens"] == 12 and 0 < result["flops_ratio"] <= 1
    assert (result["temperature"], result["no_repeat_ngram_size"]) == (0, 5)
    assert last_json(run(capsys, *argv, "--compute", "everything")[1])["flops_ratio"] == 1
    guided = last_json(run(capsys, *argv, "--cfg-scale", "1")[1])
    assert guided["baseline_flops"] == pytest.approx(2 * result["baseline_flops"]), "two forward passes a step"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gen-length", "8", "--steps", "9"], "steps (9)"),
        (["--compute", "age", "--epsilon", "1"], "epsilon is a setting of compute 'lock', which was not chosen"),
        (["--compute", "age", "--epsilon", "0"], "epsilon is a setting of compute 'lock', which was not chosen"),
        (["--unmask", "klass", "--threshold", "0.5"], "threshold is a setting of unmask 'threshold'"),
        (["--gen-length", "5000"], "more than the"),
        (["--chat"], "no chat template"),
        (["--model", "no/such/model"], "no/such/model"),
    ],
)
def test_decode_says_what_is_wrong_in_one_sentence(capsys, flags, said):
    status, out, err = run(capsys, "decode", "Once", "--device", "cpu", *flags)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_folder_for_the_page_that_holds_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "index.html").write_text("my own page", "utf-8")
    for arguments, said in {
        (str(tmp_path),): "holds something else",
        (str(tmp_path / "index.html"),): "DIR must be a folder",
        ("--one-file", str(tmp_path / "page.txt")): ".html",
    }.items():
        assert main(["site", *arguments]) == 2
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_an_interruption_while_a_command_is_imported_is_told_in_a_line(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("surelock.__main__.import_module", interrupted)
    assert main(["decode", "hi"]) == 130
    assert capsys.readouterr().err == "surelock: interrupted\n"


def test_importing_surelock_stays_light():
    code = "import sys, surelock; print(sorted({'gradio', 'pandas', 'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
