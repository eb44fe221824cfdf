"""The picture of a race: what stands in it, that it stands alone, and where it is offered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import surelock
from surelock.__main__ import main
from surelock.decoding.choices import COMPUTE, UNMASK, from_flat
from surelock.places import ASSETS
from surelock.trace.format import FORMAT, VERSION, TraceError, encode_bytes, to_runs
from surelock.trace.lanes import Lane, alone
from surelock.trace.lettering import cut, ems, shown, wrap
from surelock.trace.outcomes import STATES, outcomes_of
from surelock.trace.picture import LEGEND, _seconds
from surelock.trace.record import main as record
from surelock.trace.timing import speed_of

SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 1_000_000
HOSTILE = ['"><script>alert(1)</script>', "\u202eabc\x00\x1b[31m", "&amp;{{x}}]]>", "W" * 80]


def saved(name: str) -> dict[str, Any]:
    return json.loads((ASSETS / "runs" / f"{name}.json").read_text("utf-8"))


def hostile() -> dict[str, Any]:
    document = saved("rules")
    document["header"]["prompt"] = "".join(HOSTILE)
    document["header"]["model"]["name"] = HOSTILE[0]
    for lane, name in zip(document["header"]["lanes"], HOSTILE, strict=True):
        lane["name"] = name
    for number, token in enumerate(document["pieces"]):
        document["pieces"][token] = [*HOSTILE, [0xC3]][number % 5]
    return document


def read(picture: str) -> ET.Element:
    return ET.fromstring(picture)


def words(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def drawn(cells: ET.Element, shape: tuple[int, int]) -> np.ndarray:
    """The states that a raster shows, each painted over those before; -1 where there is none."""
    found = np.full(shape, -1)
    for each in cells:
        state = STATES.index(each.attrib["class"].removeprefix("raster-"))
        if each.tag == f"{SVG}rect":
            found[: int(each.attrib["height"]), : int(each.attrib["width"])] = state
            continue
        x = y = 0
        for right, down, width in re.findall(r"m(-?\d+) (\d+)h(\d+)", each.attrib["d"]):
            x, y = x + int(right), y + int(down)
            found[y, x : x + int(width)] = state
            x += int(width)
    return found


@pytest.mark.parametrize("document", [saved("stories"), saved("rules"), hostile()], ids=["two", "four", "hostile"])
def test_every_lane_is_drawn_with_what_its_trace_says(document: dict[str, Any]) -> None:
    root, lanes, frames = read(surelock.picture(document)), outcomes_of(document), surelock.read_trace(saved("stories"))
    rasters = [group for group in root.iter(f"{SVG}g") if group.get("shape-rendering")]
    length, steps = document["header"]["length"], document["header"]["steps"]
    for lane, cells in zip(lanes, rasters, strict=True):
        expected = np.full((length, steps), -1)
        expected[:, : lane.states.shape[1]] = lane.states
        assert np.array_equal(drawn(cells, expected.shape), expected)
    legend = {text for state, text in LEGEND.items() if any((lane.states == state).any() for lane in lanes)}
    assert set(LEGEND.values()) & set(words(root)) == legend and "the prompt's positions" in words(root)
    assert "no longer at work" not in words(root), "all of them work to the last step"
    if len(lanes) > 2:
        return
    sums = frames.steps.groupby("lane")[["seconds", "flops", "baseline_flops", "computed"]].sum()
    for own, name in zip(frames.lanes.lane, frames.lanes.name, strict=True):
        each = sums.loc[own]
        told = f"128 steps in {each.seconds:.2f} s, {100 * each.computed / (128 * length):.0f} % of the rows computed, "
        told += f"{100 * (1 - each.flops / each.baseline_flops):.0f} % of the FLOPs saved"
        told += ", 1.3 times as fast as “Every word”" if own == "surelock" else ""
        assert {name, told} <= set(words(root))
        assert f"“{name}”: {told}; of 142 positions " in root.findtext(f"{SVG}desc", "")
    assert root.findtext(f"{SVG}title", "").startswith("SureLock: “Every word” and “SureLock” continue “Once upon")
    assert document["header"]["prompt"] in words(root)
    for lane in lanes:
        assert " ".join(lane.text.split()) in " ".join(words(root))


def test_everything_has_its_place() -> None:
    """Of recorded runs where words stand, and their size: heads, lines below each other, a legend of two rows."""

    def placed(name: str) -> tuple[str | None, list[tuple[int, ...]]]:
        root = read(surelock.picture(saved(name)))
        places = [[int(float(each.get(k, 0))) for k in ("x", "y", "font-size")] for each in root.iter(f"{SVG}text")]
        return root.get("height"), [tuple(place) for place in places]

    height, two = placed("stories")
    legend = [(61 + 306 * i, 108, 14) for i in range(4)]
    assert height == "942" and two[:3] == [(28, 40, 24), (1252, 40, 15), (28, 70, 16)] and two[3:7] == legend
    assert two[7:12] == [(28, 166, 20), (28, 189, 15), (54, 505, 13), (694, 505, 13), (0, 0, 13)]
    assert two[12:22] == [(0, 15 + 21 * line, 15) for line in range(10)]
    assert two[22:25] == [(28, 570, 20), (28, 593, 15), (54, 909, 13)]
    root = read(surelock.picture(saved("stories")))
    sizes = [tuple(float(each.get(k, 0)) for k in ("x", "y", "width", "height")) for each in root.iter(f"{SVG}rect")]
    swatches = [(28 + 306 * i, 95, 24, 17) for i in (0, 0, 1, 1, 2, 2)]
    assert sizes[:8] == [(0, 0, 1280, 942), *swatches, (956, 95, 5, 17)]
    for top, (bar, prompt, cells, frame) in zip((134, 538), (sizes[8:12], sizes[12:]), strict=True):
        assert (bar, prompt) == ((28, top, 1224, 4), (44, top + 70, 5, 28))
        assert (cells, frame) == ((0, 0, 128, 142), (53.5, top + 69.5, 641, 285))
    kinds = [each.get("class") for each in root.iter(f"{SVG}rect")]
    assert [kind for kind in kinds if "lane" in kind] == ["lane-1", "lane-2"]
    style = root.findtext(f"{SVG}style", "")
    assert all(f".surelock-picture .{kind}{{color:#" in style for kind in kinds)
    columns = [tuple(each.get(k) for k in ("x", "y", "width", "height")) for each in root.iter(f"{SVG}svg")][1:]
    assert columns == [("726", y, "554", "216") for y in ("204", "608")]
    turned = [each.get("transform") for each in root.iter() if "translate" in each.get("transform", "")]
    assert turned[0] == "translate(54 204) scale(5 2)" and "translate(37 346) rotate(-90)" in turned
    height, four = placed("rules")
    assert height == "1718" and four[3:9] == [*legend, (61, 132, 14), (367, 132, 14)]
    weights = {
        (each.get("font-size"), each.get("font-weight"))
        for each in read(surelock.picture(saved("rules"))).iter(f"{SVG}text")
    }
    assert {weight for size, weight in weights if size in ("20", "24")} == {"700"}


def test_of_a_long_prompt_four_lines_stand_above_the_legend() -> None:
    document = saved("stories")
    document["header"]["prompt"] = "a few words " * 200
    texts = list(read(surelock.picture(document)).iter(f"{SVG}text"))
    prompt = [each for each in texts if each.get("font-size") == "16"]
    assert [each.get("y") for each in prompt] == ["70", "93", "116", "139"] and prompt[-1].text.endswith("…")
    assert min(int(each.get("y")) for each in texts if each.get("font-size") == "14") > 139


def test_a_lane_that_ends_early_leaves_the_rest_empty_and_one_that_never_began_says_so() -> None:
    document = saved("stories")
    document["records"] = [each for each in document["records"] if each["lane"] == "everything"][:100]
    root = read(surelock.picture(document))
    one, none = (group for group in root.iter(f"{SVG}g") if group.get("shape-rendering"))
    assert (drawn(one, (142, 128))[:, 100:] == -1).all() and (drawn(one, (142, 128))[:, :100] >= 0).all()
    assert len(none) == 0 and {"no step yet", "no longer at work"} <= set(words(root))
    assert "“SureLock” has taken no step." in root.findtext(f"{SVG}desc", "")
    document["records"] = [each for each in saved("stories")["records"] if each["lane"] == "everything"]
    assert "no longer at work" not in words(read(surelock.picture(document))), "one to the end, one not at all"


def test_only_what_was_timed_together_has_a_time_and_a_ratio_is_told_beyond_its_spread() -> None:
    def told(change: Callable[[dict[str, Any], list[dict[str, Any]]], None]) -> list[str]:
        document = saved("stories")
        change(document["header"], document["records"])
        return [text for text in words(read(surelock.picture(document))) if text.startswith("128 steps")]

    def alike(_: dict[str, Any], records: list[dict[str, Any]]) -> None:
        for each in records:  # as far apart as two that compute the same may be
            each["seconds"] = 1 + 0.5 * ((each["step"] + 3 * len(each["lane"])) % 4)
        records[0]["seconds"] += 40

    untimed = told(lambda header, _: header.pop("timed_together"))
    assert len(untimed) == 2 and not any(" s," in text or "times as" in text for text in untimed)
    slow = told(lambda _, records: [record.update(seconds=2 - (record["lane"] == "everything")) for record in records])
    assert slow[0].startswith("128 steps in 128 s,") and slow[1].endswith(", 2.0 times as long as “Every word”")
    assert told(alike)[1].endswith(", too close to tell which was faster, it or “Every word”")


@pytest.mark.parametrize(
    "case",
    json.loads(Path(__file__).with_name("traces").joinpath("speeds.json").read_text("utf-8")),
    ids=lambda case: case["name"],
)
def test_a_ratio_of_times_is_further_from_1_than_its_spread(case: dict[str, Any]) -> None:
    """The same table holds the page's rule: see tests/js/timing.test.js."""
    assert speed_of(case["own"], case["other"]) == (case["speed"] and pytest.approx(case["speed"]))


def test_a_header_times_each_lane_once_and_knows_it() -> None:
    for groups, problem in (
        ([["nobody"]], "'nobody' that is not there"),
        ([["surelock"], ["surelock"]], "two of its timing groups"),
    ):
        document = saved("stories")
        document["header"]["timed_together"] = [{"lanes": lanes} for lanes in groups]
        with pytest.raises(TraceError, match=problem):
            surelock.picture(document)


def test_it_stands_alone_and_nothing_in_it_is_markup() -> None:
    made = surelock.picture(hostile())
    root = read(made)
    tags = {each.tag.removeprefix(SVG) for each in root.iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "g", "path", "text"}
    names = {name for each in root.iter() for name in each.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert made.count("http") == 1 and "url(" not in made and "@import" not in made  # the namespace alone
    assert not re.search("[\x00-\x1f\u202e]", made)
    assert f"{'W' * 52}…" in words(root), "a name is cut to the picture's width"
    assert HOSTILE[0] in words(root) and any("\u2039202E\u203aabc" in text for text in words(root))
    assert len(made.encode()) < MOST_BYTES


def test_four_lanes_of_256_positions_and_steps_stay_small_whatever_they_compute() -> None:
    """The most that can be asked of it: rows that are computed in every other step, one after the other."""
    ids, level = ["a", "b", "c", "d"], encode_bytes(np.zeros(128, dtype=np.uint8))
    header = saved("rules")["header"] | {"length": 256, "steps": 256, "reference": "a", "prompt_tokens": [3] * 256}
    header["timed_together"] = [{"lanes": ids}]
    header["lanes"] = [{**header["lanes"][0], "id": own, "parent": None} for own in ids]
    records = [
        {"lane": own, "step": step, "unmasked": [], "locked": [], "kl": level, "confidence": level}
        | {"computed": to_runs(np.arange(256) % 2 == step % 2), "seconds": 1, "flops": 1, "baseline_flops": 4}
        for step in range(256)
        for own in ids
    ]
    made = surelock.picture({"format": FORMAT, "version": VERSION, "header": header, "pieces": {}, "records": records})
    assert 100_000 < len(made.encode()) < MOST_BYTES and ", 75 % of the FLOPs saved" in made


@pytest.mark.parametrize("text", ["a few words " * 30, "漢字" * 99, "W" * 200, "a\u0301" * 300, "\n\nx\r\ny\u2028z"])
def test_lines_hold_all_of_a_text_and_no_more_than_fits(text: str) -> None:
    lines = wrap(text, 20, 99)
    assert "".join(lines).replace(" ", "") == "".join(text.split()) and max(map(ems, lines)) <= 20
    assert wrap(text, 20, 2)[:1] == lines[:1] and len(wrap(text, 20, 2)) == min(2, len(lines))
    assert wrap(text, 20, 2)[-1].endswith("…") == (len(lines) > 2)
    short = cut(text, 20)
    assert ems(short) <= 20 and short.endswith("…") == (ems(" ".join(text.split())) > 20)


def test_of_a_text_that_is_cut_the_last_line_says_so() -> None:
    text = "first words, second words, third words, fourth words"
    assert wrap(text, 8, 3) == ["first words,", "second words,", "third words, …"]


def test_widths_and_times_as_they_are_told() -> None:
    assert [ems(each) for each in ("i", "—", "漢", "\u0301", "A", "a", "")] == [0.4, 1.0, 1.1, 0, 0.73, 0.63, 0]
    assert [_seconds(x) for x in (9.94, 9.96, 99.4, 99.6)] == ["9.94 s", "10.0 s", "99.4 s", "100 s"]


def test_what_xml_cannot_hold_is_told() -> None:
    assert shown("a\x00\u202e\uffff é👩\u200d👧") == "a\u20390000\u203a\u2039202E\u203a\u2039FFFF\u203a é👩\u200d👧"


def test_a_run_by_itself_is_named_after_its_choices() -> None:
    for compute in (*COMPUTE, "lock+block_cache"):
        for unmask in UNMASK:
            own = alone(from_flat({"compute": compute, "unmask": unmask}))
            assert Lane.from_plain(own.to_plain()) == own
    assert alone(surelock.Decoder(compute=surelock.Everything())).name == "Every position; most confident first"


def test_decode_draws_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "run.svg"
    argv = ["decode", "Tom had a <red> ball. He", "--gen-length", "8", "--device", "cpu", "--json"]
    assert main([*argv, "--picture", str(target)]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    root = read(target.read_text("utf-8"))
    totals = f"{100 * result['active_ratio']:.0f} % of the rows computed, {100 * (1 - result['flops_ratio']):.0f} % of"
    assert any(text.startswith("8 steps in ") and totals in text for text in words(root))
    assert {"SureLock: a run", "Tom had a <red> ball. He", " ".join(result["text"].split())} <= set(words(root))
    assert f"{target}: {target.stat().st_size} bytes" in err


@pytest.mark.parametrize(
    ("file", "said"),
    [("run.png", "--picture must be a file that ends in .svg"), ("none/run.svg", "in a folder that exists")],
)
def test_decode_refuses_what_cannot_be_drawn_into(tmp_path: Path, capsys: Any, file: str, said: str) -> None:
    assert main(["decode", "Once", "--model", "no/such", "--picture", str(tmp_path / file)]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_locks_are_not_recorded_into_a_folder_that_is_not_there(tmp_path: Path, capsys: Any) -> None:
    assert main(["bench", "steps", "--model", "no/such", "--record-locks", str(tmp_path / "none" / "x.json")]) == 2
    assert "--record-locks must lie in a folder that exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--out", "none/run.json"], "--out must lie in a folder that exists"),
        (["--out", "run.txt"], "--out must be a file that ends in .json or .html or .svg"),
        (["--out", "run.json", "--lane", "best"], "--lane must be one of"),
        (["--out", "run.json", "--gen-length", "8", "--block-length", "3"], "block_length"),
    ],
)
def test_a_recording_that_cannot_be_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, flags: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        record(["--prompt", "Once", "--device", "cpu", *flags])
    assert said in capsys.readouterr().err.splitlines()[-1] and not list(tmp_path.iterdir())


def test_a_race_is_recorded_as_a_picture(tmp_path: Path) -> None:
    target = tmp_path / "race.svg"
    record(["--prompt", "Once", "--gen-length", "4", "--device", "cpu", "--out", str(target)])
    assert {"Every word", "SureLock"} <= set(words(read(target.read_text("utf-8"))))


def test_half_a_character_is_refused_by_every_caller(stories: surelock.LanguageModel) -> None:
    with pytest.raises(ValueError, match="prompt is no UTF-8 text"):
        surelock.generate(stories, ["a \ud800"])
