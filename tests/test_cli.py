"""The command line and its benchmark: what they print, and what they refuse."""

import importlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import create_autospec
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from tqdm import tqdm

import surelock
from surelock import loading
from surelock.__main__ import _parser, main
from surelock.decoding import loop
from surelock.decoding.decoder import Decoder, plain_choice, read_compute, read_decoder, read_unmask
from surelock.decoding.described import describe, presets_for
from surelock.decoding.flags import given_settings
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE
from surelock.decoding.spelling import flat_settings
from surelock.harness.arguments import read_arguments
from surelock.record import field_of
from surelock.trace.lanes import Lane
from surelock.trace.prompts import read_prompts, say_underscores
from surelock.trace.tasks import task_of
from tests.browser.server import free_port


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(list(argv))
    out, err = capsys.readouterr()
    return status, out, err


def last_json(out: str) -> dict:
    return json.loads(out.strip().splitlines()[-1])


LOADING = {"device": "cpu", "dtype": "float64", "engine": "torch", "tokenizer": "gpt2"}


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (["decode", "A"], LOADING | {"device_map": "auto", "weights": "int8"}),
        (["record", "--prompt", "A", "--out", "a.json"], LOADING),
        (["bench", "decode"], LOADING),
        (["experiment", "flops"], LOADING),
    ],
)
def test_every_flag_of_the_model_reaches_the_loader(capsys, monkeypatch, command, given):
    load = create_autospec(loading.load, side_effect=ValueError("no such model"))
    monkeypatch.setattr(loading, "load", load)
    flags = [
        part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    assert run(capsys, *command, "--model", "other", *flags)[0] == 2
    load.assert_called_once_with("other", **given)


FLOPS = [
    "flops",
    "--d-model",
    "4096",
    "--layers",
    "32",
    "--heads",
    "32",
    "--kv-heads",
    "32",
    "--ffn",
    "12288",
]


def test_flops_prints_the_papers_figure(capsys):
    status, out, _ = run(capsys, *FLOPS, *["--seq-len", "128", "--steps", "64", "--json"])
    result = last_json(out)
    assert status == 0
    assert set(result) == {"flops_per_run", "flops_per_position"}
    assert result["flops_per_position"] == pytest.approx(8.976e11, rel=5e-4)
    assert result["flops_per_run"] == pytest.approx(128 * result["flops_per_position"])


def test_decode_prints_text_and_totals(capsys):
    argv = ["decode", "Tom had a red ball. He"]
    argv += ["--gen-length", "12", "--temperature", "0", "--device", "cpu", "--json"]
    status, out, _ = run(capsys, *argv)
    result = last_json(out)
    assert status == 0 and out.startswith("Tom had a red ball. He")
    settings = result["settings"]
    assert settings["compute"]["kind"] == "lock" and 0 < result["flops_ratio"] <= 1
    assert result["steps"] == result["tokens"] == 12
    shared = settings["settings"]
    assert (shared["temperature"], shared["no_repeat_ngram_size"]) == (0, 5)
    assert last_json(run(capsys, *argv, "--compute", "everything")[1])["flops_ratio"] == 1
    guided = last_json(run(capsys, *argv, "--cfg-scale", "1")[1])
    assert guided["baseline_flops"] == pytest.approx(2 * result["baseline_flops"]), (
        "two forward passes a step"
    )


#: Commands that cannot be, and a part of the one sentence that says why.
WRONG = """
flops --seq-len 0 --steps 4 -> --seq-len
flops --seq-len 8 --steps -1 -> --steps
flops --seq-len 8 --steps 4 --heads 0 -> --heads (0) must divide --d-model (4096)
decode A --device cpu --chat -> --chat: stories has no chat template, leave it out
decode A --model no/such/model -> no/such/model
decode A --model storys -> did you mean 'stories'?
decode A --compute lok -> did you mean 'lock'?
decode A --compute age,stps=4 -> did you mean 'steps'?
decode A --compute age,steps=4 --age 4 -> age is given twice, as a flag and behind its kind
decode A --compute no_module:Rule -> the module 'no_module' cannot be imported: No module named
decode A --compute ./mine.py:Rule -> mine.py is a file: name its module, mine, in the folder where it lies
decode A --batch 0 -> --batch must be at least 1, not 0
decode A --out results.txt -> --out must be a file that ends in .jsonl
decode A --prompts - -> give prompts as arguments, or a file of them by --prompts FILE
decode A --epsilom 3 -> unrecognized arguments: --epsilom 3: did you mean '--epsilon'?
decode A --dtype bfloat61 -> did you mean 'bfloat16'?
decod A -> did you mean 'decode'?
page --model storys -> did you mean 'stories'?
decode A --check --out a.jsonl -> --check writes no file: give --out or --check, not both
decode A --check --table a.csv -> --check writes no file: give --table or --check, not both
decode A --check --trace a -> --check writes no file: give --trace or --check, not both
decode A --check --batch 1 -> --check compares batches of at least 2 prompts: --batch must be more than 1
decode A --check --gen-length 6 --steps 99 -> steps (99) must be at most gen_length (6)
decode A --beside everything -> --beside is drawn by --watch: give both
decode A --watch --batch 2 -> --watch draws one prompt at a time: leave out --batch 2
decode A --watch --check -> --watch draws one run and --check compares several
decode A --watch --out - -> --watch draws where --out - writes: give --out a file
decode A --watch --beside everythin -> --beside must be one of
page --host nonsense.invalid -> --host must be
page --host 203.0.113.7 -> --host must be
page --port 0 -> --port must be
page --decode-in browser --model x -> leave out --model
page --decode-in browser --mcp -> --mcp needs them
--prot 7891 -> surelock page: error: unrecognized arguments: --prot 7891: did you mean '--port'?
"""


@pytest.mark.parametrize("case", WRONG.strip().splitlines())
def test_what_is_wrong_is_said_in_one_sentence(capsys, case):
    words, said = case.split(" -> ")
    words = words.split()
    words = [*FLOPS, *words[1:]] if words[0] == "flops" else words
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1) and said in err


def test_a_percentile_below_one_is_warned_of_and_a_dtype_has_to_be_known():
    with pytest.warns(UserWarning, match="percentile=0.2 means 0.2 %: for a fifth pass 20"):
        surelock.LockRule(percentile=0.2)
    with pytest.raises(
        ValueError, match=r"dtype must be one of .* not 'bfloat61': did you mean 'bfloat16'"
    ):
        surelock.load("stories", dtype="bfloat61")


RULES = """
from dataclasses import dataclass

import surelock
from surelock.decoding.settings import setting


@dataclass(frozen=True)
class Odd(surelock.ComputeRule):
    kind = "odd"
    label = "Odd"
    sentence = "Odd."
    gap: int = setting("whole", 3, "Gap", "Steps.", low=1)


class Unlabelled(Odd):
    label = None


@dataclass(frozen=True)
class Bare(surelock.ComputeRule):
    kind = label = sentence = "bare"
    more: int


@dataclass(frozen=True)
class Twice(surelock.ComputeRule):
    kind = label = sentence = "twice"
    steps: int = setting("whole", 3, "Steps", "Steps.", low=1)
"""


@pytest.fixture
def odd_rules(tmp_path, monkeypatch):
    """A module of rules in the current folder."""
    (tmp_path / "odd_rules.py").write_text(RULES, "utf-8")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("odd_rules", None)
    COMPUTE.pop("odd_rules:Odd", None)
    flat_settings.cache_clear()


LACKS = """
surelock:decode -> decode is no rule: it must be a dataclass under surelock.ComputeRule or UnmaskPolicy
odd_rules:Unlabelled -> Unlabelled needs a label: a text
odd_rules:Bare -> Bare cannot be made without arguments: each setting needs a default
odd_rules:Twice -> as another kind has: add flat="twice_steps" to its setting(...)
odd_rules:Od -> the module odd_rules has no 'Od': did you mean 'Odd'?
odd_rules:Odd,gab=2 -> 'gab' is no setting of compute 'odd_rules:Odd' in the form key=value: it has gap
"""


def test_a_rule_from_outside_says_what_it_lacks(odd_rules):
    for case in LACKS.strip().splitlines():
        named, said = case.split(" -> ")
        with pytest.raises(ValueError, match=re.escape(said)):
            given_settings(_parser().parse_args(["decode", "Once", "--compute", named]))
    assert [kind for kind in COMPUTE if kind.startswith("odd")] == ["odd_rules:Odd"]


def test_a_rule_from_outside_is_a_kind_once_it_is_imported(odd_rules, stories):
    """A command imports what its flags name; nothing that is read does. Its nested form has its module and class."""
    with pytest.raises(ValueError, match="compute must be one of everything, lock") as refused:
        read_compute({"kind": "odd_rules:Odd"})
    assert "known once a flag (--compute, --rules)" in str(refused.value)
    assert "odd_rules" not in sys.modules
    words = ["decode", "Once", "--compute", "lock+odd_rules:Odd,gap=2"]
    select = recommended({}, given_settings(_parser().parse_args(words))).compute.select
    assert plain_choice(select) == {"kind": "odd_rules:Odd", "gap": 2}
    assert recommended({}, read_arguments({"compute": "odd_rules:Odd", "gap": 5})).compute.gap == 5
    assert recommended({}, {"compute": "odd_rules:Odd", "gap": 6}).compute.gap == 6
    (lane,) = field_of(stories, ["odd_rules:Odd,gap=5"], {})
    assert (lane.name, lane.decoder.compute) == ("Odd (gap=5)", sys.modules["odd_rules"].Odd(gap=5))
    assert Lane.from_plain(lane.to_plain()) == lane
    assert presets_for({})[-1]["compute"] == {"kind": "odd_rules:Odd", "gap": 3}
    assert describe()["compute"]["odd_rules:Odd"]["settings"]["gap"]["default"] == 3
    with pytest.raises(ValueError, match="unmask must be one of"):
        read_unmask({"kind": "odd_rules:Odd"})


HASTY = """
from dataclasses import dataclass
import surelock

@dataclass(frozen=True)
class Hasty(surelock.ComputeRule):
    kind = label = sentence = "hasty"

    def rows(self, state, active):
        return active[state.steps]
"""


def test_debug_prints_the_traceback_of_a_rule(capsys, tmp_path, monkeypatch):
    (tmp_path / "hasty_rules.py").write_text(HASTY)
    monkeypatch.chdir(tmp_path)
    command = [
        "decode",
        "Tom",
        "--compute",
        "hasty_rules:Hasty",
        "--gen-length",
        "8",
        "--device",
        "cpu",
    ]
    said = "surelock: rule `hasty` failed in step 0: AttributeError: 'State' object has no attribute 'steps'\n"
    assert run(capsys, *command)[::2] == (2, said)
    status, _, err = run(capsys, *command, "--debug")
    assert status == 2 and err.endswith(said)
    assert "return active[state.steps]" in err and err.startswith("Traceback")
    COMPUTE.pop("hasty_rules:Hasty")
    sys.modules.pop("hasty_rules")
    flat_settings.cache_clear()


def test_a_trace_of_version_4_names_a_rule_from_outside_by_its_attribute(
    odd_rules, stories, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    plain = {"kind": "odd", "gap": 2}
    with pytest.raises(ValueError, match="compute must be one of everything, lock"):
        read_compute(plain)
    odd = importlib.import_module("odd_rules").Odd  # by the program itself: no flag names it
    assert read_compute(plain) == read_compute({"kind": "odd_rules:Odd", "gap": 2}) == odd(gap=2)
    assert read_compute({"kind": "both", "lock": {"kind": "lock"}, "select": plain}).select == odd(
        gap=2
    )
    lane = {
        "id": "a",
        "name": "Odd",
        "compute": plain,
        "unmask": {"kind": "low_confidence"},
        "settings": {},
    }
    assert Lane.from_plain(lane).decoder.compute == odd(gap=2)
    field_of(stories, ["odd_rules:Odd"], {})
    assert describe()["compute"]["odd_rules:Odd"]["was"] == "odd"


def test_a_model_that_cannot_load_ends_the_page_with_the_missing_keys(llada, capsys):
    config = json.loads((llada / "config.json").read_text())
    for name in ("n_layers", "weight_tying"):
        del config[name]
    (llada / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit):
        main(["page", "--model", str(llada), "--port", str(free_port())])
    why = "--model tiny cannot be loaded: config.json has no 'n_layers', 'weight_tying'"
    assert capsys.readouterr().err.endswith(f"error: {why}\n")


PROMPTS = [
    {"prompt": "Tom found a key. He", "id": "a"},
    {"prompt": "Once upon a time", "seed": 7},
    {"prompt": "Lily", "gen_length": 8, "compute": "age", "age": 2},
    {"prompt": "The dog ran to the park. It", "id": "a/b"},
    {"prompt": "It was raining. Mia"},
]
DECODE = ["decode", "--device", "cpu", "--gen-length", "12", "--prompts"]


@pytest.fixture
def prompts(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n\n".join(map(json.dumps, PROMPTS)), "utf-8")
    return str(file)


def lines_of(file):
    return [
        {k: v for k, v in json.loads(line).items() if k != "seconds"}
        for line in file.read_text().splitlines()
    ]


def test_a_file_of_prompts_is_decoded_in_batches_and_goes_on_after_a_kill(
    capsys, tmp_path, prompts, stories
):
    """A line is what the library decodes of its prompt alone; after a kill the rest is decoded, and nothing twice."""
    out = tmp_path / "out.jsonl"
    sheet = tmp_path / "table.csv"
    words = [*DECODE, prompts, "--batch", "3", "--out", str(out)]
    words += ["--table", str(sheet), "--trace", str(tmp_path / "t")]
    assert run(capsys, *words)[:2] == (0, "")
    whole = lines_of(out)
    rows = sorted(sheet.read_text().splitlines())
    assert sorted(map(str, [line["id"] for line in whole])) == ["3", "5", "9", "a", "a/b"]
    for line in whole:
        (given,) = (each for each in PROMPTS if each["prompt"] == line["prompt"])
        decoder = Decoder.from_plain(line["settings"])
        assert read_decoder(decoder.to_plain() | given) == decoder and line["id"] in (
            given.get("id"),
            line["id"],
        )
        steps = list(surelock.decode(stories, [line["prompt"]], **decoder.keywords(), observe=True))
        assert line["text"] == surelock.generate(stories, [line["prompt"]], **decoder.keywords())[0]
        assert line["rows"] == sum(int(step.computed.sum()) for step in steps)
        alone = surelock.table(steps, stories).drop(columns="sequence")
        read = pd.read_csv(
            sheet, dtype={"id": str}, keep_default_na=False, na_values={"token": [""], "kl": [""]}
        )
        read = read[read["id"] == str(line["id"])]
        for name in ("step", "position", "masked", "computed", "locked"):
            assert np.array_equal(read[name], alone[name]), name
        traced = surelock.table(tmp_path / "t" / f"{quote(str(line['id']), safe='')}.json")
        for name in ("token", "text", "masked", "computed", "locked"):
            assert traced[name].astype(str).equals(alone[name].astype(str)), name
        np.testing.assert_allclose(traced["kl"], alone["kl"], rtol=1e-4, atol=1e-9)
    content = out.read_bytes()
    # as a kill leaves it: the table has more than the lines
    out.write_bytes(content[: content.index(b"\n") + 40])
    assert "1 of 5 prompts are in" in run(capsys, *words)[2]
    assert sorted(lines_of(out), key=str) == sorted(whole, key=str)
    assert sorted(sheet.read_text().splitlines()) == rows
    assert run(capsys, *words)[:2] == (0, "") and len(lines_of(out)) == 5
    status, _, err = run(capsys, *words, "--temperature", "0.25")
    assert status == 2 and "with temperature 0.5, and now it is 0.25: choose another file" in err


def test_standard_input_to_standard_output(capsys, monkeypatch):
    for given, ids in (("Tom\r\n\nLily\n", [1, 3]), ('{"prompt": "Tom", "id": 4}\n', [4])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        status, out, _ = run(capsys, *DECODE, "-", "--out", "-")
        assert status == 0 and [json.loads(line)["id"] for line in out.splitlines()] == ids


def test_an_interruption_keeps_what_is_done(capsys, tmp_path, prompts, monkeypatch):
    from surelock.trace import cli

    def twice(lm, texts, *args, **kwargs):
        # the others only ask whether it can be decoded
        calls.extend([texts] if "observe" in kwargs else [])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decode(lm, texts, *args, **kwargs)

    calls = []
    decode = cli.decode
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(cli, "decode", twice)
    status, _, err = run(capsys, *DECODE, prompts, "--out", str(out))
    assert status == 130 and len(lines_of(out)) == 1
    assert f"surelock: interrupted: 1 of 5 prompts are in {out}, the same command goes on" in err


#: Files of prompts that cannot be, and a part of the sentence.
FILES = r"""
p.txt | caf\xe9 | p.txt is no UTF-8 text (byte 0xe9 at 3): save it as UTF-8
p.txt | \n | p.txt holds no prompt
p.jsonl | { | p.jsonl, line 1 is not JSON
p.jsonl | {"promt": "a"} | must be an object with a text `prompt`: did you mean 'promt'?
p.jsonl | {"prompt": 3} | must be an object with a text `prompt`
q.txt | | surelock: No such file or directory: 'q.txt'
p.jsonl | {"prompt": "a", "temprature": 1} | 'temprature' is no setting: did you mean 'temperature'?
p.jsonl | {"prompt": "a", "steps": 99} | prompt 1: steps (99) must be at most gen_length (12)
p.jsonl | {"prompt": "a"}\n{"prompt": "a __", "gen_length": 0, "steps": 9} | prompt 2 has 2 masks
p.jsonl | {"prompt": "a", "id": 2}\n{"prompt": "b"} | has two prompts of the id '2'
p.jsonl | {"prompt": "a", "compute": "os:path"} | compute must be one of
p.jsonl | {"prompt": "a", "id": ""} | p.jsonl, line 1: id must be a text or a whole number, not ''
p.jsonl | {"prompt": "a"}\n{"prompt": "a", "id": true} | line 2: id must be a text or a whole number, not True
p.jsonl | {"prompt": "a", "blanks": [["b", "c"]]} | line 1: blanks must be true or false, not
p.jsonl | {"prompt": "a", "chats": true} | line 1: 'chats' is no setting: did you mean 'chat'?
p.jsonl | {"prompt": "a", "id": 1e5} | line 1: id must be a text or a whole number, not 100000.0
p.jsonl | {"prompt": "a", "id": "\ud800"} | line 1: id is no UTF-8 text
p.jsonl | {"prompt": "a"}\n{"prompt": "\ud800"} | line 2: prompt 2: prompt is no UTF-8 text
p.jsonl | {"prompt": "a", "id": "b"}\n\n{"prompt": "a", "id": "b"} | the id 'b': line 1 and line 3
p.jsonl | {"prompt": "a", "id": "\\d", "steps": 99} | line 1: prompt \d: steps (99) must be at most
p.jsonl | {"prompt": "", "id": "a\u000ab"} | line 1: prompt 'a\nb' is empty
p.jsonl | {"prompt": "a", "id": "A"}\n{"prompt": "a", "id": "a"} | line 2: the ids 'A' and 'a' differ in case alone
p.jsonl | {"prompt": "a", "id": "LONG"} | line 1: the id 'ééé
"""


@pytest.mark.parametrize("case", FILES.strip().splitlines())
def test_a_file_of_prompts_says_what_is_wrong(capsys, tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    name, content, said = (cell.strip() for cell in case.split(" |"))
    content = content.replace("LONG", "é" * 41).encode()
    content = content.replace(rb"\n", b"\n").replace(rb"\xe9", b"\xe9")
    (tmp_path / "p").with_suffix(name[1:]).write_bytes(content)
    status, out, err = run(capsys, *DECODE, name, "--trace", "t")
    assert (status, out) == (2, "") and said in err and err.count("\n") == 1


def test_a_prompt_that_names_a_file_gets_a_hint_and_results_of_something_else_are_left_alone(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.txt").write_text("Tom", "utf-8")
    (tmp_path / "o.jsonl").write_text('{"name": 1}\n', "utf-8")
    words = ["decode", "p.txt", "--gen-length", "4", "--device", "cpu"]
    assert (
        "'p.txt' is a file, continued as a text; --prompts p.txt reads it" in run(capsys, *words)[2]
    )
    assert "line 1 is no result of this command" in run(capsys, *words, "--out", "o.jsonl")[2]
    assert (
        "--trace must be a folder, and 'o.jsonl' is a file"
        in run(capsys, *words, "--trace", "o.jsonl")[2]
    )
    assert (tmp_path / "o.jsonl").read_text() == '{"name": 1}\n'


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["Tom found a _ there."],
            "prompt 1: one underscore is text, a blank has two or more: __\n",
        ),
        (["Tom", "A _", "(_)."], "prompt 2 (and 1 more): one underscore is text"),
        (["A __ b, snake_case, _x, y_, a \\_ and ___"], ""),
        (["A _", "--no-blanks"], ""),
    ],
)
def test_one_underscore_alone_is_said_to_be_no_blank(capsys, monkeypatch, words, said):
    monkeypatch.setattr(
        loading, "load", create_autospec(loading.load, side_effect=ValueError("no such model"))
    )
    err = run(capsys, "decode", *words)[2]
    assert err.startswith(f"surelock: {said}") and ("underscore" in err) == bool(said)


def test_a_line_of_a_file_says_how_its_text_is_read(
    stories: surelock.LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"prompt": "Tom _ __", "blanks": false}', '{"prompt": "Tom _ __"}']
    (tmp_path / "p.jsonl").write_text("\n".join(lines))
    prompts = read_prompts([], str(tmp_path / "p.jsonl"))
    how = {"chat": False, "blanks": True}
    tasks = [task_of(stories, prompt, 0, {"gen_length": 1}, how) for prompt in prompts]
    assert [task.head["blanks"] for task in tasks] == [False, True]
    assert [task.tokens.count(stories.mask_id) for task in tasks] == [0, 2]
    say_underscores(prompts)
    assert capsys.readouterr().err.startswith("surelock: prompt 2: one underscore")


def test_generate_in_batches_writes_what_it_writes_at_once_and_shows_its_progress(
    stories, monkeypatch
):
    bars = []
    monkeypatch.setattr(
        loop,
        "tqdm",
        lambda **how: bars.append(tqdm(**how | {"disable": False, "delay": 0})) or bars[-1],
    )
    texts = ["Tom", "Lily had", "Once upon a time"]
    settings = surelock.DecodeSettings(gen_length=8, temperature=1, seed=5)
    assert surelock.generate(stories, texts, settings, batch=2) == surelock.generate(
        stories, texts, settings
    )
    with pytest.raises(ValueError, match="batch must be a whole number of at least 1, not 0"):
        surelock.generate(stories, texts, settings, batch=0)
    assert [(bar.n, bar.total) for bar in bars] == [(16, 16), (8, 8)]
    blank = [5, stories.mask_id, stories.mask_id, 6]
    nothing = surelock.DecodeSettings(gen_length=0)
    surelock.generate(stories, [blank], nothing, unmask=surelock.Remask())
    assert bars[-1].n == bars[-1].total == 4, "two masks, and twice the steps"


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
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )
