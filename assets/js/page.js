// The functions that connect the components of the page (assets/js/load/) to its scripts.

import "./loaded_first.js";

export { connect as controls } from "./form/controls.js";
export { connect as lanes } from "./form/lanes.js";
export { connect as stage } from "./run/live.js";
