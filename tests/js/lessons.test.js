import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";
import { AnswerBook } from "../../assets/js/answerbook.js";
import { ANSWERS, answer, holds, misfit, stepOf } from "../../assets/js/answers.js";
import { GLOSSARY } from "../../assets/js/glossary.js";
import { inWords, judge } from "../../assets/js/questions.js";
import { Tab } from "../../assets/js/tab.js";
import { Trace } from "../../assets/js/trace.js";
import { small } from "./small.js";

const assets = new URL("../../assets/", import.meta.url);
const read = (path) => JSON.parse(readFileSync(new URL(path, assets), "utf-8"));
const lessons = readdirSync(new URL("lessons/", assets))
  .filter((file) => /^\d/.test(file))
  .map((file) => read(`lessons/${file}`))
  .sort((a, b) => a.number - b.number);
const runs = new Map(
  [...new Set(lessons.map(({ run }) => run.recorded))].map((name) => [name, Trace.parse(read(`runs/${name}.json`))]),
);
const nameOf = (p) => `cell ${p}`;

test("a lesson is not about a run for which its sentences are false", () => {
  const [unmasking] = lessons;
  const made = (change) => {
    const document = read("runs/stories.json");
    for (const each of document.header.contestants) change(each);
    return misfit(Trace.parse(document), unmasking.run);
  };
  assert.equal(
    made(() => {}),
    "",
  );
  const random = made((each) => Object.assign(each, { unmask: { kind: "random" } }));
  assert.match(random, /^This lesson is about other contestants/);
});

test("the answers of a run of three steps", () => {
  const document = small();
  for (const record of document.records) record.commit_error = record.unmasked.map(() => 0.5);
  document.records[1].changed = [2];
  const trace = Trace.parse(document);
  const asks = (is, more) => answer(trace, { is, ...more });
  assert.deepEqual(asks("written_next", { lane: "reference", at: 0, count: 3 }), [3]);
  assert.equal(asks("leftmost_share", { lane: "reference" }), 1);
  assert.equal(asks("still_share", { lane: "reference", below: 1 }), 0.5); // of 0, 1, 2, 3 in two steps
  assert.deepEqual(asks("first_locked", { lane: "subject", count: 5 }), [2]);
  assert.equal(asks("rest_steps", { lane: "b" }), 2);
  assert.equal(asks("changed_share", { lane: "b" }), 0.5);
  assert.equal(asks("error_rank", { lanes: ["a", "b"], want: "least", tie: 0 }), "same");
  assert.equal(asks("error_ratio", { lane: "b", beside: "a" }), 1);
  assert.ok(Math.abs(asks("flops_saved", { lane: "b" }) - 0.2) < 1e-12);
  assert.ok(Math.abs(asks("time_saved", { lane: "b" }) - 1 / 3) < 1e-12);
  assert.equal(asks("saved_more", { lane: "b", tie: 0.03 }), "time");
  assert.equal(asks("after_end_share", { lane: "b" }), 0);
  assert.ok(Math.abs(asks("cost_spread", { lanes: ["a", "b"] }) - 0.25) < 1e-12);
  assert.equal(stepOf(0.34, trace.reference.count), 1);
  assert.ok(holds(trace, { answer: { is: "rest_steps", lane: "b" }, at_least: 2, at_most: 2 }));
  assert.ok(!holds(trace, { answer: { is: "saved_more", lane: "b", tie: 0 }, equals: "flops" }));
});

test("a prediction beside the answer, in words", () => {
  const share = { kind: "value", unit: "%", low: 0, high: 100 };
  assert.deepEqual(judge(share, 0.4, 0.633, nameOf), {
    right: false,
    text: "You predicted: 40 %. On this run: 63 %. You were 23 points too low.",
  });
  assert.ok(judge(share, 0.6, 0.633, nameOf).right);
  assert.equal(judge({ kind: "value", unit: "steps" }, 1, 2.5, nameOf).text.split(". ")[1], "On this run: 2.5 steps");
  const cells = { kind: "cells", count: 3 };
  assert.equal(
    judge(cells, [1, 2, 3], [2, 7], nameOf).text,
    "You predicted: cell 1, cell 2 and cell 3. On this run: cell 2 and cell 7. 1 of your 3 is right.",
  );
  assert.equal(inWords(cells, [1, 2, 3, 4, 5, 6, 7], nameOf).split(", ").length, 6);
  const choose = { kind: "choose", options: [{ id: "a", text: "this" }] };
  assert.deepEqual(judge(choose, "a", "a", nameOf), {
    right: true,
    text: "You predicted: this. On this run: this. You were right.",
  });
  assert.equal(judge(choose, undefined, "a", nameOf).text, "You made no prediction. On this run: this.");
});

test("the six lessons are there, and fit in three minutes of reading aloud", () => {
  assert.deepEqual(
    lessons.map(({ number }) => number),
    [1, 2, 3, 4, 5, 6],
  );
  for (const { name, title, run, claim, pages } of lessons) {
    const asked = pages.flatMap(({ text, question }) => [
      text,
      question?.ask ?? "",
      ...(question?.options ?? []).map((option) => option.text),
    ]);
    const own = run.own ? [run.own.label, ...run.own.options.map((option) => option.name)] : [];
    const words = [title, claim.otherwise, ...asked, ...own].join(" ").split(/\s+/).filter(Boolean).length;
    assert.ok(words <= 350, `${name} has ${words} words`);
  }
});

test("no term is used before the page that explains it", () => {
  const forms = { locked: /\block(s|ed|ing)?\b/i, ε: /ε|\bepsilon\b/i, reference: /\breference\b/i };
  const known = new Set();
  for (const { name, pages } of lessons)
    for (const { text, explains = [], question } of pages) {
      const page = [text, question?.ask ?? "", ...(question?.options ?? []).map((option) => option.text)].join(" ");
      for (const term of explains) {
        assert.ok(GLOSSARY[term], `${name}: ${term} is in the glossary`);
        assert.ok(page.includes(term), `${name}: ${term} is on the page that explains it`);
        known.add(term);
      }
      for (const term of Object.keys(GLOSSARY))
        if ((forms[term] ?? new RegExp(`\\b${term}\\b`, "i")).test(page))
          assert.ok(known.has(term), `${name} uses ${term} before it is explained: ${page}`);
    }
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
      assert.ok(judge(question, right, right, nameOf).right);
    }
  }
  assert.match(misfit(runs.get("stories"), lessons[3].run), /other contestants/);
});

test("the schema names the answers that there are", () => {
  const { $defs } = read("lessons/schema.json");
  assert.deepEqual([...$defs.answer.properties.is.enum].sort(), Object.keys(ANSWERS).sort());
});

test("predictions are kept, counted, saved and forgotten", () => {
  const kept = new Map();
  const storage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const book = new AnswerBook(new Tab(storage));
  assert.ok(book.empty);
  book.see("work", 2);
  book.see("work", 2);
  book.write("work", 2, { question: "?", predicted: 0.4 });
  book.write("work", 2, { answer: 0.6, right: false });
  const again = new AnswerBook(new Tab(storage));
  assert.deepEqual([again.seen("work"), again.predictions("work"), again.seen("sure")], [1, 1, 0]);
  assert.deepEqual(again.toDocument().lessons, [
    { name: "work", seen: [3], answers: [{ page: 3, question: "?", predicted: 0.4, answer: 0.6, right: false }] },
  ]);
  again.forget();
  assert.ok(new AnswerBook(new Tab(storage)).empty);
  kept.set("surelock:lessons", "{torn");
  assert.ok(new AnswerBook(new Tab(storage)).empty);
});
