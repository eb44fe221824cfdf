// The meanings of terms, one sentence for a term, and the tip that shows the sentence.

import { h, setText } from "../dom.js";

const GLOSSARY = {
  FLOPs: "FLOPs are the additions and multiplications that a computation takes: they are counted, not timed.",
  KL: "The step-wise KL divergence is how far a position’s distribution over all tokens has moved since it was last computed, mostly the step before, in nats; 0 is not at all.",
  ε: "Epsilon is the largest step-wise KL at which a position counts as converged and may lock.",
  percentile:
    "Of the positions that could lock in a step, only the m % that the model is most certain of may: m is the percentile.",
  posterior:
    "The posterior is the model’s distribution over all tokens for one position, given everything it sees in this step.",
  regret:
    "The regret is how much less, with every position computed, the positions that were written score than the best possible ones: by entropy in nats, by confidence in probability.",
  "commit error":
    "The commit error is how far the distribution that a token was chosen from is from the one with every position computed, in nats.",
  "Choices changed":
    "A choice is changed by skipping rows where another token would have been the likeliest, had its step computed every row.",
  locked: "A locked position is no longer computed; the others go on reading the keys and values it left behind.",
  reference: "The reference is the lane that all others are compared with; you can choose it.",
};

const LINGER_MS = 160; // time to move the pointer from a term onto its sentence
const EDGE = 8;

/** The tip, which shows the sentence of one term at a time. */
class Tip {
  constructor() {
    this.node = h("div.sl-glossary", { role: "tooltip", id: "sl-glossary", hidden: true });
    this.node.addEventListener("pointerenter", () => clearTimeout(this.closing));
    this.node.addEventListener("pointerleave", () => this.closeSoon());
  }

  #listen(options) {
    const onKey = (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      this.close();
    };
    const onPress = ({ target }) => {
      if (!this.owner.contains(target) && !this.node.contains(target)) this.close();
    };
    document.addEventListener("keydown", onKey, options);
    document.addEventListener("pointerdown", onPress, options);
    document.addEventListener("scroll", () => this.#place(), { ...options, passive: true });
  }

  open(owner, text) {
    clearTimeout(this.closing);
    if (this.owner === owner) return;
    this.close();
    this.owner = owner;
    // The stage defines colours, and may be full screen.
    (owner.closest(".sl-stage") ?? document.body).append(this.node);
    setText(this.node, text);
    this.node.hidden = false;
    owner.setAttribute("aria-describedby", this.node.id);
    this.#place();
    this.listening = new AbortController();
    this.#listen({ capture: true, signal: this.listening.signal });
  }

  close() {
    clearTimeout(this.closing);
    if (!this.owner) return;
    this.owner.removeAttribute("aria-describedby");
    this.owner = null;
    this.node.hidden = true;
    this.listening.abort();
  }

  closeSoon() {
    clearTimeout(this.closing);
    this.closing = setTimeout(() => this.close(), LINGER_MS);
  }

  /** Puts the tip under its term, or above the term if there is no room below, inside the window. */
  #place() {
    if (!this.owner.isConnected) return this.close();
    const at = this.owner.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const left = Math.max(EDGE, Math.min(at.left, document.documentElement.clientWidth - width - EDGE));
    const under = at.bottom + 6;
    const top = under + height + EDGE > innerHeight ? Math.max(EDGE, at.top - height - 6) : under;
    Object.assign(this.node.style, { left: `${left}px`, top: `${top}px` });
  }
}

let shared = null;

/** Shows the meaning of a term beside a node. name: the term. */
export function explain(node, name) {
  shared ??= new Tip();
  shared.open(node, GLOSSARY[name]);
}

/** Closes the tip. */
export const closeTip = () => shared?.close();
/** Closes the tip after a moment, unless the pointer moves onto it. */
export const closeTipSoon = () => shared?.closeSoon();
