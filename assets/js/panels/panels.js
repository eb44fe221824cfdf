// What stands beneath the race, one press away, the list of the keys, and the page on paper.

import { Handout } from "../export/handout.js";
import { Share } from "../export/share.js";
import { KeyHelp } from "../stage/keyhelp.js";
import { about } from "./about.js";
import { Analysis } from "./analysis.js";
import { Runs } from "./runs.js";

export class Panels {
  /** root: the stage's; trace(): what is on show; the other options: see Share and Runs. */
  constructor({ root, source, visit, trace, view, onShow, onCompare, onUse, onImport }) {
    this.analysis = new Analysis();
    this.runs = new Runs({ visit, onShow, onCompare, onUse });
    this.share = new Share({ source, view, onImport });
    const link = source.link && ((shown) => source.link(shown, view()));
    this.handout = new Handout({ root, trace, link });
    this.nodes = { Analysis: this.analysis.node, Runs: this.runs.node, Export: this.share.node, About: about() };
    this.help = new KeyHelp();
    root.append(this.help.node);
    this.runs.draw();
  }

  load(trace) {
    this.analysis.load(trace);
    this.share.load(trace);
  }

  /** The panel of that name is on show. */
  open(name) {
    if (name === "Analysis") this.analysis.redraw();
    if (name === "Runs") this.runs.draw();
  }
}
