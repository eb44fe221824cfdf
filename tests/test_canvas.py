"""Prompts with masks in them: blanks in texts, what a run makes of them, and another sampler beside it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import write_chat_model

import surelock
from surelock import DecodeSettings, LanguageModel
from surelock.__main__ import main

MASK = 1
TOM = "Tom found a __ in the garden. He was very ___ and ran to show it to his mom."


def infill(lm: LanguageModel, canvas: list[int], cfg_scale: float) -> tuple[list[int], bool]:
    """dllm's `MDLMSampler.infill` as its description has it, of one sequence, with one block and a step for each mask:
    the masked position whose likeliest token is the most probable one gets that token. Guidance masks all given tokens.

    Returns the tokens, and whether the likeliest token of a mask before given ones ever was an end.
    """
    x = torch.tensor([canvas])
    given = torch.tensor([canvas]) != lm.mask_id
    last = int(given.nonzero()[:, 1].max())
    met = False
    while (masked := x[0] == lm.mask_id).any():
        logits = lm.network(x)[0]
        if cfg_scale:
            blind = lm.network(torch.where(given, lm.mask_id, x))[0]
            logits = blind + (cfg_scale + 1) * (logits - blind)
        tokens = logits.argmax(dim=-1)
        met |= bool(torch.isin(tokens[:last][masked[:last]], torch.tensor(lm.ends)).any())
        confidence = logits.softmax(dim=-1).amax(dim=-1).where(masked, -torch.inf)
        place = int(confidence.argmax())
        x[0, place] = tokens[place]
    return x[0].tolist(), met


@pytest.mark.parametrize("cfg_scale", [0.0, 0.8])
def test_another_sampler_fills_in_the_same_tokens(stories: LanguageModel, cfg_scale: float) -> None:
    """Sentences of a story with masks anywhere; at least 20 cases in which no end would have stood in the middle."""
    text = Path("assets/results/openings.txt").read_text("utf-8")
    ids = stories.encode(text)[:4000]
    rng = np.random.default_rng(3)
    alike = 0
    for _ in range(24):
        length = int(rng.integers(8, 20))
        start = int(rng.integers(len(ids) - length))
        canvas = [
            stories.mask_id if rng.random() < 0.35 else token
            for token in ids[start : start + length]
        ]
        canvas[int(rng.integers(length))] = stories.mask_id
        more = int(rng.integers(0, 5))
        found, met = infill(stories, canvas + [stories.mask_id] * more, cfg_scale)
        settings = DecodeSettings(gen_length=more, cfg_scale=cfg_scale)
        llada = surelock.Decoder(settings=settings, compute=surelock.Everything())
        *_, step = surelock.decode(stories, [canvas], **llada.keywords())
        assert met or step.tokens[0].tolist() == found
        alike += not met
    assert alike >= 20


@pytest.mark.parametrize(
    ("prompt", "values", "words"),
    [
        ([5, 6], {"gen_length": 0}, "prompt 1 has no mask and gen_length is 0"),
        (
            [MASK] * 60,
            {"gen_length": 5},
            "60 tokens, which with gen_length 5 is more than the 64 positions",
        ),
        (
            [MASK, 5, 6, 7, MASK],
            {"gen_length": 0, "steps": 1, "block_length": 2},
            r"steps \(1\) are too few: .* 2 blocks",
        ),
        (
            [MASK, 5, MASK],
            {"gen_length": 0, "steps": 3},
            r"steps \(3\) are too many: prompt 1 has 2 masks",
        ),
    ],
)
def test_what_no_canvas_can_have_is_refused(
    lm: LanguageModel, prompt: list[int], values: dict, words: str
) -> None:
    with pytest.raises(ValueError, match=rf"^[^\n]*{words}[^\n]*$"):
        surelock.decode(lm, [prompt], DecodeSettings(**values))


BLANKS = [
    ("found a __ in", ["found a", 2, " in"]), ("__ and ___.", ["", 2, " and", 3, "."]), ("a  __", ["a ", 2]),
    ("__init__ a__b _ \\__ __\\ 5__", None), ("“__”", ["“", 2, "”"]), ("a <|mask|> b", ["a", 1, " b"]),
    ("<|mask|>__", ["", 1, "", 2]), ("é__ __é", None), ("\n__\n", ["\n", 2, "\n"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), BLANKS)
def test_blanks_in_a_text(stories: LanguageModel, text: str, parts: list[Any] | None) -> None:
    """Texts, and between them the numbers of masks."""
    expected = stories.encode(text)
    if parts is not None:
        encoded = [
            [stories.mask_id] * p if isinstance(p, int) else stories.encode(p) for p in parts
        ]
        expected = [i for ids in encoded for i in ids]
    assert stories.encode(text, blanks=True) == expected
    assert stories.mask_id not in stories.encode(text)


def test_a_blank_in_a_turn_of_a_chat(tmp_path: Path) -> None:
    write_chat_model(tmp_path)
    lm = surelock.load(tmp_path)
    whole = lm.encode("A red fox", chat=True)
    blank = lm.encode("A __ fox", chat=True, blanks=True)
    at = blank.index(lm.mask_id)
    last = lm.encode(" fox")
    assert blank[:at] == whole[:at]
    rest = blank[at + 2 :]
    assert rest == last + whole[len(whole) - len(rest) + len(last) :]
    assert blank.count(lm.mask_id) == 2
    markup = lm.encode("A <|im_end|> __", chat=True, blanks=True)
    assert markup.count(lm.mask_id) == 2, "markup in a turn stays text"


def test_a_tokenizer_without_a_mask_token_of_its_own(stories: LanguageModel) -> None:
    other = replace(stories, mask_id=4000)  # a word of its vocabulary
    a, b = stories.encode("a"), stories.encode(" b")
    assert other.encode("a __ b", blanks=True) == [*a, 4000, 4000, *b]
    assert other.encode("a <|mask|> b", blanks=True) == stories.encode("a <|mask|> b")


def test_what_was_filled_in(stories: LanguageModel) -> None:
    settings = DecodeSettings(gen_length=8)
    prompt = stories.encode(TOM, blanks=True)
    plain = stories.encode("Once upon a time")
    *_, step = surelock.decode(stories, [prompt, plain], settings)
    texts = surelock.generate(stories, [prompt, plain], settings)
    found = surelock.filled(stories, prompt, step.tokens[0].tolist())
    assert len(found) == 3 and all(found[:2])
    first, second, third = TOM.replace(" __", "|").replace("|_", "|").split("|")
    assert texts[0] == first + found[0] + second + found[1] + third + found[2]
    ids = step.tokens[1].tolist()
    assert [texts[1]] == surelock.filled(stories, plain, ids[-len(plain) - 8 :])
    for wrong in (ids, step.tokens[0].tolist()[:4]):
        with pytest.raises(ValueError, match="tokens must be all that came of this prompt"):
            surelock.filled(stories, plain, wrong)


def test_the_command_fills_in_blanks(capsys: pytest.CaptureFixture) -> None:
    assert main(["decode", TOM, "--gen-length", "0", "--json"]) == 0
    text, line = capsys.readouterr().out.strip().split("\n")
    assert (
        json.loads(line)["text"] == text != TOM
        and text.startswith("Tom found a ")
        and text.endswith(" to his mom.")
    )
    assert main(["decode", TOM, "--gen-length", "8", "--no-blanks"]) == 0
    assert capsys.readouterr().out.startswith(TOM)
    assert main(["decode", "Nothing is missing.", "--gen-length", "0"]) == 2
    assert "no mask and gen_length is 0" in capsys.readouterr().err
