"""The outside judge: what it counts, what it refuses, and how it reads cells that were decoded before."""

import json
import math
import re
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from judges import CONTEXT, tokenizer
from labs import quick
from transformers import BertConfig, BertLMHeadModel

from surelock.research.cli import EXPERIMENTS
from surelock.research.judge import Judge, Score
from surelock.research.judged import Scores, beside
from surelock.research.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
PAIRS = [
    ("Tom found a key. He", " put it in his pocket and ran home."),
    ("The old dog slept by the door", " all day."),
    ("Once", " upon a time there was a little girl who had a red ball and a big cat."),
    ("A", " a"),
    ("", "The sun was warm."),
    ("", "The"),
    ("Tom", ""),
    ("", ""),
]


@pytest.fixture(scope="module")
def judge(small_judge):
    return Judge.load(str(small_judge), torch.device("cpu"))


def scored(judge: Judge, prompt: str, text: str) -> Score:
    return judge.scores([(prompt, text)])[0]


def loss(judge: Judge, prompt: str, text: str) -> tuple[float, int]:
    """The sum of transformers' own loss over the text's tokens, one text at a time, and their number."""
    given = judge.tokenizer(prompt)["input_ids"]
    own = judge.tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = torch.tensor([given + own])
    labels = ids.clone()
    labels[0, : max(1, len(given))] = -100
    counted = int((labels != -100).sum())
    with torch.no_grad():
        return float(judge.model(input_ids=ids, labels=labels).loss) * counted, counted


def test_the_sum_is_transformers_own_loss(judge):
    for prompt, text in [*PAIRS[:5], ("Tom", " ran")]:
        score = scored(judge, prompt, text)
        (nats, counted) = loss(judge, prompt, text)
        assert sum(score.nats) == pytest.approx(nats, rel=1e-5) and len(score.nats) == counted
    for prompt, text in PAIRS[5:]:
        assert scored(judge, prompt, text) == ((), 0)


def test_a_long_prompt_loses_its_beginning_a_text_that_fills_the_context_all_of_it(judge):
    words = judge.tokenizer
    text = PAIRS[0][1]
    room = CONTEXT - len(words(text)["input_ids"])
    ids = words("The cat ran. " * 40)["input_ids"]
    long = words.decode(ids)
    cut = words.decode(ids[-room:])
    assert words(cut)["input_ids"] == ids[-room:], "the cut must not fall into a word"
    assert scored(judge, long, text).nats == pytest.approx(scored(judge, cut, text).nats, rel=1e-5)
    full = words.decode(ids[:CONTEXT])
    assert words(full)["input_ids"] == ids[:CONTEXT]
    assert (
        scored(judge, "Tom had a dog.", full) == scored(judge, "", full)
        and len(scored(judge, "", full).nats) == CONTEXT - 1
    )
    with pytest.raises(
        ValueError, match=f"'random-1.5B' reads {CONTEXT} tokens at most, the text has 161"
    ):
        scored(judge, "", long)


def test_what_is_no_judge_is_refused_in_one_sentence(tmp_path, small_judge, monkeypatch):
    def refused(name: Path, why: str) -> None:
        said = re.escape(f"judge {str(name)!r} cannot be loaded as a causal language model: ") + why
        with pytest.raises(ValueError, match=said) as caught:
            Judge.load(str(name), torch.device("cpu"))
        assert "\n" not in str(caught.value)

    refused(tmp_path / "nowhere.gguf", "there is no such file")
    refused(tmp_path / "nowhere", ".")
    refused(ROOT / "assets" / "stories", ".")
    shape = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    looks_ahead = BertLMHeadModel(BertConfig(vocab_size=len(tokenizer()), **shape))
    looks_ahead.save_pretrained(tmp_path / "ahead")
    tokenizer().save_pretrained(tmp_path / "ahead")
    refused(tmp_path / "ahead", "a token's logits depend on those after it")
    (tmp_path / "spoilt.gguf").write_bytes(b"GGUF but not really")
    monkeypatch.setattr("surelock.research.judge.find_spec", lambda name: None)
    refused(tmp_path / "spoilt.gguf", r"a GGUF file needs the package gguf \(pip install gguf\)")


def test_hostile_texts_are_read_as_text_or_refused_in_one_sentence(judge, small_judge):
    special = tokenizer().convert_ids_to_tokens(0)
    assert len(scored(judge, "Tom", special).nats) > 1 and special in tokenizer().get_added_vocab()
    assert judge.scores([("x" * 10**5 + "\0", "\0a")])[0].characters == 2
    for pair in [("Tom", "a\ud800"), ("\ud800", "a")]:
        with pytest.raises(ValueError, match=r"^text is no UTF-8 text"):
            scored(judge, *pair)
    with pytest.raises(ValueError, match="no model has a name of 5,000 characters") as caught:
        Judge.load("x" * 5000)
    assert len(str(caught.value)) < 200


def test_code_that_comes_with_a_judge_is_not_run(tmp_path, small_judge):
    own = Path(shutil.copytree(small_judge, tmp_path / "own"))
    (own / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Own: pass\n")
    named = {
        "AutoModelForCausalLM": "own.Own",
        "AutoConfig": "own.Own",
        "AutoTokenizer": ["own.Own"] * 2,
    }
    for file in ("config.json", "tokenizer_config.json"):
        told = json.loads((own / file).read_text("utf-8")) | {"auto_map": named}
        (own / file).write_text(json.dumps(told))
    with suppress(ValueError):
        Judge.load(str(own))
    assert not (tmp_path / "ran").exists()


# What exists is scored without decoding it again.


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    """A finished experiment, not to be changed."""
    out = tmp_path_factory.mktemp("decoded")
    assert quick("epsilon", out) == 0
    return out / "epsilon"


@pytest.fixture
def epsilon(decoded, tmp_path, monkeypatch):
    """A copy of it, in a place where nothing can be decoded."""
    shutil.copytree(decoded, tmp_path / "epsilon")
    monkeypatch.setattr(EXPERIMENTS["epsilon"], "measure", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(
        "surelock.research.lab.decode", lambda *_, **__: pytest.fail("decoded again")
    )
    return tmp_path / "epsilon"


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_finished_cells_are_scored_and_nothing_is_decoded(
    epsilon, small_judge, judge, stories, monkeypatch, capsys
):
    """And a changed text has no score until it is read again."""
    before = (epsilon / "cells.jsonl").read_bytes()
    assert quick("epsilon", epsilon.parent, "--judge", str(small_judge)) == 0
    assert (epsilon / "cells.jsonl").read_bytes() == before
    folder = epsilon / "judge-random-1.5B"
    assert {file.name for file in folder.iterdir()} == {"cells.jsonl", "table.csv"}
    record = lines(epsilon / "cells.jsonl")[0]
    prompts = [prompt.text for prompt in Lab(stories).prompts(record["cell"])]
    pairs = list(zip(prompts, map(stories.decode, record["result"]["tokens"]), strict=True))
    first = lines(folder / "cells.jsonl")[0]
    assert first["setup"] == judge.setup()
    assert first["result"]["nats"] == pytest.approx(
        [loss(judge, *pair)[0] for pair in pairs], rel=1e-4
    )
    assert first["result"]["characters"] == [len(text) for _, text in pairs]
    table = (epsilon / "table.md").read_text()
    assert (
        "## By the judge random-1.5B" in table
        and "gen_ppl_ratio_se" in table
        and "bits_repeats" in table
    )
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "scores", lambda *_: pytest.fail("scored again"))
        assert quick("epsilon", epsilon.parent) == 0
    assert (epsilon / "table.md").read_text() == table.replace(f" --judge {small_judge}", "")

    scored = (folder / "table.csv").read_text()
    records = lines(epsilon / "cells.jsonl")
    records[-1]["result"]["tokens"][0][:3] = records[-1]["result"]["tokens"][0][5:8]
    (epsilon / "cells.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    capsys.readouterr()
    assert quick("epsilon", epsilon.parent) == 0
    said = "the judge random-1.5B has not read the texts of 1 of 3 cells as they are now"
    assert said in capsys.readouterr().err
    # the other, by itself
    assert len((folder / "table.csv").read_text().splitlines()) == 2
    assert quick("epsilon", epsilon.parent, "--judge", str(small_judge)) == 0
    assert said not in capsys.readouterr().err
    again = (folder / "table.csv").read_text()
    assert again != scored and len(again.splitlines()) == len(scored.splitlines())


def without(scores: Scores, prompt: int) -> Scores:
    return Scores(*([value for i, value in enumerate(values) if i != prompt] for values in scores))


def test_changes_at_equal_repeats_and_all_errors_beside_the_jackknife():
    rng = np.random.default_rng(0)
    n = 80
    repeats = rng.uniform(0, 0.5, (3, n))
    base_repeats = rng.uniform(0.2, 0.7, n)
    own_effect = rng.normal(0, 0.05, n)  # of a prompt: the same in all settings

    def scores(repeats: np.ndarray, bits: np.ndarray) -> Scores:
        return Scores((bits * 100 * math.log(2)).tolist(), [25] * n, [100] * n, repeats.tolist())

    base = scores(base_repeats, 1 - 0.6 * base_repeats)
    own = [
        scores(each, 1.02 - 0.6 * each + own_effect + rng.normal(0, 0.01, n)) for each in repeats
    ]
    row = beside(own, base)
    assert row["bits_change"] == pytest.approx(0.02 + 0.6 * 0.2, abs=0.02)
    assert row["bits_change_even"] == pytest.approx(0.02, abs=0.02)
    left_out = [
        beside([without(each, out) for each in own], without(base, out)) for out in range(n)
    ]
    for name in ("bits", "bits_change", "gen_ppl", "gen_ppl_ratio", "bits_change_even"):
        jackknife = math.sqrt((n - 1) * np.var([each[name] for each in left_out]))
        assert row[f"{name}_se"] == pytest.approx(jackknife, rel=0.05) and jackknife > 0, name
    assert row["bits_change_even_se"] > 0.05 / n**0.5
    assert row["gen_ppl_ratio"] == pytest.approx(row["gen_ppl"] / row["gen_ppl_base"])
    assert math.isnan(beside([base], base)["bits_change_even"]), "repeats are the same everywhere"
