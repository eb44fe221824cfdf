import assert from "node:assert/strict";
import test from "node:test";

import { Kept } from "../../assets/js/run/kept.js";
import { Tab } from "../../assets/js/run/tab.js";

/** A browser's storage that takes so many characters. */
function storage(most = Infinity) {
  const kept = new Map();
  return {
    kept,
    getItem: (name) => kept.get(name) ?? null,
    removeItem: (name) => kept.delete(name),
    setItem(name, text) {
      const others = [...kept].reduce((sum, [own, value]) => sum + (own === name ? 0 : value.length), 0);
      if (others + text.length > most) throw new DOMException("full", "QuotaExceededError");
      kept.set(name, text);
    },
  };
}

function store(most) {
  const problems = [];
  const own = new Kept({ onProblem: (text) => problems.push(text), tab: new Tab(storage(most)) });
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
  assert.deepEqual([...own.tab.storage.kept.keys()].length, 4);
  own.shown = { run: "e", query: "" };
  assert.deepEqual([own.shown, problems], [{ run: "e", query: "" }, []]);
});

test("a browser that keeps less, or nothing, is told of once", () => {
  const { own, problems, ids } = store(400);
  for (const id of ["a", "b", "c"]) own.keep(id, "live", of(150));
  assert.deepEqual([ids().map(([id]) => id), problems], [["b", "c"], []]);
  const none = store(10);
  for (const id of ["a", "b"]) none.own.keep(id, "live", of(150));
  assert.deepEqual(none.problems, ["This browser keeps no runs for a reload: export what you want to keep."]);
  assert.deepEqual([none.ids(), none.own.shown], [[], {}]);
});

test("a tab keeps what can be kept under a name of its own", () => {
  const tab = new Tab(storage(60));
  assert.deepEqual([tab.get("run-a"), tab.set("run-a", { b: 1 }), tab.get("run-a")], [null, true, { b: 1 }]);
  assert.deepEqual([...tab.storage.kept.keys()], ["surelock:run-a"]);
  assert.equal(tab.set("run-c", { x: "x".repeat(99) }), false);
  tab.remove("run-a");
  tab.storage.kept.set("surelock:run-torn", "{torn");
  assert.deepEqual([tab.get("run-a"), tab.get("run-torn")], [null, null]);
  const none = new Tab(null);
  none.remove("run-a");
  assert.deepEqual([none.get("run-a"), none.set("run-a", {})], [null, false]);
  const broken = { getItem: () => assert.fail("other"), setItem: () => assert.fail("other") };
  assert.throws(() => new Tab(broken).get("run-a"), /other/);
  assert.throws(() => new Tab(broken).set("run-a", {}), /other/);
});

test("the tab's own storage is the browser's, if it lets the page have it", () => {
  const given = (get) => {
    Object.defineProperty(globalThis, "sessionStorage", { configurable: true, get });
    return new Tab().storage;
  };
  const own = storage();
  try {
    assert.equal(
      given(() => own),
      own,
    );
    assert.equal(
      given(() => undefined),
      null,
    );
    const refuse = (error) => () => {
      throw error;
    };
    assert.equal(given(refuse(new DOMException("no", "SecurityError"))), null);
    assert.throws(() => given(refuse(new TypeError("other"))), /other/);
  } finally {
    delete globalThis.sessionStorage;
  }
});
