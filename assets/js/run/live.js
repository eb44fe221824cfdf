// Starts the page in Gradio's page and on the site: the stage, the running of runs, and everything that follows the
// state.

import { LOADS } from "../deferred_parts.js";
import { h, throttle } from "../dom.js";
import { actions } from "../form/actions.js";
import { toggleSidebar } from "../form/controls.js";
import { Stage } from "../stage/stage.js";
import { settingsOf } from "./address.js";
import { Addressing, linkTo } from "./addressing.js";
import { Arriving } from "./arriving.js";
import { asking } from "./asking.js";
import { BrowserClient } from "./browser_client.js";
import { embed } from "./embed.js";
import { addressOf, beside, fileOf } from "./files.js";
import { Kept } from "./kept.js";
import { readRun } from "./recorded.js";
import { Running } from "./running.js";
import { ServerClient } from "./server_client.js";
import { Sources } from "./sources.js";
import { Starting } from "./starting.js";
import { page, say } from "./state.js";
import { Tab } from "./tab.js";

const PATIENCE_MS = 6000; // the longest wait for the form's load event; after it the form has its first settings
const TYPING_MS = 400;

const formIsFilled = new Promise((then) => page.follow(["arrived"], ({ arrived }) => arrived && then()));

/** Adds the first stop of the Tab key: a link to the grids, past the many fields of the sidebar. */
function addSkipLink(grids) {
  grids.id = "sl-grids";
  const go = (event) => {
    event.preventDefault();
    grids.querySelector("canvas")?.focus();
  };
  document.body.prepend(h("a.sl-skip", { href: "#sl-grids", onclick: go }, "To the grids"));
}

/** Makes the stage. parts: see `asking`. */
function makeStage(root, { parts, tab, onUse }) {
  const { source } = parts;
  return new Stage(root, LOADS, {
    plotly: () => addressOf("plotly.min.js"),
    source: {
      document: (run) => source.document(run),
      shell: async () => {
        const answer = await fileOf("replay.txt");
        return answer.ok && answer.text();
      },
      decoder: (model) => source.browser.decodes(model) && source.browser.inside(model, page.now.presets),
      link: linkTo,
    },
    ...asking(parts),
    onUse,
    lessons: {
      tab,
      recorded: readRun,
      race: (trace, lanes) => parts.starting.raceLike(trace, lanes),
      onPlace: (name, number) => parts.addressing.place(name, number),
    },
  });
}

/**
 * Makes the stage in an empty element, and everything that follows the page's state.
 * source: a Sources. fill(settings): puts the settings of a query into the form.
 * refuses(model): returns the reason why a model cannot run, a sentence, or "".
 */
export function begin({ root, source, fill, refuses }) {
  const tab = new Tab();
  const parts = { source };
  const onUse = async (trace) => {
    const refused = await refuses(trace.header.model.name);
    if (refused) return say(refused, "error");
    fill(settingsOf(trace));
    say("The form holds the settings of this run; press Run to race them.");
  };
  const stage = makeStage(root, { parts, tab, onUse });
  const kept = new Kept({ onProblem: say, tab });
  const live = new Running({ stage, source });
  const addressing = new Addressing({ stage, kept });
  addEventListener("pagehide", () => kept.leave(live));
  const fillAgain = (settings) => formIsFilled.then(() => fill(settings));
  const arriving = new Arriving({ stage, live, kept, fill: fillAgain });
  Object.assign(parts, { stage, live, addressing, kept, arriving, starting: new Starting({ live }) });
  const press = () => live.pressForm();
  root.before(actions({ press, toggleForm: toggleSidebar, lessons: stage.lessonsButton }), stage.status);
  addSkipLink(stage.floor.grids);
  embed(root);
  window.surelock = { ...parts, page }; // for the form's events, the browser's console and the tests
  for (const type of ["pointerdown", "keydown"])
    document.querySelector(".sidebar")?.addEventListener(type, ({ target }) => {
      if (!target.closest("#sl-run, .sl-controls")) addressing.touched = true; // Run does not change the form
    });
  arriving.arrive();
  page.set({ live, decodes: (model) => source.browser.decodes(model) });
  const measure = throttle(async () => {
    const { prompt } = page.now;
    const measured = await source.browser.measured(prompt);
    if (prompt === page.now.prompt) page.set(measured); // else the answer is too late
  }, TYPING_MS);
  if (!page.now.sources.includes("server")) page.follow(["prompt", "decoder"], measure);
  const chosen = tab.get("source");
  if (page.now.sources.includes(chosen)) page.set({ source: chosen });
  page.follow(["source"], (now) => {
    if (now.source !== chosen) tab.set("source", now.source);
    if (now.source === "browser") source.browser.prepare();
  });
}

/** Fills the component of the stage in Gradio's page. */
export function connect({ element, trigger }) {
  const root = element.querySelector(".sl-stage");
  const sources = root.dataset.sources.split(" "); // see surelock/ui/layout.py
  page.set({ sources, source: sources[0] });
  setTimeout(() => page.set({ arrived: page.now.arrived ?? {} }), PATIENCE_MS);
  const server = new ServerClient(beside(""));
  addEventListener("pagehide", () => server.leave());
  begin({
    root,
    source: new Sources(server, new BrowserClient()),
    fill: (settings) => trigger("select", Object.fromEntries(new URLSearchParams(settings))),
    refuses: async (model) => {
      const state = await server.state(model);
      return ["ready", "loading"].includes(state) ? "" : state;
    },
  });
}
