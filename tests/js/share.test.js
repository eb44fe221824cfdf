import assert from "node:assert/strict";
import test from "node:test";

import { Field } from "../../assets/js/export/poster.js";
import { fillReplay, toCsv } from "../../assets/js/export/share.js";
import { parseTrace } from "../../assets/js/trace/reading.js";
import { open, pen } from "./browser.js";
import { byHand, pairs, read, small } from "./small.js";

const table = (document) => toCsv(parseTrace(JSON.stringify(document))).join("");

test("the table has a row per lane, step and position, under the names shown", () => {
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

test("the table's columns are named, and any token has its name", () => {
  const columns =
    "lane,step,position,state,token,piece,computed,kl,confidence,commit_error,step_seconds,step_flops,step_baseline_flops";
  assert.equal(table(small()).split("\n")[0], columns);
  const document = { ...small(), pieces: { 0: "nul", 10: "a" } };
  document.records[0].unmasked = [[2, 0]];
  assert.match(table(document), /^"All",0,2,active,0,"■ end of the text",1/m);
});

test("of several commits in a step each has its own error", () => {
  const document = small();
  const [, first] = document.records;
  Object.assign(first, {
    unmasked: pairs(3, 13, 2, 12),
    commit_error: [0.75, null],
  });
  const errors = (name) =>
    table(document)
      .split("\n")
      .filter((line) => line.startsWith(`"${name}",0,`))
      .map((line) => line.split(",").at(-4));
  assert.deepEqual(errors("'=Locks"), ["", "", "", "0.75"]);
  first.commit_error = [0.75, 0.5];
  assert.deepEqual(errors("'=Locks"), ["", "", "0.5", "0.75"]);
  assert.deepEqual(errors("All"), ["", "", "", ""]);
  const second = document.records[3];
  Object.assign(second, { unmasked: [[3, 14]], commit_error: [0.125] });
  assert.match(table(document), /^"'=Locks",1,3,.*,0\.125,0\.5,80,100$/m);
});

test("no cell is a formula, and quotes are doubled", () => {
  const cell = (piece) => table({ ...small(), pieces: { 10: piece } }).match(/0,0,\w+,10,([^,]*)/)[1];
  const cells = ["=1", "+1", "-1", "@a", '"b"', "1=1", "'s"].map(cell);
  assert.deepEqual(cells, [`"'=1"`, `"'+1"`, `"'-1"`, `"'@a"`, `"""b"""`, `"1=1"`, `"''s"`]);
  for (const name of ["\n=cmd()", "＝1+1", " \u200b+1", "\ufeff=1", "－2", "\tx"]) {
    const document = small();
    document.header.lanes[1].name = name;
    assert.ok(table(document).includes(`"'${name}"`), JSON.stringify(name));
  }
});

test("the replay holds the document, whatever it says", () => {
  const document = { piece: "<!-- <script></script>\u2028\u2029$&$1" };
  const page = fillReplay("<p>__SURELOCK_TRACE__</p>", document);
  const held = page.slice("<p>".length, -"</p>".length);
  assert.doesNotMatch(held, /[<\u2028\u2029]/);
  assert.deepEqual(JSON.parse(held), document);
});

test("an export names exactly the lanes whose records are rounded", async () => {
  const { stage, source, document, find, pass } = await open("", { recorded: small() });
  const { lanes } = stage.trace;
  source.document = async (run) => (run === "kept" ? small() : null);
  const button = [...document.querySelectorAll(".sl-share button")].find((each) =>
    each.textContent.startsWith("Trace"),
  );
  for (const runs of [
    ["kept", "kept"],
    ["kept", "gone"],
    ["gone", "kept"],
    ["gone", "gone"],
  ]) {
    for (const [i, run] of runs.entries()) lanes[i].source = { run };
    button.click();
    await pass(10);
    const told = find(".sl-share > .sl-hint").textContent;
    const gone = lanes.filter((_, i) => runs[i] === "gone");
    if (gone.length) assert.ok(told.includes(`: ${gone.map(({ name }) => name).join(", ")} exported`), told);
    else assert.equal(told, "Done.");
  }
});

test("a picture compares with the reference that a visitor has chosen", async () => {
  const { stage } = await open("", { recorded: read("assets/runs/too-early.json") });
  const { trace, colours } = stage;
  stage.refer(trace.lanes[2]);
  const field = new Field(trace, colours, { x: 0, y: 0, width: 1600, height: 600 }, 1);
  const compared = field.sides.map(({ grid }) => {
    const views = [];
    grid.draw = (view) => views.push(view);
    return views;
  });
  const steps = trace.lanes.map(() => 9);
  field.draw(pen(), steps);
  const reference = trace.lanes[2].tokens(9);
  assert.deepEqual(
    compared.map(([{ other }]) => other && [...other]),
    [0, 1, 2, 3].map((i) => (i === 2 ? null : [...reference])),
  );
});
