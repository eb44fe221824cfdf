// Export and import. The browser makes all files. Only the full-precision trace of a live run comes from the server,
// which finds it by the run's id.

import { download, h } from "../dom.js";
import { leftOut } from "../run/address.js";
import { page, say } from "../run/state.js";
import { keepRun } from "../run/visit.js";
import { TraceError } from "../trace/damage.js";
import { parseTrace } from "../trace/reading.js";
import { LOCKED, STATES } from "../trace/states.js";
import { Pictures } from "./pictures.js";

const MOST_BYTES = 200 * 2 ** 20;
// Texts in surelock/trace/replay.html: the place of the trace, the element of the trace, and the policy for scripts.
const HOLE = "__SURELOCK_TRACE__";
const TRACE = '<script id="sl-trace"';
const SCRIPTS = "script-src 'unsafe-inline';";
const DECODES = "script-src 'unsafe-inline' blob: 'wasm-unsafe-eval'; worker-src blob:;";

const HINTS = {
  trace:
    "Everything, at full precision while the run is kept. It opens here again, and in Python with surelock.read_trace.",
  csv: "One row per lane, step and token.",
  replay: "One file that plays this run with no server and no network.",
  decodes: "The same with the decoder inside, about 23 MB: words can be touched in it, with no network either.",
  video: "The race by the clock and its verdict, made in this browser (WebM).",
  picture: "The end of the race, with both texts.",
  link: "Reopens this page with the same prompt, settings, step and pins.",
};

const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;

/**
 * Matches texts that a spreadsheet would run as a formula, also after white space and with full-width signs. They get
 * an apostrophe. A text that begins with an apostrophe gets another one: without the first apostrophe a cell is the
 * text.
 * surelock/trace/csv_table.py has the rule, too.
 */
const FORMULA = /^(?:[\s\p{C}]*[=+\-@＝＋－＠]|['\t\r\n])/u;
/** A text as a quoted CSV cell that no spreadsheet runs as a formula. */
export const harmless = (text) => quoted(FORMULA.test(text) ? `'${text}` : text);

const COLUMNS =
  "lane,step,position,state,token,piece,computed,kl,confidence,commit_error,step_seconds,step_flops,step_baseline_flops";

/** The CSV with one row per lane, step and position, as a list of texts: a long run is too long for one text. */
export function toCsv(trace) {
  const parts = [`${COLUMNS}\n`];
  for (const lane of trace.lanes) {
    const names = new Map();
    for (let t = 0; t < lane.count; t++) parts.push(`${csvRows(trace, lane, t, names).join("\n")}\n`);
  }
  return parts;
}

function csvRows(trace, lane, t, names) {
  const stateOf = (p) => (lane.isLocked(p, t) ? LOCKED : lane.row(t)[p]); // the state after the step
  const tokens = lane.tokens(t);
  const { seconds, flops, baselineFlops, unmasked } = lane.steps[t];
  const ofStep = [seconds, flops, baselineFlops];
  const errors = lane.records[t].commit_error ?? [];
  const name = harmless(lane.name);
  return Array.from({ length: lane.n }, (_, p) => {
    const id = tokens[p];
    if (id >= 0 && !names.has(id)) names.set(id, harmless(trace.pieces.name(id)));
    const token = id >= 0 ? [id, names.get(id)] : ["", ""];
    const at = t * lane.n + p;
    const kl = lane.kl[at] === Infinity ? "inf" : lane.kl[at];
    const values = Number.isNaN(lane.confidence[at]) ? [0, "", ""] : [1, kl, lane.confidence[at]];
    const error = errors[unmasked.indexOf(p)] ?? "";
    return [name, t, p, STATES[stateOf(p)].replace(",", ""), ...token, ...values, error, ...ofStep].join(",");
  });
}

/**
 * The replay page with a document inside. "<" is escaped, so that no token can end the script element of the document.
 * decoder: the script elements of `decoderInside`, or "". With a decoder, the page's policy allows what it needs.
 */
export function fillReplay(shell, document, decoder = "") {
  const json = JSON.stringify(document)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  const page = decoder && shell.replace(SCRIPTS, DECODES).replace(TRACE, () => `${decoder}\n${TRACE}`);
  return (page || shell).replace(HOLE, () => json);
}

/** The panel for export and import. */
export class Share {
  /**
   * source: the functions of the page that exports need: document(run), shell(), decoder(model), link(trace, view).
   * The button of a missing function is hidden.
   */
  constructor(stage, source) {
    Object.assign(this, { stage, source, pictures: new Pictures() });
    this.status = h("p.sl-hint", { role: "status" });
    this.quick = this.#quick();
    const onchange = () => this.#run(() => this.#import());
    this.file = h("input", { type: "file", accept: ".json,application/json", id: "sl-import", onchange });
    const open = h("div.sl-import", h("label", { for: "sl-import" }, "Open a trace"), this.file);
    this.node = h("div.sl-share", h("div.sl-share-buttons", this.#buttons()), this.pictures.node, open, this.status);
  }

  #buttons() {
    const { source } = this;
    const button = (label, action, hint) =>
      h("button.sl-wide", { onclick: () => this.#run(action) }, h("strong", label), h("span", hint));
    const csv = () => download(`${this.#name()}.csv`, "text/csv", toCsv(this.trace));
    return [
      button("Trace (JSON)", () => this.#json(), HINTS.trace),
      button("Steps (CSV)", csv, HINTS.csv),
      source.shell && button("Replay (HTML)", () => this.#replay(), HINTS.replay),
      source.decoder && button("Replay that decodes (HTML)", () => this.#replay(true), HINTS.decodes),
      button("Race (video)", () => this.#video(), HINTS.video),
      button("Picture (PNG)", () => this.#png(), HINTS.picture),
      source.link && button("Link to this run", () => this.#link(), HINTS.link),
    ];
  }

  #quick() {
    this.quickStatus = h("span", { role: "status" });
    const button = (label, action) => h("button.sl-small", { onclick: () => this.#run(action) }, label);
    const pictures = [button("Picture", this.#png), button("Video", this.#video)];
    return h("div", pictures, this.source.link ? button("Link", () => this.#link()) : null, this.quickStatus);
  }

  #png = () => this.pictures.png(this.trace, this.#name());
  #video = () => this.pictures.video(this.trace, this.#name());

  load(trace) {
    if (trace !== this.trace) this.#say(""); // the sentence was about another run
    this.trace = trace;
  }

  /** Shows a sentence. parts: a text, or a list of texts and of links {href}. */
  #say(parts) {
    const written = (part) => (part.href ? h("a", part, "the link to this run") : part);
    for (const node of [this.status, this.quickStatus]) node.replaceChildren(...[parts].flat().map(written));
  }

  #name() {
    return `surelock-${(this.trace.header.created ?? "run").replace(/[^0-9A-Za-z]+/g, "-").slice(0, 24)}`;
  }

  async #run(action) {
    if (!this.trace && !this.file.files?.length) return this.#say("There is no run to export yet.");
    try {
      this.#say("Working …");
      this.#say((await action()) || "Done.");
    } catch (error) {
      this.#say(error instanceof TraceError ? error.message : "This did not work; the trace may be damaged.");
      if (!(error instanceof TraceError)) throw error;
    }
  }

  /** The document of the trace. A lane's records have full precision if its source still has them. */
  async #document() {
    const { lanes } = this.trace;
    const runs = new Map();
    for (const { source } of lanes)
      if (source?.run && !runs.has(source.run)) runs.set(source.run, this.source.document?.(source.run) ?? null);
    const exact = new Map();
    const pieces = {};
    for (const { id, source } of lanes) {
      const document = source?.document ?? (await runs.get(source?.run));
      if (!document) continue;
      const records = document.records.filter(({ lane }) => lane === id);
      exact.set(id, records);
      Object.assign(pieces, document.pieces);
    }
    const missing = lanes.filter(({ id }) => !exact.has(id)).map(({ name }) => name);
    this.rough = missing.length
      ? `The run is no longer kept where it was computed: ${missing.join(", ")} exported with rounded KL and confidence, and without likely tokens.`
      : "";
    return this.trace.toDocument(exact, pieces, this.stage.view);
  }

  async #json() {
    download(`${this.#name()}.json`, "application/json", JSON.stringify(await this.#document()));
    return this.rough;
  }

  async #replay(decodes = false) {
    const { model } = this.trace.header;
    const [shell, document] = await Promise.all([this.source.shell(), this.#document()]);
    if (!shell) throw new TraceError("The server could not make the replay page just now.");
    const decoder = decodes ? await this.source.decoder(model.name) : "";
    if (decoder === false)
      throw new TraceError(`A browser cannot decode the model “${model.name}”: export the other replay.`);
    if (decoder === null)
      throw new TraceError("The decoder could not be fetched just now: try again, or export the other replay.");
    download(`${this.#name()}.html`, "text/html", fillReplay(shell, document, decoder));
    return this.rough;
  }

  async #link() {
    const href = this.source.link(this.trace, this.stage.view);
    const linkParts = [{ href }, ` ${leftOut(this.trace)}`.trimEnd()];
    try {
      await navigator.clipboard.writeText(href);
      return ["Copied ", ...linkParts];
    } catch {
      return ["Here is ", ...linkParts];
    }
  }

  async #import() {
    const [file] = this.file.files;
    if (!file) return "";
    this.file.value = ""; // else choosing the same file again would be no change
    if (file.size > MOST_BYTES) throw new TraceError("This file is too large to be a trace (over 200 MB).");
    const trace = parseTrace(await file.text());
    const { stage } = this;
    keepRun(trace, "imported");
    stage.show(trace, { label: "Imported run:" });
    say(trace.view ? stage.look(trace.view, "the file") : "");
    page.set({ looked: {} });
    return "Opened.";
  }
}
