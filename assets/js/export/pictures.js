// Exports a race as a picture or a video. The frames of the video are drawn one by one as posters and encoded by the
// browser. The race is not recorded while it plays: a busy machine takes longer, but misses no frame.

import { download, h, percent, setText } from "../dom.js";
import { page } from "../run/state.js";
import { palette } from "../stage/theme.js";
import { TraceError } from "../trace/damage.js";
import { HEIGHT, lasts, Poster, stepsAfter, WIDTH } from "./poster.js";
import { webm } from "./webm.js";

const PICTURE_WIDTH = 1600;
const FRAMES = 12; // frames a second, about the number of steps
const RACE_MS = 11_000;
const FILM_MS = RACE_MS + 3000; // after the race the verdict is shown
const KEY_FRAME = 4 * FRAMES; // the number of frames from one key frame to the next
const TIMES = Array.from({ length: (FRAMES * RACE_MS) / 1000 }, (_, i) => (1000 * i) / FRAMES);
TIMES.push(RACE_MS, FILM_MS - 1000 / FRAMES); // two frames suffice for the verdict, which does not move
const SETTINGS = { codec: "vp8", width: WIDTH, height: HEIGHT, framerate: FRAMES, bitrate: 3_000_000 };

function picture(trace, colours) {
  const canvas = document.createElement("canvas");
  const poster = new Poster(canvas, trace, colours, { scale: PICTURE_WIDTH / WIDTH, texts: true });
  poster.draw(trace.lanes.map(({ count }) => count - 1));
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/**
 * A promise of a WebM file of the race as a Blob, or of null if it was cancelled.
 * guesses: see labelsOf. onProgress(share): called with 0 to 1. signal: the signal of an AbortController.
 * Throws TraceError if the browser cannot make a video.
 */
async function film(trace, colours, { guesses, onProgress, signal }) {
  if (!globalThis.VideoEncoder)
    throw new TraceError(
      "This browser makes no video here; newer ones do, over HTTPS or on the machine that serves the page.",
    );
  if (!(await VideoEncoder.isConfigSupported(SETTINGS)).supported)
    throw new TraceError("This browser cannot encode a video.");
  const frames = [];
  let failure = null;
  const encoder = new VideoEncoder({
    output: (chunk) => {
      const data = new Uint8Array(chunk.byteLength);
      chunk.copyTo(data);
      frames.push({ ms: Math.round(chunk.timestamp / 1000), key: chunk.type === "key", data });
    },
    error: (error) => {
      failure = error;
    },
  });
  encoder.configure(SETTINGS);
  const canvas = document.createElement("canvas");
  const poster = new Poster(canvas, trace, colours, { guesses });
  const all = lasts(trace);
  for (const [i, ms] of TIMES.entries()) {
    if (signal.aborted || failure) break;
    const over = ms >= RACE_MS;
    poster.draw(stepsAfter(trace, over ? Infinity : (all * ms) / RACE_MS));
    const frame = new VideoFrame(canvas, { timestamp: Math.round(1000 * ms), duration: Math.round(1e6 / FRAMES) });
    encoder.encode(frame, { keyFrame: i % KEY_FRAME === 0 || over });
    frame.close();
    onProgress((i + 1) / TIMES.length);
    do await new Promise((resolve) => setTimeout(resolve));
    while (encoder.encodeQueueSize > 2 && !failure);
  }
  if (!signal.aborted && !failure)
    await encoder.flush().catch((error) => {
      failure = error;
    });
  if (failure) throw new TraceError("The browser failed to encode the video.");
  encoder.close();
  if (signal.aborted) return null;
  return new Blob(webm(frames, { width: WIDTH, height: HEIGHT, ms: FILM_MS }), { type: "video/webm" });
}

/** Makes videos and pictures, and shows the progress of a video. */
export class Pictures {
  constructor() {
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the video" });
    this.progress = h("span");
    const cancel = h("button.sl-small", { onclick: () => this.stopper.abort() }, "Cancel");
    this.node = h("div.sl-filming", { hidden: true }, this.bar, this.progress, cancel);
  }

  #colours() {
    return palette(this.node.closest(".sl-stage"));
  }

  async png(trace, name) {
    download(`${name}.png`, "image/png", await picture(trace, this.#colours()));
  }

  /** Makes a video and offers it as a file. Returns the sentence to show. */
  async video(trace, name) {
    this.stopper?.abort();
    this.stopper = new AbortController();
    const { signal } = this.stopper;
    this.node.hidden = false;
    const onProgress = (part) => {
      this.bar.value = part;
      setText(this.progress, `Making the video, ${percent(part)}.`);
    };
    try {
      const video = await film(trace, this.#colours(), { guesses: page.now.guesses, onProgress, signal });
      if (!video) return "The video was cancelled.";
      download(`${name}.webm`, "video/webm", video);
      return "";
    } finally {
      if (this.stopper.signal === signal) this.node.hidden = true; // else another video has been started
    }
  }
}
