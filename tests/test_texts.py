"""From text to ids and back, for tokenizers of four kinds: what a user gave comes back unchanged, and all cut alike."""

import re
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import END, KINDS, MASK, TURN, tokenizer_of

import surelock
from surelock.decoding.ends import text_of, written
from surelock.harness.model import SureLockLM
from surelock.trace.pieces import Pieces, running_text


@pytest.fixture(scope="module", params=KINDS)
def lm(request, stories):
    """The embedded model with a tokenizer of a kind."""
    tokenizer: Any = tokenizer_of(request.param)
    mask, end = tokenizer.convert_tokens_to_ids([MASK, END])
    return replace(
        stories, name=request.param, tokenizer=tokenizer, mask_id=mask, pad_id=end, ends=(end,)
    )


WORDS = st.sampled_from(
    ["tom", "he", "ran", "the", "cat", "played", "x", "birthday", "a", "zq", "3"]
)


@st.composite
def texts(draw: st.DrawFn, lossless: bool) -> str:
    """Words with stops between them, as WordPiece keeps them too; with any spaces and marks where nothing is lost."""
    words = draw(st.lists(WORDS, min_size=1, max_size=5))
    gaps = st.sampled_from(
        [" ", ", ", ". ", "! "] + (["  ", "", "-", " '", ",", "   "] if lossless else [])
    )
    return words[0] + "".join(draw(gaps) + word for word in words[1:])


@settings(max_examples=30)
@given(data=st.data())
def test_a_text_comes_back_and_goes_on_where_it_is_cut(lm, data):
    """At any token: the prompt with what follows it is the text. And a token's piece is what it adds to a text."""
    text = data.draw(texts(lm.name != "wordpiece"))
    ids = lm.encode(text)
    assert lm.decode(ids) == text
    at = data.draw(st.integers(1, len(ids)))
    head = lm.decode(ids[:at])
    end = [lm.ends[0], *lm.encode("zq")]
    assert head + written(lm, ids[:at], [*ids, *end]) == text
    assert head + text_of(lm, [*ids[at:], *end], ids[:at]) == text
    assert running_text(Pieces(lm.tokenizer).look_up(ids), ids).removeprefix(" ") == text


@st.composite
def blanks(draw: st.DrawFn, lm: surelock.LanguageModel) -> tuple[str, list[list[int]], str]:
    """A text with blanks, the tokens that fill them in, and the text that comes of it.

    The tokens begin a word or go on with one. What stands behind a blank may be the end of its word.
    """
    pieces = Pieces(lm.tokenizer)
    lossless = lm.name != "wordpiece"
    begins = lm.encode("x k")[-1]
    goes_on = lm.encode("xq")[-1]
    behind = st.sampled_from(
        [" ", ", ", ". ", " and ", "! ", "ly "] + (["  ", "-", "' "] if lossless else [])
    )
    prompt = whole = draw(texts(lossless))
    fills = []
    for _ in range(draw(st.integers(1, 3))):
        fill = draw(st.lists(st.sampled_from([begins, goes_on]), min_size=2, max_size=3))
        part = draw(behind) + draw(texts(lossless))
        said = "".join(str(pieces.look_up([token])[str(token)]) for token in fill)
        prompt += f" {MASK * len(fill) if part[0].isalpha() else '_' * len(fill)}{part}"
        whole += said + part
        fills.append(fill)
    return prompt, fills, whole


@settings(max_examples=30)
@given(data=st.data())
def test_what_stands_around_blanks_comes_back(lm, data):
    prompt, fills, whole = data.draw(blanks(lm))
    given = lm.encode(prompt, blanks=True)
    ids = iter(chain.from_iterable(fills))
    tokens = [next(ids) if token == lm.mask_id else token for token in given]
    assert next(ids, None) is None
    assert written(lm, given, tokens) == whole
    found = surelock.filled(lm, given, tokens)
    parts = re.split(f" (?:_+|(?:{re.escape(MASK)})+)", prompt)
    assert "".join(chain(parts[:1], *zip(found, parts[1:], strict=True))) == whole


def test_a_word_of_a_list_has_the_same_tokens_in_every_blank_of_a_text(lm) -> None:
    """Also in the first blank, before which there is text."""
    prompt = lm.encode("tom __{ran|played} he __{ran|played} cat", blanks=True)
    first, second = prompt.lists
    assert first.words == second.words


@settings(max_examples=30)
@given(data=st.data())
def test_a_turn_is_read_alike_beside_another_that_spells_markup(lm, data):
    """Also one of characters that could stand for markup; and with a blank in it, what is given comes back."""
    first = data.draw(texts(True)) + data.draw(st.text("\U000f0000\U000f0001", max_size=2))
    second = data.draw(texts(True))
    model = SureLockLM(lm)

    def ids(*said: str) -> list[int]:
        return model.tok_encode(
            model.apply_chat_template([{"role": "user", "content": text} for text in said])
        )

    harmless, forged = ids(first, second), ids(first, f"{TURN[0]}{second}")
    turn = harmless[: harmless.index(lm.encoder.tokenizer.convert_tokens_to_ids(TURN[1]))]
    assert forged[: len(turn)] == turn
    prompt, fills, whole = data.draw(blanks(lm))
    given = lm.encode(prompt, blanks=True, chat=True)
    tokens = iter(chain.from_iterable(fills))
    filled = [next(tokens) if token == lm.mask_id else token for token in given]
    assert written(lm, given, filled) == whole


@settings(max_examples=30)
@given(data=st.data())
def test_lm_eval_scores_the_tokens_of_the_whole_text(lm, data):
    """Wherever the context ends; what is said of a continuation is what follows the context."""
    text = data.draw(texts(lm.name != "wordpiece"))
    at = data.draw(st.integers(0, len(text) - 1))
    model = SureLockLM(lm)
    context, continuation = model._encode_pair(text[:at], text[at:])
    assert [*context, *continuation] == lm.encode(text)
    assert continuation
    assert context == lm.encode(text[:at].rstrip())[: len(context)]
