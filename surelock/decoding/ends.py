"""The end of a text (first EOS, end of its turn, or before a stop string), and the texts that a run has written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from surelock.decoding.word_lists import is_settled

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel


def first_end(ids: Sequence[int], ends: Collection[int]) -> int:
    """Return the number of ids before the first one that is among `ends`."""
    return next((i for i, token in enumerate(ids) if token in ends), len(ids))


def cut_at_end(ids: Sequence[int], ends: Collection[int]) -> list[int]:
    """Return the ids before the first one that is among `ends`."""
    return list(ids[: first_end(ids, ends)])


def shared_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return the length of the longest common beginning of two sequences."""
    shortest = min(len(one), len(other))
    return next((i for i in range(shortest) if one[i] != other[i]), shortest)


def before_stops(text: str, stops: Iterable[str]) -> str:
    """Return the part of a text before the first of the stop strings. An empty stop string has no effect."""
    for stop in stops:
        if stop:
            text = text.partition(stop)[0]
    return text


def text_of(lm: LanguageModel, ids: Sequence[int], prompt: Sequence[int] = ()) -> str:
    """Return the text of generated token ids up to its end, as the tokenizer writes it after the prompt's ids."""
    _, text = up_to_end([*prompt, *ids], len(prompt), lm.ends, lm.stop, _reader(lm))
    return text


def written(lm: LanguageModel, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """Return the text that a run has written: the continuation of a plain prompt, or the whole text of one with masks.

    prompt: token ids of the prompt.
    tokens: [N] token ids of the sequence at the end of the run, without pads.

    The part after the last token of the prompt is cut at its end, see `text_of`.
    """
    before, after = up_to_end(tokens, _prompt_length(lm, prompt), lm.ends, lm.stop, _reader(lm))
    return before + after if lm.mask_id in prompt else after


def filled(lm: LanguageModel, prompt: Sequence[int], tokens: Sequence[int]) -> list[str]:
    """Return the texts of the blanks of a prompt, in order, and then the text after its last token, up to an end.

    prompt, tokens: see `written`.

    Raises ValueError for tokens that differ from the prompt at its written positions, and for a prompt that is not
    settled.
    """
    if not is_settled(prompt):
        raise ValueError(
            "prompt has lists of words of several numbers of tokens: give what surelock.settled returns"
        )
    canvas = [*prompt, *[lm.mask_id] * (len(tokens) - len(prompt))]
    if len(canvas) > len(tokens) or any(
        before not in (after, lm.mask_id) for before, after in zip(canvas, tokens, strict=True)
    ):
        raise ValueError(
            "tokens must be all that came of this prompt, from its first token on and without pads"
        )
    prompt_length = _prompt_length(lm, prompt)
    runs = [
        list(run)
        for masked, run in groupby(range(len(canvas)), lambda i: canvas[i] == lm.mask_id)
        if masked
    ]
    blanks = [run for run in runs if run[0] < prompt_length]
    edges = [edge for run in blanks for edge in (run[0], run[-1] + 1)]
    texts = _texts(tokens[:prompt_length], edges, _reader(lm))[1::2]
    _, after = up_to_end(tokens, prompt_length, lm.ends, lm.stop, _reader(lm))
    return [*texts, after] if len(runs) > len(blanks) else texts


def up_to_end(
    tokens: Sequence[int],
    prompt_length: int,
    ends: Collection[int],
    stop: str,
    read: Callable[[Sequence[int]], str],
) -> tuple[str, str]:
    """Return the text of the first `prompt_length` tokens, and the text after it up to its end.

    ends, stop: the ids and the text that end a text, see `LanguageModel`. They have no effect within the prompt.
    read: a function that returns the text of token ids.
    """
    kept = [*tokens[:prompt_length], *cut_at_end(tokens[prompt_length:], ends)]
    before, after = _texts(kept, [prompt_length], read)
    return before, before_stops(after, [stop])


def _prompt_length(lm: LanguageModel, prompt: Sequence[int]) -> int:
    """Return the number of positions up to the last one that is no mask."""
    return max((i for i, token in enumerate(prompt, 1) if token != lm.mask_id), default=0)


def _reader(lm: LanguageModel) -> Callable[[Sequence[int]], str]:
    """Return a function from token ids to text. It drops ends, which a tokenizer might show as text."""
    return lambda ids: lm.decode([token for token in ids if token not in lm.ends])


def _texts(
    ids: Sequence[int], edges: Sequence[int], read: Callable[[Sequence[int]], str]
) -> list[str]:
    """Return the text of all ids, cut at `edges`, which are numbers of ids.

    The text of a token depends on the tokens before it. In some tokenizers a token has a space in front unless it
    begins the text, and the bytes of several tokens may form one character. So the text is decoded as a whole, and then
    cut.
    """
    whole = read(ids)
    places = [0]
    for edge in edges:
        place = shared_length(read(ids[:edge]), whole)
        places.append(max(place, places[-1]))
    places.append(len(whole))
    return [whole[start:stop] for start, stop in pairwise(places)]
