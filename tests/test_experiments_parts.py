"""What the experiments are made of: the paper's preprocessing, the bounds, standard errors."""

import copy
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from surelock.model.bound import conditional_bound
from surelock.research.cli import EXPERIMENTS
from surelock.research.lab import Lab
from surelock.research.prompts import wikitext_records
from surelock.research.runner import DEFAULTS, fingerprint
from surelock.research.training import evaluate

EVAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "eval"


def evaluation(name: str) -> Path:
    path = EVAL / name
    if not path.is_file():
        pytest.skip(f"the evaluation file {name} is not in ../shared/data/eval")
    return path


def test_wikitext_is_cut_as_the_paper_cuts_it(stories):
    path = evaluation("wikitext-2-raw_wiki.test.raw")
    records = wikitext_records(path)
    assert len(records) == 120
    assert records[0].startswith(
        " Robert Boulter is an English film , television and theatre actor . He had a guest"
    )
    assert records[-1] == " = = = US 2nd Division split = = = \n"
    prompts = Lab(stories, {"wikitext": path}).prompts(
        DEFAULTS | {"source": "wikitext", "prompts": 120}
    )
    assert [prompt.ids for prompt in prompts] == [stories.encode(text)[:64] for text in records]
    assert max(len(prompt.ids) for prompt in prompts) == 64 > len(prompts[-1].ids)


def test_a_fingerprint_sees_every_tensor(lm):
    told = {fingerprint(lm.network)}
    for name, _ in lm.network.named_parameters():
        network = copy.deepcopy(lm.network)
        network.get_parameter(name).data.view(-1)[0] += 1
        told.add(fingerprint(network))
    assert len(told) == 1 + len(list(lm.network.parameters()))


def test_the_bound_of_one_token_is_exact_and_of_a_story_is_the_trainers(stories):
    network = stories.network
    mask = stories.mask_id
    tokens = np.array(stories.encode("Tom had a red ball. He"), dtype=np.int64)
    rng = np.random.default_rng(0)
    last = conditional_bound(network, tokens, len(tokens) - 1, draws=4, rng=rng, mask_id=mask)
    noisy = torch.from_numpy(np.append(tokens[:-1], mask))[None]
    assert last == pytest.approx(
        -float(network(noisy)[0, -1].log_softmax(-1)[tokens[-1]]), abs=1e-4
    )
    whole = conditional_bound(
        network, np.append(tokens, 0), 0, draws=8, rng=np.random.default_rng([5, 0]), mask_id=mask
    )
    theirs = evaluate(network, [tokens.tolist()], 1, draws=8, seed=5)
    assert whole.mean() == pytest.approx(theirs["nats_per_token"] * theirs["tokens"], rel=1e-5)
    for given, draws in ((len(tokens), 4), (0, 0), (0, 3)):
        with pytest.raises(ValueError, match="at least one token and an even number"):
            conditional_bound(network, tokens, given, draws=draws, rng=rng, mask_id=mask)


@pytest.fixture(scope="module")
def chatty(stories):
    """The embedded model, as if it had learnt to answer."""
    tokenizer = copy.copy(stories.tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}\n"
    return dataclasses.replace(stories, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files in the formats of the paper's three."""
    path = tmp_path_factory.mktemp("data")
    lines = {
        "wikitext": [f" The {n} cats sat on the mat . " if n % 3 else "" for n in range(400)],
        "mt_bench": [
            json.dumps(
                {
                    "question_id": 81 + n,
                    "category": f"c{n // 10}",
                    "turns": [f"What is {n}?", "Why?"],
                }
            )
            for n in range(80)
        ],
        "humaneval": [
            json.dumps({"task_id": f"HumanEval/{n}", "prompt": f"def f{n}():\n"}) for n in range(70)
        ],
    }
    for name, content in lines.items():
        (path / name).write_text("".join(line + "\r\n" for line in content))
    return {name: path / name for name in lines}


@pytest.mark.parametrize(
    "name", [name for name, each in EXPERIMENTS.items() if "paper" in each.grids]
)
def test_the_papers_cells_can_be_measured(name, chatty, data):
    """One cell of each source, cut down in size, of every experiment's `--preset paper`."""
    experiment = EXPERIMENTS[name]
    small = {
        "prompts": 2,
        "batch": 2,
        "gen_length": 12,
        "steps": None,
        "block_length": None,
        "fit_prompts": 1,
    }
    if name == "frontier":  # whose cells hold samplers
        small["sampler"] = {"gen_length": 12}
    lab = Lab(chatty, data)
    for source in {cell["source"]: None for cell in experiment.grids["paper"]}:
        cells = [cell for cell in experiment.grids["paper"] if cell["source"] == source]
        assert len(lab.prompts(cells[0])) == cells[0]["prompts"]
        assert json.loads(json.dumps(experiment.measure(lab, cells[0] | small)))
