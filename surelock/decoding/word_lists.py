"""Blanks from a list: a blank becomes one of some words, and nothing else.

In every step the words of a list that agree with what is written compete by the sum of their tokens' log-probabilities
at the candidates of the blank. The best word gives these candidates their tokens, at any temperature. So a commit
agrees with the earlier commits of its blank, in any order and any number a step, and the blank ends as one of its
words. What a person writes there may agree with no word: what is left of the blank is then free.

During a run all words of a list have the same number of tokens. Where they differ, `settled` chooses a number before
the run.
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
    words: token ids, by word.
    """

    start: int
    words: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """The number of tokens of the longest word, and of the blank's masks."""
        return max(self.sizes, default=0)

    @property
    def sizes(self) -> list[int]:
        """The numbers of tokens that its words have, ascending."""
        return sorted({len(word) for word in self.words})

    @property
    def is_settled(self) -> bool:
        return len(self.sizes) == 1

    @property
    def span(self) -> slice:
        return slice(self.start, self.start + self.size)


class Listed(list[int]):
    """The token ids of a prompt with blanks from lists. A blank has as many masks as the longest word of its list.

    Raises ValueError for lists that do not stand at masks of the prompt, that overlap, or that are out of order.
    """

    lists: tuple[WordList, ...]

    def __init__(self, ids: Iterable[int], lists: Sequence[WordList], mask_id: int) -> None:
        super().__init__(ids)
        self.lists = tuple(lists)
        free = 0
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
    """Return a list as traces hold it."""
    return {"at": word_list.start, "words": [list(word) for word in word_list.words]}


def from_plain_lists(ids: Sequence[int], plain: Any, mask_id: int) -> list[int]:
    """Return token ids with the lists of a plain form, see `plain_list`. None means no lists.

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
    return prompt.lists if isinstance(prompt, Listed) else ()


def is_settled(prompt: Sequence[int]) -> bool:
    return all(word_list.is_settled for word_list in lists_of(prompt))


def check_words(shape: Shape, number: int, prompt: Sequence[int]) -> None:
    """Raise ValueError, which names the prompt by its number, for words that the model does not have."""
    vocabulary = range(shape.network.vocab_size)
    tokens = {token for word_list in lists_of(prompt) for word in word_list.words for token in word}
    if shape.mask_id in tokens or any(token not in vocabulary for token in tokens):
        raise ValueError(
            f"prompt {number} has a list that holds the mask, or ids that are no tokens of the model"
        )


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
    """Return the lists of the prompts of a run. starts: [B] int64, by sequence, its first slot.

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
    """Return the rows whose logits the lists need, [K] int64: masked candidates in their blanks.

    slots, chosen: of a plan, whose candidates may also be written positions that a policy doubts.
    """
    if not run.lists or run.policy.scores is None:
        return NO_ROWS
    inside = np.concatenate([slot_list.slots for slot_list in run.lists])
    return np.flatnonzero(chosen & run.state.masked[slots] & np.isin(slots, inside))


def put_words(run: Run, plan: Plan, reading: Reading) -> list[Shares]:
    """Give the candidates of a blank from a list the tokens of its best word, and their scores.

    Returns the shares of the words of every list that was scored. Raises ValueError if the reading lacks their
    log-probabilities.
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
        by_token = log_p[np.arange(len(listed)), words]  # [words, candidates]
        sums = by_token.sum(axis=1)
        best = int(sums.argmax())
        places = np.searchsorted(candidates, slots)
        reading.tokens[places] = words[best]
        if run.policy.scores == "confidence":
            reading.score[places] = np.exp(by_token[best])
        shares = np.zeros(len(slot_list.words))
        shares[agreeing] = _shares(sums)
        position = int(run.canvas.position[slot_list.slots[0]])
        reported.append(Shares(slot_list.sequence, position, shares))
    return reported


def _agrees(slot_list: SlotList, state: State) -> Flags:
    """Which words agree with what is written in their blank, [K] bool."""
    written = ~state.masked[slot_list.slots]
    tokens = state.tokens[slot_list.slots]
    return (slot_list.words[:, written] == tokens[written]).all(axis=1)


def _shares(sums: Floats) -> Floats:
    weights = np.exp(sums - sums.max())
    return weights / weights.sum()


def read_lists(engine: Any, memory: Any, plan: Plan, reading: Reading) -> None:
    """Give a reading the log-probabilities of the plan's listed rows, where it has any."""
    if len(plan.listed):
        reading.listed = log_softmax(engine.logits(memory, plan.listed))


def log_softmax(logits: Any) -> Floats:
    wide = logits.astype(np.float64)
    wide = wide - wide.max(axis=-1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))


# --- before a run -----------------------------------------------------------------------------------------------------


def settled(
    lm: LanguageModel, prompt: Sequence[int], gen_length: int, number: int = 1
) -> list[int]:
    """Return a prompt in which the words of a list have the same number of tokens, and its blank has that many masks.

    gen_length: positions behind the prompt, which are masked, too.
    number: the prompt's in its batch, from 1.

    From left to right: for every number of tokens that words have, one forward pass with as many masks gives these
    words the mean log-probability of their tokens. The best word decides the number; only words of this number stay in
    the list. Lists further right have the masks of their longest words meanwhile.

    A prompt whose lists are settled, or that has none, is returned as it is.

    Raises ValueError for words that the model does not have, and for a canvas that is longer than it can read.
    """
    ids = list(prompt)
    lists = list(lists_of(prompt))
    if is_settled(prompt):
        return prompt if isinstance(prompt, list) else ids
    check_words(lm.shape, number, prompt)
    check_length(lm, number, len(ids), gen_length)
    removed = 0  # masks, so far
    for place, word_list in enumerate(lists):
        moved = WordList(word_list.start - removed, word_list.words)
        size = moved.size if moved.is_settled else _best_size(lm, ids, moved, gen_length)
        ids[moved.span] = [lm.mask_id] * size
        removed += moved.size - size
        lists[place] = WordList(
            moved.start, tuple(word for word in moved.words if len(word) == size)
        )
    return Listed(ids, lists, lm.mask_id)


def _best_size(lm: LanguageModel, ids: list[int], word_list: WordList, gen_length: int) -> int:
    """The number of tokens of the word with the best mean log-probability per token."""
    best = -np.inf
    best_size = word_list.size
    before = ids[: word_list.start]
    behind = ids[word_list.span.stop :]
    for size in word_list.sizes:
        masks = [lm.mask_id] * size
        canvas = [*before, *masks, *behind, *[lm.mask_id] * gen_length]
        words = np.array([word for word in word_list.words if len(word) == size])
        places = np.arange(size)
        log_p = _log_p(lm, canvas, word_list.start + places)
        mean = float(log_p[places, words].mean(axis=1).max())
        if mean > best:
            best = mean
            best_size = size
    return best_size


def _log_p(lm: LanguageModel, canvas: list[int], rows: Whole) -> Floats:
    """Log-probabilities [K, V] of rows [K] of a canvas, of which every row is computed."""
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
