// Reads the colours of canvases from the stylesheet, and watches for changes of the theme.

import { h } from "../dom.js";

const CELLS = ["masked", "masked-dot", "active", "active-ring", "active-text", "locked", "locked-mark", "locked-text"];
const MARKS = ["resting", "resting-ring", "prompt", "differs", "fresh", "fresh-lock", "fresh-mask"];
const RASTER = ["masked", "active", "locked", "resting", "waiting"].map((state) => `raster-${state}`);
const NAMES = [...CELLS, ...MARKS, ...RASTER, "ink", "muted", "panel", "line"];
export const PIN_COLOURS = 6;
const LANE_COLOURS = 4;
const SCALE_COLOURS = 5;

/**
 * A function that converts colours to #rrggbb. Forced colours are names of system colours. Their values depend on the
 * element, and may be translucent.
 */
function plainer(element) {
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  const paint = (name) => {
    const probe = h("span", { style: "forced-color-adjust: none" });
    probe.style.color = name;
    element.append(probe);
    pen.fillStyle = getComputedStyle(probe).color;
    pen.fillRect(0, 0, 1, 1);
    probe.remove();
  };
  const hex = (byte) => byte.toString(16).padStart(2, "0");
  return (colour) => {
    if (!colour || colour.startsWith("#")) return colour;
    for (const name of ["Canvas", colour]) paint(name);
    return `#${Array.from(pen.getImageData(0, 0, 1, 1).data.slice(0, 3), hex).join("")}`;
  };
}

/** The palette at an element: {masked: "#…", activeRing: "#…", lanes: [...], pins: [...]}. */
export function palette(element) {
  const style = getComputedStyle(element);
  const plain = plainer(element);
  const read = (name) => plain(style.getPropertyValue(`--sl-${name}`).trim());
  const colours = {};
  for (const name of NAMES) colours[name.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = read(name);
  colours.lanes = Array.from({ length: LANE_COLOURS }, (_, i) => read(`lane-${i + 1}`));
  colours.scale = Array.from({ length: SCALE_COLOURS }, (_, i) => read(`scale-${i + 1}`));
  colours.pins = Array.from({ length: PIN_COLOURS }, (_, i) => read(`pin-${i + 1}`));
  return colours;
}

/** Makes the body dark if the system's colour scheme is dark. */
export function followScheme() {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.body.classList.toggle("dark", query.matches);
  query.addEventListener("change", follow);
  follow();
}

/**
 * Calls `callback` when the colours may have changed: body.dark, the system's colour scheme, forced colours, the
 * preference for motion, or a newly loaded stylesheet. The page's stylesheet may be loaded after its scripts.
 */
export function onThemeChange(callback) {
  new MutationObserver(callback).observe(document.body, { attributes: true, attributeFilter: ["class"] });
  for (const query of ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "(forced-colors: active)"])
    matchMedia(query).addEventListener("change", callback);
  const come = ({ target }) => target.rel === "stylesheet" && callback();
  document.addEventListener("load", come, true); // the event does not bubble
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const MIDDLE = 0.18; // the luminance with equal contrast to black and to white

/** The colour at x (0 to 1) on a scale of evenly spaced colours, and the ink that is legible on it. */
export function shade(scale, x) {
  const at = x * (scale.length - 1);
  const i = Math.min(Math.floor(at), scale.length - 2);
  const a = channels(scale[i]);
  const b = channels(scale[i + 1]);
  const rgb = a.map((c, k) => Math.round(c + (at - i) * (b[k] - c)));
  const luminance = rgb.reduce((sum, c, k) => sum + [0.2126, 0.7152, 0.0722][k] * linear(c), 0);
  const fill = `#${rgb.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
  return { fill, ink: luminance > MIDDLE ? "#101522" : "#ffffff" };
}
