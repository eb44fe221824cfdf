import assert from "node:assert/strict";
import test from "node:test";
import { AnswerBook } from "../../assets/js/lessons/answerbook.js";
import { suits } from "../../assets/js/lessons/questions.js";
import { Kept } from "../../assets/js/run/kept.js";
import { Tab } from "../../assets/js/run/tab.js";

/** A tab's storage: its own keys are what is kept, as in a browser. */
class Storage {
  constructor(kept = {}) {
    Object.assign(this, kept);
  }
  getItem(key) {
    return this[key] ?? null;
  }
  setItem(key, text) {
    this[key] = text;
  }
  removeItem(key) {
    delete this[key];
  }
}

const nested = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
const ODD = ["{}", "5", "[null]", "[{}]", '"x"', "{torn", nested, `[${"1,".repeat(200_000)}1]`];

/** What the page reads when it opens, from a storage that holds this. */
function opened(kept) {
  const storage = kept.getItem ? kept : new Storage(kept);
  const tab = new Tab(storage);
  const problems = [];
  const store = new Kept({ onProblem: (text) => problems.push(text), tab });
  const book = new AnswerBook(tab);
  book.see("unmasking", 0);
  return { storage, tab, problems, store, found: [store.runs(), store.shown, book.seen("unmasking")] };
}

test("what another edition kept is dropped with a sentence, and the page goes on", () => {
  for (const [name, told] of [
    ["runs", "the list of its runs"],
    ["shown", "what was on show"],
    ["lessons", "the lessons’ answers"],
  ])
    for (const text of [...ODD, '{"unmasking":{}}', '{"unmasking":{"seen":[0],"answers":{"1":5}}}']) {
      if (name === "lessons" && text === "{}") continue; // no answers yet
      const { storage, tab, found } = opened({
        [`surelock:${name}`]: text,
        "surelock:run-1": "{}",
        "surelock:theme": "{}",
      });
      assert.deepEqual(found, [[], {}, 1], `${name} ${text.slice(0, 40)}`);
      assert.equal(tab.problem, `This tab kept a run that this page cannot read; it was dropped: ${told}.`);
      assert.notEqual(storage[`surelock:${name}`], text);
      assert.deepEqual(["surelock:run-1" in storage, "surelock:theme" in storage], [name !== "runs", true]);
    }
  const runs = JSON.stringify([1, 2].map((id) => ({ id: String(id), source: "live", size: 2 })));
  const { store, tab } = opened({ "surelock:runs": runs, "surelock:run-1": "[]", "surelock:run-2": '{"a":1}' });
  assert.deepEqual(store.runs(), [{ id: "2", source: "live", document: { a: 1 } }]);
  assert.match(tab.problem, /dropped: a run\.$/);
  assert.equal(opened({}).tab.problem, "");
});

test("each part of what was kept has its kind", () => {
  const [run, shown] = [
    { id: "1", source: "live", size: 2 },
    { query: "a=1", run: "1", form: null },
  ];
  const answer = { question: "q", predicted: null, answer: [0, 3], run: "1" };
  const lesson = { seen: [0, 2], answers: { q: answer } };
  const answered = (more) => ({ a: lesson, b: { ...lesson, answers: { q: answer, r: { ...answer, ...more } } } });
  for (const [name, right, ...wrong] of [
    [
      "runs",
      [run, run],
      ...[{ size: -1 }, { size: 0.5 }, { id: 1 }, { source: 0 }].map((more) => [run, { ...run, ...more }]),
    ],
    ["shown", shown, ...[{ query: 1 }, { run: 1 }, { form: {} }].map((more) => ({ ...shown, ...more })), []],
    ["lessons", answered({}), ...[{ predicted: {} }, { answer: [0, -1] }, { question: 1 }, { run: 1 }].map(answered)],
    [
      "lessons",
      { a: lesson },
      { a: lesson, b: 1 },
      { a: { ...lesson, seen: [0, "1"] } },
      { a: { seen: [0] } },
      [lesson],
    ],
    ["run", {}, [], 5, "x", null],
  ]) {
    const kept = (value) => new Tab(new Storage({ [`surelock:${name}`]: JSON.stringify(value) })).get(name);
    assert.deepEqual(kept(right), right);
    for (const each of wrong) assert.equal(kept(each), null, `${name} ${JSON.stringify(each)}`);
  }
});

test("storage that is forbidden or full keeps nothing, and says so once", () => {
  const refuse = () => {
    throw new DOMException("no", "SecurityError");
  };
  for (const storage of [
    { getItem: refuse, setItem: refuse, removeItem: refuse },
    Object.assign(new Storage(), { setItem: refuse }),
  ]) {
    const { store, problems, found } = opened(storage);
    assert.deepEqual(found, [[], {}, 1]);
    for (const id of ["1", "2"]) store.keep(id, "live", {});
    assert.deepEqual(problems, ["This browser keeps no runs for a reload: export what you want to keep."]);
  }
});

test("a prediction of another kind than the question's is none", () => {
  const choose = { kind: "choose", options: [{ id: "a" }] };
  const asked = [{ kind: "cells" }, { kind: "value" }, choose];
  const right = [[3], 0.5, "a"];
  for (const [i, question] of asked.entries())
    for (const [k, value] of [...right, undefined, null, "b"].entries())
      assert.equal(suits(question, value), i === k, `${question.kind} ${value}`);
});
