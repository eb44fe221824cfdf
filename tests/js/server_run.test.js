// Runs of the server over its routes: what is asked, what is heard, and how a stream that is cut goes on.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";

import { serverEvents } from "../../assets/js/run/events.js";
import { newVisitor, ServerSource } from "../../assets/js/run/server_source.js";
import { numbers, RANDOM } from "./small.js";

const flush = async () => {
  for (let i = 0; i < 12; i++) await new Promise((then) => setImmediate(then));
};
const bytes = (text) => new TextEncoder().encode(text);
const STREAM = { "content-type": "text/event-stream; charset=utf-8" };
const json = (value, status = 200) => new Response(JSON.stringify(value), { status });

/** What a run says: it opens, has steps, is scored, ends. */
const LOG = [
  ["open", { open: { header: {}, pieces: {} }, label: "stories", pausable: true }],
  ...Array.from({ length: 5 }, (_, step) => ["records", { records: [{ step }], pieces: {} }]),
  ["errors", { errors: [] }],
  ["end", { end: "finished", problem: null }],
];

const written = ([event, data], id) =>
  `${id === undefined ? "" : `id: ${id}\r\n`}event: ${event}\r\ndata: ${JSON.stringify(data)}\r\n\r\n`;

const sources = [];
test.afterEach(() => {
  for (const { runs } of sources.splice(0)) for (const run of runs) run.pause();
});

/** The server of one run, which a test lets speak: `say` sends the next message down the stream that is open. */
function serve({ log = LOG } = {}) {
  const server = { asks: [], stream: null, online: true, hangs: [], tag: '"one"', made: () => json({ id: "r" }, 201) };
  globalThis.window = { parent: null };
  window.parent = window;
  globalThis.location = { hostname: "here" };
  const events = ({ headers, signal }, query) => {
    const stream = { next: Number(headers["last-event-id"] ?? -1) + 1, left: Number(query.get("steps") ?? Infinity) };
    const body = new ReadableStream({
      start: (controller) => Object.assign(stream, { controller }),
      cancel: () => Object.assign(stream, { over: true }),
    });
    signal.addEventListener("abort", () => server.cut(stream, signal.reason));
    server.cut(server.stream); // a newer one takes over
    server.stream = stream;
    return new Response(body, { headers: STREAM });
  };
  globalThis.fetch = async (url, options = {}) => {
    const { method = "GET", headers = {}, body, signal } = options;
    if (signal?.aborted) throw signal.reason;
    if (!server.online) throw new TypeError("no network");
    const path = url.pathname.replace("/surelock/", "");
    if (path.endsWith("scripts/page.js")) return new Response(null, { headers: { etag: server.tag } });
    server.asks.push([method, path + url.search, body && JSON.parse(body), headers]);
    if (path === "runs") return server.made();
    if (path.endsWith("/events")) return server.refuses?.() ?? events(options, url.searchParams);
    if (path.endsWith("/stop")) server.stopped = true;
    return server.answer?.(path + url.search) ?? new Response(null, { status: 204 });
  };
  server.send = (text) => server.stream.controller.enqueue(bytes(text));
  server.cut = (stream = server.stream, why = new TypeError("network error")) => {
    if (!stream || stream.over) return;
    stream.over = true;
    stream.controller.error(why);
  };
  server.close = ({ controller } = server.stream) => {
    server.stream.over = true;
    controller.close();
  };
  server.say = () => {
    const { stream } = server;
    server.send(written(log[stream.next], stream.next));
    stream.left -= log[stream.next][0] === "records" ? 1 : 0;
    stream.next++;
    if (stream.next === log.length || (stream.left <= 0 && log[stream.next][0] === "records")) server.close();
  };
  server.source = new ServerSource(new URL("http://here/surelock/"));
  sources.push(server.source);
  return server;
}

test("events come whole and in order, however their bytes are cut", async () => {
  const field = fc
    .string({ unit: "grapheme", maxLength: 6 })
    .filter((text) => !/[\r\n]/.test(text) && text.trim() === text);
  const event = fc.record({ event: field, id: field, data: field }, { noNullPrototype: true });
  const given = fc.tuple(fc.array(event), fc.constantFrom("\n", "\r\n"), fc.array(fc.nat(9)));
  await fc.assert(
    fc.asyncProperty(given, async ([events, end, cuts]) => {
      const lines = ({ event: name, id, data }) => [
        ": ping",
        "",
        `event: ${name}`,
        `id:${id}`,
        `data: ${data}`,
        "",
        "",
      ];
      const all = bytes(`${events.map((each) => lines(each).join(end)).join("")}data: of no end`);
      const body = new ReadableStream({
        start(controller) {
          const ends = cuts.map((_, i) => cuts.slice(0, i + 1).reduce((sum, cut) => sum + cut + 1, 0));
          for (const [i, at] of [0, ...ends].entries()) controller.enqueue(all.slice(at, ends[i]));
          controller.close();
        },
      });
      const found = [];
      for await (const each of serverEvents(new Response(body, { headers: STREAM }), 1000)) found.push(...each);
      assert.deepEqual(found, events);
    }),
    RANDOM,
  );
});

/** Presses, messages and cuts in any order: a small model knows what must have been heard, and whether a stream is open. */
async function anyOrder(timers, list) {
  const server = serve();
  const heard = [];
  const handle = server.source.start({ prompt: "x" }, (messages) => heard.push(...messages));
  await flush();
  const model = { next: 0, left: Infinity, follows: true };
  const rests = () => model.left <= 0 && LOG[model.next][0] === "records";
  const isOpen = () => server.online && server.stream && !server.stream.over;
  const cut = () => {
    server.cut();
    if (model.left <= 0) model.follows = false; // its steps had come
  };
  const follow = (name, left) => {
    handle[name]();
    Object.assign(model, { follows: true, left });
  };
  const goes = () => model.next < LOG.length;
  const MOVES = {
    say() {
      const [kind] = LOG[model.next];
      server.say();
      model.next++;
      model.left -= kind === "records" ? 1 : 0;
      if (!goes() || rests()) model.follows = false;
    },
    place: () => server.send(written(["place", { place: 1, seconds: null }])),
    cut,
    half() {
      server.send('id: 99\r\nevent: records\r\ndata: {"rec');
      cut();
    },
    network() {
      server.online = !server.online;
      if (!server.online) cut();
    },
    wait: () => timers.tick(8000),
    pause() {
      handle.pause();
      model.follows = false;
    },
    resume: () => follow("resume", Infinity),
    step: () => follow("step", 1),
  };
  const can = { say: isOpen, place: isOpen, cut: isOpen, half: isOpen, resume: goes, step: goes };
  const made = [];
  for (const n of list) {
    const able = Object.keys(MOVES).filter((name) => can[name]?.() ?? true);
    made.push(able[n % able.length]);
    MOVES[made.at(-1)]();
    await flush();
    const messages = heard.filter((each) => !("place" in each || "status" in each));
    const expected = LOG.slice(0, model.next).map(([event, data]) => (event === "open" ? { ...data, run: "r" } : data));
    assert.deepEqual(messages, expected, `after ${made.join(", ")}`);
    if (!model.follows) assert.ok(!isOpen(), "nothing is streamed for a run that rests");
  }
  if (!goes()) return;
  server.online = true;
  timers.tick(8000);
  await flush();
  assert.equal(Boolean(isOpen()), model.follows, `after ${made.join(", ")}, and a while`);
  follow("resume", Infinity);
  timers.tick(8000);
  await flush();
  for (; goes(); await flush()) MOVES.say();
  assert.equal(heard.at(-1).end, "finished");
}

const timed = (t) => {
  let now = 0;
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.mock.method(performance, "now", () => now);
  return {
    tick(ms) {
      now += ms;
      t.mock.timers.tick(ms);
    },
  };
};

test("whatever is pressed and cut, each message is heard once and in order, and a run that is wanted goes on", async (t) => {
  const timers = timed(t);
  const sequence = (list) => anyOrder(timers, list);
  await fc.assert(fc.asyncProperty(numbers(40), sequence), { ...RANDOM, numRuns: 150 });
});

/** What is heard of a run; it is asked for, and no more. */
async function asked(server, request = {}) {
  const heard = [];
  const handle = server.source.start(request, (messages) => heard.push(...messages));
  await flush();
  return { heard, handle };
}

test("a run is asked for under the visitor’s name, and goes on behind the last message", async () => {
  const server = serve();
  const { handle } = await asked(server, { prompt: "x" });
  for (let i = 0; i < 3; i++) server.say();
  await flush();
  await handle.pause();
  handle.step();
  await flush();
  const { visitor } = server.source;
  const name = { "x-surelock-visitor": visitor };
  assert.deepEqual(server.asks, [
    ["POST", "runs", { prompt: "x" }, { ...name, "content-type": "application/json" }],
    ["GET", "runs/r/events", undefined, name],
    ["GET", "runs/r/events?steps=1", undefined, { ...name, "last-event-id": "2" }],
  ]);
  assert.match(visitor, /^[A-Za-z0-9_-]{1,64}$/);
  assert.equal(new Set(Array.from({ length: 100 }, newVisitor)).size, 100);
});

test("a cut is said, and what comes after ten minutes without the server", async (t) => {
  const timers = timed(t);
  const server = serve();
  const { heard } = await asked(server);
  server.say();
  await flush();
  server.online = false;
  server.cut();
  for (let i = 0; i < 80; i++) {
    await flush();
    timers.tick(8000);
  }
  const goesOn = { status: "The connection to the server was lost: the run goes on by itself when it is back." };
  assert.deepEqual(heard.slice(1), [goesOn, { lost: "The connection to the server was lost." }]);
});

test("a cut long after an earlier one is bridged as that was", async (t) => {
  const timers = timed(t);
  const server = serve();
  const { heard } = await asked(server);
  const bridge = async () => {
    server.cut();
    await flush();
    timers.tick(300);
    await flush();
    server.say();
    await flush();
  };
  server.say();
  await flush();
  await bridge();
  for (let i = 0; i < 20; i++) {
    timers.tick(40_000);
    server.send(written(["place", { place: 1, seconds: null }]));
    await flush();
  }
  await bridge();
  const statuses = heard.filter(({ status }) => status !== undefined).map(({ status }) => Boolean(status));
  assert.deepEqual(statuses, [true, false, true, false], "each is said once, and its end once");
  assert.equal(heard.filter(({ records }) => records).length, 2);
  assert.ok(!heard.some(({ lost }) => lost));
});

test("a stream that brings nothing is opened anew", async (t) => {
  const timers = timed(t);
  const server = serve();
  const { heard } = await asked(server);
  timers.tick(30_000);
  server.send(": ping\r\n\r\n");
  await flush();
  timers.tick(30_000);
  await flush();
  assert.equal(heard.length, 0);
  timers.tick(15_000);
  await flush();
  timers.tick(250);
  await flush();
  server.say();
  await flush();
  assert.deepEqual([heard.length, heard[1]], [3, { status: "" }]);
});

const UPDATED = "The server was updated since this page was opened: reload the page.";
const LOST = { lost: "The connection to the server was lost." };
const refusal = (status, detail) => () => json({ detail }, status);
const proxy = (status) => () => new Response("<html>", { status });

test("what the server refuses is told in its own sentence, or in the one that fits", async () => {
  for (const [made, ...expected] of [
    [refusal(422, "Prompt is too long."), { refused: "Prompt is too long." }],
    [refusal(429, "Epsilon must be at least 0, not -1"), { refused: "Epsilon must be at least 0, not -1" }],
    [proxy(429), { refused: "The server has too much to do: try again in a moment." }],
    [proxy(502), LOST],
    [refusal(405, "Method Not Allowed"), { refused: UPDATED }],
    [() => json({ run: 1 }, 201), { refused: UPDATED }],
    [() => Promise.reject(new TypeError("no network")), LOST],
  ]) {
    const { heard } = await asked(Object.assign(serve(), { made }));
    assert.deepEqual(heard, expected);
  }
});

test("of a run that is on its way, too, and a server that was updated says so", async () => {
  const gone = "This run is no longer kept on the server.";
  for (const [refuses, tag, ...expected] of [
    [refusal(404, gone), '"one"', { lost: gone }],
    [refusal(404, gone), '"two"', { lost: UPDATED }],
    [refusal(503, "The queue is full."), '"one"', { refused: "The queue is full." }],
    [() => new Response("<html>", { headers: { "content-type": "text/html" } }), '"one"', { lost: UPDATED }],
    [() => new Response("data: {}\n\n", { headers: STREAM }), '"one"', { lost: UPDATED }],
    [() => new Response("event: open\ndata: {torn\n\n", { headers: STREAM }), '"one"', { lost: UPDATED }],
  ]) {
    const { heard } = await asked(Object.assign(serve(), { refuses, tag }));
    assert.deepEqual(heard, expected);
  }
});

test("a run waits half a minute for its model", async (t) => {
  const timers = timed(t);
  const loading = () => json({ detail: "The model is still loading.", loading: true }, 503);
  const server = Object.assign(serve(), { made: loading });
  const { heard } = await asked(server);
  for (let i = 0; i < 3; i++, await flush()) timers.tick(1000);
  assert.deepEqual(heard, Array(4).fill({ status: "The model is still loading." }));
  server.made = () => json({ id: "r" }, 201);
  timers.tick(1000);
  await flush();
  server.say();
  await flush();
  assert.ok(heard.at(-1).open);
  const other = await asked(Object.assign(serve(), { made: loading }));
  for (let i = 0; i < 32; i++, await flush()) timers.tick(1000);
  assert.deepEqual(other.heard.at(-1), { refused: "The model is still loading." });
});

test("what is stopped or left ends on the server, also where its id is not known yet", async () => {
  const server = serve();
  const stops = () => server.asks.filter(([, path]) => path === "runs/r/stop").length;
  const { heard, handle } = await asked(server);
  server.say();
  await flush();
  const stopped = handle.stop();
  await flush();
  server.send(written(["end", { end: "stopped", problem: null }], 1));
  await stopped;
  assert.deepEqual([stops(), heard.at(-1).end, server.stream.over], [1, "stopped", true]);
  const early = server.source.start({}, () => assert.fail("it is not wanted"));
  early.leave();
  await flush();
  const { handle: late } = await asked(server);
  late.leave();
  await flush();
  assert.deepEqual([stops(), server.stream.over], [3, true]);
  const { handle: paused } = await asked(server);
  await paused.pause();
  server.online = false;
  await paused.stop(); // at once, without a network, too
});

test("a page that is left stops its runs by a beacon", async () => {
  const server = serve();
  const sent = [];
  const navigator = { sendBeacon: (url) => sent.push(url.pathname) };
  Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
  await asked(server);
  server.source.leave();
  assert.deepEqual(sent, ["/surelock/runs/r/stop"]);
});

test("what the page asks of runs and models comes, or nothing", async () => {
  const server = serve();
  const { source } = server;
  const lane = { id: "a", source: { run: "r" }, tokens: () => new Int32Array([5, -1]) };
  const trace = { header: { model: { name: "org/m" } } };
  const answers = {
    "runs/r/top?step=2&position=7": { a: [[1, "x", 0.5]] },
    "runs/r/trace": { records: [] },
    "models/org%2Fm/state": { state: "ready" },
    token: { id: 12, piece: "=a" },
    attended: [[0, 0.5]],
  };
  const all = async () => [
    await source.top(lane, 7, 2),
    await source.document("r"),
    await source.state("org/m"),
    await source.token("a", "org/m"),
    await source.attended(trace, lane, 1, 3),
  ];
  server.answer = (path) => json(answers[path]);
  assert.deepEqual(
    await all(),
    [answers["runs/r/top?step=2&position=7"].a, ...Object.values(answers).slice(1)].map((each) => each.state ?? each),
  );
  assert.deepEqual(
    server.asks.slice(3).map(([, , body]) => body),
    [
      { model: "org/m", text: "a" },
      { model: "org/m", tokens: [5, -1], position: 1 },
    ],
  );
  assert.deepEqual(await source.top(lane, 7, -1), null);
  const lost = LOST.lost;
  for (const break_ of [
    () => refusal(404, "It is gone.")(),
    () => new Response("{torn"),
    () => Promise.reject(new TypeError()),
  ]) {
    server.answer = break_;
    assert.deepEqual(await all(), [null, null, lost, { problem: lost }, null]);
  }
});

test("on a ZeroGPU Space a run goes under its visitor’s headers", async () => {
  const server = serve();
  globalThis.location = { hostname: "owner-space.hf.space" };
  const outer = [];
  window.supports_zerogpu_headers = true;
  window.parent = {
    postMessage: (what, origin, [port]) => {
      outer.push([what, origin]);
      port.postMessage({ "x-ip-token": "a token" });
      port.close();
    },
  };
  server.source.start({}, () => {});
  while (!server.stream) await flush();
  assert.deepEqual(outer, Array(2).fill(["zerogpu-headers", "https://huggingface.co"]));
  for (const [, , , headers] of server.asks) assert.equal(headers["x-ip-token"], "a token");
});
