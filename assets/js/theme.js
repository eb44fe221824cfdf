// Colours for the canvases, read from the stylesheet, and a notice when the theme changes.

import { h } from "./dom.js";

const NAMES = [
  "masked",
  "masked-dot",
  "active",
  "active-ring",
  "active-text",
  "locked",
  "locked-hatch",
  "locked-text",
  "prompt",
  "differs",
  "fresh",
  "fresh-lock",
  "ink",
  "muted",
  "panel",
  "line",
  "resting",
  "resting-ring",
  "raster-masked",
  "raster-active",
  "raster-locked",
  "raster-resting",
  "raster-waiting",
];
export const PIN_COLOURS = 6;
const LANE_COLOURS = 4;

/** A function that gives colours as #rrggbb. Forced colours are names of the system's, which mean what they mean to an
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

/** The palette in force at `element`: {masked: "#…", activeRing: "#…", lanes: [...], pins: [...]}. */
export function palette(element) {
  const style = getComputedStyle(element);
  const plain = plainer(element);
  const read = (name) => plain(style.getPropertyValue(`--sl-${name}`).trim());
  const colours = {};
  for (const name of NAMES) colours[name.replace(/-(\w)/g, (_, c) => c.toUpperCase())] = read(name);
  colours.lanes = Array.from({ length: LANE_COLOURS }, (_, i) => read(`lane-${i + 1}`));
  colours.pins = Array.from({ length: PIN_COLOURS }, (_, i) => read(`pin-${i + 1}`));
  return colours;
}

/** Calls back when body.dark, the system's scheme, its forced colours or its motion preference change. Returns a function that stops it. */
export function onThemeChange(callback) {
  const observer = new MutationObserver(callback);
  observer.observe(document.body, { attributes: true, attributeFilter: ["class"] });
  const queries = ["(prefers-color-scheme: dark)", "(prefers-reduced-motion: reduce)", "(forced-colors: active)"].map(
    (q) => matchMedia(q),
  );
  for (const query of queries) query.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", callback);
  };
}
