// The page's explanation of the method and of its results.

import { h } from "../dom.js";
import { explained } from "./term.js";

const TEXTS = [
  "A masked diffusion language model writes by unmasking: each step runs the whole sequence through the network and commits a few of the masked positions. Long before the end most positions have stopped changing, and are computed again all the same.",
  "SureLock locks a position once its posterior has stopped moving: the step-wise KL divergence is at most ε, and the position is among the m % most certain (the percentile). A locked position is no longer computed; its cached keys and values stay for the others to attend to.",
  "A decoder is two choices: which rows a step computes, and which masked positions it writes. All lanes run the same prompt and seed, one step each in turn, each timed on its own; everything is compared with the reference, a lane that you can choose. FLOPs are algorithmic: attention, projections and feed-forward of the computed rows. Time is what this machine measured, observation excluded.",
];

/** The terms that the text explains. */
const TERMS = ["posterior", "locked", "KL", "ε", "percentile", "reference", "FLOPs"];

const PAPER = "Stopping Computation for Converged Tokens in Masked Diffusion-LM Decoding";

/** Makes the explanation of the method. */
export function about() {
  const link = { href: "https://daioba.github.io/surelock", target: "_blank", rel: "noopener" };
  const authors = "by Daisuke Oba, Danushka Bollegala, Masahiro Kaneko and Naoaki Okazaki (ICLR 2026).";
  const texts = TEXTS.map((text) => h("p", explained(text, TERMS)));
  return h("div.sl-about", texts, h("p", "The method is that of ", h("a", link, PAPER), ` ${authors}`));
}
