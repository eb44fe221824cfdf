// What the page offers of a race as pictures: a video, and a picture of its end.

import { download, h, percent, setText } from "../dom.js";
import { palette } from "../stage/theme.js";
import { film } from "./film.js";
import { Poster, WIDTH } from "./poster.js";

const PICTURE_WIDTH = 1600;

/** The race's end as a PNG. */
export function picture(trace, colours) {
  const canvas = document.createElement("canvas");
  const poster = new Poster(canvas, trace, colours, { scale: PICTURE_WIDTH / WIDTH, texts: true });
  poster.draw(trace.lanes.map(({ count }) => count - 1));
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export class Pictures {
  constructor() {
    this.bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the video" });
    this.said = h("span");
    const cancel = h("button.sl-small", { onclick: () => this.stopper.abort() }, "Cancel");
    this.node = h("div.sl-filming", { hidden: true }, this.bar, this.said, cancel);
  }

  #colours() {
    return palette(this.node.closest(".sl-stage"));
  }

  async png(trace, name) {
    download(`${name}.png`, "image/png", await picture(trace, this.#colours()));
  }

  /** Makes and offers a video; gives what is said then. */
  async video(trace, name) {
    this.stopper?.abort();
    this.stopper = new AbortController();
    const { signal } = this.stopper;
    this.node.hidden = false;
    const onProgress = (part) => {
      this.bar.value = part;
      setText(this.said, `Making the video, ${percent(part)}.`);
    };
    try {
      const made = await film(trace, this.#colours(), { onProgress, signal });
      if (!made) return "The video was cancelled.";
      download(`${name}.webm`, "video/webm", made);
      return "";
    } finally {
      if (this.stopper.signal === signal) this.node.hidden = true; // else another one has begun
    }
  }
}
