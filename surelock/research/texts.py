"""What can be said of generated text without an outside judge: bounds and repeats.

None of this shows that a text is good. The bound is the model's own: it likes what it is prone to write, repetition
most of all. Tokens equal to the baseline's show how far locking changes the outcome, not for the worse or the better.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from surelock.decoding.ends import cut_at_end
from surelock.model.bound import conditional_bound
from surelock.research.lab import Lab
from surelock.research.prompts import Prompt


def text_figures(lab: Lab, prompts: Sequence[Prompt], tokens: Sequence[list[int]]) -> dict[str, list[Any]]:
    """Figures of each prompt's continuation, up to its first EOS.

    ends: tokens before the first EOS; nats: the bound, EOS included; repeats: share of 4-grams that are not new.
    """
    kept = [cut_at_end(ids, lab.lm.ends) for ids in tokens]
    numbered = enumerate(zip(prompts, tokens, kept, strict=True))
    return {
        "ends": [len(ids) for ids in kept],
        "nats": [_bound(lab, prompt.ids, ids[: len(part) + 1], number) for number, (prompt, ids, part) in numbered],
        "characters": [len(lab.lm.decode(ids)) for ids in kept],
        "repeats": [repeated(ids) for ids in kept],
    }


def _bound(lab: Lab, prompt: list[int], ids: list[int], number: int) -> float:
    """The masks depend on the prompt's number alone: equal texts get equal values, so differences are not noise."""
    rng = np.random.default_rng([0, number])
    tokens = np.array([*prompt, *ids], dtype=np.int64)
    draws = conditional_bound(lab.lm.network, tokens, len(prompt), draws=16, rng=rng, mask_id=lab.lm.mask_id)
    return float(draws.mean())


def repeated(ids: Sequence[Hashable], n: int = 4) -> float | None:
    """Share of the n-grams that occurred before; None where there is no n-gram."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None


def equal(ids: Sequence[int], baseline: Sequence[int], end: int) -> float:
    """Share of equal tokens up to `end`, the later of the two first EOS: what follows would be equal for free."""
    return float(np.mean(np.asarray(ids[: end + 1]) == np.asarray(baseline[: end + 1])))
