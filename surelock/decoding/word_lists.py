"""Blanks from a list: a blank becomes one of some words, and nothing else.

In each step the words of a list that agree with what is written compete by the sum of their tokens' log-probabilities
at the candidates of the blank. The best one gives all of them their tokens, at any temperature. So every commit is of a
word that agrees with all former ones, in whatever order and however many a step commits, and the blank ends as one of
its words. What a person writes there may agree with no word: what is left of the blank is then free.

A list holds words of one number of tokens. Words of several numbers compete before the run, see `settled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surelock.decoding.step import NO_ROWS, Choice, Layout, Plan, Reading, Shares, lent
from surelock.values import Flags, Floats, Json, Whole, frozen

if TYPE_CHECKING:
    from surelock.config import Shape
    from surelock.decoding.algorithm import Run
    from surelock.decoding.state import Slots
    from surelock.model.language_model import LanguageModel


@frozen
class WordList:
    """The words that a blank may become.

    start: the position of the blank's first mask in the prompt.
    words: token ids of each word.
    """

    start: int
    words: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of tokens of the longest word, and of the blank's masks."""
        return max(map(len, self.words))

    @property
    def is_settled(self) -> bool:
        return len({len(word) for word in self.words}) == 1

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.size)


class Listed(list[int]):
    """The token ids of a prompt with blanks from lists, which have as many masks as their longest words.

    Raises ValueError for lists that do not stand at masks of the prompt, one behind the other.
    """

    lists: tuple[WordList, ...]

    def __init__(self, ids: Iterable[int], lists: Sequence[WordList], mask_id: int) -> None:
        super().__init__(ids)
        self.lists = tuple(lists)
        free = 0
        for each in self.lists:
            if not each.words or not all(each.words):
                raise ValueError("a list of words must hold at least one word, and each word a token")
            if each.start < free or self[each.span] != [mask_id] * each.size:
                raise ValueError(f"the list at position {each.start} must stand at {each.size} masks of its prompt")
            free = each.span.stop


def plain_list(each: WordList) -> Json:
    """Return a list as traces hold it."""
    return {"at": each.start, "words": [list(word) for word in each.words]}


def from_plain_lists(ids: Sequence[int], plain: Any, mask_id: int) -> list[int]:
    """Return token ids with the lists of a plain form; None is none. Raises ValueError for any other value."""
    if plain is None:
        return list(ids)
    try:
        words = [tuple(tuple(index(token) for token in word) for word in each["words"]) for each in plain]
        lists = [WordList(index(each["at"]), known) for each, known in zip(plain, words, strict=True)]
    except (TypeError, KeyError, ValueError):
        raise ValueError('lists must be objects {"at": position, "words": [[token id, ...], ...]}') from None
    return Listed(ids, lists, mask_id)


def lists_of(prompt: Sequence[int]) -> tuple[WordList, ...]:
    return prompt.lists if isinstance(prompt, Listed) else ()


def is_settled(prompt: Sequence[int]) -> bool:
    return all(each.is_settled for each in lists_of(prompt))


def like(prompt: Sequence[int], ids: Iterable[int], mask_id: int) -> list[int]:
    """Return token ids with the lists of a prompt, if it has any."""
    lists = lists_of(prompt)
    return Listed(ids, lists, mask_id) if lists else list(ids)


# --- within a run -----------------------------------------------------------------------------------------------------


class SlotList(NamedTuple):
    """A settled list in a run."""

    sequence: int
    slots: Slots  # [L] int64
    words: Whole  # [K, L] int64


def slot_lists(shape: Shape, prompts: Sequence[Sequence[int]], starts: Whole) -> list[SlotList]:
    """Return the lists of the prompts of a run. starts: [B] int64, the first slot of each sequence.

    Raises ValueError for a list that is not settled, and for words that the model does not have.
    """
    found = []
    for b, prompt in enumerate(prompts):
        for each in lists_of(prompt):
            if not each.is_settled:
                raise ValueError(f"prompt {b} has a list of words of several numbers of tokens: settle it first")
            words = np.array(each.words, dtype=np.int64)
            if words.min() < 0 or words.max() >= shape.network.vocab_size or (words == shape.mask_id).any():
                raise ValueError(f"prompt {b} has a list that holds the mask, or ids that are no tokens of the model")
            slots = int(starts[b]) + np.arange(each.start, each.span.stop)
            found.append(SlotList(b, slots, words))
    return found


def listed_rows(run: Run, slots: Slots, chosen: Flags) -> Whole:
    """Return the rows whose logits the lists need, [K] int64: candidates in their blanks. slots, chosen: of a plan."""
    if not run.lists or run.policy.scores is None:
        return NO_ROWS
    inside = np.concatenate([each.slots for each in run.lists])
    return np.flatnonzero(chosen & np.isin(slots, inside))


def put_words(run: Run, plan: Plan, reading: Reading) -> list[Shares]:
    """Give the candidates of blanks from lists the tokens of their best words, and these their scores.

    Returns the shares of the words of every list that was scored. Raises ValueError for a reading without them.
    """
    found: list[Shares] = []
    if not len(plan.listed):
        return found
    if reading.listed is None:
        raise ValueError("the reading lacks the log-probabilities of the plan's listed rows")
    state = run.state
    rows = plan.slots[plan.listed]
    candidates = plan.slots[plan.choice.rows]
    reading.tokens, reading.score = reading.tokens.copy(), reading.score.copy()
    for each in run.lists:
        here = np.flatnonzero(np.isin(each.slots, rows))
        agreeing = np.flatnonzero(_agrees(each, state.tokens, state.masked))
        if not len(here) or not len(agreeing):
            continue
        slots, words = each.slots[here], each.words[agreeing][:, here]
        log_p = reading.listed[np.searchsorted(rows, slots)]
        by_token = log_p[np.arange(len(here)), words]  # [words, candidates]
        sums = by_token.sum(axis=1)
        best = int(sums.argmax())
        at = np.searchsorted(candidates, slots)
        reading.tokens[at] = words[best]
        if run.policy.scores == "confidence":
            reading.score[at] = np.exp(by_token[best])
        shares = np.zeros(len(each.words))
        shares[agreeing] = _shares(sums)
        found.append(Shares(each.sequence, int(run.canvas.position[each.slots[0]]), shares))
    return found


def _agrees(each: SlotList, tokens: Whole, masked: Flags) -> Flags:
    """Which words agree with what is written in their blank, [K] bool."""
    written = ~masked[each.slots]
    return (each.words[:, written] == tokens[each.slots][written]).all(axis=1)


def _shares(sums: Floats) -> Floats:
    weights = np.exp(sums - sums.max())
    return weights / weights.sum()


def log_softmax(logits: Any) -> Floats:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


# --- before a run -----------------------------------------------------------------------------------------------------


def settled(lm: LanguageModel, prompt: Sequence[int], gen_length: int) -> list[int]:
    """Return a prompt in which every list has words of one number of tokens, and its blank as many masks.

    gen_length: positions behind the prompt, which are masked, too.

    From left to right: one forward pass for each number of tokens gives each word the mean log-probability of its
    tokens at as many masks. The best word says the number, and the other words of this number stay in the list. Lists
    further right have the masks of their longest words meanwhile. Other prompts are returned as they are.
    """
    ids, lists = list(prompt), list(lists_of(prompt))
    if is_settled(prompt):
        return prompt if isinstance(prompt, list) else ids
    for number, each in enumerate(lists):
        if each.is_settled:
            continue
        size = _best_size(lm, ids, each, gen_length)
        ids[each.span] = [lm.mask_id] * size
        less = each.size - size
        lists[number] = WordList(each.start, tuple(word for word in each.words if len(word) == size))
        for later in range(number + 1, len(lists)):
            lists[later] = WordList(lists[later].start - less, lists[later].words)
    return Listed(ids, lists, lm.mask_id)


def _best_size(lm: LanguageModel, ids: list[int], each: WordList, gen_length: int) -> int:
    best, found = -np.inf, each.size
    for size in sorted({len(word) for word in each.words}):
        masks = [lm.mask_id] * size
        canvas = [*ids[: each.start], *masks, *ids[each.span.stop :], *[lm.mask_id] * gen_length]
        log_p = _log_p(lm, canvas, np.arange(each.start, each.start + size))
        for word in each.words:
            if len(word) == size and (mean := float(log_p[np.arange(size), list(word)].mean())) > best:
                best, found = mean, size
    return found


def _log_p(lm: LanguageModel, canvas: list[int], rows: Whole) -> Floats:
    """Log-probabilities [K, V] of rows [K] of a canvas, of which every row is computed."""
    none, chosen = np.zeros((2, len(canvas)), dtype=bool)
    chosen[rows] = True
    slots = np.arange(len(canvas))
    plan = Plan(
        step=0,
        slots=slots,
        counts=[len(canvas)],
        tokens=np.array(canvas, dtype=np.int64),
        positions=slots,
        probed=none,
        watches=none,
        compares=none,
        choice=Choice(chosen, "confidence", banned=[lm.mask_id]),
    )
    with lent(lm.engine, Layout((len(canvas),), 1, once=True)) as memory:
        lm.engine.read(memory, plan)
        return log_softmax(lm.engine.logits(memory, rows))
