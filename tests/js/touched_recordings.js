// Touches recorded runs as the page does: `node tests/js/touched_recordings.js FOLDER FILE...`, asked by
// tests/test_web_touched.py. Nothing of a recording is kept, so the lane as it was is computed from its first step, too. Prints,
// for each recording, {events, tokens, repeats} after each press: what the page asks for, the touched lane's tokens at the end,
// and whether the lane as it was came again as it is recorded.

import assert from "node:assert/strict";
import { race } from "../../assets/js/decode/race.js";
import { Recorder } from "../../assets/js/decode/recorder.js";
import { LiveRun } from "../../assets/js/run/live_run.js";
import { touchOf } from "../../assets/js/touch/touched_runs.js";
import { readTrace } from "../../assets/js/trace/reading.js";
import { touchable, touchedName, touchesOf, withEvent } from "../../assets/js/trace/touches.js";
import { decoderFor } from "./library.js";

const { asked, engine } = await decoderFor(process.argv.slice(2));
const { shape, recordings } = asked;

/** Decodes the lanes of a trace that the page shows, and adds to it what comes, as a run on its way does. Gives whether
 * each step that is on show came again as it is. */
async function decode(trace) {
  const { header } = trace;
  const lanes = trace.lanes.map(({ decoder }) => decoder);
  const recorder = new Recorder({ ...header, lanes }, (ids) => Object.fromEntries(ids.map((id) => [id, `#${id}`])));
  const run = new LiveRun({ id: "run", trace });
  let repeats = true;
  for await (const turn of race(engine, shape, header.prompt_tokens, lanes)) {
    if (!turn.length) continue;
    const message = recorder.take(turn);
    if (message.errors) continue;
    repeats &&= !run.take(message).other;
  }
  return repeats;
}

for (const { document, presses } of recordings) {
  const recording = readTrace(document);
  const [lane] = recording.lanes;
  const found = [];
  let shown = lane; // the lane that is pressed: first the recorded one, then the touched one
  let events = [];
  for (const { cell, step, token } of presses) {
    const { writes } = touchable(recording, shown, cell, step);
    assert.notEqual(writes, null, "a word can be chosen there");
    events = withEvent(events, { step: writes, kind: "write", position: cell, token });
    const { trace, child } = touchOf(recording, lane, events, { of: lane, from: 0, name: touchedName(lane, events) });
    assert.equal(touchesOf(trace).touched, child);
    const repeats = await decode(trace);
    assert.ok(child.endsAt(child.count - 1));
    found.push({ events, tokens: [...child.tokens(child.count - 1)], repeats });
    shown = child;
  }
  console.log(JSON.stringify(found));
}
