// Elements are made of a tag, its classes, attributes and children; what is not there leaves no trace.

import assert from "node:assert/strict";
import test from "node:test";

import { h, select } from "../../assets/js/dom.js";

/** A document whose elements write down what is done to them. */
function written(t) {
  t.after(() => delete globalThis.document);
  globalThis.document = {
    createElement: (tag) => ({
      tag,
      attributes: {},
      heard: {},
      children: [],
      append(...nodes) {
        this.children.push(...nodes);
      },
      setAttribute(name, value) {
        this.attributes[name] = value;
      },
      addEventListener(name, listener) {
        this.heard[name] = listener;
      },
    }),
  };
}

test("an element has its classes, attributes, listeners and children, and nothing of what is left out", (t) => {
  written(t);
  const press = () => {};
  const attributes = { onclick: press, hidden: true, "data-n": 0, title: null, lang: undefined, disabled: false };
  const made = h("button.sl-a.sl-b", attributes, "one", null, [undefined, "two", ["three"]], 0);
  assert.equal(made.className, "sl-a sl-b");
  assert.equal(made.type, "button", "which sends no form");
  assert.deepEqual(made.attributes, { hidden: "", "data-n": "0" });
  assert.deepEqual(made.heard, { click: press });
  assert.deepEqual(made.children, ["one", "two", ["three"], 0]);
  const plain = h("p");
  assert.deepEqual([plain.className, plain.type, plain.children], [undefined, undefined, []]);
});

test("a list is made of values and texts, and its first is chosen if none is", (t) => {
  written(t);
  const options = [
    ["a", "A"],
    ["b", "B"],
  ];
  const chosen = (...given) => select("select.x", {}, options, ...given).children.map(({ attributes }) => attributes);
  assert.deepEqual(chosen(), [{ value: "a", selected: "" }, { value: "b" }]);
  assert.deepEqual(chosen("b"), [{ value: "a" }, { value: "b", selected: "" }]);
});
