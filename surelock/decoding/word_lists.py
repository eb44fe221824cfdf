"""Blanks with a list of words: such a blank becomes one word of its list.

A word agrees with the blank if it has the blank's written tokens at their places. In every step, the agreeing word with
the largest sum of log-probabilities at the blank's candidates gives these candidates their tokens, at any temperature.
So a commit agrees with the earlier commits of its blank, however many tokens a step commits and in whatever order, and
the blank becomes one of its words. If a person writes a token with which no word agrees, the rest of the blank is free.

During a run all words of a list have the same number of tokens. If the words of a list differ in their number of
tokens, `settled` chooses a number before the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surelock.decoding.lengths import check_length
from surelock.decoding.step import NO_ROWS, Choice, Layout, Plan, Reading, Shares, lent
from surelock.values import Flags, Floats, Json, Whole, frozen

if TYPE_CHECKING:
    from surelock.config import Shape
    from surelock.decoding.algorithm import Run
    from surelock.decoding.state import Slots, State
    from surelock.model.language_model import LanguageModel


@frozen
class WordList:
    """The words that a blank may become.

    start: the position of the blank's first mask in the prompt.
    words: by word, its token ids.
    """

    start: int
    words: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of tokens of the longest word, which is also the number of the blank's masks."""
        return max(self.sizes, default=0)

    @property
    def sizes(self) -> list[int]:
        """The numbers of tokens that words of the list have, ascending and without repetition."""
        return sorted({len(word) for word in self.words})

    @property
    def is_settled(self) -> bool:
        """Whether all words have the same number of tokens."""
        return len(self.sizes) == 1

    @property
    def span(self) -> slice:
        """The positions of the blank's masks."""
        return slice(self.start, self.start + self.size)


class Listed(list[int]):
    """The token ids of a prompt, with lists of words for some blanks.

    A blank has as many masks as the longest word of its list has tokens.

    lists: the lists, by position.

    Raises ValueError for a list that is not at masks of the prompt, for lists that overlap or are out of order, and for
    an empty list or word.
    """

    lists: tuple[WordList, ...]

    def __init__(self, ids: Iterable[int], lists: Sequence[WordList], mask_id: int) -> None:
        super().__init__(ids)
        self.lists = tuple(lists)
        free = 0  # first position after the previous list
        for word_list in self.lists:
            start = word_list.start
            size = word_list.size
            if not size or not all(word_list.words):
                raise ValueError(
                    "a list of words must hold at least one word, and every word a token"
                )
            if start < free or self[word_list.span] != [mask_id] * size:
                raise ValueError(
                    f"the list at position {start} must stand at {size} masks of its prompt"
                )
            free = word_list.span.stop


def plain_list(word_list: WordList) -> Json:
    """Return the JSON form of a list, as traces have it."""
    return {"at": word_list.start, "words": [list(word) for word in word_list.words]}


def from_plain_lists(ids: Sequence[int], plain: Any, mask_id: int) -> list[int]:
    """Return token ids with lists.

    plain: the JSON form of the lists, see `plain_list`; None means no lists.

    Raises ValueError for any other value, and for lists that are not settled.
    """
    if plain is None:
        return list(ids)
    try:
        prompt = Listed(ids, [_from_plain_list(plain_list) for plain_list in plain], mask_id)
    except (TypeError, KeyError):
        raise ValueError(
            'lists must be objects {"at": position, "words": [[token id, ...], ...]}'
        ) from None
    if not is_settled(prompt):
        raise ValueError("all words of a list must have the same number of tokens")
    return prompt


def _from_plain_list(plain: Any) -> WordList:
    words = tuple(tuple(index(token) for token in word) for word in plain["words"])
    return WordList(index(plain["at"]), words)


def lists_of(prompt: Sequence[int]) -> tuple[WordList, ...]:
    """Return the lists of a prompt, none for a prompt that is not `Listed`."""
    return prompt.lists if isinstance(prompt, Listed) else ()


def is_settled(prompt: Sequence[int]) -> bool:
    """Return whether all lists of a prompt are settled, see `WordList.is_settled`."""
    return all(word_list.is_settled for word_list in lists_of(prompt))


def check_words(shape: Shape, number: int, prompt: Sequence[int]) -> None:
    """Raise ValueError, which names the prompt by its number, for words that the model does not have."""
    vocabulary = range(shape.network.vocab_size)
    words = [word for word_list in lists_of(prompt) for word in word_list.words]
    tokens = set().union(*words)
    if shape.mask_id in tokens or any(token not in vocabulary for token in tokens):
        raise ValueError(
            f"prompt {number} has a list that holds the mask, or ids that are no tokens of the model"
        )


def like(prompt: Sequence[int], ids: Iterable[int], mask_id: int) -> list[int]:
    """Return token ids with the lists of `prompt`, or as a plain list if it has none."""
    lists = lists_of(prompt)
    return Listed(ids, lists, mask_id) if lists else list(ids)


# --- within a run -----------------------------------------------------------------------------------------------------


class SlotList(NamedTuple):
    """A settled list in a run."""

    sequence: int  # number of the sequence in the batch
    slots: Slots  # [L] int64, the slots of the blank
    words: Whole  # [K, L] int64, by word, its token ids


def slot_lists(shape: Shape, prompts: Sequence[Sequence[int]], starts: Whole) -> list[SlotList]:
    """Return the lists of a run's prompts. starts: [B] int64, by sequence, its first slot.

    Raises ValueError for a list that is not settled, and for words that the model does not have.
    """
    lists = []
    for b, prompt in enumerate(prompts):
        check_words(shape, b + 1, prompt)
        for word_list in lists_of(prompt):
            if not word_list.is_settled:
                raise ValueError(
                    f"prompt {b + 1} has a list whose words differ in their number of tokens: call surelock.settled"
                )
            slots = int(starts[b]) + np.arange(word_list.start, word_list.span.stop)
            lists.append(SlotList(b, slots, np.array(word_list.words, dtype=np.int64)))
    return lists


def listed_rows(run: Run, slots: Slots, chosen: Flags) -> Whole:
    """Return the rows whose logits the lists need, [K] int64: masked candidates in blanks with a list.

    slots: [R] int64, the computed slots. chosen: [R] bool, the candidates, among which a policy may also have written
    positions.
    """
    if not run.lists or run.policy.scores is None:
        return NO_ROWS
    inside = np.concatenate([slot_list.slots for slot_list in run.lists])
    return np.flatnonzero(chosen & run.state.masked[slots] & np.isin(slots, inside))


def put_words(run: Run, plan: Plan, reading: Reading) -> list[Shares]:
    """Set, in the reading, tokens and scores of candidates in blanks with a list, to those of the best word.

    Returns the shares of the words, for every list that was scored. Raises ValueError if the reading lacks the
    log-probabilities of the listed rows.
    """
    reported: list[Shares] = []
    if not len(plan.listed):
        return reported
    if reading.listed is None:
        raise ValueError("the reading lacks the log-probabilities of the plan's listed rows")
    rows = plan.slots[plan.listed]
    candidates = plan.slots[plan.choice.rows]
    reading.tokens = reading.tokens.copy()
    reading.score = reading.score.copy()
    for slot_list in run.lists:
        listed = np.flatnonzero(np.isin(slot_list.slots, rows))
        agreeing = np.flatnonzero(_agrees(slot_list, run.state))
        if not len(listed) or not len(agreeing):
            continue
        slots = slot_list.slots[listed]
        words = slot_list.words[agreeing][:, listed]
        log_p = reading.listed[np.searchsorted(rows, slots)]
        token_log_p = log_p[np.arange(len(listed)), words]  # [words, candidates]
        sums = token_log_p.sum(axis=1)
        best = int(sums.argmax())
        places = np.searchsorted(candidates, slots)
        reading.tokens[places] = words[best]
        if run.policy.scores == "confidence":
            reading.score[places] = np.exp(token_log_p[best])
        shares = np.zeros(len(slot_list.words))
        shares[agreeing] = _shares(sums)
        position = int(run.canvas.position[slot_list.slots[0]])
        reported.append(Shares(slot_list.sequence, position, shares))
    return reported


def _agrees(slot_list: SlotList, state: State) -> Flags:
    """Return which words have the written tokens of their blank at their places, [K] bool."""
    written = ~state.masked[slot_list.slots]
    tokens = state.tokens[slot_list.slots]
    return (slot_list.words[:, written] == tokens[written]).all(axis=1)


def _shares(sums: Floats) -> Floats:
    """Return the softmax of log-probabilities of words, [words] float64."""
    weights = np.exp(sums - sums.max())
    return weights / weights.sum()


def read_lists(engine: Any, memory: Any, plan: Plan, reading: Reading) -> None:
    """Set the reading's log-probabilities of the plan's `listed` rows, if the plan has such rows."""
    if len(plan.listed):
        reading.listed = log_softmax(engine.logits(memory, plan.listed))


def log_softmax(logits: Any) -> Floats:
    """Return log-probabilities over the last axis, float64 in the shape of `logits`."""
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


# --- before a run -----------------------------------------------------------------------------------------------------


def settled(
    lm: LanguageModel, prompt: Sequence[int], gen_length: int, number: int = 1
) -> list[int]:
    """Return a prompt whose lists are settled: the words of a list have as many tokens as its blank has masks.

    gen_length: number of masked positions after the prompt.
    number: number of the prompt in its batch, from 1.

    Lists are settled from left to right. For every number of tokens that words of the list have, one forward pass with
    that many masks scores these words by the mean log-probability of their tokens. The list keeps only words with as
    many tokens as the best word. During the passes, lists further to the right have the masks of their longest words.

    A prompt without lists, or whose lists are settled, is returned unchanged.

    Raises ValueError for words with tokens that the model does not have, and for a canvas that is longer than the model
    can read.
    """
    ids = list(prompt)
    lists = list(lists_of(prompt))
    if is_settled(prompt):
        return prompt if isinstance(prompt, list) else ids
    check_words(lm.shape, number, prompt)
    check_length(lm, number, len(ids), gen_length)
    removed = 0  # number of masks that were removed so far
    for place, word_list in enumerate(lists):
        moved = WordList(word_list.start - removed, word_list.words)
        size = moved.size if moved.is_settled else _best_size(lm, ids, moved, gen_length)
        ids[moved.span] = [lm.mask_id] * size
        removed += moved.size - size
        words = tuple(word for word in moved.words if len(word) == size)
        lists[place] = WordList(moved.start, words)
    return Listed(ids, lists, lm.mask_id)


def _best_size(lm: LanguageModel, ids: list[int], word_list: WordList, gen_length: int) -> int:
    """Return the number of tokens of the word with the best mean log-probability per token."""
    best = -np.inf
    best_size = word_list.size
    before = ids[: word_list.start]
    after = ids[word_list.span.stop :]
    for size in word_list.sizes:
        masks = [lm.mask_id] * size
        canvas = [*before, *masks, *after, *[lm.mask_id] * gen_length]
        words = np.array([word for word in word_list.words if len(word) == size])
        places = np.arange(size)
        log_p = _log_p(lm, canvas, word_list.start + places)
        mean = float(log_p[places, words].mean(axis=1).max())
        if mean > best:
            best = mean
            best_size = size
    return best_size


def _log_p(lm: LanguageModel, canvas: list[int], rows: Whole) -> Floats:
    """Compute every row of a canvas, and return the log-probabilities [K, V] of rows [K]."""
    none = np.zeros(len(canvas), dtype=bool)
    chosen = none.copy()
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
