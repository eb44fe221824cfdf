// The stage inside the Gradio page: what it asks a source of runs for, and who follows the page's state.

import { h } from "../dom.js";
import { actions } from "../form/actions.js";
import { pressRun, toggleSidebar } from "../form/controls.js";
import { LOADS } from "../parts.js";
import { Stage } from "../stage/stage.js";
import { settingsOf } from "./address.js";
import { Addressing, linkTo } from "./addressing.js";
import { Arriving } from "./arriving.js";
import { asking } from "./asking.js";
import { BrowserDoor } from "./browser_door.js";
import { embed } from "./embed.js";
import { addressOf, fileOf } from "./files.js";
import { Kept } from "./kept.js";
import { newSession, Queue } from "./queue.js";
import { readRun } from "./recorded.js";
import { Running } from "./running.js";
import { ServerSource } from "./server_source.js";
import { Sources } from "./sources.js";
import { Starting } from "./starting.js";
import { page } from "./state.js";
import { Tab } from "./tab.js";

const FORM_MS = 60; // the other fields of the same answer

/** Run can be taken from now on: stage and buttons are there, and the form holds what the page's load event brought. It is
 * told to the script in the page's head (load/hold.js), too. */
const formIsReady = new Promise((then) => {
  const end = page.follow(["live", "arrived"], ({ live, arrived }) => {
    if (!live || !arrived) return;
    setTimeout(() => {
      end();
      dispatchEvent(new Event("sl-ready"));
      then();
    }, FORM_MS);
  });
});

/** The first Tab stop of the page: past the sidebar's many fields, to the grids. */
function addSkipLink(grids) {
  grids.id = "sl-grids";
  const go = (event) => {
    event.preventDefault();
    grids.querySelector("canvas")?.focus();
  };
  document.body.prepend(h("a.sl-skip", { href: "#sl-grids", onclick: go }, "To the grids"));
}

/** The stage. parts: see `asking`, and those that follow it here. */
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
    onView: () => parts.addressing.later(),
    onRun: (trace, from) => {
      parts.kept.keepTrace(trace, from);
      parts.addressing.write();
    },
    onUse,
    lessons: {
      tab,
      recorded: readRun,
      race: (trace, lanes) => parts.starting.raceLike(trace, lanes),
      onPlace: (name, number) => parts.addressing.place(name, number),
    },
  });
}

function queueOf() {
  const { dependencies } = window.gradio_config;
  const functions = Object.fromEntries(dependencies.map(({ api_name, id }) => [api_name, id]));
  const queue = new Queue({ root: new URL("gradio_api/", document.baseURI), functions, session: newSession() });
  page.follow(["arrived"], ({ arrived }) => {
    if (arrived?.session) queue.session = arrived.session; // its heartbeat tells the server when the page is left
  });
  return queue;
}

/** The sources that the server offers (see surelock/ui/stage.py), the chosen one first. */
function sourcesOf({ root, server }) {
  const offered = root.dataset.sources.split(" ");
  page.set({ sources: offered, source: offered[0] });
  return new Sources(new ServerSource({ queue: queueOf(), server }), new BrowserDoor());
}

/** Shows the stage in an empty element, and all that follows it. source: see Sources. fill(settings) puts a query's into
 * the form. refuses(model): why that model cannot run here, a sentence, or "". seconds: see Running. */
export function begin({ root, source, fill, refuses, seconds }) {
  const tab = new Tab();
  const parts = { source };
  const onUse = async (trace) => {
    const refused = await refuses(trace.header.model.name);
    if (refused) return parts.stage.say(refused, "error");
    fill(settingsOf(trace));
    parts.stage.say("The form holds the settings of this run; press Run to race them.");
  };
  const stage = makeStage(root, { parts, tab, onUse });
  const kept = new Kept({ onProblem: (text) => stage.say(text), tab });
  const live = new Running({ stage, source, seconds });
  const addressing = new Addressing({ stage, kept });
  addEventListener("pagehide", () => kept.leave(live));
  const fillOnceReady = (settings) => formIsReady.then(() => fill(settings));
  const arriving = new Arriving({ stage, live, kept, fill: fillOnceReady });
  Object.assign(parts, { stage, live, addressing, kept, arriving, starting: new Starting({ stage, live }) });
  const decodes = (model) => source.browser.decodes(model);
  root.before(actions({ press: pressRun, toggleForm: toggleSidebar, lessons: stage.lessonsButton, decodes }));
  addSkipLink(stage.grids);
  embed(root);
  window.surelock = { ...parts, page }; // for the form's events, the browser's console and the tests
  for (const type of ["pointerdown", "keydown"])
    document.querySelector(".sidebar")?.addEventListener(type, ({ target }) => {
      if (!target.closest("#sl-run, .sl-controls")) addressing.touched = true; // Run changes nothing in the form
    });
  arriving.arrive();
  page.set({ live });
  const chosen = tab.get("source");
  if (page.now.sources.includes(chosen)) page.set({ source: chosen });
  page.follow(["source"], (now) => {
    if (now.source !== chosen) tab.set("source", now.source);
    if (now.source === "browser") source.browser.prepare();
  });
}

export function connect({ element, trigger, server }) {
  const root = element.querySelector(".sl-stage");
  begin({
    root,
    source: sourcesOf({ root, server }),
    fill: (settings) => trigger("select", Object.fromEntries(new URLSearchParams(settings))),
    refuses: async (model) => {
      const state = await server.model_state(model);
      return ["ready", "loading"].includes(state) ? "" : state;
    },
    seconds: (place, run) => server.wait(place, run),
  });
}
