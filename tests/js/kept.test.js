import assert from "node:assert/strict";
import test from "node:test";
import { suits } from "../../assets/js/lessons/grading.js";
import { AnswerBook } from "../../assets/js/lessons/steps.js";
import { Kept } from "../../assets/js/run/kept.js";
import { Tab } from "../../assets/js/run/tab.js";

/** A tab's storage, which takes so many characters: its own keys are what is kept, as in a browser. */
class Storage {
  #most;
  constructor(kept = {}, most = Infinity) {
    Object.assign(this, kept);
    this.#most = most;
  }
  getItem(key) {
    return this[key] ?? null;
  }
  setItem(key, text) {
    const others = Object.entries(this).reduce((sum, [own, value]) => sum + (own === key ? 0 : value.length), 0);
    if (others + text.length > this.#most) throw new DOMException("full", "QuotaExceededError");
    this[key] = text;
  }
  removeItem(key) {
    delete this[key];
  }
}

function store(most) {
  const problems = [];
  const own = new Kept({ onProblem: (text) => problems.push(text), tab: new Tab(new Storage({}, most)) });
  return { own, problems, ids: () => own.runs().map(({ id, source, document }) => [id, source, document.x?.length]) };
}
const of = (length) => ({ x: "x".repeat(length - 8) }); // so many characters as JSON

test("a run too large to be kept costs none that is", () => {
  const { own, problems, ids } = store();
  own.keep("small", "live", of(20));
  own.keep("large", "opened", of(4_000_001));
  assert.deepEqual(ids(), [["small", "live", 12]]);
  assert.deepEqual(problems, ["This run is too large to be kept for a reload: export it to keep it."]);
  own.keep("whole", "live", of(4_000_000));
  assert.deepEqual(ids(), [["whole", "live", 3_999_992]], "the largest that can be kept takes all the room");
});

test("older runs make room, the oldest first, and one kept again counts once", () => {
  const { own, problems, ids } = store();
  for (const id of ["a", "b", "c"]) own.keep(id, "live", of(1_000_000));
  own.keep("b", "opened", of(1_000_000));
  own.keep("d", "live", of(1_000_000));
  assert.deepEqual(
    ids().map(([id, source]) => id + source),
    ["alive", "clive", "bopened", "dlive"],
  );
  own.keep("e", "live", of(1_000_001));
  assert.deepEqual(
    ids().map(([id]) => id),
    ["b", "d", "e"],
    "a leaves a character too few",
  );
  assert.deepEqual(Object.keys(own.tab.storage).length, 4);
  own.shown = { run: "e", query: "" };
  assert.deepEqual([own.shown, problems], [{ run: "e", query: "" }, []]);
});

test("a browser that keeps less, or nothing, is told of once", () => {
  const { own, problems, ids } = store(400);
  for (const id of ["a", "b", "c"]) own.keep(id, "live", of(150));
  assert.deepEqual([ids().map(([id]) => id), problems], [["b", "c"], []]);
  const refuse = () => {
    throw new DOMException("no", "SecurityError");
  };
  for (const storage of [{ getItem: refuse, setItem: refuse, removeItem: refuse }, new Storage({}, 10)]) {
    const { store: none, problems: told, found } = opened(storage);
    for (const id of ["a", "b"]) none.keep(id, "live", of(150));
    assert.deepEqual(told, ["This browser keeps no runs for a reload: export what you want to keep."]);
    assert.deepEqual([found, none.runs(), none.shown], [[[], {}, 1], [], {}]);
  }
});

test("a tab keeps what can be kept under a name of its own", () => {
  const tab = new Tab(new Storage({}, 60));
  assert.deepEqual([tab.get("run-a"), tab.set("run-a", { b: 1 }), tab.get("run-a")], [null, true, { b: 1 }]);
  assert.deepEqual(Object.keys(tab.storage), ["surelock:run-a"]);
  assert.equal(tab.set("run-c", { x: "x".repeat(99) }), false);
  assert.deepEqual([tab.set("source", "browser"), tab.get("source")], [true, "browser"], "where runs are computed");
  tab.remove("source");
  tab.remove("run-a");
  tab.storage["surelock:run-torn"] = "{torn";
  assert.deepEqual([tab.get("run-a"), tab.get("run-torn")], [null, null]);
  const none = new Tab(null);
  none.remove("run-a");
  assert.deepEqual([none.get("run-a"), none.set("run-a", {})], [null, false]);
  const broken = { getItem: () => assert.fail("other"), setItem: () => assert.fail("other") };
  assert.throws(() => new Tab(broken).get("run-a"), /other/);
  assert.throws(() => new Tab(broken).set("run-a", {}), /other/);
});

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
  return { storage, tab, book, problems, store, found: [store.runs(), store.shown, book.seen("unmasking")] };
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

test("what a learner lets the page forget stays forgotten after a reload", () => {
  const { storage, book } = opened({});
  book.forget();
  assert.equal(new AnswerBook(new Tab(storage)).empty, true);
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

test("a prediction of another kind than the question's is none", () => {
  const choose = { kind: "choose", options: [{ id: "a" }] };
  const asked = [{ kind: "cells" }, { kind: "value" }, choose];
  const right = [[3], 0.5, "a"];
  for (const [i, question] of asked.entries())
    for (const [k, value] of [...right, undefined, null, "b"].entries())
      assert.equal(suits(question, value), i === k, `${question.kind} ${value}`);
});
