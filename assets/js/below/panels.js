// The panels beneath the race, which open at a press; the list of keys; and the printed page.

import "../loaded_first.js";
import { h } from "../dom.js";
import { printHandout } from "../export/handout.js";
import { Share } from "../export/share.js";
import { page } from "../run/state.js";
import { Gauges } from "../stage/gauges.js";
import { keyHelp } from "../stage/keyhelp.js";
import { about } from "./about.js";
import { Analysis } from "./analysis.js";
import { legend } from "./legend.js";
import { Runs } from "./runs.js";

/** The panels, the list of keys, and the printed page. */
export class Panels {
  /** Adds the panels to a stage. source: see Share; onUse: see Runs. */
  constructor(stage, { source = {}, onUse = null }) {
    this.gauges = new Gauges();
    this.analysis = new Analysis();
    this.runs = new Runs({ onShow: (trace) => stage.reveal(trace), onUse });
    this.share = new Share(stage, source);
    this.help = keyHelp();
    const looks = h("div.sl-bar-row", legend(), stage.colouring.node, stage.floor.long.node);
    const numbers = h("div.sl-all-numbers", this.gauges.node, looks);
    const nodes = {
      Numbers: numbers,
      Analysis: this.analysis.node,
      Runs: this.runs.node,
      Export: this.share.node,
      About: about(),
    };
    for (const [name, node] of Object.entries(nodes)) stage.root.querySelector(`[data-panel=${name}]`).append(node);
    stage.quick.append(this.share.quick);
    stage.root.append(this.help);
    printHandout(stage, source.link);
    stage.sight.watch([this.gauges.node]);
    page.follow(["laid"], ({ trace }) => trace && this.#load(trace));
    page.follow(["drawn"], ({ trace, drawn }) => trace && this.#draw(trace, drawn.step, stage.sight));
    page.follow(["laid", "records", "ended"], () => this.analysis.redraw());
    page.follow(["laid", "runs", "ended"], () => this.runs.draw());
  }

  #load(trace) {
    this.gauges.load(trace);
    this.share.load(trace);
  }

  #draw(trace, step, sight) {
    if (sight.reads(this.gauges.node)) this.gauges.draw(trace, step);
  }

  open() {
    this.analysis.redraw();
    this.runs.draw();
  }
}
