"""Branches, and what they do to the runs on their way. No run is made: the recorded one is sent as by a server."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import SIMULATED, status, steady, until
from tests.browser.server import App

TOO_EARLY = """surelock.stage.parts.lessons.use((all) =>
  all.begin(all.lessons.find(({ name }) => name === 'too-early'), 3))"""


@pytest.fixture
def stage(page: Page, app: App) -> Page:
    """The page with the recorded run at its end, and no server that computes."""
    page.goto(f"{app.url}/?race=steps")
    until(
        page,
        "window.surelock?.page.now.recorded && surelock.stage.trace && surelock.stage.timeline.atEnd",
    )
    page.wait_for_selector(".sidebar.open")
    # the grids make room for it
    steady(page, "surelock.stage.sides.map(({ canvas }) => canvas.clientWidth)")
    page.evaluate(SIMULATED)
    return page


def runs(page: Page) -> list[list[Any]]:
    return page.evaluate(
        "surelock.stage.runs.entries.map(({ source, trace }) => [source, trace.count])"
    )


def idle(page: Page) -> None:
    """No run is on its way, and the buttons say so."""
    for name in ("pause", "stop"):
        expect(page.locator(f".sl-control-{name}")).to_be_disabled()
    said = "[stage.root.dataset.state, stage.trace.race.live, stage.timeline.live]"
    assert page.evaluate(f"() => {{ const {{ stage }} = surelock; return {said}; }}") == [
        "idle",
        False,
        False,
    ]


def test_a_run_that_a_branch_ends_stays_in_the_table(stage: Page) -> None:
    stage.evaluate("begin('first', 20)")
    stage.evaluate("surelock.stage.reveal(surelock.page.now.recorded)")
    assert stage.evaluate("branchAt(60)") == "", "on another run than the one on its way"
    assert runs(stage) == [["recorded", 128], ["stopped", 20]]
    assert stage.evaluate("asked") == [["stop", "first"], ["branch"]]
    stage.evaluate("surelock.live.stop()")
    assert stage.evaluate("surelock.stage.trace === surelock.page.now.recorded")
    idle(stage)

    ends = (
        "surelock.live.stop()",
        "send({ run: null, seq: 9, refused: 'Not so.' })",
        "send({ refused: 'The queue is full.' })",
        "send({ lost: 'The connection to the server was lost.' })",
    )
    for number, end in enumerate(ends):
        stage.evaluate("(run) => begin(run, 24)", f"run-{number}")
        stage.evaluate("window.before = surelock.stage.trace; branchAt(10)")
        expect(stage.locator(".sl-control-stop")).to_have_text("Cancel")
        assert stage.locator(".sl-side").count() == 3 and len(runs(stage)) == 2 + number
        stage.evaluate(end)
        assert stage.evaluate("surelock.stage.trace === before") and runs(stage)[-1] == [
            "stopped",
            24,
        ], end
        idle(stage)


def test_leaving_while_a_branch_waits_keeps_the_run_that_it_cut(stage: Page) -> None:
    stage.evaluate("begin('mine', 20); branchAt(10)")
    stage.reload()
    until(stage, "window.surelock?.page.now.recorded && surelock.stage.trace")
    assert ["interrupted", 20] in runs(stage)
    assert "Interrupted" in stage.inner_text(
        ".sl-run-label"
    ) and "press Run to compute all of it" in status(stage)


def test_a_lesson_forgets_the_run_that_does_not_come(stage: Page) -> None:
    lessons = "surelock.stage.lessons"
    stage.evaluate(TOO_EARLY)
    said = stage.locator(".sl-lesson [role=status]")
    for end in (
        "surelock.live.stop()",
        "send({ run: null, seq: 9, refused: 'Not so.' })",
        "press()",
    ):
        stage.click("text=Make my own run")
        expect(said).to_contain_text("Your run begins as soon as the device is free.")
        stage.evaluate("send({ place: 2 })")
        expect(said).to_contain_text("Waiting for the device: 2 runs before yours")
        stage.evaluate(end)
        expect(said).to_have_text("")
        assert not stage.evaluate(f"{lessons}.awaiting")


def test_one_run_waits_at_a_time(stage: Page) -> None:
    waits = "One of your runs waits for the device already: cancel it first."
    assert stage.evaluate("branchAt(60)") == ""
    assert stage.evaluate("branchAt(30)") == waits
    stage.evaluate(
        "surelock.stage.parts.drawer.use(({ epsilon }) => (epsilon.put(0.1), epsilon.race.click()))"
    )
    assert stage.text_content(".sl-epsilon-row p") == waits
    stage.evaluate(TOO_EARLY)
    stage.click("text=Make my own run")
    expect(stage.locator(".sl-lesson [role=status]")).to_have_text(waits)
    assert stage.evaluate("asked") == [["branch"]]
    stage.evaluate("""() => {
      const { trace, child } = surelock.live.branching;
      const header = { ...trace.header, lanes: [child.decoder] };
      open("branch", { header, pieces: {} });
    }""")
    assert (
        stage.evaluate("surelock.stage.trace === surelock.live.run.trace")
        and stage.locator(".sl-side").count() == 3
    )
    assert stage.evaluate("surelock.stage.trace.lanes.at(-1).source.run") == "branch"
    assert stage.evaluate("surelock.stage.timeline.step") == 59
    assert stage.text_content(".sl-run-label").startswith("A branch: ")
    stage.evaluate("send({ run: 'branch', seq: 1, end: 'failed', problem: 'It cannot.' })")
    assert (
        stage.evaluate("surelock.stage.trace === surelock.page.now.recorded")
        and status(stage) == "It cannot."
    )
    assert runs(stage) == [["recorded", 128]]


PARTED = "Computed again by another engine, “SureLock” parts from its record in step 4: the new computation is shown."


def test_a_parent_that_is_computed_otherwise_now_is_shown_beside_its_branch(stage: Page) -> None:
    """A recorded run, and a source whose engine commits another token in its fourth step."""
    stage.evaluate("""() => {
      branchAt(10);
      const { records, header, pieces } = surelock.page.now.recorded.toDocument();
      const own = records.filter(({ lane }) => lane === "surelock");
      window.computed = (lanes, from, to) => lanes.flatMap((lane) => own.slice(from, to).map((record) => {
        const unmasked = record.unmasked.map(([p, token]) => [p, record.step === 3 ? token + 1 : token]);
        return { ...record, lane, unmasked };
      }));
      window.opening = (run, lanes) => open(run, { header: { ...header, engine: "another engine", lanes }, pieces });
      const { child } = surelock.live.branching;
      opening("first", [child.decoder]);
      send({ run: "first", seq: 1, pieces: {}, records: computed([child.id], 0, 3) });
    }""")
    trace = "surelock.stage.trace"
    counts = "surelock.stage.trace.lanes.map(({ id, count }) => [id, count])"
    assert stage.evaluate(counts) == [["everything", 128], ["surelock", 128], ["what-if-1", 10]]
    assert status(stage).startswith("Computing again up to the step in question")

    stage.evaluate(
        "send({ run: 'first', seq: 2, pieces: {}, records: computed(['what-if-1'], 3, 4) })"
    )
    assert stage.evaluate("asked") == [["branch"], ["stop", "first"], ["branch"]]
    assert stage.evaluate(counts) == [["everything", 128], ["surelock", 3], ["what-if-1", 3]]
    stage.evaluate("""() => {
      const lanes = ["surelock", "what-if-1"];
      opening("second", lanes.map((id) => surelock.stage.trace.lane(id).decoder));
      for (let step = 0; step < 20; step++)
        send({ run: "second", seq: 1 + step, pieces: {}, records: computed(lanes, step, step + 1) });
    }""")
    assert status(stage) == PARTED
    assert stage.evaluate(counts) == [["everything", 128], ["surelock", 20], ["what-if-1", 20]]
    engines = f"{trace}.lanes.map(({{ decoder }}) => decoder.engine ?? null)"
    assert stage.evaluate(engines) == [None, "another engine", "another engine"]
    stage.evaluate("send({ run: 'second', seq: 30, end: 'finished', problem: null })")
    assert status(stage) == PARTED and runs(stage) == [["recorded", 128], ["branch", 128]]
    assert stage.evaluate("surelock.page.now.recorded.lane('surelock').count") == 128, (
        "the recording stays"
    )
    idle(stage)
