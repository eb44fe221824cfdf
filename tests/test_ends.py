"""The end of a text: what writes it, fills it in, scores it, answers a call, draws it and shows it cuts alike."""

import json
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from lm_eval.api.instance import Instance
from test_calls import endpoint_of
from test_javascript import needs_node, node

import surelock
from surelock.decoding.decoder import plain_event
from surelock.decoding.ends import before_stops, written
from surelock.harness import model as module
from surelock.harness.model import SureLockLM
from surelock.trace.lanes import alone
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.ui.shared_race import make_runner

STOP = "[/Answer]"
LENGTH = 12


@pytest.fixture(scope="module")
def lm(stories: surelock.LanguageModel) -> surelock.LanguageModel:
    """The embedded model with two ends and a stop."""
    return replace(stories, ends=(0, stories.encode(" cake")[0]), stop=STOP)


def rows(lm: surelock.LanguageModel, count: int) -> list[tuple[str, list[int]]]:
    """Prompts, some with blanks, and what is written into their masks: words, ends, stops and parts of stops."""
    rng = np.random.default_rng(7)
    said = [" ran", "ning", ".", " He", STOP, STOP[:3], "“é”", " was"]
    pool = [lm.encode(each) for each in said] + [[end] for end in lm.ends]
    prompts = ["Tom saw a fox.", "Tom __ a ___ fox", "__ saw [/Answer] a fox.", "Tom saw a __"]
    found = []
    for number in range(count):
        prompt = prompts[number % len(prompts)]
        masks = lm.encode(prompt, blanks=True).count(lm.mask_id) + LENGTH
        tokens = [token for i in rng.integers(len(pool), size=masks) for token in pool[i]]
        found.append((prompt, tokens[:masks]))
    return found


@needs_node
def test_all_surfaces_cut_a_text_alike(
    lm: surelock.LanguageModel, models: Any, monkeypatch: Any
) -> None:
    """The same runs, whose tokens a person writes: all but the last."""
    models._loaded["stories"] = lm
    call = endpoint_of(models, make_runner(models))
    model = SureLockLM(lm, gen_length=LENGTH, compute="everything")
    documents = []
    expected = []
    for prompt, tokens in rows(lm, 12):
        ids = lm.encode(prompt, blanks=True)
        canvas = np.array([*ids, *[lm.mask_id] * LENGTH])
        places = np.flatnonzero(canvas == lm.mask_id)[:-1].tolist()
        written_there = list(zip(places, tokens, strict=False))
        events = tuple(surelock.Event(0, "write", at, token) for at, token in written_there)
        settings = surelock.DecodeSettings(gen_length=LENGTH)
        decoder = surelock.Decoder(settings=settings, compute=surelock.Everything(), events=events)
        steps = list(surelock.decode(lm, [ids], **decoder.keywords(), observe=True))
        row = steps[-1].tokens[0].tolist()
        text = written(lm, ids, row)
        after = text if lm.mask_id not in ids else surelock.filled(lm, ids, row)[-1]
        kept = row[max(i for i, token in enumerate(ids) if token != lm.mask_id) + 1 :]
        stop = next((i for i, token in enumerate(kept) if token in lm.ends), len(kept))
        assert after == lm.decode(kept[:stop]).split(STOP)[0]
        assert text.endswith(after)

        assert surelock.generate(lm, [ids], **decoder.keywords()) == [text]
        plain = [plain_event(event) for event in events]
        answer = call(prompt, gen_length=LENGTH, compute="everything", events=plain)[-1]
        assert answer["tokens"] == row
        assert answer["texts"] == [text]
        if lm.mask_id not in ids:
            monkeypatch.setattr(module, "decode", lambda *_, steps=steps, **__: iter(steps))
            asked = [Instance("generate_until", {}, (prompt, {"until": []}), 0)]
            assert model.generate_until(asked, disable_tqdm=True) == [text]

        lane = alone(decoder)
        recorder = Recorder(make_header(lm, prompt, ids, [lane]), lm.tokenizer)
        for items in race(lm, ids, [lane]):
            recorder.take(items)
        documents.append(recorder.document())
        for run in (recorder.document(), steps):
            drawn = surelock.figure(run, lm).layout.annotations[-1].text
            words = " ".join(unescape(drawn.replace("<br>", " ")).split())
            assert " ".join(text.split()).endswith(words)
            assert words.endswith(" ".join(after.split()))
        expected.append((text, after, ids))
    pages = json.loads(node("tests/js/read.js", given=json.dumps(documents)))
    for (text, after, ids), page in zip(expected, pages, strict=True):
        (lane,) = page["lanes"]
        is_whole = lm.mask_id in ids and ids[-1] != lm.mask_id
        assert lane["written"] == (text if is_whole else after).strip()


def test_a_text_ends_before_the_stop_that_comes_first_in_whatever_order_they_are_listed() -> None:
    for stops in (["!", ".", ""], [".", "!"]):
        assert before_stops("One. Two! Three.", stops) == "One"
        assert before_stops("One! Two. Three!", stops) == "One"
        assert before_stops("One", stops) == "One"
