// A video of the race by each lane's own clock: the poster, drawn anew many times a second and recorded by the browser.

import { Poster, raceSeconds, stepsAfter } from "./poster.js";
import { TraceError } from "./trace.js";

const FRAMES = 25; // a second
const RACE_MS = 11_000;
const END_MS = 3000; // the verdict stays so long
const KINDS = ["video/webm;codecs=vp8", "video/webm", "video/mp4"];

/** What this browser records, or undefined where it records nothing. */
const kind = () => globalThis.MediaRecorder && KINDS.find((each) => MediaRecorder.isTypeSupported(each));

/** {blob, ending}; null where it was cancelled. onProgress(from 0 to 1), signal: of an AbortController. Throws TraceError. */
export async function film(trace, colours, { onProgress, signal, raceMs = RACE_MS, endMs = END_MS }) {
  const type = kind();
  const canvas = document.createElement("canvas");
  if (!type || !canvas.captureStream) throw new TraceError("This browser cannot record a video.");
  const poster = new Poster(canvas, trace, colours);
  poster.draw(stepsAfter(trace, -1));
  const recorder = new MediaRecorder(canvas.captureStream(FRAMES), { mimeType: type, videoBitsPerSecond: 4_000_000 });
  const parts = [];
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const over = new Promise((resolve) => recorder.addEventListener("stop", resolve, { once: true }));
  recorder.start(1000);
  await play(poster, { onProgress, signal, raceMs, endMs });
  recorder.stop();
  await over;
  for (const track of recorder.stream.getTracks()) track.stop();
  if (signal.aborted) return null;
  return { blob: new Blob(parts, { type: type.split(";")[0] }), ending: type.match(/\/(\w+)/)[1] };
}

/** Draws the race, then its end, for as long as they are to last. */
function play(poster, { onProgress, signal, raceMs, endMs }) {
  const { trace } = poster;
  const all = raceSeconds(trace);
  const begun = performance.now();
  return new Promise((resolve) => {
    const timer = setInterval(() => {
      const now = performance.now() - begun;
      onProgress(Math.min(1, now / (raceMs + endMs)));
      const raced = now >= raceMs;
      poster.draw(raced ? trace.lanes.map(({ count }) => count - 1) : stepsAfter(trace, (all * now) / raceMs));
      if (now < raceMs + endMs && !signal.aborted) return;
      clearInterval(timer);
      resolve();
    }, 1000 / FRAMES);
  });
}
