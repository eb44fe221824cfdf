// Which source computes what: a link in the browser, a branch where its run is, and elsewhere where no server answers.

import assert from "node:assert/strict";
import test from "node:test";
import { Allowance, Snapshots } from "../../assets/js/decode/snapshots.js";
import { readLink } from "../../assets/js/run/link.js";
import { Sources } from "../../assets/js/run/sources.js";
import { page } from "../../assets/js/run/state.js";
import { described } from "../../assets/js/trace/described.js";

/** A source that a test speaks for. */
function source(name) {
  const asked = [];
  return {
    asked,
    decodes: (model) => model === "stories",
    start(request, hear) {
      const calls = [];
      asked.push({ request, hear, calls });
      return Object.fromEntries(["leave", "stop"].map((call) => [call, () => calls.push(`${name} ${call}`)]));
    },
  };
}

const lanes = [{ compute: { kind: "everything" } }];

test("a link is computed in the browser, a branch where its run was, or here where the server is gone", () => {
  page.set({ sources: ["server", "browser"], source: "server" });
  const [server, browser] = [source("server"), source("browser")];
  const sources = new Sources(server, browser);
  const heard = [];
  const hear = (messages) => heard.push(...messages);
  sources.start({ model: "stories", lanes, link: true }, hear);
  assert.deepEqual([server.asked.length, browser.asked.length], [0, 1]);
  assert.equal("link" in browser.asked[0].request, false, "what asks is not part of the request");
  sources.start({ model: "large", lanes, link: true }, hear);
  assert.equal(server.asked.length, 1, "the browser has no other model");
  browser.asked[0].hear([{ open: {}, run: "here" }]);
  const branch = { model: "stories", lanes, prompt_tokens: [5], from: { run: "here", lane: "a", steps: [1] } };
  sources.start(branch, hear);
  assert.equal(browser.asked.length, 2, "both lanes come from one engine");
  const handle = sources.start({ model: "stories", lanes, prompt_tokens: [5] }, hear);
  handle.leave();
  assert.deepEqual(server.asked[1].calls, ["server leave"]);
  server.asked[1].hear([{ lost: "The connection was lost." }]);
  assert.equal(browser.asked.length, 3);
  assert.match(heard.at(-1).status, /this browser computes it/);
  handle.stop();
  assert.deepEqual(browser.asked[2].calls, ["browser stop"]);
  sources.start({ model: "large", lanes, prompt_tokens: [5] }, hear);
  server.asked[2].hear([{ lost: "The connection was lost." }]);
  assert.equal(browser.asked.length, 3, "a model that it has not");
  assert.equal(heard.at(-1).lost, "The connection was lost.");
});

test("a page without a server says in a sentence which policy of a link it lacks", () => {
  described.compute.everything = { label: "Every token", sentence: "", settings: {} };
  described.unmask.near = { label: "Near", sentence: "", settings: {}, server: true };
  const link = (kind) => `lanes=${JSON.stringify([{ compute: { kind: "everything" }, unmask: { kind } }])}`;
  const lacks = readLink(link("near"), "stories");
  assert.deepEqual(
    [lacks.lanes, lacks.said],
    [null, "Not all of this link could be followed: “Near” is computed on a server, and here is none."],
  );
  assert.match(readLink(link("odd"), "stories").said, /who races cannot be read \(left as it is\)\.$/);
  delete described.compute.everything;
  delete described.unmask.near;
});

test("what no browser has is computed on the server, also a link's and where the browser is chosen", () => {
  described.unmask.near = { label: "Near", sentence: "", settings: {}, server: true };
  page.set({ sources: ["server", "browser"], source: "browser" });
  const [server, browser] = [source("server"), source("browser")];
  const sources = new Sources(server, browser);
  const served = [{ compute: { kind: "everything" }, unmask: { kind: "near" } }];
  sources.start({ model: "stories", lanes, link: true }, () => {});
  sources.start({ model: "stories", lanes: [...lanes, ...served], link: true }, () => {});
  sources.start({ model: "stories", lanes: served }, () => {});
  const heard = [];
  sources.start({ model: "stories", lanes: served, prompt_tokens: [5] }, (messages) => heard.push(...messages));
  server.asked[2].hear([{ lost: "The connection was lost." }]);
  assert.deepEqual([server.asked.length, browser.asked.length], [3, 1]);
  assert.equal(heard.at(-1).lost, "The connection was lost.", "no browser computes it instead");
  page.set({ source: "server" });
  delete described.unmask.near;
});

/** Snapshots of a made-up run: a dense step, then steps of one row. */
function taken(snapshots, steps, bytes) {
  const engine = { copyRows: () => ({ bytes }) };
  for (let step = 1; step <= steps; step++) {
    const slots = Int32Array.from({ length: step === 1 ? 4 : 1 }, (_, i) => i);
    const plan = { slots, probed: new Uint8Array(slots.length), outdated: [] };
    const run = { nextStep: step, canvas: { total: 4 } };
    snapshots.add({ run, plan, engine, memory: null, made: () => run, beside: null });
  }
}

test("snapshots take no more than their allowance, and the oldest race's go first", () => {
  const allowance = new Allowance(100);
  const decoder = { compute: { kind: "a" }, unmask: { kind: "b" }, settings: {}, events: [] };
  const [first, second] = [{}, {}];
  const one = new Snapshots(decoder, allowance, first);
  taken(one, 30, 40);
  assert.equal(allowance.used, 80, "two of 40 bytes, and none more");
  const late = (step) => ({ ...decoder, events: [{ step, kind: "lock", position: 1 }] });
  assert.deepEqual([one.before(late(29), 99), one.before(late(9), 99), one.before(late(29), 5)], [15, 8, 1]);
  assert.equal(one.before({ ...late(29), settings: { seed: 1 } }, 99), 0);
  const two = new Snapshots(decoder, allowance, second);
  taken(two, 10, 40);
  assert.deepEqual([one.before(late(29), 99), two.before(late(29), 99), allowance.used], [0, 8, 40]);
  const shared = two.until(8, late(29), {});
  assert.equal(allowance.used, 40, "what two runs share counts once");
  assert.equal(shared.before(late(29), 99), 8);
});
