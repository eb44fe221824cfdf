"""The outputs of `surelock decode` over many prompts: nothing is lost, nothing is wrong in silence."""

import copy
import csv
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from many import PROMPTS, Disk, Stopped, contents, load_once, run, words_of
from test_javascript import needs_node, node
from waiting import HANGS

import surelock
from surelock.decoding.decoder import read_decoder
from surelock.trace.outputs import Holding, Lacking, lacking
from surelock.trace.results import Results

TABLES = ("t.csv", "t.parquet", "")  # none: a folder of traces


def ids_of(folder: Path, table: str) -> set[str]:
    """The ids of the prompts that a table, or a folder of traces, holds."""
    place = folder / "kept" / (table or "traces")
    if not place.exists():
        return set()
    if not table:
        return {unquote(path.stem) for path in place.iterdir()}
    return set(read(place)["id"])


def read(table: Path) -> pd.DataFrame:
    """A table as docs/command-line.md says that it is read."""
    if table.suffix == ".parquet":
        return pd.read_parquet(table)
    numbers = dict.fromkeys(("token", "kl", "confidence"), "")
    frame = pd.read_csv(
        table, dtype={"id": str, "text": str}, keep_default_na=False, na_values=numbers
    )
    for name in ("id", "text"):
        frame[name] = frame[name].str.removeprefix("'")
    return frame


@pytest.mark.parametrize(
    ("table", "before"),
    [*((table, 0) for table in TABLES), pytest.param("t.parquet", 3, marks=pytest.mark.long)],
)
def test_a_run_that_stops_at_any_write_goes_on_as_if_it_had_not(
    table, before, tmp_path, monkeypatch, stories, capsys
) -> None:
    """Also where the run that goes on stops, and where half of a piece was written: byte for byte.

    before: prompts of an earlier run, which has ended.
    """
    load_once(monkeypatch, stories)

    def begin(name: str) -> list[str]:
        folder = tmp_path / name
        if before:
            shutil.copytree(tmp_path / "before", folder)
        return words_of(folder, table)

    if before:
        assert run(*words_of(tmp_path / "before", table, prompts=PROMPTS[:before])) == 0
    assert run(*begin("whole")) == 0
    whole = contents(tmp_path / "whole" / "kept")
    assert len(whole["o.jsonl"]) == len(PROMPTS)
    words = begin("counted")
    with monkeypatch.context() as patch:
        counting = Disk(patch)
        run(*words)
        assert counting.moments.count("write") >= 2 and counting.moments.count("fsync") >= 6
    stops = [(at, False) for at in range(1, len(counting.moments) + 1)]
    stops += [(at, True) for at, name in enumerate(counting.moments, 1) if name == "write"]
    chance = random.Random(5)
    for at, half in stops:
        folder = tmp_path / f"{at}-{half}"
        words = begin(folder.name)
        for moment in (at, chance.randint(1, len(counting.moments))):
            with monkeypatch.context() as patch:
                disk = Disk(patch, moment, half)
                try:
                    run(*words)
                except Stopped:
                    assert len(disk.moments) >= moment
            done = {json.loads(line)["id"] for line in whole_lines(folder / "kept" / "o.jsonl")}
            if table == "t.csv" and done:
                assert {str(name) for name in done} <= set(read_whole_rows(folder / "kept" / table))
        assert run(*words) == 0
        assert contents(folder / "kept") == whole, (at, half)
    assert "lack" not in capsys.readouterr().err


def whole_lines(file: Path) -> list[bytes]:
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def wait_for_a_line(file: Path) -> None:
    end = time.monotonic() + HANGS
    while not whole_lines(file):
        assert time.monotonic() < end, f"nothing is written to {file}"
        time.sleep(0.001)


def read_whole_rows(file: Path) -> list[str]:
    """The ids of a CSV table, which may end in a half row."""
    with file.open(newline="", encoding="utf-8", errors="replace") as opened:
        return [row[0].removeprefix("'") for row in csv.reader(opened) if row]


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("table", TABLES)
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(table: str, tmp_path: Path) -> None:
    """At twenty moments of its duration and once its first result is written: the same files, but for seconds."""
    command = [sys.executable, str(Path(__file__).with_name("many.py"))]
    where = str(Path(__file__).parents[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": where}
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(command, text=True, cwd=where, env=environment, **pipes) as forks:
        assert forks.stdin and forks.stdout

        def decode(folder: Path, wait: Callable[[], object] | None = None) -> int:
            """The status of the command, which gets a signal after a wait."""
            print(json.dumps(words_of(folder, table)), file=forks.stdin, flush=True)
            child = int(forks.stdout.readline())  # type: ignore[union-attr]
            if wait is not None:
                wait()
                os.kill(child, signal.SIGKILL)
            print(file=forks.stdin, flush=True)
            return int(forks.stdout.readline())  # type: ignore[union-attr]

        decode(tmp_path / "warm")
        begun = time.perf_counter()
        assert decode(tmp_path / "whole") == 0
        duration = time.perf_counter() - begun
        whole = contents(tmp_path / "whole" / "kept")
        killed = []
        for moment in range(20):
            folder = tmp_path / str(moment)
            killed.append(
                decode(folder, partial(time.sleep, duration * moment / 20)) == -signal.SIGKILL
            )
            # it was over before: the machine is faster than it was
            duration *= 1 if killed[-1] else 0.8
            assert decode(folder) == 0
            assert contents(folder / "kept") == whole, moment
        folder = tmp_path / "a result"
        decode(folder, partial(wait_for_a_line, folder / "kept" / "o.jsonl"))
        assert decode(folder) == 0
        assert contents(folder / "kept") == whole
        forks.stdin.close()
        said = forks.stderr.read() if forks.stderr else ""
    assert sum(killed) >= 5 and " already" in said and "lack" not in said


def test_what_was_done_before_an_output_was_begun_is_named_and_not_decoded(
    tmp_path, monkeypatch, stories, capsys
):
    calls = load_once(monkeypatch, stories)
    for table in TABLES:
        folder = tmp_path / (table or "traces")
        three = words_of(folder, table, prompts=PROMPTS[:3])
        without = three[: three.index("--table" if table else "--trace")]
        assert run(*without) == 0
        begun = len(calls)
        words = words_of(folder, table)
        for _ in range(2):  # the second time nothing is left to decode
            assert run(*words) == 0
            said = capsys.readouterr().err
            assert f"{table or 'traces'} will lack 3 prompts ('007', '=a,b'," in said, said
            assert ids_of(folder, table) == {"4", "a/b"}
        assert len(calls) == begun + 2, "one batch of two kinds"


@pytest.mark.parametrize("table", TABLES)
def test_what_an_output_has_lost_is_named_and_decoded_again(
    table, tmp_path, monkeypatch, stories, capsys
) -> None:
    load_once(monkeypatch, stories)
    words = words_of(tmp_path, table)
    kept = tmp_path / "kept"
    assert run(*words) == 0
    whole = contents(kept)
    for _ in range(2):
        capsys.readouterr()
        lose(kept, table)
        assert run(*words) == 0
        assert (
            "lacks 1 prompt ('a/b') that" in (said := capsys.readouterr().err)
            and "4 of 5 prompts are in" in said
        )
        found = contents(kept)
        assert by_id(found.pop("o.jsonl")) == by_id(whole["o.jsonl"])
        if table == "t.csv":
            assert sorted(found[table].splitlines()) == sorted(whole[table].splitlines())
        elif table:
            assert read(kept / table).groupby("id").size().to_dict() == rows_of(
                whole["o.jsonl"], kept / table
            )
        else:
            assert found == {name: content for name, content in whole.items() if name != "o.jsonl"}


def test_what_one_of_two_outputs_has_lost_stands_once_in_the_other(
    tmp_path, monkeypatch, stories
) -> None:
    load_once(monkeypatch, stories)
    kept = tmp_path / "kept"
    words = words_of(tmp_path, "t.csv", "--trace", str(kept / "traces"))
    assert run(*words) == 0
    rows = sorted((kept / "t.csv").read_bytes().splitlines())
    (kept / "traces" / "a%2Fb.json").unlink()
    assert run(*words) == 0
    assert sorted((kept / "t.csv").read_bytes().splitlines()) == rows
    assert "a/b" in ids_of(tmp_path, "")


def test_the_first_prompts_of_an_output_are_decoded_again_if_it_has_begun_them() -> None:
    """Only what was done before its first prompt was never in it."""
    tasks = [SimpleNamespace(id=name) for name in "abcd"]
    holding = Holding(begun=set("bc"), whole=set("c"))
    assert lacking(holding, tasks, {name: {} for name in "abcd"}) == Lacking(["a"], ["b", "d"])


def lose(kept: Path, table: str) -> None:
    """Let an output lose a part of the prompt a/b, which the results hold."""
    if table == "t.csv":
        content = (kept / table).read_bytes()
        start = content.index(b"\na/b,")
        (kept / table).write_bytes(content[:start] + content[content.index(b"\n", start + 1) :])
    elif table:
        frame = pd.read_parquet(kept / table)
        last = frame.index[frame["id"] == "a/b"][-1]
        frame.drop(index=last).to_parquet(kept / table)  # one row group
    else:
        (kept / "traces" / "a%2Fb.json").write_bytes((kept / "traces" / "4.json").read_bytes())


def by_id(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(line["id"]): line for line in lines}


def rows_of(lines: list[dict[str, Any]], table: Path) -> dict[str, int]:
    positions = read(table).groupby("id")["position"].max() + 1
    return {str(line["id"]): line["steps"] * positions[str(line["id"])] for line in lines}


@pytest.mark.parametrize("table", TABLES)
def test_a_full_disk_ends_the_run_in_a_sentence_and_it_goes_on(
    table, tmp_path, monkeypatch, stories, capsys
) -> None:
    load_once(monkeypatch, stories)
    assert run(*words_of(tmp_path / "whole", table)) == 0
    whole = contents(tmp_path / "whole" / "kept")
    largest = max(
        path.stat().st_size for path in (tmp_path / "whole" / "kept").rglob("*") if path.is_file()
    )
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for share in range(10):
        folder = tmp_path / str(share)
        words = words_of(folder, table)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest * share // 10, limit[1]))
        try:
            assert run(*words) == 2
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert (
            "File too large: " in (said := capsys.readouterr().err) and str(folder / "kept") in said
        )
        assert run(*words) == 0 and contents(folder / "kept") == whole


@pytest.mark.parametrize("table", TABLES)
def test_without_results_a_former_output_is_replaced_once_there_is_a_new_one(
    table, tmp_path, monkeypatch, stories
):
    load_once(monkeypatch, stories)
    words = words_of(tmp_path, table)
    del words[words.index("--out") : words.index("--out") + 2]
    assert run(*words, "--seed", "5") == 0
    former = contents(tmp_path / "kept")

    def failing(*args: Any, **keywords: Any) -> Any:
        raise ValueError("the first decode fails")

    with monkeypatch.context() as patch:
        patch.setattr("surelock.trace.cli.decode", failing)
        assert run(*words) == 2
    assert contents(tmp_path / "kept") == former
    assert run(*words) == 0
    assert (
        contents(tmp_path / "kept") != former
        and contents(tmp_path / "kept").keys() == former.keys()
    )


IDS: list[str] = json.loads(
    r"""["007", "1e5", "-1", "=1", "'a", "''", "a,b", "a\"b", "\"", "a\nb", "a\rb", " x ", "NA", "nan", "True", "a;b",
    "\t", "\u00e9", "\u2028", "\ufeff=", "a\u0000b", "%2F", "gsm8k/1", "gsm8k_1", "gsm8k 1", "CON", "com1.txt", ".",
    "..", ".hidden"]"""
)
IDS.append("x" * 200)


def test_ids_are_exact_in_every_output(tmp_path, monkeypatch, stories) -> None:
    """Also in those of a run that goes on, as csv and pandas read them; no name is a device's, or hidden."""
    load_once(monkeypatch, stories)
    prompts = [{"prompt": "Tom", "id": name} for name in IDS]
    for table in TABLES:
        folder = tmp_path / (table or "traces")
        words = words_of(folder, table, "--batch", "40", "--seed", "0", prompts=prompts)
        assert run(*words) == 0
        lines = (folder / "kept" / "o.jsonl").read_bytes().split(b"\n")
        (folder / "kept" / "o.jsonl").write_bytes(b"\n".join([*lines[: len(IDS) // 2], b""]))
        assert run(*words) == 0
        assert [json.loads(line)["id"] for line in whole_lines(folder / "kept" / "o.jsonl")] == IDS
        assert ids_of(folder, table) == set(IDS)
    seen = dict.fromkeys(read_whole_rows(tmp_path / "t.csv" / "kept" / "t.csv"))
    assert list(seen) == ["id", *IDS]
    names = [path.name for path in (tmp_path / "traces" / "kept" / "traces").iterdir()]
    assert all(re.fullmatch(r"[\w%~-][\w%.~-]*\.json", name, re.ASCII) for name in names)
    assert not [name for name in names if re.match(r"(con|com1)\.", name, re.IGNORECASE)]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True, min_size=2))
def test_no_two_ids_have_one_file_name(ids: list[str]) -> None:
    from surelock.trace.trace_folder import trace_name

    names = [trace_name(each) for each in ids]
    assert [unquote(name.removesuffix(".json")) for name in names] == ids
    assert not [
        name
        for name in names
        if name.startswith(".") or not name.isascii() or set(name) & set('/\\:*?"<>| ')
    ]


def test_all_pieces_are_read_back(tmp_path, stories) -> None:
    """The csv module and pandas read the texts of all 4,096 tokens, without one apostrophe where there is one."""
    from surelock.decoding.totals import TotalsCounter
    from surelock.trace.csv_table import CsvTable
    from surelock.trace.parquet_table import ParquetTable
    from surelock.trace.pieces import Pieces
    from surelock.trace.table import text_of_piece
    from surelock.trace.tasks import Decoded, task_of

    size = stories.config.vocab_size
    pieces = Pieces(stories.tokenizer).look_up(range(size))
    texts = [text_of_piece(pieces[str(token)]) for token in range(size)]
    assert size == 4096 == len(set(texts)) and {"'", "=", "\r", "\n", '"', "\0", "'s"} <= set(texts)
    (prompt,) = surelock.trace.prompts.read_prompts(["Tom"], None)
    task = task_of(stories, prompt, 0, {"gen_length": 1}, {"chat": False, "blanks": True})
    (step,) = surelock.decode(
        stories, [task.tokens], surelock.DecodeSettings(gen_length=1), observe=True
    )
    arrays = [
        field.name for field in fields(step) if isinstance(getattr(step, field.name), np.ndarray)
    ]
    wide = {
        name: np.zeros((1, size), getattr(step, name).dtype)
        for name in arrays
        if getattr(step, name).ndim == 2
    }
    wide |= {
        "tokens": np.arange(size)[None],
        "computed": np.ones((1, size), bool),
        "commit_logits": None,
    }
    totals = TotalsCounter(stories.config, stories.ends)
    decoded = [Decoded(task, totals, [replace(step, **wide)])]
    for output in (CsvTable(tmp_path / "t.csv"), ParquetTable(tmp_path / "t.parquet")):
        output.keep(())
        output.add(stories, decoded)
        output.close()
        assert output.holding([task], {"1": {"steps": 1, "rows": size}}).whole == {"1"}
        assert read(output.place)["text"].tolist() == texts
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as opened:
        cells = [row[4] for row in csv.reader(opened)][1:]
    assert [cell.removeprefix("'") for cell in cells] == texts
    assert not [cell for cell in cells if cell.lstrip().startswith(tuple("=+-@"))]


@needs_node
def test_the_page_and_the_table_have_one_rule_for_apostrophes() -> None:
    from surelock.trace.csv_table import harmless, quoted

    chance = random.Random(3)
    some = "=+-@\uff1d\uff0b\uff0d\uff20'\" \t\r\n\0\ufeff\u200b\u00a0\u2028\u3000\x1c\x85a\u00e9"
    texts = [
        "",
        *some,
        *("".join(chance.choices(some, k=chance.randint(2, 4))) for _ in range(3000)),
    ]
    code = """import { readFileSync } from "node:fs";
    import { harmless } from "./assets/js/export/share.js";
    console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(harmless)));"""
    cells = json.loads(node("--input-type=module", "-e", code, given=json.dumps(texts)))
    assert cells == [quoted(harmless(text)) for text in texts]


#: Places where a command cannot keep what it computes, and a part of the sentence. {} is the place.
PLACES = """
--out kept/x.jsonl | --out must be a file, and '{}' is a folder
--table kept/x.csv | --table must be a file, and '{}' is a folder
--out /proc/x.jsonl | {} was not written
--table /proc/x.csv | {} was not written
--table /proc/x.parquet | {} was not written
--trace /proc/x | /proc/x
--trace kept/x.json | --trace must be a folder, and '{}' is a file
--table kept/y.csv | --table: {} is no table of this command: choose another file
--table kept/y.parquet | --table: {} is no table of this command
--table kept/z.parquet | --table: {} is damaged, or no Parquet file
--trace kept | --trace: {}/2.json is no trace: choose another folder
--out kept/link.jsonl | --prompts and --out must be two places, and '{}' is both
--out kept/t.parquet.parts/o.jsonl | --out must not lie in '
--trace kept/t.parquet.parts | must be two places
--table kept/s.parquet | a.txt is no part of the table
"""


@pytest.mark.parametrize("case", PLACES.strip().splitlines())
def test_what_cannot_be_kept_is_not_computed(case, tmp_path, monkeypatch, stories, capsys) -> None:
    kept = tmp_path / "kept"
    for name in ("x.jsonl", "x.csv", "t.parquet.parts", "s.parquet.parts"):
        (kept / name).mkdir(parents=True)
    (kept / "s.parquet.parts" / "a.txt").touch()
    for name in ("x.json", "2.json", "y.csv", "z.parquet"):
        (kept / name).write_text("{}")
    pd.DataFrame({"a": [1]}).to_parquet(kept / "y.parquet")
    (kept / "link.jsonl").symlink_to(tmp_path / "prompts.jsonl")
    asked, said = case.split(" | ")
    flag, place = asked.split()
    words = words_of(
        tmp_path, "t.parquet", flag, str(tmp_path / place), prompts=[{"prompt": "Tom"}] * 2
    )
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    calls = load_once(monkeypatch, stories)
    status = run(*words)
    err = capsys.readouterr().err
    assert (status, calls, err.count("\n")) == (2, [], 1), err
    assert said.format(tmp_path / place) in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_file_of_objects_is_one_whatever_the_case_of_its_name(
    tmp_path, monkeypatch, stories
) -> None:
    words = words_of(tmp_path, "t.csv", prompts=[{"prompt": "Tom", "id": "x"}])
    (tmp_path / "prompts.jsonl").rename(tmp_path / "P.JSONL")
    words[words.index("--prompts") + 1] = str(tmp_path / "P.JSONL")
    load_once(monkeypatch, stories)
    assert run(*words) == 0 and ids_of(tmp_path, "t.csv") == {"x"}


@pytest.mark.parametrize("flags", [("--out", "-"), ("--json",), ()])
def test_a_standard_output_of_another_encoding_gets_utf_8(flags, monkeypatch, stories) -> None:
    load_once(monkeypatch, stories)
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", written)
    assert run("decode", "Caf\u00e9 \u4e2d", "--gen-length", "2", *flags) == 0
    text = written.buffer.getvalue().decode()
    assert "Caf\u00e9 \u4e2d" in text
    if flags:
        assert json.loads(text.splitlines()[-1])["prompt"] == "Caf\u00e9 \u4e2d"


def test_results_of_version_4_go_on(tmp_path: Path) -> None:
    """Their lines hold settings by their short names; a difference is named as before."""
    short = json.loads(
        """{"compute": "lock+select", "epsilon": 0.001, "percentile": null, "select_fraction": 0.5, "unlock": true,
        "unlock_period": 3, "unmask": "threshold", "threshold": 0.5, "gen_length": 8, "temperature": 0.5}"""
    )
    head = {"id": "a", "model": "m", "prompt": "p", "chat": False, "blanks": True}
    results = results_of(tmp_path, head | {"settings": short})
    head["settings"] = read_decoder(short).to_plain()
    results.check("prompt a", head)
    head["settings"]["settings"]["temperature"] = 0.25
    with pytest.raises(
        ValueError, match=r"has prompt a with temperature 0\.5, and now it is 0\.25: choose another"
    ):
        results.check("prompt a", head)


def results_of(folder: Path, head: dict[str, Any]) -> Results:
    """The results in a file of one line, which begins so."""
    (folder / "out.jsonl").write_text(json.dumps(head) + "\n", "utf-8")
    return Results(folder / "out.jsonl")


def head_of(lm: surelock.LanguageModel, **rules: Any) -> dict[str, Any]:
    """The beginning of the line of one prompt."""
    from surelock.trace.tasks import task_of

    (prompt,) = surelock.trace.prompts.read_prompts(["A dog"], None)
    return task_of(lm, prompt, 0, rules, {"chat": False, "blanks": True}).head


def fields_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all values in nested objects."""
    if not isinstance(value, dict):
        yield path
        return
    for name, inner in value.items():
        yield from fields_of(inner, (*path, name))


def test_whatever_a_run_depends_on_is_refused_when_it_differs(tmp_path, stories) -> None:
    """Every field of a line's beginning, and every setting of its decoder, changed in turn."""
    head = head_of(stories, compute="lock+select", unlock=True, unmask="threshold")
    results = results_of(tmp_path, head)
    results.check("prompt a", head)
    changed = [path for path in fields_of(head) if path != ("id",)]
    assert {"model", "prompt", "chat", "blanks", "settings"} <= {path[0] for path in changed}
    for path in changed:
        other = copy.deepcopy(head)
        inner = other
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = "another"
        with pytest.raises(ValueError, match=f"has prompt a with {path[-1]} "):
            results.check("prompt a", other)


def test_another_rule_is_named_before_its_settings(tmp_path, stories) -> None:
    results = results_of(tmp_path, head_of(stories, compute="lock"))
    with pytest.raises(ValueError, match="with kind of compute 'lock', and now it is 'budget'"):
        results.check("prompt 1", head_of(stories, compute="budget"))
