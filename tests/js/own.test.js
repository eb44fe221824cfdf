// A rule that a visitor typed: what it is given, what it may say, and what it cannot reach.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test, { mock } from "node:test";
import variant from "@jitl/quickjs-wasmfile-release-sync";
import { newQuickJSWASMModuleFromVariant, newVariant } from "quickjs-emscripten-core";
import { Run } from "../../assets/js/decode/algorithm.js";
import { readDecoder } from "../../assets/js/decode/decoder.js";
import { OwnRule } from "../../assets/js/decode/own.js";
import { race } from "../../assets/js/decode/race.js";
import { emptyReading } from "../../assets/js/decode/step.js";

let now = 0; // of a clock that the tests move: what is fast enough here need not be elsewhere
mock.method(Date, "now", () => now);

const quickjs = await newQuickJSWASMModuleFromVariant(variant);
OwnRule.quickjs = quickjs;

const SETTINGS = { gen_length: 6, steps: 6, block_length: 6, temperature: 0, seed: 0, cfg_scale: 0 };
const NETWORK = { vocab_size: 9, n_layers: 1, d_model: 4, n_heads: 1, n_kv_heads: 1, d_ff: 4, max_length: 64 };
const SHAPE = { network: NETWORK, mask_id: 1, pad_id: 0, ends: [0] };

/** The steps of a run of 6 tokens after a prompt of 2 by a typed rule; every reading is the same. */
function decoded(code) {
  const told = { settings: SETTINGS, compute: { kind: "own", code }, unmask: { kind: "low_confidence" } };
  const run = new Run(SHAPE, [3, 4], readDecoder(told));
  const steps = [];
  try {
    for (let plan = run.plan(); plan; plan = run.plan()) {
      const reading = emptyReading(plan);
      reading.confidence.fill(0.5);
      reading.kl.fill(plan.step ? 0.25 : Number.POSITIVE_INFINITY);
      reading.tokens.fill(5);
      reading.likeliest = () => plan.slots.map((slot) => (slot === 7 ? -1 : slot % 3));
      reading.score.forEach((_, i) => {
        reading.score[i] = -i;
      });
      steps.push(run.take(reading));
    }
  } finally {
    run.compute.end();
  }
  return steps;
}

const places = (flags) => [...flags.keys()].filter((i) => flags[i]);

test("rows chooses what a step computes, after what locks; what they are given is what the run knows", () => {
  const steps = decoded(`
    let seen = [];
    function rows(run) {
      seen.push(run.step);
      if (run.step === 0 && run.written.length) throw new Error("no step wrote these");
      if (run.likeliest.join() !== (run.step ? "0,1,2,0,1,2,0,-1" : Array(8).fill(-1).join())) throw new Error("likeliest");
      if (run.step === 3) {
        const wanted = { length: 8, prompt: 2, block: [2, 8], written: [4], active: [0, 2, 3, 4, 5, 6, 7] };
        for (const name in wanted)
          if (JSON.stringify(run[name]) !== JSON.stringify(wanted[name])) throw new Error(name + JSON.stringify(run[name]));
        if (run.masked[4] || !run.masked[5] || !run.locked[1] || run.kl[5] !== 0.25 || run.confidence[0] !== 0.5)
          throw new Error("values " + JSON.stringify(run));
        if (seen.join() !== "0,1,2,3") throw new Error("a text keeps what it holds from step to step");
      }
      return run.active.filter((position) => position !== 6 || run.step === 4).reverse();
    }
    const after = ({ step, written }) => (step === 1 ? [1, 1] : []);
  `);
  assert.deepEqual(steps.map(({ computed }) => places(computed).length).slice(0, 4), [8, 7, 6, 6]);
  assert.deepEqual(places(steps[1].newly_locked), [1]);
  assert.equal(places(steps[2].computed).includes(6), false);
});

const REFUSED = {
  "function after() {}": /^your rule has no function rows$/,
  "function rows() {": /^rows of your rule failed in step 1: SyntaxError: .+ \(line 1\)$/,
  "function rows() {\n  return nothing;\n}": /SyntaxError|ReferenceError: .?nothing.? is not defined \(line 2\)$/,
  "const rows = () => 5;": /^rows of your rule, in step 1, must return a list of positions$/,
  "const rows = () => [0.5];": /and 0.5 is none$/,
  "const rows = () => [99];": /and 99 cannot be computed: it is locked, or there is none$/,
  "const rows = ({ active }) => active; const after = ({ length }) => [length - 1];":
    /^after of your rule, in step 1, .+ 7 cannot be locked: it is masked, or was not computed$/,
  "throw 'no';": /^rows of your rule failed in step 1: "no"$/,
  "const rows = () => { throw { message: 5 }; };": /failed in step 1: 5$/,
  "const rows = () => [fetch];": /.?fetch.? is not defined/,
  "const rows = () => postMessage(1);": /.?postMessage.? is not defined/,
  "const rows = () => [].constructor.constructor('return window')();": /.?window.? is not defined/,
  "const rows = () => [new Date()];": /.?Date.? is not defined/,
  "const rows = () => [Math.random()];": /not a function/,
  "const rows = () => ({ __proto__: [1], toJSON: () => ({ length: 1, 0: 1 }) });": /must return a list/,
  "JSON.stringify = () => '[';  const rows = () => [1];": /must return a list/,
  'JSON.stringify = () => \'[{"__proto__": {"stolen": 1}}]\';  const rows = () => [1];': /is none$/,
  "const rows = () => { rows(); };": /stack|recursion/i,
};

for (const [code, said] of Object.entries(REFUSED))
  test(`refused in one clause: ${code.slice(0, 60).replaceAll("\n", " ")}`, () => {
    assert.throws(() => decoded(code), { name: "RangeError", message: said });
    assert.equal({}.stolen, undefined);
  });

const ENDLESS = {
  "for (;;);": /more than 0.5 s/,
  "const rows = () => /(a+)+$/.exec('a'.repeat(40) + 'b');": /more than 0.5 s/,
  "const rows = () => Array(1e8).fill(0);": /more than 32 MB/,
  "const rows = () => Array.from({ length: 1e9 });": /0.5 s|32 MB/,
};

for (const [code, said] of Object.entries(ENDLESS))
  test(`stopped once half a second has passed: ${code.slice(0, 70)}`, (t) => {
    const begun = now;
    t.mock.method(Date, "now", () => now++); // each look at the clock takes a millisecond
    assert.throws(() => decoded(code), { name: "RangeError", message: said });
    assert.ok(now - begun < 510, "half a second, and the looks before it");
    t.mock.restoreAll();
    assert.equal(decoded("const rows = ({ active }) => active;").length, 6, "the next one runs");
  });

const LONG = "'x'.repeat(3e6)";
const HUGE = {
  [`const rows = () => [${LONG}];`]: /returned more than 64 kB/,
  "const rows = () => ['x'.repeat(6e4)];": /must return a list of positions, and "x{59} is none$/,
  [`const rows = () => { throw ${LONG}; };`]: /failed in step 1: "x+$/,
  [`const rows = () => { throw { name: ${LONG}, message: ${LONG}, stack: 'rule.js:' + '1'.repeat(3e6) }; };`]: /: x+$/,
  [`const rows = () => { throw { name: [${LONG}], message: [${LONG}], stack: [] }; };`]: /failed in step 1: \["x+/,
  "const rows = () => { throw { message: 5n }; };": /failed in step 1: "?.object Object."?$/,
  "const rows = () => { throw undefined; };": /failed in step 1: $/,
  "JSON.stringify = () => ({}); const rows = () => [];": /must return a list/,
};

for (const [code, said] of Object.entries(HUGE))
  test(`told in a clause: ${code.slice(0, 70)}`, () => {
    assert.throws(
      () => decoded(code),
      (error) => error.name === "RangeError" && said.test(error.message) && error.message.length < 600,
    );
  });

const CODE = "node_modules/@jitl/quickjs-wasmfile-release-sync/dist/emscripten-module.wasm";
const BREAKS = {
  "throw new Promise(() => {});": /it threw a promise$/,
  "Promise.resolve().then(() => 1); const rows = () => 1;": /must return a list/,
  "async function rows() { throw new Promise(() => {}); }": /must return a list/,
  "const rows = () => eval('['.repeat(2e4) + ']'.repeat(2e4));": /nested too deeply$/,
  "let deep = []; for (let i = 0; i < 1e5; i++) deep = [deep]; const rows = () => deep;": /nested too deeply$/,
  "throw { get message() { throw new Promise(() => {}); } };": /failed in step 1: /,
  "throw new Proxy({}, { get: () => { throw 1; } });": /failed in step 1: /,
};

test("rules that break their interpreter are named, and the next one runs", async () => {
  const wasmModule = await WebAssembly.compile(readFileSync(CODE));
  const all = Object.entries(BREAKS);
  try {
    for (let i = 0; i < 3 * all.length; i++) {
      const [code, said] = all[i % all.length];
      OwnRule.quickjs = await newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
      assert.throws(() => decoded(code), { name: "RangeError", message: said }, code);
    }
    OwnRule.quickjs = await newQuickJSWASMModuleFromVariant(newVariant(variant, { wasmModule }));
    assert.equal(decoded("const rows = ({ active }) => active;").length, 6);
  } finally {
    OwnRule.quickjs = quickjs;
  }
});

test("a race that is left gives back what its rules hold", async () => {
  const ended = [];
  const end = OwnRule.prototype.end;
  OwnRule.prototype.end = function () {
    ended.push(this.code);
    return end.call(this);
  };
  const engine = {
    memory: () => null,
    read: async (_, plan) => ({
      ...emptyReading(plan),
      tokens: new Int32Array(plan.chooses.filter(Boolean).length).fill(5),
    }),
    logits: async () => new Float32Array(0),
  };
  const lane = (id, code) => ({
    id,
    settings: SETTINGS,
    compute: { kind: "own", code },
    unmask: { kind: "low_confidence" },
  });
  const both = [lane("a", "const rows = ({ active }) => active;"), lane("b", "let rows = ({ active }) => active;")];
  try {
    for await (const told of race(engine, SHAPE, [3, 4], both)) {
      assert.equal(told.length, 2);
      break;
    }
  } finally {
    OwnRule.prototype.end = end;
  }
  assert.deepEqual(
    ended,
    both.map(({ compute }) => compute.code),
  );
});
