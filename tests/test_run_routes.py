"""The routes of runs: what a page requests, reads and leaves, and what it is refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.browser.visitor import Visitor, held

if TYPE_CHECKING:
    from tests.browser.server import App

SHORT = {"gen_length": 16, "steps": 16, "block_length": 16}


def shape(messages: list[dict[str, Any]]) -> list[str]:
    return [next(iter(each)) for each in messages]


def test_a_run_is_read_by_its_events(app: "App") -> None:
    visit = Visitor(app.url)
    # no other test has had this job computed
    events = list(visit.read(run := visit.open(**SHORT, seed=83)))
    kinds = [kind for kind, _, _ in events]
    assert kinds == ["place", "open", *["records"] * 16, "errors", "errors", "end"]
    assert events[0][1] == {"place": 0, "seconds": 0.0} and events[-1][1] == {
        "end": "finished",
        "problem": None,
    }
    assert [number for _, _, number in events[1:]] == [str(n) for n in range(20)]
    trace = visit.trace(run)
    assert len(trace["records"]) == 32 and trace["header"] == events[1][1]["open"]["header"]
    top = visit.http.get(f"/surelock/runs/{run}/top", params={"step": 3, "position": 14}).json()
    assert set(top) == {"lane-1", "lane-2"} and all(len(bars) == 5 for bars in top.values())


@pytest.mark.parametrize("cut", [0, 5, 16, 18])
def test_a_cut_stream_goes_on_behind_the_last_message(app: "App", cut: int) -> None:
    visit = Visitor(app.url)
    run = visit.open(**SHORT)
    seen = []
    for kind, data, number in (stream := visit.read(run)):
        seen += [(number, data)] if kind != "place" else []
        if number == str(cut):
            stream.close()
            break
    seen += [(number, data) for kind, data, number in visit.read(run, after=cut) if kind != "place"]
    assert [number for number, _ in seen] == [str(n) for n in range(20)]
    assert seen == [(number, data) for kind, data, number in visit.read(run) if kind != "place"]


def test_a_run_rests_after_so_many_steps(app: "App") -> None:
    visit = Visitor(app.url)
    run = visit.open(**SHORT)
    first = [kind for kind, *_ in visit.read(run, steps=3)]
    second = [number for kind, _, number in visit.read(run, after=3, steps=2) if kind != "place"]
    assert (first[-4:], second) == (["open", *["records"] * 3], ["4", "5"])
    assert len(visit.trace(run)["records"]) == 10
    assert visit.stop(run) == 204
    assert [data for _, data, _ in visit.read(run, after=5)] == [
        {"end": "stopped", "problem": None}
    ]


def test_who_waits_learns_the_place_and_may_leave(app: "App") -> None:
    with held(app.url) as leave:
        visit = Visitor(app.url)
        waiting = visit.open(prompt="After the other", **SHORT)
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(lambda: list(visit.read(waiting)))
            second = Visitor(app.url)
            events = second.read(second.open(prompt="Last of all", **SHORT))
            assert next(events)[1]["place"] == 2
            visit.stop(waiting)
            assert [data for _, data, _ in reading.result(10)][-1] == {
                "end": "stopped",
                "problem": None,
            }
        leave()
        assert [data["place"] for kind, data, _ in events if kind == "place"][-1] == 0


#: Requests that cannot be followed: the method, the path below the runs, the status and the sentence.
NOT_THERE = """
GET none/events 404 This run is no longer kept on the server
GET none/trace 404 This run is no longer kept on the server
POST none/stop 404 This run is no longer kept on the server
GET {}/events?steps=0x 422 steps must be a whole number
GET {}/top?step=99&position=1 422 step and position must be
"""


def test_what_cannot_be_done_is_refused_in_a_sentence(app: "App") -> None:
    visit = Visitor(app.url)
    run = visit.open(**SHORT)
    for case in NOT_THERE.strip().splitlines():
        method, path, status, sentence = case.split(" ", 3)
        answer = visit.http.request(method, f"/surelock/runs/{path.format(run)}")
        assert answer.status_code == int(status), case
        assert answer.json()["detail"].startswith(sentence)


def test_a_job_is_refused_in_the_pages_words(app: "App") -> None:
    visit = Visitor(app.url)
    with pytest.raises(httpx.HTTPStatusError) as caught:
        visit.open(seed=-3)
    assert caught.value.response.status_code == 422
    assert caught.value.response.json() == {
        "detail": "Seed must be a whole number of at least 0, not -3"
    }


def test_a_branch_begins_where_its_origin_left_a_snapshot(app: "App") -> None:
    """Token for token as the run from the first step; the origin, read no further, is not stopped by it."""
    visit = Visitor(app.url)
    run = visit.open(**SHORT)
    first = [data for kind, data, _ in visit.read(run, steps=12) if kind in ("open", "records")]
    header = first[0]["open"]["header"]
    lane = header["lanes"][1]
    own = [each for data in first[1:] for each in data["records"] if each["lane"] == lane["id"]]
    position, _ = own[9]["unmasked"][0]
    event = {"step": 9, "kind": "write", "position": position, "token": 700}
    child = {**lane, "id": "touched", "events": [event], "parent": lane["id"]}
    asked = {"model": "stories", "prompt_tokens": header["prompt_tokens"], "lanes": [child]}
    origin = {"run": run, "lane": lane["id"], "steps": [9]}
    branch = visit.open(asked | {"from": origin})
    begun = [each for _, data, _ in visit.read(branch) for each in data.get("records", [])]
    assert 2 <= begun[0]["step"] <= 9 and begun[-1]["step"] == 15
    other = Visitor(app.url)
    whole = [
        each for _, data, _ in other.read(other.open(asked)) for each in data.get("records", [])
    ]
    facts = ("step", "unmasked", "written", "locked", "computed", "kl")
    said = [[each.get(name) for name in facts] for each in whole]
    assert [[each.get(name) for name in facts] for each in begun] == said[begun[0]["step"] :]
    assert [each["unmasked"] for each in visit.trace(branch)["records"]] == [
        each["unmasked"] for each in whole
    ]
    rest = [data for kind, data, _ in visit.read(run, after=12) if kind != "place"]
    assert rest[-1] == {"end": "finished", "problem": None}, "the origin goes on"
    for wrong in ({}, {"run": run}, origin | {"steps": [1, 2]}, origin | {"steps": [-1]}):
        with pytest.raises(httpx.HTTPStatusError) as error:
            visit.open(asked | {"from": wrong})
        assert "from must name a run" in error.value.response.text
    gone = visit.open(asked | {"from": origin | {"run": "gone"}})
    assert (
        next(data for kind, data, _ in visit.read(gone) if kind == "records")["records"][0]["step"]
        == 0
    )
