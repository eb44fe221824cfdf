import assert from "node:assert/strict";
import test from "node:test";

import { about, waitingText } from "../../assets/js/run/wording.js";

test("a place in the queue is a sentence with how long it takes, and none where it begins", () => {
  const long = (place, seconds) => waitingText({ place, seconds });
  assert.deepEqual(
    [long(12, 120), long(1, 10), long(1, null), long(0, 0)],
    [
      "Waiting for the device: 12 runs before yours, about 2 min.",
      "Waiting for the device: 1 run before yours, about 10 s.",
      "Waiting for the device: 1 run before yours.",
      "",
    ],
  );
});

test("an estimate is told no better than to five seconds", () => {
  assert.deepEqual([null, undefined, Number.NaN, 0, 4.9, 5, 12.4, 12.5, 89, 90, 150].map(about), [
    "",
    "",
    "",
    ", a few seconds",
    ", a few seconds",
    ", about 5 s",
    ", about 10 s",
    ", about 15 s",
    ", about 90 s",
    ", about 2 min",
    ", about 3 min",
  ]);
});
