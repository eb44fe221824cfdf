import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import test from "node:test";
import { ANSWERS, answer, because, besides, holds, inWords } from "../../assets/js/lessons/grading.js";
import { misfit, named, stepOf } from "../../assets/js/lessons/steps.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { open, STORIES } from "./browser.js";
import { base64, decoder, raceOf, read } from "./small.js";

const lessons = readdirSync(new URL("../../assets/lessons/", import.meta.url))
  .filter((file) => /^\d/.test(file))
  .map((file) => read(`assets/lessons/${file}`))
  .sort((a, b) => a.number - b.number);
const runs = new Map(
  [...new Set(lessons.map(({ run }) => run.recorded))].map((name) => [
    name,
    Trace.parse(read(`assets/runs/${name}.json`)),
  ]),
);
const nameOf = (p) => `cell ${p}`;

/** A lane of six positions, two of them prompt; 20 is a word, 0 the end. */
const laneOf = (id, steps, kind = "lock") => [decoder(id, id, { kind, epsilon: 1 }), steps];
const asked = (lanes, is, more) =>
  answer(Trace.parse(raceOf(lanes, { length: 6, pieces: { 20: "a" } })), { is, ...more });

test("the answers count what they say", () => {
  const write = (...positions) => positions.map((p) => [p, 20]);
  const steps = [
    { unmasked: write(3), kl: [9, 9, 9, 9, 9, 9] },
    { unmasked: write(2, 5), locked: [3], kl: [0, 0.25, 0.5, 1, 2, 3] },
    { kl: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5] },
    { unmasked: [[4, 0]], locked: [5, 2], kl: [1, 1, 1, 1, 1, 1] },
    { locked: [4], kl: [1, 1, 1, 1, 1, 1] },
  ];
  const own = (is, more, list = steps) => asked([laneOf("b", list)], is, { lane: "b", ...more });
  assert.deepEqual(own("written_next", { at: 0.2, count: 1 }), [2]);
  assert.deepEqual(own("written_next", { at: 0.4, count: 9 }), [4]);
  assert.equal(own("leftmost_share"), 2 / 3, "3, then 2 and 5, then 4");
  assert.equal(own("still_share", { below: 0.5 }), 9 / 30);
  assert.deepEqual(own("first_locked", { count: 1 }), [3]);
  assert.deepEqual(own("first_locked", { count: 2 }), [3, 2, 5], "whatever locks in the same step comes too");
  assert.deepEqual(own("first_locked", { count: 4 }), [3, 2, 5, 4]);
  assert.deepEqual(own("first_locked", { count: 9 }), [3, 2, 5, 4]);
  assert.deepEqual(own("first_locked", { count: 1 }, [{ unmasked: write(2), locked: [2] }]), [2]);
  assert.equal(own("rest_steps"), 1.5, "of 1, 1, 2 and 2");
  assert.equal(own("rest_steps", {}, steps.slice(0, 4)), 2, "of 1, 2 and 2");
  assert.equal(own("rest_steps", {}, [{ unmasked: write(2), locked: [2] }]), 0);
  assert.equal(own("rest_steps", {}, [{ unmasked: write(2) }]), 0, "where nothing locks");
  const long = [{ unmasked: write(2, 3, 4) }, { locked: [4] }, ...Array(8).fill({}), { locked: [2] }, { locked: [3] }];
  assert.equal(own("rest_steps", {}, long), 10, "of 10, 11 and 1");
  assert.equal(own("after_end_share"), 0.5);
  assert.equal(own("after_end_share", {}, [{ unmasked: [[2, 0]] }]), 1);
  assert.equal(own("after_end_share", {}, [{ unmasked: write(2, 3, 4, 5) }]), 0);
  const two = [laneOf("a", steps, "everything"), laneOf("b", steps.slice(0, 2))];
  const both = ["reference", "subject"].map((lane) => asked(two, "rest_steps", { lane }));
  assert.deepEqual([...both, stepOf(0.34, 3)], [1.5, 1, 1]);
});

test("commit errors, FLOPs and times of lanes are ranked and compared, those within a tie as the same", () => {
  const lane = (id, nats, { flops = 100, seconds = 1, changed = [] } = {}) =>
    laneOf(id, [
      { unmasked: [[2, 20]], commit_error: [0], seconds: 0, flops: 0 },
      { seconds: 0, flops: 0, commit_error: [] },
      { unmasked: [[3, 20]], commit_error: [nats], changed, flops, seconds },
    ]);
  const lanes = [
    lane("a", 1),
    lane("b", 2, { flops: 80, seconds: 0.5, changed: [3] }),
    lane("c", 4, { flops: 60, seconds: 1.5 }),
  ];
  const ask = (is, more) => asked(lanes, is, more);
  const rank = (want, tie = 0, ids = ["b", "a", "c"]) => ask("error_rank", { lanes: ids, want, tie });
  assert.deepEqual([rank("most"), rank("least")], ["c", "a"]);
  assert.deepEqual([rank("most", 0.5), rank("most", 0.49), rank("least", 0.5)], ["same", "c", "same"]);
  assert.deepEqual([rank("most", 0, ["a", "b"]), rank("least", 0, ["b", "a"])], ["b", "a"]);
  assert.equal(ask("error_ratio", { lane: "c", beside: "a" }), 4);
  assert.equal(ask("changed_share", { lane: "b" }), 0.5);
  assert.ok(Math.abs(ask("flops_saved", { lane: "b" }) - 0.2) < 1e-12);
  assert.deepEqual([ask("time_saved", { lane: "b" }), ask("time_saved", { lane: "c" })], [0.5, -0.5]);
  const saved = (lane, tie) => ask("saved_more", { lane, tie });
  assert.deepEqual([saved("b", 0), saved("c", 0), saved("a", 0), saved("b", 1)], ["time", "flops", "same", "same"]);
  assert.ok(Math.abs(ask("cost_spread", { lanes: ["a", "c", "b"] }) - 2 / 3) < 1e-12);
  const trace = Trace.parse(raceOf(lanes, { length: 6 }));
  const claim = (more) => holds(trace, { answer: { is: "time_saved", lane: "b" }, ...more });
  const bounds = [
    {},
    { at_least: 0.5 },
    { at_least: 0.51 },
    { at_most: 0.5 },
    { at_most: 0.49 },
    { at_least: 0, at_most: 0.4 },
    { at_least: 0.6, at_most: 1 },
  ];
  assert.deepEqual(bounds.map(claim), [true, true, false, true, false, false, false]);
  assert.deepEqual([claim({ equals: 0.5 }), claim({ equals: 0.4 })], [true, false]);
});

test("a run that is not finished, or was not measured, is no lesson's", () => {
  const needs = [{ lane: "reference", compute: "everything" }];
  const steps = (more) => [
    { unmasked: [[2, 20]], ...more },
    { unmasked: [[4, 20]], ...more },
    { unmasked: [[3, 20]], ...more },
  ];
  const made = (measured, count = 3, needed = needs, own = undefined) => {
    const list = steps({ commit_error: [0] });
    const document = raceOf([laneOf("a", list, "everything"), laneOf("b", measured ? list : steps())], { length: 6 });
    document.records = document.records.filter(({ step }) => step < count);
    return misfit(Trace.parse(document), { needs: needed, own });
  };
  assert.equal(made(true), "");
  assert.equal(made(true, 2), "The run on show is not finished.");
  assert.equal(made(false), "The commit errors of the run on show were not measured.");
  const other = "This lesson is about other lanes than those of the run on show.";
  const unlike = [
    [{ lane: "c", compute: "lock" }],
    [{ lane: "b", compute: "age" }],
    [{ lane: "b", compute: "lock", unmask: ["random"] }],
    [...needs, { lane: "subject", compute: "everything" }],
  ];
  for (const needed of unlike) assert.equal(made(true, 3, needed), other);
  assert.equal(made(true, 3, [{ lane: "subject", compute: "lock", unmask: ["random", "low_confidence"] }]), "");
  assert.deepEqual([made(true, 3, needs, { lane: "c" }), made(true, 3, needs, { lane: "b" })], [other, ""]);
});

test("predictions are counted in words, and judged to the number that is close enough", () => {
  const share = { kind: "value", unit: "%" };
  const steps = { kind: "value", unit: "steps" };
  const gap = (question, a, b) => {
    const { right, text } = besides(question, a, b, nameOf);
    return [right, text.split(". ").at(-1)];
  };
  assert.deepEqual(gap(share, 0.45, 0.4), [true, "You were 5 points too high."]);
  assert.deepEqual(gap(share, 0.46, 0.4), [false, "You were 6 points too high."]);
  assert.deepEqual(gap(share, 0.39, 0.4), [true, "You were 1 point too low."]);
  assert.deepEqual(gap(share, 0.4, 0.4), [true, "You were right."]);
  assert.deepEqual(gap(steps, 3, 2), [true, "You were 1 step too high."]);
  assert.deepEqual(gap(steps, 3, 5), [false, "You were 2 steps too low."]);
  assert.equal(inWords(steps, 1, nameOf), "1 step");
  assert.equal(inWords(share, 0.01, nameOf), "1 %");
  const cells = { kind: "cells", count: 2 };
  assert.deepEqual(gap(cells, [1, 2], [2, 1, 3]), [true, "2 of your 2 are right."]);
  assert.deepEqual(gap(cells, [1, 2], [2]), [false, "1 of your 2 is right."]);
  assert.deepEqual(gap(cells, [1, 2], []), [false, "0 of your 2 are right."]);
  assert.deepEqual(
    [[], [1], [1, 2], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]].map((list) => inWords(cells, list, String)),
    ["none", "1", "1 and 2", "1, 2, 3, 4, 5 and 6", "1, 2, 3, 4, 5, 6 and more"],
  );
  const choose = {
    kind: "choose",
    options: [
      { id: "a", text: "this" },
      { id: "b", text: "that" },
    ],
  };
  assert.deepEqual(besides(choose, "b", "a", nameOf), {
    right: false,
    text: "You predicted: that. On this run: this. You were wrong.",
  });
  assert.equal(inWords(choose, "c", nameOf), "something else");
  assert.equal(besides(choose, undefined, "a", nameOf).text, "You made no prediction. On this run: this.");
  for (const none of [NaN, Infinity, -Infinity])
    assert.deepEqual(besides(share, 0.6, none, nameOf), {
      right: false,
      text: "This run has nothing to measure the answer by.",
    });
});

test("a lane that a lesson points at has the name that it has on this run", () => {
  const trace = Trace.parse(read("assets/runs/stories.json"));
  trace.lanes[0].name = "All $& of it";
  assert.equal(named("under “{reference}”, for “{subject}”", trace), "under “All $& of it”, for “SureLock”");
});

test("what was predicted is called as it was called then, and an answer says why", () => {
  const cells = { kind: "cells", count: 1 };
  const nameThen = (p) => `the blank at ${p}`;
  assert.equal(
    besides(cells, [43], [43], (p) => `“to” (${p})`, { nameThen, why: "So it is." }).text,
    "You predicted: the blank at 43. On this run: “to” (43). 1 of your 1 is right. So it is.",
  );
});

test("the reason of an answer is the numbers that it follows from", () => {
  const stories = runs.get("stories");
  const why = (run, is, more, predicted) => because(runs.get(run), { is, lane: "subject", ...more }, predicted, nameOf);
  assert.equal(why("stories", "leftmost_share", { lane: "reference" }), "It was so in 80 of 128 steps.");
  assert.match(why("stories", "still_share", { below: 0.0005 }), /^[\d,]+ of [\d,]+ rows moved by at most 0.0005\.$/);
  assert.equal(why("stories", "flops_saved"), "“SureLock” did 52 % of the FLOPs of “Every token”.");
  const [every, locked] = ["everything", "surelock"].map((id) =>
    stories.lane(id).records.reduce((sum, { seconds }) => sum + seconds, 0),
  );
  const saved = `48 % of the FLOPs and ${Math.round(100 * (1 - locked / every))} % of the time`;
  assert.equal(why("stories", "saved_more"), `“SureLock” saved ${saved}.`);
  const rested = "Of 118 tokens that locked the quickest waited 1 step, the slowest 54 steps.";
  assert.equal(why("stories", "rest_steps"), rested);
  assert.equal(why("stories", "after_end_share"), "4 of 128 positions stand there.");
  assert.match(why("stories", "after_end_share", { lane: "reference" }), /does not end/);
  assert.equal(why("too-early", "changed_share", { lane: "letter" }), "It was so at 28 of 32 choices.");
  assert.match(why("too-early", "error_ratio", { lane: "letter", beside: "seen" }), /are 2.3 and 0.04 nats/);
  const next = { lane: "reference", at: 0.15, count: 3 };
  const told = "The model gave its likeliest token there 69 %, 98 % and 65 % when it wrote it";
  assert.equal(why("stories", "written_next", next, [35, 36, 38]), `${told}.`);
  assert.match(
    why("stories", "written_next", next, [35, 37]),
    /; in the first of these steps it gave \d+ % at cell 37\.$/,
  );
  const first = why("stories", "first_locked", { count: 5 }, [15, stories.n - 1, 30]);
  assert.match(first, /^They locked in steps 4 to 10; cell 141 (never|in step \d+) and cell 30 in step \d+\.$/);
  for (const { run, pages } of lessons)
    for (const { question } of pages)
      if (question) assert.match(because(runs.get(run.recorded), question.answer, [], nameOf), /^[A-Z“\d][^{}]*\.$/);
});

test("every lesson can be played on its recorded run, which shows what it speaks of", () => {
  for (const { name, run, claim, pages } of lessons) {
    const trace = runs.get(run.recorded);
    assert.equal(misfit(trace, run), "", name);
    assert.ok(holds(trace, claim), `${name}: ${answer(trace, claim.answer)}`);
    for (const { question, pins } of pages) {
      if (pins) assert.ok(answer(trace, pins).length);
      if (!question) continue;
      const right = answer(trace, question.answer);
      const offered = {
        cells: () => right.length >= question.count,
        value: () => (question.unit === "%" ? 100 : 1) * right <= question.high && right >= question.low / 100,
        choose: () => question.options.some(({ id }) => id === right),
      };
      assert.ok(offered[question.kind](), `${name}: ${right} can be answered`);
      assert.ok(besides(question, right, right, nameOf).right);
    }
  }
  assert.match(misfit(runs.get("stories"), lessons[3].run), /other lanes/);
});

test("of blanks: which is begun first, and which hold something else in another lane", () => {
  const filled = (...steps) => steps.map((step) => ({ unmasked: step }));
  const one = filled([[4, 20]], [[1, 20]], [[3, 20]], [[5, 20]]);
  const others = [
    [one, "none"],
    [filled([[1, 21]], [[3, 20]], [[4, 20]], [[5, 21]]), "first"],
    [filled([[1, 20]], [[3, 21]], [[4, 20]], []), "second"],
    [filled([[1, 21]], [[3, 20]], [[4, 21]], []), "both"],
  ];
  for (const [other, differs] of others) {
    const made = raceOf([laneOf("a", one), laneOf("b", other)], {
      length: 6,
      prompt: [10, 1, 11, 1, 1],
      pieces: { 20: " a", 21: " b" },
    });
    const trace = Trace.parse(made);
    assert.equal(answer(trace, { is: "differing_blank", lanes: ["a", "b"] }), differs);
    assert.equal(answer(trace, { is: "begun_first", lane: "a" }), "second");
    assert.equal(answer(trace, { is: "begun_first", lane: "b" }), other === one ? "second" : "first");
    assert.equal(because(trace, { is: "begun_first", lane: "a" }), "They were begun in the steps 2 and 1.");
    assert.match(because(trace, { is: "differing_blank", lanes: ["a", "b"] }), /hold “a” and “a a” in “a”, “[ab]” and/);
  }
  assert.deepEqual([stepOf(-1, 9), stepOf(0, 9)], [-1, 0]);
});

test("of two blanks of one name: who writes it twice, and how likely that was by what was recorded", () => {
  const filled = (...steps) => steps.map((step) => ({ unmasked: step }));
  const same = filled([[1, 20]], [[3, 20]], [[4, 21]]);
  const other = filled([[1, 20]], [[3, 21]], [[4, 21]]);
  const top = (p) => ({
    at: [0, 6],
    ids: Array(6).fill([20, 21, 22, 23, 24]).flat(),
    p: base64(...Array(6).fill(p).flat()),
  });
  const likely = { ...same[0], top: top([102, 51, 0, 0, 0]) };
  const cases = [
    [same, other, "a"],
    [other, same, "b"],
    [same, same, "both"],
    [other, other, "none"],
  ];
  const made = (one, two) =>
    Trace.parse(
      raceOf([laneOf("a", one), laneOf("b", two)], {
        length: 6,
        prompt: [10, 1, 11, 1, 12],
        pieces: { 20: " a", 21: " b" },
      }),
    );
  for (const [one, two, found] of cases)
    assert.equal(answer(made(one, two), { is: "same_twice", lanes: ["a", "b"] }), found);
  const trace = made([likely, ...same.slice(1)], other);
  assert.ok(Math.abs(answer(trace, { is: "same_chance", lane: "a" }) - (0.16 + 0.04)) < 1e-9);
  assert.ok(Number.isNaN(answer(trace, { is: "same_chance", lane: "b" })), "nothing is recorded there");
  assert.match(because(trace, { is: "same_chance", lane: "a" }), /“a” 40 % and 40 %, “b” 20 % and 20 %/);
});

test("the gauges are not said to show errors: they count", () => {
  const told = lessons.flatMap(({ pages }) => pages.map(({ text, shows }) => [text ?? "", shows]));
  const clauses = told.flatMap(([text, shows]) => text.split(/[.;:]/).map((clause) => [clause, shows]));
  const about = clauses.filter(([clause]) => /gauges?/.test(clause));
  assert.ok(about.length >= 2);
  for (const [clause, shows] of about) assert.ok(shows.includes("gauges") && !/error|them/.test(clause), clause);
});

test("the schema names the answers that there are", () => {
  const { $defs } = read("assets/lessons/schema.json");
  assert.deepEqual([...$defs.answer.properties.is.enum].sort(), Object.keys(ANSWERS).sort());
});

test("predicted positions are shown again on the run on which they were predicted, and on no other", async () => {
  const { stage, pass, document } = await open("", { recorded: STORIES });
  const { lessons: view, trace } = stage;
  const lesson = view.lessons.find(({ name }) => name === "unmasking");
  await view.begin(lesson, 2);
  const { count } = lesson.pages[2].question;
  const cells = Array.from({ length: count }, (_, i) => 60 + i);
  for (const cell of cells) stage.cells.pin(cell);
  await pass(50);
  [...document.querySelectorAll(".sl-lesson button")]
    .find(({ textContent }) => textContent === "This is my prediction")
    .click();
  await view.begin(lesson, 2);
  assert.deepEqual([...stage.view.pins], cells);
  const header = { ...STORIES.header, created: "2026-01-02T03:04:05Z" };
  const others = trace.constructor.parse({ ...STORIES, header });
  stage.show(others);
  await view.begin(lesson, 2);
  assert.equal(view.trace, others);
  assert.deepEqual([...stage.view.pins], []);
});
