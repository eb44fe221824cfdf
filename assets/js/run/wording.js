// Sentences about the current run.

import { count } from "../dom.js";

export const ONE_WAITS = "One of your runs waits for the device already: cancel it first.";
export const FILLING = "The settings are still on their way: the run starts once they are here.";

/** A warning for a prompt whose words the model cannot know. knows: the knowledge of the model in words. */
export const foreignText = (knows = "") =>
  `${knows ? `This model knows ${knows}. It` : "This model"} reads this prompt almost byte by byte: expect nonsense.`;

const MOST_A_STEP = 4; // tokens

/** A quiet warning about the result of the next run, a sentence, or "". */
export function warningOf({ rare, length, steps, temperature }) {
  if (rare) return "This model knows few of these words: expect odd ones.";
  if (steps && length > MOST_A_STEP * steps)
    return `With more than ${MOST_A_STEP} tokens a step, words that are written together may not fit each other.`;
  return temperature > 1 ? "At a temperature above 1 unlikely words are written often." : "";
}

/** A sentence about the step that a link names, "" if it is the last one. The link's run is shown at its end. */
export function lookedFor({ step }, { race: { last } }) {
  if (step === undefined || step === last) return "";
  return `The link points at step ${step + 1}${step > last ? `, and this run has ${last + 1}` : ""}.`;
}

const megabytes = (bytes) => Math.round(bytes / 1e6);
/** A sentence about the loading of the decoder. got, all: bytes. */
export const fetching = ({ got, all }) =>
  got < all ? `Fetching the decoder: ${megabytes(got)} of ${megabytes(all)} MB` : "Starting the decoder …";

/** Seconds as ", about 40 s", rounded to five seconds: no estimate is more precise. */
export function about(seconds) {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 5) return ", a few seconds";
  if (seconds < 90) return `, about ${5 * Math.round(seconds / 5)} s`;
  return `, about ${Math.round(seconds / 60)} min`;
}

/** A sentence about a waiting run, "" if it begins. place: the number of runs before it. */
export const waitingText = ({ place, seconds }) =>
  place ? `Waiting for the device: ${count(place, "run")} before yours${about(seconds)}.` : "";
