// Export and import. Everything is made in the browser; a live run's full-precision trace comes from the server, keyed by the run's id.

import { download, h, setText } from "./dom.js";
import { LANES, STATES, Trace, TraceError } from "./trace.js";

const MOST_BYTES = 200 * 2 ** 20;
const HOLE = "__SURELOCK_TRACE__"; // where surelock/trace/replay.py leaves room for the trace

const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;

/** One row per decoder, step and position, as a list of texts (a long run is too much for one). Cells that a spreadsheet would run as a formula begin with an apostrophe. */
export function toCsv(trace) {
  const parts = [
    "decoder,step,position,state,token,piece,computed,kl,confidence,step_seconds,step_flops,step_baseline_flops\n",
  ];
  for (const key of LANES) {
    const lane = trace[key];
    const names = new Map();
    for (let t = 0; t < lane.count; t++) {
      const rows = [];
      const states = lane.row(t);
      const { seconds, flops, baselineFlops } = lane.steps[t];
      for (let p = 0; p < lane.n; p++) {
        const shown = lane.unmaskStep[p] <= t;
        const id = shown ? lane.token[p] : "";
        const at = t * lane.n + p;
        const computed = !Number.isNaN(lane.confidence[at]);
        if (shown && !names.has(id)) {
          const name = trace.pieces.name(id);
          names.set(id, quoted(/^[=+\-@\t\r]/.test(name) ? `'${name}` : name));
        }
        const kl = lane.kl[at] === Infinity ? "inf" : lane.kl[at];
        rows.push(
          [
            key,
            t,
            p,
            STATES[states[p]],
            id,
            shown ? names.get(id) : "",
            computed ? 1 : 0,
            computed ? kl : "",
            computed ? lane.confidence[at] : "",
            seconds,
            flops,
            baselineFlops,
          ].join(","),
        );
      }
      parts.push(`${rows.join("\n")}\n`);
    }
  }
  return parts;
}

/** The replay page with this document inside. "<" is escaped so that no token can end the script element that holds it. */
export function fillReplay(shell, document) {
  const json = JSON.stringify(document)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  return shell.replace(HOLE, () => json);
}

/** Parses the text of an imported file. Throws TraceError. */
export function parseTrace(text) {
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    throw new TraceError("This file is not JSON, so it is not a trace.");
  }
  try {
    return Trace.parse(document);
  } catch (error) {
    if (error instanceof TraceError) throw error;
    throw new TraceError("The trace is damaged: a record has not the parts it should have.");
  }
}

export class Share {
  /** source.document(trace), source.shell(), source.link(trace): what the page offers; absent ones hide their buttons. onImport(trace), onProblem(text). */
  constructor({ source, onImport }) {
    Object.assign(this, { source, onImport });
    this.said = h("p", { class: "sl-hint", role: "status" });
    const button = (label, action, hint) =>
      h(
        "button",
        { type: "button", class: "sl-wide", onclick: () => this.#run(action) },
        h("strong", {}, label),
        h("span", {}, hint),
      );
    this.file = h("input", {
      type: "file",
      accept: ".json,application/json",
      class: "sl-file",
      id: "sl-import",
      onchange: () => this.#run(() => this.#import()),
    });
    this.node = h(
      "div",
      { class: "sl-share" },
      h(
        "div",
        { class: "sl-share-buttons" },
        button(
          "Trace (JSON)",
          () => this.#json(),
          "Everything, at full precision. Opens here again, and in surelock.read_trace.",
        ),
        button(
          "Steps (CSV)",
          () => download(`${this.#name()}.csv`, "text/csv", toCsv(this.trace)),
          "One row per decoder, step and position.",
        ),
        source.shell &&
          button("Replay (HTML)", () => this.#replay(), "One file that plays this run with no server and no network."),
        source.link &&
          button("Link to these settings", () => this.#link(), "Reopens this page with the same prompt and settings."),
      ),
      onImport && h("div", { class: "sl-import" }, h("label", { for: "sl-import" }, "Open a trace"), this.file),
      this.said,
    );
  }

  load(trace) {
    this.trace = trace;
  }

  #name() {
    return `surelock-${(this.trace.header.created ?? "run").replace(/[^0-9A-Za-z]+/g, "-").slice(0, 24)}`;
  }

  async #run(action) {
    if (!this.trace && action !== undefined && !this.file.files?.length)
      return setText(this.said, "There is no run to export yet.");
    try {
      setText(this.said, "Working …");
      setText(this.said, (await action()) || "Done.");
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      setText(this.said, error.message);
    }
  }

  async #document() {
    const exact = this.trace.document ?? (await this.source.document(this.trace));
    this.rough = exact
      ? ""
      : "The server no longer keeps this run: exported at the precision of the stream, without likely tokens.";
    return exact ?? this.trace.toDocument();
  }

  async #json() {
    download(`${this.#name()}.json`, "application/json", JSON.stringify(await this.#document()));
    return this.rough;
  }

  async #replay() {
    const [shell, document] = await Promise.all([this.source.shell(), this.#document()]);
    if (!shell) throw new TraceError("The server could not make the replay page just now.");
    download(`${this.#name()}.html`, "text/html", fillReplay(shell, document));
    return this.rough;
  }

  async #link() {
    const link = this.source.link(this.trace);
    this.said.replaceChildren(h("a", { href: link }, link));
    try {
      await navigator.clipboard.writeText(link);
      return `Copied: ${link}`;
    } catch {
      return link;
    }
  }

  async #import() {
    const [file] = this.file.files;
    if (!file) return "";
    if (file.size > MOST_BYTES) throw new TraceError("This file is too large to be a trace (over 200 MB).");
    const text = await file.text();
    this.file.value = "";
    this.onImport(parseTrace(text));
    return "Opened.";
  }
}
