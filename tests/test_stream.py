"""A streamer of transformers gets the prompt, the drafts and the text, as from a diffusion model's own `generate`."""

from typing import Any

import pytest
import torch
from transformers import TextDiffusionStreamer, TextStreamer

import surelock

PROMPT = "Once upon a time"
SETTINGS = surelock.DecodeSettings(gen_length=12, block_length=4)


class Noted:
    """Writes down what it gets. Without drafts where it has no put_draft."""

    def __init__(self) -> None:
        self.got: list[tuple[str, list[int]]] = []

    def put(self, value: torch.Tensor) -> None:
        assert value.dtype == torch.int64 and value.shape[0] == 1
        self.got.append(("put", value[0].tolist()))

    def put_draft(self, value: torch.Tensor, **_: Any) -> None:
        self.got.append(("draft", value[0].tolist()))

    def end(self) -> None:
        self.got.append(("end", []))


def test_it_gets_the_prompt_each_blocks_drafts_and_the_blocks(
    stories: surelock.LanguageModel,
) -> None:
    noted = Noted()
    steps = list(surelock.stream(surelock.decode(stories, [PROMPT], SETTINGS), noted, SETTINGS))
    plain = list(surelock.decode(stories, [PROMPT], SETTINGS))
    prompt = stories.encode(PROMPT)
    expected: list[tuple[str, list[int]]] = [("put", prompt)]
    for number, step in enumerate(plain):
        first = len(prompt) + number // 4 * 4
        block = step.tokens[0, first : first + 4].tolist()
        expected.append(("draft", block))
        expected += [("put", block)] if number % 4 == 3 else []
    assert noted.got == [*expected, ("end", [])]
    assert [step.tokens.tolist() for step in steps] == [step.tokens.tolist() for step in plain]
    assert noted.got[1][1].count(stories.mask_id) == 3


def test_a_replay_in_another_order_than_the_blocks_is_shown_whole(
    stories: surelock.LanguageModel,
) -> None:
    tokens = list(range(40, 52))
    replay = surelock.Replay([[(11 - i, i, token) for i, token in enumerate(tokens)]])
    noted = Noted()
    list(
        surelock.stream(
            surelock.decode(stories, [PROMPT], SETTINGS, unmask=replay), noted, SETTINGS
        )
    )
    put = [tokens for kind, tokens in noted.got if kind == "put"][1:]
    assert put == [tokens[:4], tokens[4:8], tokens[8:]]


def test_a_draft_tells_what_is_most_likely_where_that_is_known(
    stories: surelock.LanguageModel,
) -> None:
    noted = Noted()
    *_, last = surelock.stream(
        surelock.decode(stories, [PROMPT], SETTINGS, top_k=1), noted, SETTINGS
    )
    drafts = [tokens for kind, tokens in noted.got if kind == "draft"]
    assert len(drafts) == 12 and not any(stories.mask_id in draft for draft in drafts)
    assert drafts[-1] == last.tokens[0, -4:].tolist()


def test_the_streamers_of_transformers_show_it(
    stories: surelock.LanguageModel, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = surelock.DecodeSettings(gen_length=8)
    (text,) = surelock.generate(stories, [PROMPT], settings)
    for kind in (TextDiffusionStreamer, TextStreamer):  # the second knows no drafts
        streamer = kind(stories.tokenizer, skip_prompt=True)
        for _ in surelock.stream(surelock.decode(stories, [PROMPT], settings), streamer, settings):
            pass
        shown = capsys.readouterr().out
        assert shown.endswith(f"{text}\n") and ("\033[33m" in shown) == (
            kind is TextDiffusionStreamer
        )


def test_it_shows_one_sequence(stories: surelock.LanguageModel) -> None:
    with pytest.raises(ValueError, match="one sequence, not a batch of 2"):
        next(surelock.stream(surelock.decode(stories, [PROMPT] * 2, SETTINGS), Noted(), SETTINGS))
