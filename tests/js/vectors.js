// Repeats the runs of tests/vectors.py: `node tests/js/vectors.js`. Every plan and every step must be equal to the last bit. Prints how many of each there were.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Run } from "../../assets/js/decode/algorithm.js";
import { find } from "../../assets/js/decode/arrays.js";
import { readDecoder } from "../../assets/js/decode/decoder.js";
import { bestOf } from "../../assets/js/decode/step.js";
import { unpacked } from "./packed.js";

function toldDraws(draws) {
  const keys = draws.keys.map((key) => key.map(String));
  const numbers = {
    scores: draws.scored ? draws.scores() : null,
    gumbel: draws.gumbel(
      draws.row.map((_, i) => i),
      5,
    ),
  };
  return { ...draws, keys, ...numbers };
}

/** As the library has it, of a batch of one. */
const toldPlan = ({ quota, ...plan }) => ({
  ...plan,
  quotas: quota === null ? null : [quota],
  counts: [plan.slots.length],
  positions: plan.slots,
  draws: plan.draws && toldDraws(plan.draws),
  best: bestOf(
    find(plan.chooses).map((_, i) => (i * 5) % 7),
    quota,
  ),
});

const toldStep = ({ flops, baseline_flops, shares: found, ...step }) => {
  const counted = { flops, baseline_flops };
  for (const [name, value] of Object.entries(counted)) counted[name] = Float64Array.of(value);
  const shares = found.map((each) => ({ ...each, shares: each.shares.map((share) => Math.round(share * 1e9) / 1e9) }));
  return { ...step, ...counted, shares };
};

/** Fails with the name of the first field that differs. */
function same(found, expected, what) {
  assert.deepEqual(Object.keys(found).sort(), Object.keys(expected).sort(), `fields of ${what}`);
  for (const [name, value] of Object.entries(expected)) assert.deepEqual(found[name], value, `${name} of ${what}`);
}

function repeat({ shape, prompt, lists, decoder, observe, top_k, turns, refused }, number) {
  const observing = observe ? { observe, top_k, lists } : { top_k, lists }; // a run observes nothing unless it is told to
  const run = new Run(shape, prompt, readDecoder(decoder), observing);
  for (const [t, turn] of turns.entries()) {
    const plan = run.plan();
    assert.ok(plan, `case ${number} ended before step ${t}`);
    assert.equal(run.plan(), plan, "made once, the same until it is taken");
    same(toldPlan(plan), unpacked(turn.plan), `plan ${t} of case ${number}`);
    same(toldStep(run.take(unpacked(turn.reading))), unpacked(turn.step), `step ${t} of case ${number}`);
  }
  assert.equal(refused, null);
  assert.equal(run.plan(), null, `case ${number} goes on`);
}

const vectors = JSON.parse(readFileSync(0, "utf8"));
let turns = 0;
for (const [number, vector] of vectors.entries()) {
  turns += vector.turns.length;
  if (vector.refused === null) repeat(vector, number);
  else
    assert.throws(() => repeat({ ...vector, refused: null }, number), { name: "RangeError", message: vector.refused });
}
const refused = vectors.filter((vector) => vector.refused !== null).length;
console.log(JSON.stringify({ cases: vectors.length, turns, refused }));
