// The form's lanes under random edits: each is called what was typed, else after its preset and what differs from it.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";
import { field } from "../../assets/js/form/fields.js";
import { open } from "./browser.js";
import { DESCRIBED, PRESETS } from "./described.js";
import { onPage } from "./page.js";
import { every, numbers, RANDOM, raceOf } from "./small.js";

const RECORDED = raceOf([every("All", [{}])]);
const NAMES = ["Mine", "SureLock", "  ", "x".repeat(90), "Lock by age 12"];

async function edits(list) {
  const page = await open("", { recorded: RECORDED });
  const { window, document, surelock } = page;
  surelock.page.set({ form: true });
  await page.pass(50);
  const form = document.querySelector(".sl-lane-list");
  const change = (control, value) => {
    control.value = value;
    control.dispatchEvent(new window.Event("change", { bubbles: true }));
  };
  const lane = (i) => form.children[i];
  /** What the visitor knows of each lane: {preset, typed: a name or null}. */
  const model = PRESETS.slice(0, 2).map(({ name }) => ({ preset: name, typed: null }));
  const moves = {
    choose(n) {
      const i = n % model.length;
      const { id, name } = PRESETS[n % PRESETS.length];
      change(lane(i).querySelector(".sl-lane-preset"), id);
      model[i] = { preset: name, typed: null };
      return i;
    },
    type(n) {
      const [i, name] = [n % model.length, NAMES[n % NAMES.length]];
      change(lane(i).querySelector(".sl-lane-fields input[type=text]"), name);
      model[i].typed = name.trim().slice(0, 80) || null;
      return i;
    },
    policy(n) {
      const i = n % model.length;
      const selects = lane(i).querySelectorAll(".sl-lane-fields select");
      const kind = Object.keys(DESCRIBED.unmask)[n % 2];
      change(selects[selects.length - 1], kind);
      return i;
    },
    number(n) {
      const i = n % model.length;
      const [field] = lane(i).querySelectorAll(".sl-lane-fields input[type=range]");
      if (field) change(field, n % 2 ? field.min : field.max);
      return i;
    },
    add() {
      if (model.length === 4) return;
      const used = new Set(values().map(({ preset }) => preset));
      const next = PRESETS.find(({ id }) => !used.has(id)) ?? PRESETS[0];
      document.querySelector(".sl-lane-list + button").click();
      model.push({ preset: next.name, typed: null });
    },
    remove(n) {
      if (model.length === 1) return;
      const i = n % model.length;
      lane(i).querySelector(".sl-lane-remove").click();
      model.splice(i, 1);
    },
  };
  let sent = null;
  const values = () => JSON.parse(sent ?? "{}").lanes ?? PRESETS.slice(0, 2).map(({ id }) => ({ preset: id }));
  surelock.addressing.edit = ({ lanes }) => {
    sent = lanes;
  };
  for (const n of list) {
    const all = Object.values(moves);
    const before = values();
    const edited = all[n % all.length](Math.floor(n / all.length));
    const named = values();
    const choices = (lanes) => lanes.filter((_, i) => i !== edited).map(({ compute, unmask }) => ({ compute, unmask }));
    if (edited !== undefined && before[0].compute)
      assert.deepEqual(choices(named), choices(before), "an edit of a lane changes no other");
    assert.equal(form.children.length, model.length);
    if (!sent) continue;
    assert.equal(new Set(named.map(({ name }) => name)).size, model.length, "no two names are the same");
    model.forEach(({ preset, typed: name }, i) => {
      const own = named[i].name.replace(/ \(\d+\)$/, "");
      if (name) assert.equal(own.slice(0, 70), name.slice(0, 70));
      else assert.ok(own.startsWith(preset), `${own} of ${preset}`);
    });
  }
}

test("a lane has the name that was typed until another preset is chosen, else its preset's", async () => {
  await fc.assert(fc.asyncProperty(numbers(25), edits), { ...RANDOM, numRuns: 40 });
});

test("a link with a length alone brings the steps that go with it", async () => {
  const page = await open("?gen_length=200", { recorded: RECORDED });
  page.live.pressForm();
  await page.pass(50);
  const { gen_length: length, steps } = page.source.asked.at(-1).request;
  assert.deepEqual([length, steps], [200, 200]);
});

test("an emptied number field has its default, and no number leaves its range", (t) => {
  onPage(t);
  const taken = [];
  const setting = { kind: "whole", label: "Probe every", help: "", low: 2, high: 9, default: 4 };
  const control = field(setting, 7, (value) => taken.push(value)).children.find(({ tag }) => tag === "input");
  for (const value of ["", "0", "10", "5"]) {
    control.value = value;
    control.fire("change");
  }
  assert.deepEqual(taken, [4, 2, 9, 5]);
});
