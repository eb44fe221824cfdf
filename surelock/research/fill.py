"""The experiment on blanks in sentences of held-out stories: how much the words after a blank help to fill it."""

import numpy as np
import pandas as pd
import torch

from surelock.decoding.compute import Everything
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.unmasking import LowConfidence
from surelock.model.language_model import LanguageModel
from surelock.research import estimates
from surelock.research.experiment import Experiment
from surelock.research.lab import Lab
from surelock.research.runner import Cell, Record, grid


def blank_in(lm: LanguageModel, ids: list[int], size: int | None) -> slice:
    """Return the positions of a blank in the middle of a sentence.

    size: the number of tokens; None for the word nearest to the middle, with the space before it.
    """
    if size is not None:
        start = (len(ids) - size) // 2
        return slice(start, start + size)
    pieces = [lm.decode([token]) for token in ids]
    words = [i for i, piece in enumerate(pieces) if piece[:1] == " " and piece.strip().isalpha()]
    start = min(words, key=lambda i: abs(2 * i - len(ids)))
    stop = next(
        i for i in range(start + 1, len(ids)) if not pieces[i].isalpha() or pieces[i][:1] == " "
    )
    return slice(start, stop)


@torch.inference_mode()
def bits(lm: LanguageModel, canvas: list[int], truth: list[int], blank: slice) -> float:
    """Return the bits per token of the true tokens of a blank.

    The tokens are revealed one by one. The next one is that of the position of which the model is most confident.

    canvas: the token ids of the sentence with a masked blank. truth: the true token ids.
    """
    tokens = torch.tensor(canvas, device=lm.device)
    total = 0.0
    masked = list(range(blank.start, blank.stop))
    for _ in range(len(masked)):
        log_p = lm.network(tokens[None])[0, masked].double().log_softmax(dim=-1)
        row = int(log_p.amax(dim=-1).argmax())
        place = masked.pop(row)
        total -= float(log_p[row, truth[place]]) / np.log(2)
        tokens[place] = truth[place]
    return total / (blank.stop - blank.start)


def _filled(lab: Lab, cell: Cell) -> Record:
    """Return the figures of a cell, see the experiment's note."""
    figures: Record = {
        name: [] for name in ("filled", "tokens", "bits", "left_filled", "left_tokens", "left_bits")
    }
    mask = lab.lm.mask_id
    for _, ids in lab.prompts(cell):
        blank = blank_in(lab.lm, ids, cell["blank"])
        size = blank.stop - blank.start
        masks = [mask] * size
        settings = DecodeSettings(gen_length=0, block_length=size)
        both = [*ids[: blank.start], *masks, *ids[blank.stop :]]
        left = ids[: blank.start] + [mask] * (len(ids) - blank.start)
        for name, canvas in (("", both), ("left_", left)):
            steps = decode(lab.lm, [canvas], settings, compute=Everything(), unmask=LowConfidence())
            # the step that ends the first block, which is the blank
            step = next(step for step in steps if not step.masked[0, blank].any())
            alike = step.tokens[0, blank] == np.array(ids[blank])
            figures[f"{name}filled"].append(float(alike.all()))
            figures[f"{name}tokens"].append(float(alike.mean()))
            figures[f"{name}bits"].append(bits(lab.lm, canvas, ids, blank))
    return figures


def _table(records: list[Record]) -> pd.DataFrame:
    rows = []
    for record in records:
        values = {name: np.array(numbers) for name, numbers in record["result"].items()}
        values["gain"] = values["left_bits"] - values["bits"]
        means = {name: estimates.mean(numbers) for name, numbers in values.items()}
        rows.append({"blank": record["cell"]["blank"] or "word"} | estimates.named(means))
    return pd.DataFrame(rows)


FILL = Experiment(
    title="Blanks in sentences",
    note="""\
Sentences of held-out stories, one a story, without the text around them. A word or some tokens in the middle are a
blank. filled: the share of blanks filled with what stood there, at temperature 0; tokens: the share of their tokens;
bits: per token of what stood there. left_: everything behind the blank is masked, too. gain: left_bits less bits.""",
    grids={
        "stories": grid(source="sentences", prompts=200, blank=[None, 3, 8]),
        "quick": grid(prompts=2, blank=[None, 3]),
    },
    measure=_filled,
    table=_table,
)
