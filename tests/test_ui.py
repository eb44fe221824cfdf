"""The page's parts that need no browser: runs and sessions, requests, the form's rules, models, links, files served."""

import contextlib
import copy
import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import surelock
from surelock.decoding.presets import PRESETS
from surelock.decoding.recommended import block_choices, over_recommended
from surelock.decoding.rules import COMPUTE
from surelock.decoding.settings import from_plain, to_plain
from surelock.decoding.state import check_blocks
from surelock.errors import without_paths
from surelock.places import ASSETS
from surelock.trace.lanes import Lane
from surelock.trace.recorder import Recorder, make_header
from surelock.ui.form import EXAMPLES, Form, check_seed, defaults
from surelock.ui.link import read_link
from surelock.ui.models import Models, NotReady
from surelock.ui.request import (
    one_token,
    read_branch,
    read_job,
    read_lanes,
    read_request,
    read_shared,
    tokens_of,
)
from surelock.ui.schedule import Wants, fit
from surelock.ui.serving import _Files, first_parts, page_head, routes
from tests.waiting import HANGS

ROOT = Path(__file__).resolve().parents[1]
DECODER = surelock.Decoder(settings=surelock.DecodeSettings(gen_length=6))
OWN = Lane(id="own", name="Own", decoder=DECODER)
DEFAULTS = defaults()


LANE = {"id": "a", "name": "A", "compute": {"kind": "lock"}, "unmask": {"kind": "random"}}


def test_lanes_become_decoders_with_the_shared_settings() -> None:
    shared = read_shared(DEFAULTS | {"gen_length": 8.0, "steps": "8", "block_length": 8, "seed": 3})
    (own,) = read_lanes([LANE | {"preset": "surelock", "base": None}], shared)
    assert own.decoder == surelock.Decoder(
        settings=surelock.DecodeSettings(gen_length=8, steps=8, block_length=8, seed=3),
        compute=surelock.LockRule(),
        unmask=surelock.Random(),
    )
    assert read_shared(DEFAULTS | {"seed": "9" * 9}).seed == 999_999_999
    with pytest.raises(ValueError, match=r"^nonsense[^\n]*$"):
        read_shared(DEFAULTS | {"nonsense": 1})


#: Lanes that cannot race: changes of a usual lane, as JSON, and a part of the sentence.
LANES = """
null | one to four can race, not something else
[{}, {}, {}, {}, {}] | one to four can race, not 5
[{"name": 5}] | needs name
[{"unmask": {"kind": "replay"}}] | replay
[{"compute": {"kind": "own", "code": "LONG"}}] | 'A' has a rule of its own, which only a visitor's browser runs
[{}, {"id": "b", "name": "B", "compute": {"kind": "own"}}] | 'B' has a rule of its own
[{"events": [{"step": 1, "kind": "rule", "compute": {"kind": "own"}}]}] | only a visitor's browser
[{"compute": {"kind": "own", "code": "LONG."}}] | code must be a text of at most 4,000 characters
[{"compute": {"kind": "own", "code": 5}}] | code must be a text of at most 4,000 characters, not 5
[7] | must be objects
[{}, {"id": "b", "name": "B", "events": "MANY"}] | 'B' has more than 100 events
"""


@pytest.mark.parametrize("case", LANES.strip().splitlines())
def test_lanes_that_cannot_race_are_refused_in_one_sentence(case: str) -> None:
    text, said = case.split(" | ")
    events = [{"step": 0, "kind": "lock", "position": 1}] * 101
    changes = json.loads(text.replace("LONG", "x" * 4000).replace('"MANY"', json.dumps(events)))
    lanes = changes and [
        LANE | change if isinstance(change, dict) else change for change in changes
    ]
    with pytest.raises(ValueError, match=rf"^[^\n]*{re.escape(said)}[^\n]*$"):
        read_lanes(lanes, read_shared(DEFAULTS))


#: Changes of a branch that cannot be.
BRANCHES = r"""
{"prompt_tokens": []} | prompt_tokens must be
{"prompt_tokens": [3, "4"]} | prompt_tokens must be
{"prompt_tokens": [3, -1]} | prompt_tokens must be
{"prompt_tokens": [3, 41]} | do not belong to the model tiny
{"prompt_tokens": MANY} | prompt is too long
{"prompt": "LONG"} | prompt is too long: 20,001 characters
{"lane": {"parent": "LONG"}} | parent must be
{"lanes": null} | one to four
{"lane": {"events": [{"step": 8, "kind": "lock", "position": 1}]}} | there is no such step
{"lane": {"settings": {"gen_length": 8, "steps": 9}}} | steps (9) must be at most gen_length
"""


def test_a_branch_is_checked(lm: surelock.LanguageModel) -> None:
    lane = LANE | {
        "settings": {"gen_length": 8},
        "events": [{"step": 3, "kind": "lock", "position": 1}],
    }
    job = read_branch(lm, "tiny", {"prompt_tokens": [0, 40], "prompt": None, "lanes": [lane]}, 64)
    assert (job.tokens, job.prompt) == ([0, 40], None)
    assert job.lanes[0].decoder.events == (surelock.Event(3, "lock", 1),)
    events = [{"step": i % 8, "kind": "lock", "position": i // 8} for i in range(100)]
    most = {"prompt_tokens": [3] * 56, "prompt": "a" * 20_000, "lanes": [lane | {"events": events}]}
    assert len(read_branch(lm, "tiny", most, 64).tokens) == 56
    for case in BRANCHES.strip().splitlines():
        text, said = case.split(" | ")
        change = json.loads(text.replace("LONG", "a" * 20_001).replace("MANY", str([3] * 57)))
        lanes = [lane | change.pop("lane", {})]
        with pytest.raises(ValueError, match=re.escape(said)):
            read_branch(lm, "tiny", {"prompt_tokens": [3, 4], "lanes": lanes} | change, 64)


def test_requests_that_differ_in_a_value_have_other_keys(models: Any) -> None:
    asked = {"model": "stories", "prompt": "Tom", "chat": True, "lanes": [LANE], **DEFAULTS}
    other: list[dict[str, Any]] = [
        {"prompt": "Ben"},
        {"chat": False},
        {"seed": 1},
        {"lanes": [LANE | {"name": "B"}]},
    ]
    again = dict(reversed(asked.items()))
    keys = [
        read_request(models, each, 128).key
        for each in (asked, again, *(asked | each for each in other))
    ]
    assert keys[0] == keys[1] and len({*keys}) == 1 + len(other)


def test_prompts_that_cannot_be_taken(stories: surelock.LanguageModel) -> None:
    long = {
        "x" * 20_001: "20,001 characters",
        "x" * 20_000: "positions",
        "word " * 600: "positions",
    }
    for prompt, said in {"": "empty", 7: "empty", **long}.items():
        with pytest.raises(ValueError, match=rf"^prompt.*{said}"):
            read_job(stories, "stories", prompt, True, [OWN], 256)  # pyright: ignore[reportArgumentType]


def test_a_model_without_a_tokenizer_takes_token_ids(lm: surelock.LanguageModel) -> None:
    assert read_job(lm, "tiny", "3, 4 5", True, [OWN], 9).tokens == [3, 4, 5]
    with pytest.raises(ValueError, match=r"3 tokens and 6 to generate make 9; at most 8 positions"):
        read_job(lm, "tiny", "3, 4 5", True, [OWN], 8)
    with pytest.raises(ValueError, match=r"^prompt must be token ids"):
        read_job(lm, "tiny", "once upon", True, [OWN], 32)


def test_a_word_is_one_token_or_a_sentence_says_why_not(
    stories: surelock.LanguageModel, lm: Any
) -> None:
    several = tokens_of(stories, "zoologist")
    assert len(several) > 1 and "".join(piece for _, piece in several).strip() == "zoologist"
    assert tokens_of(stories, " ") == tokens_of(lm, "40") == [], (
        "nothing, and a model without a tokenizer"
    )
    found = one_token(stories, "dog")
    assert found["piece"] == " dog" and stories.encode(" dog") == [found["id"]]
    assert one_token(lm, "40") == {"id": 40, "piece": None}
    for text in ("", None, "a long sentence of words", "\n\n\x00", "x" * 50_000):
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            one_token(stories, text)
    for text in ("41", "dog", "1"):
        with pytest.raises(ValueError, match="not one token"):
            one_token(lm, text)
    for size in (1001, 20_000, 20_001, 900_000):
        with pytest.raises(ValueError, match=f"^A token is shorter than {size:,} characters"):
            one_token(stories, "x" * size)


def test_an_unusable_seed_is_explained_beside_the_field() -> None:
    info, run = check_seed(-3)
    assert (
        info["info"].startswith("Seed must be a whole number of at least 0")
        and run["interactive"] is False
    )
    assert len(check_seed("x" * 900_000)[0]["info"]) < 300, "a session keeps it"  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "steps"), [(64, 64), (96, 24), (40, 7), (8, 1), (12, 6)])
def test_the_blocks_offered_are_all_that_are_valid(length: int, steps: int) -> None:
    valid = []
    for block in range(1, length + 1):
        with contextlib.suppress(ValueError):
            check_blocks(
                surelock.DecodeSettings(gen_length=length, steps=steps, block_length=block)
            )
            valid.append(block)
    assert block_choices(length, steps) == valid != []
    assert block_choices(length, steps, 8) == [block for block in valid if block <= 8]


#: Of (length, steps, wanted) the block length: at least half of the wanted one, else one block. As in
#: tests/js/blanks.test.js.
BLOCKS = """
128 128 32 32
127 127 32 127
254 254 32 254
61 61 32 61
100 100 32 25
48 48 32 24
48 6 32 24
34 34 32 17
30 30 32 30
62 62 31 31
62 62 61 31
62 62 30 62
64 2 16 64
9 9 1 1
"""


@pytest.mark.parametrize("case", BLOCKS.strip().splitlines())
def test_a_block_is_at_least_half_of_the_wanted_one(case: str) -> None:
    length, steps, wanted, block = map(int, case.split())
    found = over_recommended({"block_length": wanted}, {"gen_length": length, "steps": steps})
    assert surelock.DecodeSettings(**found).block_length == (
        block if block < length else found.get("block_length")
    )
    assert found.get("block_length", length) == block
    fitted = fit(Wants(length, steps, wanted), 512)
    assert fitted.values["block_length"] == block
    said = fitted.said.get("block_length", "")
    assert said.startswith(
        "" if block == wanted else "One block" if block == length else f"Changed from {wanted}"
    )


FIRST = [["lane-1", "Every token", "everything"], ["lane-2", "SureLock", "lock"]]


def test_links_say_who_races(form: Form) -> None:
    def lanes(**query: str) -> list[dict[str, Any]]:
        link = read_link(query, form.models.labels, form.suits)
        return json.loads(form.lanes_value("stories", link.lanes))["lanes"]

    def told(lanes: list[dict[str, Any]]) -> list[list[str]]:
        return [[lane["id"], lane["name"], lane["compute"]["kind"]] for lane in lanes]

    mine = {"name": "Mine (2)", "compute": {"kind": "age", "steps": 3}}
    found = lanes(lanes=json.dumps(["klass", "klass", mine, mine]))
    assert told(found) == [
        ["lane-1", "KLASS", "everything"], ["lane-2", "KLASS (2)", "everything"],
        ["lane-3", "Mine (2)", "age"], ["lane-4", "Mine (3)", "age"],
    ]  # fmt: skip
    assert [lane["preset"] for lane in found] == ["klass", "klass", None, None]
    assert found[0]["unmask"]["kind"] == "klass" and found[2]["compute"] == mine["compute"]
    bad = ["{", "[7]", '["nobody"]', '[{"compute": {"kind": "best"}}]', "[" * 100_000, "null", "5"]
    for query in ({}, {"epsilon": "0.005"}, *({"lanes": text} for text in bad)):
        assert told(lanes(**query)) == FIRST, str(query)[:40]


def test_every_preset_is_offered_and_can_run(form: Form) -> None:
    value = json.loads(form.lanes_value("stories", list(PRESETS)))
    assert [preset["id"] for preset in value["presets"]] == list(PRESETS) and len(
        value["lanes"]
    ) == 4
    for preset in value["presets"]:
        (own,) = read_lanes(
            [{"id": "x", **{key: preset[key] for key in ("name", "compute", "unmask")}}], None
        )
        assert own.name == PRESETS[preset["id"]].name and preset["sentence"].endswith(".")
    kinds = {preset["compute"]["kind"] for preset in value["presets"]}
    ours = {"everything", "lock", "age", "select", "budget", "block_cache", "delayed_cache", "both"}
    assert ours <= kinds <= {*COMPUTE, "both"}


def test_another_model_keeps_who_races(form: Form) -> None:
    before = form.lanes_value(
        "stories", ["age", {"name": "Mine", "compute": {"kind": "select", "fraction": 0.5}}]
    )
    after = json.loads(form._change_model("stories", before, True)[1])
    assert after == json.loads(before)
    for odd in ("", "{", "[]", None, 5):
        lanes = json.loads(form._change_model("stories", odd, True)[1])["lanes"]
        assert [(lane["id"], lane["preset"]) for lane in lanes] == [
            ("lane-1", "everything"),
            ("lane-2", "surelock"),
        ]


def test_the_form_starts_with_what_the_model_recommends(tmp_path: Path) -> None:
    """But for the seed, the recorded run's, and the length, of which a run takes a few seconds."""
    models = Models(["stories"])
    header = json.loads((ROOT / "assets" / "runs" / "stories.json").read_text("utf-8"))["header"]
    recommended = models.recommended("stories") | {
        "seed": header["lanes"][0]["settings"]["seed"],
        "gen_length": 64,
        "steps": 64,
    }
    with gr.Blocks():
        fields = Form(models, 512).fields
    shared = {name: value for name, value in recommended.items() if name in fields}
    assert len(shared) == 6
    assert {name: fields[name].value for name in shared} == shared
    assert header["prompt"] == EXAMPLES["stories"][0]
    for lane in header["lanes"]:
        shown = to_plain(
            surelock.DecodeSettings(**{name: field.value for name, field in fields.items()})
        )
        lengths = {"gen_length": 64, "steps": shown["steps"]}
        recorded = from_plain(surelock.DecodeSettings, lane["settings"] | lengths)
        assert to_plain(recorded) == shown and header["steps"] == 128
    (tmp_path / "generation_config.json").write_text("{", "utf-8")
    with gr.Blocks():
        fields = Form(Models([str(tmp_path)]), 512).fields
    assert {name: field.value for name, field in fields.items()} == DEFAULTS


def test_two_models_of_one_label_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "final").mkdir(parents=True)
    first = str(tmp_path / "a" / "final")
    second = str(tmp_path / "b" / "final")
    with pytest.raises(
        ValueError, match="the page offers another model as 'final'; rename one of the two"
    ):
        Models([first, second])
    monkeypatch.chdir(first)
    assert Models([".", ".", "stories"]).labels == ["final", "stories"]


@pytest.mark.parametrize("name", ["storys", "/no/such/folder", "a/b/c"])
def test_a_name_that_can_be_no_model_is_refused_at_once(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"^--model {name}: no directory, and no hub id of the form owner/model"
    ):
        Models([name])


def test_models_never_show_a_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "my-model").mkdir()
    models = Models([str(tmp_path / "my-model"), "stories"])
    assert models.labels == ["my-model", "stories"]
    with pytest.raises(NotReady, match="one of those this page offers"):
        models.get(str(tmp_path))
    with pytest.raises(NotReady, match=r"still loading \(\d+ s so far\)"):
        models.get("my-model")
    until = time.monotonic() + HANGS
    while models.state("my-model") == "loading" and time.monotonic() < until:
        time.sleep(0.05)
    with pytest.raises(NotReady, match="could not be loaded") as caught:
        models.get("my-model")
    assert str(tmp_path) not in str(caught.value)
    assert "The model my-model could not be loaded" in caplog.text, (
        "the terminal is told, with the path"
    )
    error = OSError(f"[Errno 2] {tmp_path}/my-model/config.json is missing")
    assert without_paths(error) == "[Errno 2] config.json is missing"


def test_a_run_remembers_whether_its_prompt_is_in_a_chat_template(
    stories: surelock.LanguageModel,
) -> None:
    tokenizer = copy.deepcopy(stories.tokenizer)
    assert tokenizer is not None
    tokenizer.chat_template = "{% for m in messages %}Q: {{ m.content }} A:{% endfor %}"
    lanes = read_lanes(
        [LANE], read_shared(DEFAULTS | {"gen_length": 8, "steps": 8, "block_length": 8})
    )
    for lm, told in (
        (replace(stories, tokenizer=tokenizer), (True, False)),
        (stories, (None, None)),
    ):
        for ticked, chat in zip((True, False), told, strict=True):
            job = read_job(lm, "stories", "Hello", ticked, lanes, 256)
            header = make_header(lm, job.prompt, job.tokens, job.lanes, chat=job.chat)
            assert job.chat is chat and header.get("chat") is chat
            assert surelock.read_trace(Recorder(header, lm.tokenizer).document()).header == header
            assert read_branch(lm, "stories", header, 256).chat is chat


def test_parts_of_the_script_may_be_kept_for_good_and_the_first_come_with_the_head() -> None:
    """The name of a part holds its content's hash; page.js, which names them, is asked for again."""
    client = TestClient(Starlette(routes=routes()))
    head = page_head()
    parts = [path.name for path in (ASSETS / "scripts").glob("part-*.js")]
    for name in parts:
        assert "immutable" in client.get(f"/surelock/scripts/{name}").headers["cache-control"]
    assert client.get("/surelock/scripts/page.js").headers["cache-control"] == "no-cache"
    preloaded = re.findall(r'rel="modulepreload" href="surelock/scripts/([^"]+)"', head)
    assert preloaded == first_parts() and set(preloaded) < set(parts)


@pytest.mark.parametrize(
    "path", ["scripts/page.js", "scripts/stage.css", "runs/stories.json", "plotly.min.js"]
)
def test_files_are_packed_for_those_who_can_unpack(path: str) -> None:
    client = TestClient(Starlette(routes=routes()))
    packed, plain = (
        client.get(f"/surelock/{path}", headers={"accept-encoding": takes})
        for takes in ("br, gzip", "identity")
    )
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.content == plain.content and packed.num_bytes_downloaded < len(plain.content) / 2
    for name in ("content-type", "cache-control", "etag"):
        assert packed.headers[name] == plain.headers[name]
    again = client.get(f"/surelock/{path}", headers={"if-none-match": packed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_file_that_has_changed_is_packed_anew(tmp_path: Path) -> None:
    client = TestClient(Starlette(routes=[Mount("/", _Files(tmp_path, "no-cache"))]))
    for second, text in enumerate(("one", "two")):
        (tmp_path / "a.js").write_text(text, "utf-8")
        os.utime(tmp_path / "a.js", (second, second))
        assert client.get("/a.js").text == text


def test_the_head_names_only_files_that_exist() -> None:
    client = TestClient(Starlette(routes=routes()))
    named = re.findall(r'(?:href|src)="((?!data:).*?)"', page_head())
    assert named
    assert [path for path in named if client.get("/" + path).status_code != 200] == []
