"""The experiment on the price of writing in parallel, measured where the answer is known: two masks are one name.

It is not an experiment of the paper.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.unmasking import LowConfidence, Threshold
from surelock.model.language_model import LanguageModel
from surelock.research.experiment import Experiment
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record
from surelock.values import frozen

THRESHOLDS = (0.05, 0.1, 0.2, 0.4)
_BATCH = 50  # runs that are decoded together
_NAMES = 128  # tokens that are tried as the name together

#: By way of decoding, the probability above which both draws are committed together. If a draw is less likely, the
#: likelier draw is committed alone.
BOUNDS: dict[str, float] = {
    "1 step": -1.0,
    **{f"above {p:g}": p for p in THRESHOLDS},
    "2 steps": 1.0,
}


@frozen(eq=False)
class Names:
    """The probabilities of all V tokens at two masks, the first and the second. All arrays are [V] float64."""

    first: NDArray  # at the first mask, while both are masked
    second: NDArray  # at the second mask, while both are masked
    first_after: NDArray  # at the first mask, once the same token is written at the second
    second_after: NDArray  # at the second mask, once the same token is written at the first

    def chances(self, bound: float) -> tuple[float, float]:
        """Return the chances that both masks are committed together, and that they get the same token.

        bound: the probability above which both are committed together, see `BOUNDS`. Tokens are drawn at temperature 1.
        """
        sure_first = self.first > bound
        sure_second = self.second > bound
        together = self.first[sure_first].sum() * self.second[sure_second].sum()
        both = sure_first & sure_second
        same = float(self.first[both] @ self.second[both])
        same += float(self._first_alone(bound) @ self.second_after)
        same += float(self._second_alone(bound) @ self.first_after)
        return min(1.0, float(together)), min(1.0, same)

    def _first_alone(self, bound: float) -> NDArray:
        """Return the chance that a token is drawn for the first mask and committed alone, [V].

        This happens if the second draw is at most as likely, and one of the two draws is not above the bound.
        """
        order = np.sort(self.second)
        mass = np.concatenate(([0.0], np.cumsum(order)))
        below = mass[np.searchsorted(order, np.minimum(self.first, bound), side="right")]
        return self.first * below

    def _second_alone(self, bound: float) -> NDArray:
        """Return the chance that a token is drawn for the second mask and committed alone, [V].

        This happens if the first draw is less likely, and one of the two draws is not above the bound.
        """
        order = np.sort(self.first)
        mass = np.concatenate(([0.0], np.cumsum(order)))
        less = mass[np.searchsorted(order, self.second, side="left")]
        unsure = mass[np.searchsorted(order, bound, side="right")]
        return self.second * np.where(self.second > bound, unsure, less)


@torch.inference_mode()
def names_of(lm: LanguageModel, canvas: Sequence[int]) -> Names:
    """Return the probabilities at the two masks of a canvas. Raises ValueError if there are not two masks."""
    masks = [place for place, token in enumerate(canvas) if token == lm.mask_id]
    if len(masks) != 2:
        raise ValueError(f"a sentence must have two masks, not {len(masks)}")
    tokens = torch.tensor(canvas, device=lm.device)
    first, second = _probabilities(lm, tokens[None], masks)[0]
    after = np.zeros((2, lm.config.vocab_size))
    for start in range(0, lm.config.vocab_size, _NAMES):
        names = torch.arange(start, min(start + _NAMES, lm.config.vocab_size), device=lm.device)
        for place in range(2):
            named = tokens.repeat(len(names), 1)
            named[:, masks[place]] = names
            other = _probabilities(lm, named, [masks[1 - place]])[:, 0]
            after[1 - place, start : start + len(names)] = other[
                np.arange(len(names)), names.numpy(force=True)
            ]
    return Names(first, second, *after)


def _probabilities(lm: LanguageModel, tokens: torch.Tensor, places: Sequence[int]) -> NDArray:
    """Return probabilities at some positions, [B, P, V] float64. The mask token has probability 0.

    tokens: [B, N]. places: the P positions.
    """
    logits = lm.network(tokens)[:, list(places)].double()
    logits[..., lm.mask_id] = -torch.inf
    return logits.softmax(dim=-1).numpy(force=True)


def decoder_of(bound: float, seeds: Sequence[int]) -> Decoder:
    """Return the decoder of a way of decoding. bound: see `BOUNDS`. seeds: one per sequence."""
    one_by_one = bound >= 1
    steps = 1 if bound < 0 else 2
    settings = DecodeSettings(gen_length=0, steps=steps, temperature=1.0, seed=list(seeds))
    policy = LowConfidence() if bound < 0 or one_by_one else Threshold(bound)
    return Decoder(settings=settings, compute=Everything(), unmask=policy)


def _measure(lab: Lab, cell: Cell) -> Record:
    """Return, by way of decoding, the exact chances, and for every run whether it wrote together and the same token."""
    (prompt,) = lab.prompts(cell)
    names = names_of(lab.lm, prompt.ids)
    by_way: Record = {"squares": float(names.first @ names.first)}
    for way, bound in BOUNDS.items():
        together, same = names.chances(bound)
        runs: dict[str, list[int]] = {"together": [], "same": []}
        for start in range(0, cell["runs"], _BATCH):
            seeds = range(cell["seed"] + start, cell["seed"] + min(start + _BATCH, cell["runs"]))
            canvases = [prompt.ids] * len(seeds)
            for name, values in _runs(lab.lm, canvases, decoder_of(bound, seeds)).items():
                runs[name] += values
        by_way[way] = {"chance_together": together, "chance_same": same, **runs}
    return by_way


def _runs(lm: LanguageModel, canvases: list[list[int]], decoder: Decoder) -> dict[str, list[int]]:
    """Return for every run whether the first step wrote both masks, and whether both got the same token (1 or 0)."""
    masks = np.flatnonzero(np.array(canvases[0]) == lm.mask_id)
    steps = list(decode(lm, canvases, **decoder.keywords()))
    together = ~steps[0].masked[:, masks].any(axis=1)
    written = steps[-1].tokens[:, masks]
    same = written[:, 0] == written[:, 1]
    return {"together": together.astype(int).tolist(), "same": same.astype(int).tolist()}


def _table(records: list[Record]) -> pd.DataFrame:
    """Return the table: a row per way of decoding, with means over sentences."""
    results = [record["result"] for record in records]
    rows = []
    for way in BOUNDS:
        of_way = [result[way] for result in results]
        figures: Record = {
            "way": way,
            "sentences": len(of_way),
            "runs": sum(len(result["same"]) for result in of_way),
        }
        figures["squares"] = float(np.mean([result["squares"] for result in results]))
        for name in ("together", "same"):
            # sums of probabilities, rounded so that every processor agrees
            chances = np.round([result[f"chance_{name}"] for result in of_way], 9)
            shares = np.array([np.mean(result[name]) for result in of_way])
            counts = np.array([len(result[name]) for result in of_way])
            error = float(np.sqrt((chances * (1 - chances) / counts).sum()) / len(of_way))
            figures |= {
                f"{name}_chance": float(chances.mean()),
                name: float(shares.mean()),
                f"{name}_error": error,
            }
        rows.append(figures)
    return pd.DataFrame(rows)


def _cells(sentences: int, runs: int) -> list[Cell]:
    return [
        {"source": "pairs", "prompts": 1, "skip": i, "seed": 0, "runs": runs}
        for i in range(sentences)
    ]


PARALLEL = Experiment(
    title="Writing in parallel has a price with a known answer",
    note="""\
Two masks of a sentence stand for one name. Their tokens are drawn at temperature 1. way: in 1 step both are committed
together; in 2 steps the likelier draw is committed first; `above p` is `Threshold(p)`: together if both draws are
likelier than p, else the likelier one first. together: the share of runs whose first step commits both; same: of those
in which both places get one token. _chance: the same by the posterior, exactly, from the two masks' posteriors and,
where one is committed first, from the posterior of the other beside every token. In 1 step it is the sum of the
products of both masks' probabilities; squares: the sum of the first mask's squares. _error: the standard error that so
many runs have by these chances. All are means over sentences.""",
    grids={"stories": _cells(4, 200), "quick": _cells(1, 20)},
    measure=_measure,
    table=_table,
)
