"""The form without a browser: lengths that come back, refusals in the page's words, links, the wait."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import gradio as gr
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surelock
from surelock.ui.form import MOST_OFFERED, Form
from surelock.ui.link import read_link
from surelock.ui.models import Models
from surelock.ui.request import MOST_CHARACTERS
from surelock.ui.schedule import NAMES, Wants, fit
from surelock.ui.wording import in_words

LENGTHS = st.integers(1, 600)
WANTS = st.builds(Wants, LENGTHS, st.none() | LENGTHS, st.none() | LENGTHS)


def test_it_begins_with_what_fits_beside_the_first_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "surelock.ui.form.EXAMPLES", {"stories": ["Once", "Once upon a time there was"], "": []}
    )
    with gr.Blocks():
        form = Form(Models(["stories"]), 64)
    assert form.prompt.value == "Once" and form.fields["gen_length"].value == 56  # of 60, in eights


@given(WANTS, st.lists(st.just(0) | LENGTHS, min_size=1, max_size=6))
def test_what_fits_depends_on_the_last_length_and_the_wants_alone(
    start: Wants, walk: list[int]
) -> None:
    """As the page does it: each change is made to what the fields show after the one before."""
    wants = start
    shown = fit(start, 512).values
    for length in walk:
        shown = shown | {"gen_length": length}
        wants = wants.with_field("gen_length", length, length)
        shown = fit(wants, 512).values
    straight = fit(Wants(walk[-1], start.steps, start.block_length), 512)
    assert shown == straight.values
    surelock.DecodeSettings(**shown)


@given(WANTS)
def test_what_was_changed_is_said_beside_its_field(wants: Wants) -> None:
    fitted = fit(wants, 300)
    asked = {
        "gen_length": wants.gen_length,
        "steps": wants.steps,
        "block_length": wants.block_length,
    }
    assert fitted.said.keys() == {
        name for name in NAMES if asked[name] and asked[name] != fitted.values[name]
    }
    assert all(str(asked[name]) in said for name, said in fitted.said.items())


def test_what_does_not_fit_is_shortened_to_what_is_offered() -> None:
    for longest in range(8, 40):
        length = fit(Wants(64), longest).values["gen_length"]
        assert longest - 8 < length <= longest and length % 8 == 0


@pytest.mark.parametrize(
    ("length", "said"),
    [(9999, "Shortened from 9999 to what fits"), (12.7, "12.7 is no whole number: 12 is taken.")],
)
def test_a_length_is_not_changed_in_silence(form: Form, length: float, said: str) -> None:
    (update, *_) = form.refit(
        "gen_length", "stories", "Once", True, form.wants.value, length, 64, 32
    )
    assert update["info"].startswith(said) and update["value"] == min(
        int(length), update["maximum"]
    )


@pytest.mark.parametrize("name", [None, 5, " "])
def test_a_lane_without_a_name_is_ones_own(form: Form, name: object) -> None:
    found = json.loads(
        form.lanes_value("stories", [{"name": name, "compute": {"kind": "everything"}}] * 2)
    )
    assert [lane["name"] for lane in found["lanes"]] == ["Your own", "Your own (2)"]


def test_what_is_no_number_changes_nothing(form: Form) -> None:
    wants = Wants(64, 32, 16)
    for odd in (None, "abc", "", 0, -5, "9" * 5000):
        assert wants.with_field("block_length", odd, 64) == wants
    assert wants.with_field("block_length", "8", 64).block_length == 8
    assert wants.with_field("steps", 64, 64).steps is None


@pytest.mark.parametrize(
    "prompt", ["Once", "Once upon a time, there was a little girl named Lily. She", "dog " * 300]
)
def test_every_length_that_is_offered_can_run(
    form: Form, stories: surelock.LanguageModel, prompt: str
) -> None:
    # before the model is there, the prompt counts for more
    loading = form.longest("stories", prompt, True)
    wants = Wants(512).text
    with loaded(form, stories):
        longest = form.longest("stories", prompt, True)
        _, length, *_ = form.refit_to_prompt("stories", prompt, True, wants, 512, 512, 512)
    tokens = len(stories.encode(prompt))
    assert loading <= longest <= 512 - tokens < longest + 8
    assert length["maximum"] == length["value"] == longest
    assert "what fits beside the prompt" in length["info"]


#: Prompts, whether their letters are foreign to the model, and whether their words are rare.
KNOWN = """
Tom had a small red boat. | 0 0
__ and ______ | 0 0
Жили-были | 1 0
🙂🙂🙂 | 1 0
for(i=0;i<n;i++){x[i]+=1;} | 1 1
quantum chromodynamics predicts asymptotic hadronization | 0 1
"""


@contextmanager
def loaded(form: Form, lm: surelock.LanguageModel) -> Iterator[None]:
    """The form's model is there until the block ends."""
    form.models._loaded["stories"] = lm
    yield
    form.models._loaded.clear()


def test_a_prompt_that_the_model_cannot_know_is_told_from_others(
    form: Form, stories: surelock.LanguageModel
) -> None:
    with loaded(form, stories):
        for case in KNOWN.strip().splitlines():
            prompt, flags = case.split(" | ")
            foreign, rare = (flag == "1" for flag in flags.split())
            *_, warned = form.refit_to_prompt("stories", prompt, True, Wants(64).text, 64, 64, 32)
            assert json.loads(warned) == {"foreign": foreign, "rare": rare, "tooLong": ""}, case


def test_a_prompt_fits_while_the_shortest_answers_do(
    form: Form, lm: surelock.LanguageModel
) -> None:
    """Of this model's 64 positions 16 are for the answer."""

    def about(prompt: str) -> tuple[str, int]:
        info, length, *_, warned = form.refit_to_prompt(
            "stories", prompt, True, Wants(512).text, 512, 512, 512
        )
        return info["info"] or json.loads(warned)["tooLong"], length["maximum"]

    with loaded(form, lm):
        for tokens, longest in ((33, 24), (40, 24), (41, 16), (48, 16)):
            assert about("5 " * tokens) == (f"{tokens} tokens of the 64 that fit here.", longest)
        said = "Too long: 49 tokens; at most 64 fit here, 16 of them for the answer."
        assert about("5 " * 49) == (said, 16)
        assert about("x" * MOST_CHARACTERS)[0] == ""
        assert about("x" * (MOST_CHARACTERS + 1))[0].startswith("Too long")


#: Problems, and the same in the page's words.
PROBLEMS = """
block_length (7) must divide gen_length (64) -> Block length (7) must divide Generated length (64)
steps must be whole, or None for one per position, not 0 -> Steps must be whole, not 0
steps (3) must be a multiple of the number of blocks (2) -> Steps (3) must be a multiple of the number of blocks (2)
prompt is empty: write a few words. -> Prompt is empty: write a few words.
cfg_scale must be a number from 0 to 1000, not -1 -> Guidance must be a number from 0 to 1000, not -1
"""


def test_refusals_use_the_labels_of_the_page() -> None:
    for case in PROBLEMS.strip().splitlines():
        problem, said = case.split(" -> ")
        assert in_words(problem) == said


#: Links, as JSON, and a part of the sentence.
LINKS = """
{} |
{"model": "stories", "seed": "3", "step": "7", "__theme": "dark"} |
{"model": "gpt-9"} | the model “gpt-9” is not on this server (stories taken instead)
{"temperature": "hot"} | Temperature cannot be “hot” (0.5 taken instead)
{"gen_length": "99"} | Generated length cannot be “9999
{"cfg_scale": "x"} | Guidance cannot be “x” (0 taken instead)
{"suppress_eos": "yes"} | Never choose end of text cannot be “yes” (False taken instead)
{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": "1"} | “xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx” is no setting (left out)
{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": "1"} | “xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…” is no setting
{"lanes": "[{"} | its lanes cannot be read (the first pair taken instead)
{"lanes": "DEEP"} | its lanes cannot be read
{"lanes": "[1, 2, 3, 4, 5]"} | 5 lanes are too many (the first 4 taken)
{"prompt": "LONG"} | its prompt is too long
{"epsilon": "0.005"} | “epsilon” is no setting (left out)
{"a0": "", "a1": "", "a2": "", "a3": "", "a4": "", "a5": "", "a6": "", "a7": "", "a8": ""} | and 5 more
"""


def test_what_is_wrong_with_a_link_is_one_sentence(form: Form) -> None:
    for case in LINKS.strip().splitlines():
        text, said = case.split(" |")
        long = text.replace("DEEP", "[" * 100_000).replace("LONG", "x" * 30_000)
        query = json.loads(long.replace('"99"', f'"{"9" * 5000}"'))
        told = read_link(query, ["stories"], form.suits).sentence
        assert said.strip() in told and bool(told) == bool(said), case
        assert told.count(". ") == 0 and "\n" not in told and len(told) < 400


def test_a_link_may_ask_for_all_that_is_offered_and_no_more(form: Form) -> None:
    link = read_link(
        {name: f"{most:g}" for name, most in MOST_OFFERED.items()}, ["stories"], form.suits
    )
    assert not link.problems and link.settings.items() >= MOST_OFFERED.items()
    above = read_link(
        {name: f"{most + 1:g}" for name, most in MOST_OFFERED.items()}, ["stories"], form.suits
    )
    assert len(above.problems) == len(MOST_OFFERED) and not above.settings
    chats = [read_link(query, ["stories"], form.suits).chat for query in ({}, {"chat": "false"})]
    assert chats == [True, False]
    full = {"prompt": "x" * MOST_CHARACTERS, "lanes": json.dumps(["klass"] * 4)}
    link = read_link(full, ["stories"], form.suits)
    assert not link.problems and (link.prompt, len(link.lanes)) == (full["prompt"], 4)
    assert (
        "more" not in read_link({f"a{i}": "1" for i in range(4)}, ["stories"], form.suits).sentence
    )


def test_a_links_lengths_that_do_not_fit_are_told(form: Form) -> None:
    link = read_link({"gen_length": "64", "steps": "100"}, ["stories"], form.suits)
    link.fitted(fit(Wants.from_values(link.settings), 512))
    assert "Steps 100 does not fit (64 taken instead)" in link.sentence
