// The engine of browsers. ONNX Runtime Web computes the whole step by the graphs of surelock/engines/onnx_graph.py.
//
// It mirrors surelock/engines/onnx.py. The packed forward pass (Algorithm 1, lines 9-14) computes the hidden states
// of the rows that are read. Their logits and posteriors (line 15) are computed in chunks of rows.

import { count, find, flags, largest, NONE, place, put, release, rowsOf, take } from "./arrays.js";
import { bestOf, emptyReading } from "./step.js";

const CHUNK_BYTES = 2 ** 20; // the most bytes of a table of logits
const SOME_ROW = new Int32Array(1); // used if there are no rows: in WebAssembly a TopK of no rows divides by zero
const LEAST_ROWS = 32; // the fewest rows of a chunk: every chunk reads all weights of the head

/** The parts of ONNX Runtime Web that an engine needs: tensors and sessions. */
class Runtime {
  #last = Promise.resolve(); // the latest call of a session

  constructor(ort) {
    this.ort = ort;
  }

  /**
   * A session of a graph. files: the files with its weights, by name.
   * The calls of all sessions take turns: a call of ONNX Runtime that begins during another call destroys its inputs.
   */
  async session(graph, files) {
    const externalData = Object.entries(files).map(([path, data]) => ({ path, data }));
    const options = { executionProviders: ["wasm"], logSeverityLevel: 3, enableMemPattern: false, externalData };
    const session = await this.ort.InferenceSession.create(graph, options);
    return { run: (feeds, outputs) => this.#inTurn(() => session.run(feeds, outputs)) };
  }

  #inTurn(call) {
    const result = this.#last.then(call);
    this.#last = result.catch(() => {});
    return result;
  }

  whole(values) {
    return new this.ort.Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);
  }

  table(values, width) {
    return new this.ort.Tensor("float32", values, [values.length / width, width]);
  }
}

/** The keys and values of all positions. */
class Cache {
  #runtime;
  #session;
  #states;
  #width;
  #layers;
  #tables = {};

  constructor(runtime, session, config, length) {
    [this.#runtime, this.#session, this.#width] = [runtime, session, config.d_model];
    // A shifted network also needs hidden states, since a position is predicted by the position before it.
    this.#states = config.shifted ? new Float32Array(length * config.d_model) : null;
    const size = config.n_kv_heads * config.head_size;
    this.#layers = Array.from({ length: config.n_layers }, (_, layer) => layer);
    for (const layer of this.#layers)
      for (const kind of ["keys", "values"])
        this.#tables[`${kind}.${layer}`] = runtime.table(new Float32Array(length * size), size);
  }

  /**
   * Computes rows, and returns the hidden states of the rows `read`, [K, d_model].
   * probed: flags of the rows whose keys and values are not updated.
   */
  async forward(tokens, positions, probed, read) {
    const written = find(probed.map((flag) => !flag));
    const rows = { tokens, positions, written, targets: take(positions, written) };
    rows.read = this.#states ? Int32Array.from(tokens.keys()) : read;
    if (!rows.read.length) rows.read = new Int32Array(1); // the last layer's attention needs at least one row
    const names = Object.keys(this.#tables);
    const outputs = await this.#run(rows, ["hidden", ...names.map((name) => `new_${name}`)]);
    for (const name of names) {
      const { data } = outputs[`new_${name}`];
      setRows(this.#tables[name].data, rows.targets, data);
      release(data); // some megabytes in every step
    }
    const hidden = outputs.hidden.data;
    const width = this.#width;
    if (!this.#states) return hidden.subarray(0, read.length * width);
    for (const row of written)
      this.#states.set(hidden.subarray(row * width, (row + 1) * width), positions[row] * width);
    return rowsOf(
      this.#states,
      read.map((row) => Math.max(positions[row] - 1, 0)),
      width,
    );
  }

  /** [table, width] of all tables that are kept from step to step; width: the numbers of a row. */
  get tables() {
    const all = Object.values(this.#tables).map(({ data, dims }) => [data, dims[1]]);
    return this.#states ? [...all, [this.#states, this.#width]] : all;
  }

  /** The queries and keys of a whole sequence, by layer. */
  async queriesAndKeys(tokens) {
    const every = tokens.map((_, i) => i);
    const rows = { tokens, positions: every, written: every, targets: every, read: every };
    const kinds = ["queries.", "new_keys."].map((kind) => this.#layers.map((layer) => kind + layer));
    const outputs = await this.#run(rows, kinds.flat());
    return kinds.map((names) => names.map((name) => outputs[name].data));
  }

  #run(rows, outputs) {
    const feeds = {};
    for (const [name, values] of Object.entries(rows)) feeds[name] = this.#runtime.whole(values);
    for (const [name, table] of Object.entries(this.#tables)) feeds[`past_${name}`] = table;
    return this.#session.run(feeds, outputs);
  }
}

/**
 * The engine's memory of one run: keys and values, and the posteriors of followed rows.
 * For the latest step it also has the rows that were read, their hidden states, and the logits of candidates ([V], by
 * the number of a row).
 */
class Memory {
  constructor(caches, length, vocabSize) {
    Object.assign(this, { caches, vocabSize });
    this.has = new Uint8Array(length);
    this.kept = null; // log posteriors [slots, V]; null before the first row is followed
    [this.rows, this.hidden, this.logits] = [NONE, new Float32Array(0), new Map()];
  }

  get tables() {
    return this.caches.flatMap(({ tables }) => tables);
  }

  /** The kept log posteriors of slots, [M, V]. */
  of(slots) {
    return rowsOf(this.kept, slots, this.vocabSize);
  }

  /**
   * See `emptyReading`. Only typed rules call it. They probe no rows, so the posterior of every followed row is kept.
   */
  likeliest({ slots, watches, probed }) {
    return Int32Array.from(slots, (slot, row) => (watches[row] && !probed[row] ? largest(this.of([slot])) : -1));
  }

  keep(slots, posteriors) {
    this.kept ??= new Float32Array(this.has.length * this.vocabSize);
    setRows(this.kept, slots, posteriors);
    put(this.has, slots, 1);
  }
}

/** The engine. */
export class OnnxEngine {
  #runtime;
  #sessions;
  #rows;

  /**
   * A promise of an engine for a network.
   * ort: ONNX Runtime Web. config: the shape of the network. graphs: {step, head, posterior}, the bytes of the graphs.
   * files(): a promise of the files with the weights, bytes by name. ONNX Runtime's code is compiled meanwhile.
   */
  static async load(ort, { config, graphs, files }) {
    const runtime = new Runtime(ort);
    const posterior = await runtime.session(graphs.posterior, {});
    const weights = await files();
    const step = await runtime.session(graphs.step, weights);
    const head = await runtime.session(graphs.head, weights);
    return new OnnxEngine(runtime, config, { step, head, posterior });
  }

  constructor(runtime, config, sessions) {
    [this.#runtime, this.config, this.#sessions] = [runtime, config, sessions];
    this.#rows = Math.max(LEAST_ROWS, Math.floor(CHUNK_BYTES / (4 * config.vocab_size))); // the rows of a chunk
    this.name = `onnxruntime-web ${runtime.ort.env.versions.common}`;
  }

  /** The memory of a new run. layout: {length, passes}. */
  memory({ length, passes }) {
    const cache = () => new Cache(this.#runtime, this.#sessions.step, this.config, length);
    return new Memory(Array.from({ length: passes }, cache), length, this.config.vocab_size);
  }

  /** Computes the rows of a plan: updates keys and values in the memory, and returns the reading. */
  async read(memory, plan) {
    const began = performance.now();
    let observed = 0;
    const reading = emptyReading(plan);
    const rows = plan.read;
    put(memory.has, plan.outdated, 0);
    const width = this.config.d_model;
    memory.rows = rows.length ? rows : Int32Array.from(plan.slots.keys());
    const hidden = await this.#forward(memory, plan, memory.rows);
    memory.hidden = hidden;
    memory.logits.clear();
    for (let start = 0; start < rows.length; start += this.#rows) {
      const part = rows.subarray(start, start + this.#rows);
      const states = hidden.subarray(start * width, (start + part.length) * width);
      const { logits } = await this.#sessions.head.run({ hidden: this.#runtime.table(states, width) });
      const chunk = { memory, plan, reading, part, logits };
      const before = performance.now();
      if (plan.observe) await this.#observe(chunk); // before the kept posteriors are replaced
      observed += performance.now() - before;
      await this.#choose(chunk);
    }
    if (plan.quota !== null) await this.#draw(memory, plan, reading);
    reading.likeliest = () => memory.likeliest(plan);
    reading.seconds = (performance.now() - began - observed) / 1000;
    return reading;
  }

  /** A copy of everything that the memory keeps of slots from step to step: {slots, tables, has, kept, bytes}. */
  copyRows(memory, slots) {
    const tables = memory.tables.map(([table, width]) => rowsOf(table, slots, width));
    const has = take(memory.has, slots);
    const kept = memory.kept ? memory.of(take(slots, find(has))) : new Float32Array(0);
    const bytes = [...tables, kept].reduce((sum, { byteLength }) => sum + byteLength, 0);
    return { slots, tables, has, kept, bytes };
  }

  /** Writes a result of `copyRows` into the memory of a run with the same layout. */
  putRows(memory, { slots, tables, has, kept }) {
    memory.tables.forEach(([table], i) => {
      setRows(table, slots, tables[i]);
    });
    put(memory.has, slots, has);
    const known = take(slots, find(has));
    if (known.length) memory.keep(known, kept);
  }

  /** The logits of rows that the latest step read, [K, V]. */
  async logits(memory, rows) {
    const width = this.config.vocab_size;
    const table = new Float32Array(rows.length * width);
    rows.forEach((row, i) => {
      if (memory.logits.has(row)) table.set(memory.logits.get(row), i * width);
    });
    const others = find(Uint8Array.from(rows, (row) => !memory.logits.has(row)));
    if (!others.length) return table;
    const at = take(rows, others).map((row) => place(memory.rows, row));
    const hidden = this.#runtime.table(rowsOf(memory.hidden, at, this.config.d_model), this.config.d_model);
    const logits = (await this.#sessions.head.run({ hidden })).logits.data;
    others.forEach((i, k) => {
      table.set(logits.subarray(k * width, (k + 1) * width), i * width);
    });
    return table;
  }

  /**
   * The attention of the row that predicts a position to all positions, [N].
   * It is the mean over layers and heads of a dense forward pass. It mirrors `Network.attention`.
   */
  async attention(tokens, position) {
    const { n_layers, n_heads, n_kv_heads, head_size, shifted } = this.config;
    const cache = new Cache(this.#runtime, this.#sessions.step, this.config, tokens.length);
    const [queries, keys] = await cache.queriesAndKeys(tokens);
    const row = Math.max(0, position - Number(shifted));
    const shares = new Float64Array(tokens.length);
    for (let layer = 0; layer < n_layers; layer++)
      for (let head = 0; head < n_heads; head++) {
        const group = Math.floor((head * n_kv_heads) / n_heads);
        const start = (row * n_heads + head) * head_size;
        const query = queries[layer].subarray(start, start + head_size);
        const scores = shares.map((_, at) => {
          const key = keys[layer].subarray((at * n_kv_heads + group) * head_size);
          return query.reduce((sum, value, i) => sum + value * key[i], 0) / Math.sqrt(head_size);
        });
        const most = scores.reduce((a, b) => Math.max(a, b));
        const weights = scores.map((score) => Math.exp(score - most));
        const total = n_layers * n_heads * weights.reduce((sum, weight) => sum + weight, 0);
        weights.forEach((weight, at) => {
          shares[at] += weight / total;
        });
      }
    return shares;
  }

  /** The hidden states of the rows `read`, [K, d_model]. With guidance, those of two passes are combined. */
  async #forward(memory, plan, read) {
    const pass = (cache, tokens) => cache.forward(tokens, plan.slots, plan.probed, read);
    if (!plan.slots.length) return new Float32Array(0);
    const hidden = await pass(memory.caches[0], plan.tokens);
    if (!plan.blind) return hidden;
    const blind = await pass(memory.caches[1], plan.blind);
    const scale = Math.fround(plan.cfg_scale + 1);
    return hidden.map((value, i) => blind[i] + Math.fround(scale * Math.fround(value - blind[i])));
  }

  /**
   * Computes confidences, the scores of candidates, the KLs that a rule needs, and (without a quota) candidates'
   * tokens.
   */
  async #choose(chunk) {
    const { memory, plan, reading, part, logits } = chunk;
    const chosen = plan.scores === null ? NONE : find(take(plan.chooses, part)); // null for the plan of a shadow
    const feeds = {};
    const byPosterior = plan.scores === "entropy" || plan.scores === "margin";
    if (chosen.length && (byPosterior || plan.measures.length)) feeds.scored = this.#runtime.whole(chosen);
    const score = byPosterior ? plan.scores : "own";
    const first = chosen.length ? count(plan.chooses.subarray(0, part[chosen[0]])) : 0;
    if (chosen.length && plan.quota === null) {
      feeds.chosen = this.#runtime.whole(chosen);
      const candidates = chosen.map((_, i) => first + i);
      feeds.bias = this.#runtime.table(biasOf(plan, candidates, logits.dims[1]), logits.dims[1]);
    }
    const compares = take(plan.compares, part);
    const watches = take(plan.watches, part);
    const names = ["confidence", "total", "token", score, ...plan.measures];
    const outputs = await this.#follow(chunk, compares, watches, names, feeds);
    put(reading.confidence, part, outputs.confidence.data);
    reading.finite &&= outputs.total.data.every(Number.isFinite);
    const width = logits.dims[1];
    for (const i of chosen) memory.logits.set(part[i], logits.data.subarray(i * width, (i + 1) * width));
    if (!chosen.length) return;
    reading.score.set(outputs[score].data, first);
    for (const name of plan.measures) reading.measures[name].set(outputs[name].data, first);
    if (plan.quota === null) reading.tokens.set(Int32Array.from(outputs.token.data, Number), first);
  }

  /** Draws the tokens of the best candidates, as many as the plan's quota. It adds and compares as the graph would. */
  async #draw(memory, plan, reading) {
    const best = bestOf(reading.score, plan.quota);
    const rows = find(plan.chooses);
    const width = this.config.vocab_size;
    for (let start = 0; start < best.length; start += this.#rows) {
      const some = best.subarray(start, start + this.#rows);
      const logits = await this.logits(memory, take(rows, some));
      const bias = biasOf(plan, some, width);
      some.forEach((candidate, i) => {
        const noise = bias.length > width ? bias.subarray(i * width) : bias;
        const sums = logits.subarray(i * width, (i + 1) * width).map((logit, token) => logit + noise[token]);
        reading.tokens[candidate] = largest(sums);
      });
    }
  }

  /** Computes the KLs that no rule needs, and likely tokens. */
  async #observe(chunk) {
    const { plan, reading, part } = chunk;
    const others = [plan.compares, plan.watches].map((flags) => take(flags, part).map((flag) => !flag));
    const k = plan.top_k;
    const feeds = { shown: this.#runtime.whole(Int32Array.from(part.keys())), top_k: this.#runtime.whole([k]) };
    const outputs = await this.#follow(chunk, ...others, ["top_ids", "top_probs"], feeds);
    const ids = Int32Array.from(outputs.top_ids.data, Number);
    part.forEach((row, i) => {
      reading.top_ids.set(ids.subarray(i * k, (i + 1) * k), row * k);
      reading.top_probs.set(outputs.top_probs.data.subarray(i * k, (i + 1) * k), row * k);
    });
  }

  /**
   * Runs the graph of the posteriors, and returns its outputs.
   * compares: flags of the rows that get the KL from their kept posterior, infinite if none is kept.
   * watches: flags of the rows whose posteriors are kept. Posteriors of probed rows are not kept.
   */
  async #follow({ memory, plan, reading, part, logits }, compares, watches, outputs, feeds) {
    put(reading.kl, take(part, find(compares)), Number.POSITIVE_INFINITY);
    const compared = find(flags(part.length, (i) => compares[i] && memory.has[plan.slots[part[i]]]));
    const watched = find(flags(part.length, (i) => watches[i] && !plan.probed[part[i]]));
    const width = logits.dims[1];
    const [none, some, one] = [NONE, SOME_ROW, [1]].map((values) => this.#runtime.whole(values));
    const rows = { watched: none, compared: none, last: none, chosen: some, scored: some, shown: some, top_k: one };
    const zeros = this.#runtime.table(new Float32Array(width), width);
    const inputs = { ...rows, bias: zeros, kept: zeros, ...feeds, logits }; // inputs that are not fed have no rows
    const wanted = outputs.slice();
    if (compared.length) {
      wanted.push("kl");
      inputs.compared = this.#runtime.whole(compared);
      inputs.last = this.#runtime.whole(compared.map((_, i) => i));
      inputs.kept = this.#runtime.table(memory.of(take(plan.slots, take(part, compared))), width);
    }
    if (watched.length) {
      wanted.push("log_p");
      inputs.watched = this.#runtime.whole(watched);
    }
    if (!wanted.length) return {};
    const results = await this.#sessions.posterior.run(inputs, wanted);
    if (compared.length) put(reading.kl, take(part, compared), results.kl.data);
    if (watched.length) memory.keep(take(plan.slots, take(part, watched)), results.log_p.data);
    return results;
  }
}

/**
 * The bias that is added to the logits of candidates: noise, and -infinity for a banned token.
 * Its shape is [K, V], or [1, V] if it is the same for all candidates. The noise is that of Gumbel-max over
 * exp(logit) / (-log u)^T.
 */
function biasOf(plan, candidates, width) {
  const [rows, forbidden] = plan.barred;
  const places = new Map(Array.from(candidates, (candidate, i) => [candidate, i]));
  const repeated = find(rows.map((row) => places.has(row)));
  const drawn = plan.draws !== null && plan.temperature > 0;
  const bias = new Float32Array((drawn || repeated.length ? candidates.length : 1) * width);
  if (drawn) {
    const uniform = plan.draws.gumbel(candidates, width);
    for (let i = 0; i < uniform.length; i++) bias[i] = -plan.temperature * Math.log(-Math.log(uniform[i]));
  }
  for (const i of repeated) bias[places.get(rows[i]) * width + forbidden[i]] = Number.NEGATIVE_INFINITY;
  for (let at = 0; at < bias.length; at += width)
    for (const token of plan.banned) bias[at + token] = Number.NEGATIVE_INFINITY;
  return bias;
}

/** Writes rows into a flat table. Neighbouring rows are copied together. */
function setRows(table, rows, values) {
  const width = values.length / rows.length;
  for (let start = 0, stop = 0; start < rows.length; start = stop) {
    do stop++;
    while (stop < rows.length && rows[stop] === rows[stop - 1] + 1);
    table.set(values.subarray(start * width, stop * width), rows[start] * width);
  }
}
