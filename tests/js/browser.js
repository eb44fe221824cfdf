// The page without a server in a browser that draws nothing: its scripts anew for each page, on a clock that moves when a
// test moves it, with a source of runs that a test speaks for.

import { readFileSync } from "node:fs";
import { build } from "esbuild";
import { Window } from "happy-dom";
import { DESCRIBED, FORM } from "./described.js";

const ROOT = new URL("../../", import.meta.url);
const read = (path) => readFileSync(new URL(path, ROOT), "utf-8");
const { outputFiles } = await build({
  entryPoints: [new URL("assets/js/site.js", ROOT).pathname],
  bundle: true,
  write: false,
  format: "iife",
  define: { "import.meta.url": '"http://here/scripts/site.js"' },
});
const [{ text: SCRIPT }] = outputFiles;
const LESSONS = ["1-unmasking", "7-own-rule"].map((name, i) => ({
  number: i + 1,
  ...JSON.parse(read(`assets/lessons/${name}.json`)),
}));
/** The recorded run. */
export const STORIES = JSON.parse(read("assets/runs/stories.json"));
const NAMES = ["document", "location", "history", "navigator", "sessionStorage", "Node", "MouseEvent", "KeyboardEvent"];
NAMES.push("MutationObserver", "DOMException", "Event", "HTMLElement", "innerHeight", "innerWidth", "scrollY");
const FUNCTIONS = ["addEventListener", "removeEventListener", "dispatchEvent", "scrollBy"];
const STYLE = { getPropertyValue: () => "#123456", paddingTop: "0", paddingBottom: "0" };

export const settled = async () => {
  for (let i = 0; i < 5; i++) await new Promise((then) => setImmediate(then));
};

/** Timers and frames, which come as `pass` lets them. */
function clock() {
  let [now, count] = [0, 0];
  const waiting = new Map();
  const later = (f, ms = 0) => {
    waiting.set(++count, [now + Math.max(0, ms), f]);
    return count;
  };
  const next = () => [...waiting].reduce((a, b) => (a && a[1][0] <= b[1][0] ? a : b), null);
  const pass = async (ms) => {
    const end = now + ms;
    for (let due = next(); due && due[1][0] <= end; due = next()) {
      waiting.delete(due[0]);
      now = Math.max(now, due[1][0]);
      due[1][1](now);
      await Promise.resolve();
    }
    now = end;
    await settled();
  };
  const globals = {
    setTimeout: later,
    clearTimeout: (id) => waiting.delete(id),
    requestAnimationFrame: (f) => later(f, 16),
    performance: { now: () => now },
  };
  return { globals, pass };
}

const NOTHING = { width: 7, data: new Uint8Array(4 * 2 ** 18), addColorStop() {} };
const draw = () => NOTHING;
/** A pen that draws nothing. own: what of it a test watches. */
export const pen = (own = {}) => new Proxy(own, { get: (kept, name) => kept[name] ?? draw });

/** What happy-dom leaves to a browser that lays out and draws. */
function laidOut(window, seen) {
  const { HTMLElement, HTMLCanvasElement, HTMLDialogElement } = window;
  const sizes = { clientWidth: 600, clientHeight: 300, offsetWidth: 600, offsetHeight: 20, offsetTop: 0 };
  for (const [name, value] of Object.entries(sizes))
    Object.defineProperty(HTMLElement.prototype, name, { configurable: true, get: () => value });
  const box = { left: 0, top: 0, width: 600, height: 300, right: 600, bottom: 300 };
  HTMLElement.prototype.getBoundingClientRect = () => ({ ...box });
  HTMLElement.prototype.checkVisibility = function checkVisibility() {
    return this.isConnected && !this.closest("[hidden]");
  };
  HTMLElement.prototype.scrollIntoView = () => {};
  HTMLCanvasElement.prototype.getContext = () => pen();
  class OffscreenCanvas {
    getContext = () => pen();
  }
  HTMLDialogElement.prototype.showModal = function showModal() {
    this.open = true;
  };
  class Observer {
    constructor(f) {
      this.f = f;
    }
    observe(node) {
      seen.set(node, [...(seen.get(node) ?? []), this.f]);
    }
    disconnect() {}
  }
  return {
    OffscreenCanvas,
    IntersectionObserver: Observer,
    ResizeObserver: class extends Observer {
      observe() {}
    },
  };
}

/** A source of runs that a test speaks for: `asked` holds what the page asked for, the latest last. */
function spokenFor() {
  const asked = [];
  const start = (request, hear) => {
    const handle = { request, calls: [], answers: [], send: (...messages) => hear(messages) };
    const call = (name) => () => {
      handle.calls.push(name);
      return new Promise((then) => {
        handle.answers.push({ name, then });
      });
    };
    for (const name of ["pause", "resume", "step", "stop", "leave"]) handle[name] = call(name);
    asked.push(handle);
    return handle;
  };
  const top = async (lane, cell, step) => {
    await new Promise((then) => setTimeout(then, 40 * ((cell + step) % 5))); // some come later than those asked for after
    return step < 0 ? null : [[1000 + step, `${lane.id}/${cell}/${step}`, 1]];
  };
  return {
    asked,
    start,
    top,
    token: async () => ({ id: 12, piece: "=a" }),
    attended: () => null,
    document: () => null,
  };
}

/** A race on its way that tells what is recorded. Its `tell` sends the steps from one up to another. */
export function raceOnItsWay({ live, source }) {
  live.press({ model: "stories", prompt: "x", gen_length: 64, steps: null, lanes: '{"lanes": []}' });
  const { header, pieces, records } = structuredClone(STORIES);
  const race = source.asked.at(-1);
  race.send({ run: "race", open: { header, pieces }, pausable: true });
  const tell = (from, to) =>
    race.send({ pieces: {}, records: records.filter(({ step }) => from <= step && step < to) });
  return Object.assign(race, { tell });
}

/** A page at an address, as it is when its recorded run is on show: {surelock, source, pass, see, press, ...}. */
export async function open(query = "", { keep = null, recorded = null } = {}) {
  const window = new Window({ url: `http://here/${query}`, width: 1280, height: 800 });
  const { document } = window;
  const place = (id, value) => {
    const node = document.createElement("script");
    Object.assign(node, { id, type: "application/json", textContent: JSON.stringify(value) });
    document.head.append(node);
  };
  place("sl-settings", DESCRIBED);
  place("sl-form", FORM);
  place("sl-lessons", { lessons: LESSONS, problems: [] });
  const root = document.createElement("div");
  Object.assign(root, { id: "sl-stage", className: "sl-stage" });
  document.body.append(root);
  if (keep) for (const [name, text] of keep) window.sessionStorage.setItem(name, text);
  const seen = new Map();
  const time = clock();
  const forwarded = Object.fromEntries(FUNCTIONS.map((name) => [name, (...given) => window[name]?.(...given)]));
  Object.assign(window, time.globals, { matchMedia: () => ({ matches: false, addEventListener() {} }) });
  const globals = { ...time.globals, ...forwarded, ...laidOut(window, seen), window };
  Object.assign(globals, { getComputedStyle: () => STYLE, devicePixelRatio: 1 });
  globals.matchMedia = window.matchMedia;
  globals.fetch = async (url) =>
    new Response(recorded ? JSON.stringify(recorded) : read(`assets/${new URL(url).pathname.slice(1)}`));
  for (const name of NAMES) globals[name] = window[name];
  for (const [name, value] of Object.entries(globals))
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  new Function(SCRIPT)();
  await settled();
  const { surelock } = window;
  const source = Object.assign(surelock.source, spokenFor());
  await time.pass(200);
  const { prototype } = surelock.stage.sides[0].grid.constructor;
  const { draw: drawGrid } = prototype;
  prototype.draw = function draw(view) {
    this.view = view; // what it was told to draw
    drawGrid.call(this, view);
  };
  await surelock.stage.parts.drawer.use();
  await surelock.stage.parts.panels.use();
  await surelock.stage.parts.lessons.use();
  return {
    ...{ window, document, surelock, source, pass: time.pass },
    stage: surelock.stage,
    live: surelock.live,
    find: (selector) => document.querySelector(selector),
    /** A node comes into view, or goes out of it. */
    see(node, isIntersecting) {
      for (const f of seen.get(node) ?? []) f([{ isIntersecting }]);
    },
    key(key) {
      document.dispatchEvent(new window.KeyboardEvent("keydown", { key, bubbles: true }));
    },
  };
}
