import assert from "node:assert/strict";
import test from "node:test";
import { Recorder } from "../../assets/js/decode/recorder.js";
import { readTrace } from "../../assets/js/trace/reading.js";
import { every, raceOf } from "./small.js";

test("the record of a step that ends its text is one that the page reads", () => {
  const { header } = raceOf([every("All", [{}])]);
  const { length: n } = header;
  const recorder = new Recorder(header, (ids) => Object.fromEntries(ids.map((id) => [id, `${id}`])));
  const flags = (...positions) => Uint8Array.from({ length: n }, (_, p) => Number(positions.includes(p)));
  const names = ["newly_locked", "newly_masked", "taken_back", "newly_unlocked", "probed", "written", "masked"];
  const nothing = Object.fromEntries(names.map((name) => [name, flags()]));
  const values = (value) => new Float64Array(n).fill(value);
  const step = {
    ...nothing,
    ...{ index: 0, seconds: 1, flops: 1, baseline_flops: 1, shares: [] },
    computed: flags(...Array(n).keys()),
    newly_unmasked: flags(n - 2),
    ended: { filled: flags(n - 1), steps: 3 },
    tokens: new Int32Array(n).fill(7),
    kl: values(1),
    confidence: values(0.5),
    top_ids: new Int32Array(n).fill(9),
    top_probs: values(0.5),
  };
  recorder.record(header.lanes[0].id, step);
  const [lane] = readTrace(recorder.document()).lanes;
  assert.deepEqual([lane.token(n - 2, 0), lane.token(n - 1, 0)], [7, 7]);
});
