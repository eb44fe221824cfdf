"""Writing in parallel: the chances by the posterior, beside every pair of draws and beside runs."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from surelock.research.lab import Lab
from surelock.research.parallel import BOUNDS, PARALLEL, Names, names_of
from surelock.research.runner import Record


def drawn_one_by_one(names: Names, bound: float) -> tuple[float, float]:
    """The chances over all pairs of draws, one after the other."""
    together = same = 0.0
    for (a, p), (b, q) in product(enumerate(names.first), enumerate(names.second)):
        if p > bound and q > bound:
            together += p * q
            same += p * q * (a == b)
        else:
            same += p * q * (names.second_after[a] if p >= q else names.first_after[b])
    return together, same


@pytest.mark.parametrize("bound", [*BOUNDS.values(), 0.25, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_the_chances_are_those_of_all_pairs_of_draws(bound, seed):
    """With ties between the masks, and tokens as likely as the bound."""
    rng = np.random.default_rng(seed)
    after = rng.random((2, 6))
    first = rng.dirichlet(np.ones(6)) if seed else np.array([0.25, 0.3, 0.05, 0.1, 0.2, 0.1])
    names = Names(
        first, rng.permutation(first) if seed % 2 == 0 else rng.dirichlet(np.ones(6)), *after
    )
    assert names.chances(bound) == pytest.approx(drawn_one_by_one(names, bound), abs=1e-12)


def test_the_network_is_asked_about_every_token(lm):
    canvas = [5, 9, lm.mask_id, 7, lm.mask_id, 3]
    names = names_of(lm, canvas)
    for of in (names.first, names.second):
        assert of.sum() == pytest.approx(1) and of[lm.mask_id] == 0
    for token in (4, lm.config.vocab_size - 1):
        with torch.inference_mode():
            logits = (
                lm.network(torch.tensor([[5, 9, token, 7, lm.mask_id, 3]]))[0, 4].double().numpy()
            )
        logits[lm.mask_id] = -math.inf
        p = np.exp(logits - logits.max())
        assert names.second_after[token] == pytest.approx(p[token] / p.sum(), rel=1e-4)
    with pytest.raises(ValueError, match=r"^a sentence must have two masks, not 1$"):
        names_of(lm, [5, lm.mask_id])


@pytest.mark.long
def test_runs_do_what_the_posterior_says(stories):
    """Of each sentence's chances none is far from the share of its runs."""
    (cell,) = PARALLEL.grids["quick"]
    found = PARALLEL.measure(Lab(stories), cell | {"skip": 1, "runs": 100})
    for way in BOUNDS:
        for name in ("together", "same"):
            chance = found[way][f"chance_{name}"]
            runs = found[way][name]
            error = math.sqrt(chance * (1 - chance) / len(runs))
            assert abs(np.mean(runs) - chance) <= 4 * error + 1e-9, (way, name)
    assert set(found["1 step"]["together"]) == {1} and set(found["2 steps"]["together"]) == {0}
    assert found["1 step"]["chance_same"] < found["2 steps"]["chance_same"] / 2


def test_the_table_has_a_row_for_each_way():
    made: list[Record] = []
    for squares, same in ((0.2, [1, 0, 0, 0]), (0.4, [1, 1, 0, 0])):
        way = {"chance_together": 1.0, "chance_same": squares, "together": [1] * 4, "same": same}
        made.append({"cell": {}, "result": {"squares": squares} | dict.fromkeys(BOUNDS, way)})
    frame = PARALLEL.table(made).set_index("way")
    assert (
        frame.index.tolist() == list(BOUNDS)
        and set(frame["runs"]) == {8}
        and set(frame["sentences"]) == {2}
    )
    row = frame.loc["1 step"]
    assert row[["squares", "same_chance", "same", "together"]].tolist() == pytest.approx(
        [0.3, 0.3, 0.375, 1]
    )
    assert row["same_error"] == pytest.approx(math.sqrt(0.2 * 0.8 / 4 + 0.4 * 0.6 / 4) / 2)
    assert row["together_error"] == 0
