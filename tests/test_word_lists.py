"""Blanks from a list: how a prompt says them, which number of tokens they take, and that nothing else is written."""

import json
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

import surelock
from surelock import Decoder, DecodeSettings
from surelock.__main__ import main
from surelock.decoding.word_lists import Listed, WordList, from_plain_lists, settled
from surelock.record import record_run
from surelock.trace.format import check_document
from surelock.trace.lanes import alone

TEXT = "Tom had a __{red|blue|light green} ball. He was __ happy."
WORDS = ("red", "blue", "light green")


def prompt_of(lm: surelock.LanguageModel, text: str, **how: Any) -> Listed:
    prompt = lm.encode(text, **{"blanks": True, **how})
    assert isinstance(prompt, Listed)
    return prompt


def test_a_text_says_its_lists(stories: surelock.LanguageModel) -> None:
    prompt = prompt_of(stories, TEXT)
    (listed,) = prompt.lists
    assert listed.start == len(stories.encode("Tom had a"))
    assert [stories.decode(word).strip() for word in listed.words] == list(WORDS)
    assert prompt[listed.span] == [stories.mask_id] * max(map(len, listed.words))
    assert prompt.count(stories.mask_id) == listed.size + 2
    bare = "Tom had a __ ball. He was __ happy."
    assert stories.encode(bare, blanks=[list(WORDS), None]) == prompt
    spaced = TEXT.replace("red|blue", " red | blue ")
    assert prompt_of(stories, spaced).lists == prompt.lists, "spaces beside a word are none of it"
    free = stories.encode(bare, blanks=[None, None])
    assert not isinstance(free, Listed)
    assert free == stories.encode(bare, blanks=True)
    assert stories.mask_id not in stories.encode(TEXT), "a text without blanks is text"
    copied = pickle.loads(pickle.dumps(prompt))
    assert copied == prompt
    assert copied.lists == prompt.lists


@pytest.mark.parametrize(
    ("text", "blanks", "said"),
    [
        (
            "A __{red} ball",
            True,
            "must hold 2 to 64 different words, as in __{red|blue}, not 'red'",
        ),
        ("A __{red|} ball", True, "must hold 2 to 64 different words"),
        ("A __{red| red} ball", True, "must hold 2 to 64 different words"),
        ("A __{red|blue ball", True, "must end with a brace, as in __{red|blue}"),
        ("A __{red|{blue}} ball", True, "must end with a brace, as in __{red|blue}"),
        ("A __ ball", [], "blanks must have an entry for every blank of the text, 1, not 0"),
        (
            "A __ ball",
            3,
            "blanks must be True, False or a list with an entry for every blank, not 3",
        ),
        ("A __ ball", ["red"], "must be a list of texts, not 'red'"),
        ("A __ ball", [["red", 3]], "must be a list of texts, not"),
    ],
)
def test_a_list_that_no_blank_can_have_is_refused(
    stories: surelock.LanguageModel, text: str, blanks: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        stories.encode(text, blanks=blanks)


def test_lists_that_no_prompt_can_have_are_refused(stories: surelock.LanguageModel) -> None:
    mask = stories.mask_id
    with pytest.raises(ValueError, match="must stand at 2 masks of its prompt"):
        Listed([5, mask, 6], [WordList(1, ((7, 8),))], mask)
    with pytest.raises(ValueError, match="at least one word"):
        Listed([5, mask, 6], [WordList(1, ())], mask)
    for words in (((7,), (-1,)), ((7,), (mask,)), ((7,), (4096, 8)), ((7,), (10**30, 8))):
        listed = WordList(1, words)
        wrong = Listed([5, *[mask] * listed.size, 6], [listed], mask)
        with pytest.raises(
            ValueError, match="prompt 2 has a list that holds the mask, or ids that"
        ):
            surelock.decode(stories, [[5, mask], wrong], DecodeSettings(gen_length=0))
    several = Listed([5, mask, mask], [WordList(1, ((7,), (7, 8)))], mask)
    with pytest.raises(
        ValueError, match="prompt 1 has 3 tokens, which with gen_length 5000 is more than the 1024"
    ):
        settled(stories, several, 5000)
    with pytest.raises(ValueError, match=r"give what surelock\.settled returns"):
        surelock.filled(stories, several, [5, 7])


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (5, "lists must be objects"),
        ([{"at": 1}], "lists must be objects"),
        ([{"at": 1, "words": [["7"]]}], "lists must be objects"),
        ([{"at": 0, "words": [[7]]}], "the list at position 0 must stand at 1 masks of its prompt"),
        (
            [{"at": 1, "words": [[7], [7, 8]]}],
            "all words of a list must have the same number of tokens",
        ),
    ],
)
def test_lists_of_a_trace_or_a_request_that_cannot_be_are_refused(plain: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        from_plain_lists([5, 1, 1], plain, 1)


@pytest.mark.parametrize("text", [TEXT, "Lily saw __{it|a little bird} in the park."])
def test_words_of_several_numbers_of_tokens_compete_by_their_mean_log_probability(
    stories: surelock.LanguageModel, text: str
) -> None:
    """By their sum "it" would win over "a little bird", which is likelier a token."""
    prompt = prompt_of(stories, text)
    (listed,) = prompt.lists
    means = []
    for word in listed.words:
        masks = [stories.mask_id] * len(word)
        canvas = [*prompt[: listed.start], *masks, *prompt[listed.span.stop :]]
        tokens = torch.tensor([[*canvas, *[stories.mask_id] * 8]])
        with torch.no_grad():
            log_p = stories.network(tokens)[0].double().log_softmax(dim=-1)
        mean = log_p[range(listed.start, listed.start + len(word)), list(word)].mean()
        means.append((float(mean), len(word)))
    _, size = max(means)
    made = settled(stories, prompt, 8)
    assert isinstance(made, Listed)
    kept = tuple(word for word in listed.words if len(word) == size)
    assert made.lists == (WordList(listed.start, kept),)
    assert len(made) == len(prompt) - listed.size + size
    assert settled(stories, made, 8) is made
    plain = stories.encode("Tom")
    assert settled(stories, plain, 8) is plain


def test_lists_behind_a_settled_one_move_with_their_masks(stories: surelock.LanguageModel) -> None:
    words = "__{red|blue|light green}"
    prompt = prompt_of(stories, f"Tom had a {words} ball, a {words} hat and a {words} toy.")
    made = settled(stories, prompt, 0)
    assert isinstance(made, Listed)
    for each, sizes in ((prompt, [2, 2, 2]), (made, [1, 1, 1])):
        assert [listed.size for listed in each.lists] == sizes
    ids: list[int] = list(made)
    for listed in made.lists:
        ids[listed.span] = listed.words[0]
    assert stories.decode(ids) == "Tom had a red ball, a red hat and a red toy."


def test_a_written_blank_has_no_shares_under_a_policy_that_doubts_it(
    stories: surelock.LanguageModel,
) -> None:
    """`Correct` chooses anew at written positions: the words of a blank that is written do not compete again."""
    prompt = prompt_of(stories, "Tom had a __{red|blue} ball. He was __ happy.")
    (blank,) = prompt.lists
    policy = surelock.Correct(p=0.99, doubt=0.0)
    steps = list(surelock.decode(stories, [prompt], DecodeSettings(gen_length=0), unmask=policy))
    written = [step.index for step in steps if step.newly_unmasked[0, blank.start]]
    assert written and written[0] < steps[-1].index
    assert [step.index for step in steps if step.shares] == list(range(written[0] + 1))


def test_a_trace_holds_the_lists_and_their_shares(stories: surelock.LanguageModel) -> None:
    lane = alone(Decoder(settings=DecodeSettings(gen_length=4)))
    document = json.loads(json.dumps(record_run(stories, TEXT, [lane])))
    check_document(document)
    (listed,) = document["header"]["lists"]
    first = document["records"][0]["shares"][0]
    assert first[0] == listed["at"] and len(first) == 1 + len(listed["words"])
    assert sum(first[1:]) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(surelock.commit_error(stories, document).error).all()


def test_the_command_fills_a_blank_from_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "Tom had a __{red|blue|light green} ball.", "--gen-length", "0"]) == 0
    assert capsys.readouterr().out.strip() in [f"Tom had a {word} ball." for word in WORDS]
    assert main(["decode", "Tom had a __{red} ball.", "--gen-length", "0"]) == 2
    assert "prompt has a blank whose list must hold 2" in capsys.readouterr().err
