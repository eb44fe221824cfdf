"""Where a text ends: at its first EOS, or at the end of its turn; and the texts that come of a prompt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def first_end(ids: Sequence[int], ends: Collection[int]) -> int:
    """Return the number of ids before the first one that is among `ends`."""
    return next((i for i, token in enumerate(ids) if token in ends), len(ids))


def cut_at_end(ids: Sequence[int], ends: Collection[int]) -> list[int]:
    return list(ids[: first_end(ids, ends)])


def text_of(lm: LanguageModel, ids: Sequence[int]) -> str:
    """Return the text of generated token ids, up to their first end."""
    text = lm.decode(cut_at_end(ids, lm.ends))
    return text.partition(lm.stop)[0] if lm.stop else text


def written(lm: LanguageModel, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """Return the text that comes of a prompt: what follows a plain one, and the whole of one with masks.

    prompt, tokens: token ids of the prompt, and [N] those at the end of its run, without pads.

    The text is cut at the first end behind the last given token.
    """
    given = _given(lm, prompt)
    if lm.mask_id not in prompt:
        return text_of(lm, tokens[given:])
    return lm.decode([*tokens[:given], *cut_at_end(tokens[given:], lm.ends)])


def filled(lm: LanguageModel, prompt: Sequence[int], tokens: Sequence[int]) -> list[str]:
    """Return the text of each blank of a prompt, in order, and last of what follows its last given token, up to an end.

    prompt, tokens: see `written`.

    Raises ValueError for tokens that do not hold what the prompt gives.
    """
    canvas = [*prompt, *[lm.mask_id] * (len(tokens) - len(prompt))]
    if len(canvas) > len(tokens) or any(a not in (b, lm.mask_id) for a, b in zip(canvas, tokens, strict=True)):
        raise ValueError("tokens must be all that came of this prompt, from its first token on and without pads")
    given = _given(lm, prompt)
    kept = [*tokens[:given], *cut_at_end(tokens[given:], lm.ends)]
    runs = [list(run) for masked, run in groupby(range(len(canvas)), lambda i: canvas[i] == lm.mask_id) if masked]
    return [lm.decode(kept[run[0] : run[-1] + 1]) for run in runs]


def _given(lm: LanguageModel, prompt: Sequence[int]) -> int:
    """The number of positions up to the last given one."""
    return max((i for i, token in enumerate(prompt, 1) if token != lm.mask_id), default=0)
