// The runs of this visit, the latest last. The table of them is in runs.js.

const MOST_RUNS = 12;

export class Visit {
  entries = [];
  #numbered = 0;

  /** source: where the run comes from, in a word. */
  add(trace, source) {
    this.#numbered++;
    this.entries.push({ trace, source, number: this.#numbered });
    if (this.entries.length > MOST_RUNS) this.entries.shift();
  }
}
