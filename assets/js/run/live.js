// The stage inside the Gradio page: what it asks a source of runs for, and who follows the page's state.

import { Actions } from "../form/actions.js";
import { openSidebar, pressRun } from "../form/controls.js";
import { addSkipLink } from "../stage/skip.js";
import { Stage } from "../stage/stage.js";
import { settingsOf } from "./address.js";
import { Addressing, linkTo } from "./addressing.js";
import { Arriving } from "./arriving.js";
import { asking } from "./asking.js";
import { BrowserDoor } from "./browser_door.js";
import { embed } from "./embed.js";
import { addressOf, fileOf } from "./files.js";
import { Keeping } from "./keeping.js";
import { Kept } from "./kept.js";
import { newSession, Queue } from "./queue.js";
import { formIsReady } from "./ready.js";
import { readRun } from "./recorded.js";
import { Running } from "./running.js";
import { ServerSource } from "./server_source.js";
import { Sources } from "./sources.js";
import { Starting } from "./starting.js";
import { page } from "./state.js";
import { Tab } from "./tab.js";

/** The stage; parts() gives those that come after it. */
function makeStage(root, { source, tab, use, parts }) {
  return new Stage(root, {
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
    ...asking({ source, parts }),
    onView: () => parts().addressing.later(),
    onRun: (trace, from) => {
      parts().keeping.keep(trace, from);
      parts().addressing.write();
    },
    onUse: use,
    lessons: {
      tab,
      recorded: readRun,
      race: (trace, lanes) => parts().starting.raceLike(trace, lanes),
      onPlace: (name, number) => parts().addressing.place(name, number),
    },
  });
}

/** The queue of the server that this page came from. */
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
  return new Sources({
    server: new ServerSource({ queue: queueOf(), server }),
    browser: new BrowserDoor(),
    offered,
  });
}

/** Shows the stage in an empty element, and all that follows it. source: see Sources. fill(settings) puts a query's into
 * the form. refuses(model): why that model cannot run here, a sentence, or "". seconds: see Running. */
export function begin({ root, source, fill, refuses, seconds }) {
  const tab = new Tab();
  const use = async (trace) => {
    const refused = await refuses(trace.header.model.name);
    if (refused) return stage.say(refused, "error");
    fill(settingsOf(trace));
    stage.say("The form holds the settings of this run; press Run to race them.");
  };
  let parts = null;
  const stage = makeStage(root, { source, tab, use, parts: () => parts });
  const kept = new Kept({ onProblem: (text) => stage.say(text), tab });
  const live = new Running({ stage, source, seconds });
  const addressing = new Addressing({ stage, kept });
  const keeping = new Keeping({ stage, kept, live });
  const fillOnceReady = (settings) => formIsReady.then(() => fill(settings));
  const arriving = new Arriving({ stage, live, keeping, fill: fillOnceReady });
  parts = { stage, source, live, addressing, keeping, arriving, starting: new Starting({ stage, live }) };
  const decodes = (model) => source.browser.decodes(model);
  root.before(new Actions({ press: pressRun, openForm: openSidebar, lessons: stage.lessonsButton, decodes }).node);
  addSkipLink(stage.grids);
  embed(root);
  window.surelock = { ...parts, page }; // for the form's events, the browser's console and the tests
  for (const type of ["pointerdown", "keydown"])
    document.querySelector(".sidebar")?.addEventListener(type, ({ target }) => {
      if (!target.closest("#sl-run, .sl-controls")) addressing.touched = true; // Run changes nothing in the form
    });
  arriving.arrive();
  page.set({ live });
  page.follow(["source"], (now) => now.source === "browser" && source.browser.prepare());
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
