import assert from "node:assert/strict";
import test from "node:test";

import { fillReplay, parseTrace, toCsv } from "../../assets/js/share.js";
import { TraceError } from "../../assets/js/trace.js";
import { byHand, small } from "./small.js";

const table = (document) => toCsv(parseTrace(JSON.stringify(document))).join("");

test("the table has a row per contestant, step and position, under the names shown", () => {
  const lines = table(small()).split("\n");
  assert.equal(lines.length, 1 + 2 * 3 * 4 + 1); // the head, and what follows the last line's end
  const rows = lines.filter((line) => line.startsWith(`"'=Locks",1,`) || line.startsWith(`"All",0,3`));
  assert.deepEqual(rows, [
    `"All",0,3,masked,,,1,inf,0,,1,100,100`,
    `"'=Locks",1,0,resting,10,"Once",0,,,,0.5,80,100`,
    `"'=Locks",1,1,locked,11," upon",1,0.5,0.5,,0.5,80,100`,
    `"'=Locks",1,2,active,12,"'=a",1,0.5,0.5,,0.5,80,100`,
    `"'=Locks",1,3,active,14,"A9",1,0.5,0.5,,0.5,80,100`,
  ]);
  const resting = table(byHand())
    .split("\n")
    .find((line) => line.startsWith(`"By hand",1,2,`));
  assert.equal(resting, `"By hand",1,2,masked not computed,,,0,,,,0.5,60,100`);
});

test("a commit error stands in the row of its commit", () => {
  const document = small();
  for (const record of document.records) record.commit_error = record.unmasked.map(() => 0.125);
  const filled = table(document)
    .split("\n")
    .filter((line) => line.split(",").at(-4) === "0.125");
  assert.equal(filled.length, document.records.flatMap(({ unmasked }) => unmasked).length);
});

test("no cell is a formula, and quotes are doubled", () => {
  const cell = (piece) => table({ ...small(), pieces: { 10: piece } }).match(/0,0,\w+,10,([^,]*)/)[1];
  const cells = ["=1", "+1", "-1", "@a", '"b"', "1=1"].map(cell);
  assert.deepEqual(cells, [`"'=1"`, `"'+1"`, `"'-1"`, `"'@a"`, `"""b"""`, `"1=1"`]);
});

test("the replay holds the document, whatever it says", () => {
  const document = { piece: "</script>\u2028\u2029$&$1" };
  const page = fillReplay("<p>__SURELOCK_TRACE__</p>", document);
  const held = page.slice("<p>".length, -"</p>".length);
  assert.doesNotMatch(held, /[<\u2028\u2029]/);
  assert.deepEqual(JSON.parse(held), document);
});

test("a file that is no trace is refused in one sentence", () => {
  for (const text of [
    "",
    "{",
    "null",
    "[]",
    '{"format":"surelock-trace","version":1}',
    '{"format":"surelock-trace","version":2}',
  ])
    assert.throws(
      () => parseTrace(text),
      (error) => error instanceof TraceError && /^[A-Z][^.]+\.$/.test(error.message),
      text,
    );
});
