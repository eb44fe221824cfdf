// What stands beneath the race, one press away, the list of the keys, and the page on paper.

import "../core.js";
import { printHandout } from "../export/handout.js";
import { Share } from "../export/share.js";
import { keyHelp } from "../stage/keyhelp.js";
import { about } from "./about.js";
import { Analysis } from "./analysis.js";
import { Runs } from "./runs.js";

export class Panels {
  /** Joins a stage. source: see Share; onUse: see Runs. */
  constructor(stage, { source = {}, onUse = null }) {
    this.analysis = new Analysis(stage);
    this.runs = new Runs(stage, onUse);
    this.share = new Share(stage, source);
    this.help = keyHelp();
    const nodes = { Analysis: this.analysis.node, Runs: this.runs.node, Export: this.share.node, About: about() };
    for (const [name, node] of Object.entries(nodes)) stage.root.querySelector(`[data-panel=${name}]`).append(node);
    stage.quick.append(this.share.quick);
    stage.root.append(this.help);
    this.runs.draw();
    printHandout(stage, source.link);
    if (stage.trace) this.load(stage.trace);
  }

  load(trace) {
    this.analysis.redraw();
    this.share.load(trace);
  }

  open() {
    this.analysis.redraw();
    this.runs.draw();
  }
}
