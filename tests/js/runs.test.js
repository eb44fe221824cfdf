import assert from "node:assert/strict";
import test from "node:test";
import {
  leftOut,
  readAddress,
  sameSettings,
  settingsOf,
  settingsOfForm,
  writeAddress,
} from "../../assets/js/run/address.js";
import { embeddedLanes } from "../../assets/js/run/embed.js";
import { promptOf, textOf } from "../../assets/js/trace/prose.js";
import { everything, results } from "../../assets/js/trace/results.js";
import { Trace } from "../../assets/js/trace/trace.js";
import { decoder, small } from "./small.js";

test("an embedded page shows the lanes that are asked for", () => {
  const trace = Trace.parse(small());
  const shown = (query) => embeddedLanes(trace, new URLSearchParams(query));
  assert.equal(shown("embed"), trace);
  const one = shown("embed&alone=1");
  assert.deepEqual([one.lanes, one.reference, trace.lanes.length], [[trace.lanes[1]], trace.lanes[1], 2]);
  assert.equal(embeddedLanes(one, new URLSearchParams("alone=1")), one);
  assert.equal(embeddedLanes(trace), trace);
});

test("an address says what is looked at, and what of it cannot be read", () => {
  const read = (search) => {
    const { settings, view, problem } = readAddress(search);
    return [settings, view, problem];
  };
  assert.deepEqual(read(""), ["", {}, ""]);
  assert.deepEqual(read("?step=7&pins=3,5&race=steps&present&embed&alone=1"), [
    "",
    { step: 6, pins: [3, 5], byClock: false },
    "",
  ]);
  assert.deepEqual(read("?prompt=a+b&step=1"), ["prompt=a+b", { step: 0 }, ""]);
  for (const step of ["0", "-1", "x", "1.5", ""])
    assert.deepEqual(read(`?step=${step}`), ["", {}, "The link is damaged at step; the rest of it holds."]);
  const [, view, problem] = read("?step=2&pins=1,x&race=fast");
  assert.deepEqual(view, { step: 1, pins: [1] });
  assert.equal(problem, "The link is damaged at pins and race; the rest of it holds.");
});

test("a run's link asks for its chat template as the form does", () => {
  const document = small();
  for (const [chat, asked] of [
    [undefined, null],
    [true, null],
    [false, "false"],
  ]) {
    document.header.chat = chat;
    assert.equal(new URLSearchParams(settingsOf(Trace.parse(document))).get("chat"), asked);
    const form = { model: "m", prompt: "p", chat, lanes: '{"lanes":[]}' };
    assert.equal(new URLSearchParams(settingsOfForm(form)).get("chat"), asked);
  }
});

test("a link says what was done by hand, which it leaves out", () => {
  const document = small();
  assert.equal(leftOut(Trace.parse(document)), "");
  document.header.lanes[1].events = [{ step: 1, kind: "lock", position: 0 }];
  const trace = Trace.parse(document);
  const without = "Events are not in this link, but in an exported trace: “=Locks”.";
  assert.equal(leftOut(trace), without);
  const alone = trace.withLanes([trace.lanes[1]]);
  assert.ok(!new URLSearchParams(settingsOf(alone)).has("lanes")); // an empty list would be damage
});

test("an address holds what differs from the page as it opens, and what it said of the page itself", () => {
  const here = "?embed=1&alone=1&present=1&lesson=work&page=2&__theme=dark&prompt=old&step=9";
  const written = writeAddress("prompt=a&model=m", { step: 0, pins: [3, 5], byClock: false, colour: "kl" }, here);
  const kept = "present=1&embed=1&alone=1&lesson=work&page=2&__theme=dark".split("&");
  const told = new URLSearchParams(written);
  assert.deepEqual(
    [...told].map((each) => each.join("=")).sort(),
    ["prompt=a", "model=m", ...kept, "step=1", "pins=3,5", "race=steps", "colour=kl"].sort(),
  );
  assert.deepEqual(readAddress(written), {
    settings: "prompt=a&model=m",
    view: { step: 0, pins: [3, 5], byClock: false, colour: "kl" },
    story: { touches: null, weights: "", tokens: "" },
    problem: "",
  });
  assert.equal(writeAddress("prompt=a", {}), "prompt=a");
  assert.equal(writeAddress("prompt=a", { step: -1, pins: [], byClock: true, colour: "state" }, ""), "prompt=a");
  assert.equal(writeAddress(`a=${"x".repeat(6998)}`, {}).length, 7000, "as long as it may be");
  assert.equal(writeAddress(`a=${"x".repeat(6999)}`, { step: 0 }), "step=1");
});

test("a link has the settings that are set, and the lanes as they were made", () => {
  const by = { kind: "everything" };
  const own = (id, more) =>
    decoder(id, id.toUpperCase(), by, { settings: { gen_length: 2, steps: null, seed: 0, note: "" }, ...more });
  const header = {
    model: { name: "m" },
    prompt_tokens: [9],
    mask_id: 1,
    lanes: [own("a"), own("b", { events: [] }), own("c", { events: [{ step: 1 }] }), own("d", { events: undefined })],
  };
  const told = new URLSearchParams(settingsOf({ header, reference: { decoder: own("a") } }));
  assert.deepEqual([...told.keys()], ["model", "prompt", "gen_length", "seed", "lanes"]);
  assert.deepEqual([told.get("prompt"), told.get("seed")], ["", "0"]);
  const ofBlank = (decoder) => {
    const query = settingsOf({ header: { ...header, prompt_tokens: [9, 1] }, reference: { decoder } });
    const link = new URLSearchParams(query);
    return [link.get("steps"), link.get("block_length")];
  };
  assert.deepEqual(ofBlank(own("a")), ["2", "2"], "as the form showed them");
  const chosen = own("a", { settings: { gen_length: 4, steps: 3, block_length: 2 } });
  assert.deepEqual(ofBlank(chosen), ["3", "2"], "as the run had them");
  const made = (name) => ({ name, compute: by, unmask: { kind: "low_confidence" } });
  assert.deepEqual(JSON.parse(told.get("lanes")), ["A", "B", "D"].map(made));
  const form = settingsOfForm({
    model: "m",
    prompt: "p",
    lanes: JSON.stringify({ lanes: [{ id: "x", ...made("A") }] }),
    seed: 1,
    steps: undefined,
  });
  const asked = { model: "m", prompt: "p", seed: "1", lanes: JSON.stringify([made("A")]) };
  assert.deepEqual(Object.fromEntries(new URLSearchParams(form)), asked);
  assert.equal(
    new URLSearchParams(settingsOf({ header: { ...header, prompt: "Once" }, reference: { decoder: own("a") } })).get(
      "prompt",
    ),
    "Once",
  );
});

test("what came of a lane is told in numbers, and of those beside the reference", () => {
  const trace = Trace.parse(small());
  const [all, locks] = trace.lanes;
  const rest = (lane) => results(trace, lane).filter(([name]) => name !== "Speed");
  assert.deepEqual(rest(locks), [
    ["Steps", "3"],
    ["Share of all FLOPs", "80.0 %"],
    ["Active ratio", "75.0 %"],
    ["Time", "2.00 s"],
    ["Choices changed by skipping rows", "–"],
    ["Text, compared with the reference", "the same text for the first word"],
  ]);
  assert.deepEqual(rest(all).slice(4), [
    ["Choices changed by skipping rows", "–"],
    ["Text, compared with the reference", "–"],
  ]);
  locks.steps[2].damage = { changed: 1, commits: 2, mean: 0.25 };
  assert.deepEqual(rest(locks)[4], ["Choices changed by skipping rows", "1 / 2 (0.25 nats)"]);
  assert.deepEqual(
    [promptOf(trace), promptOf({ header: { prompt: "" } }), textOf(trace, all, 1)],
    ["2 token ids", "", "=a\ufffd"],
  );
  const rows = new Map(everything(trace, locks));
  assert.deepEqual(
    ["Model", "Prompt", "Computes", "Time"].map((name) => rows.get(name)),
    ["m", "2 token ids", "lock", "2.00 s"],
  );
  assert.deepEqual(results(new Trace(small()), all), []);
});

test("two queries ask for the same run whatever their order", () => {
  assert.ok(sameSettings("a=1&b=2", "b=2&a=1"));
  for (const other of ["a=1", "a=1&b=3", "a=1&b=2&c=3"]) assert.ok(!sameSettings("a=1&b=2", other));
});
