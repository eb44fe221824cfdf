// Gradio's queue as the page speaks it, and the runs of the server over it.

import assert from "node:assert/strict";
import test from "node:test";
import fc from "fast-check";

import { newSession, Queue } from "../../assets/js/run/queue.js";
import { ServerSource } from "../../assets/js/run/server_source.js";
import { numbers, RANDOM } from "./small.js";

const flush = () => new Promise((then) => setImmediate(then));
const ROOT = new URL("http://here/gradio_api/");

/** A server: answers(route, body) -> {status, ...}; send(...) goes down the stream that is open. */
function serve(answers) {
  const server = { posts: [], streams: [], headers: [] };
  globalThis.window = { parent: null };
  window.parent = window;
  globalThis.location = { hostname: "here" };
  globalThis.fetch = async (url, { body, headers }) => {
    const route = url.pathname.replace("/gradio_api/", "");
    server.posts.push([route, JSON.parse(body)]);
    server.headers.push(headers);
    const { status = 200, ...answer } = (await answers(route, JSON.parse(body))) ?? {};
    return { ok: status === 200, json: async () => answer };
  };
  globalThis.EventSource = class {
    constructor(url) {
      server.streams.push([url.pathname + url.search, this]);
    }
    close() {
      this.closed = true;
    }
  };
  server.send = (...messages) => {
    for (const each of messages) server.streams.at(-1)[1].onmessage({ data: JSON.stringify(each) });
  };
  server.queue = new Queue({ root: ROOT, functions: { start: 7, follow: 8 }, session: "me" });
  return server;
}

test("a page has a name of its own also where it came over plain http, where browsers have no randomUUID", (t) => {
  const { crypto } = globalThis;
  t.after(() => Object.defineProperty(globalThis, "crypto", { value: crypto, configurable: true }));
  const getRandomValues = (array) => crypto.getRandomValues(array);
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues }, configurable: true });
  const names = Array.from({ length: 100 }, newSession);
  assert.equal(new Set(names).size, 100);
  for (const name of names) assert.match(name, /^[0-9a-z]{8,64}$/); // what the server takes
});

const numbered = () => {
  let count = 0;
  return (route) => (route === "queue/join" ? { event_id: `e${++count}` } : {});
};

const part = (id, ...messages) => ({
  msg: "process_generating",
  event_id: id,
  success: true,
  output: { data: [JSON.stringify(messages)] },
});
const completed = (id) => ({ msg: "process_completed", event_id: id, success: true, output: { data: [] } });

/** What a run's function tells, and what of that is heard. */
const STORY = [
  [(id) => ({ msg: "estimation", event_id: id, rank: 2, rank_eta: 9 }), { place: 3 }],
  [(id) => ({ msg: "process_starts", event_id: id }), { place: 0 }],
  [(id) => part(id, 1), { text: "[1]" }],
  [(id) => ({ ...part(id), output: { data: [[["replace", [], "[2]"]]] } }), { text: "[2]" }],
  [completed, { over: true }],
];

/** Joins, their answers, messages and leaves in any order, as many at once as there are. */
async function anyOrder(list) {
  const answers = [];
  const server = serve((route) => (route === "queue/join" ? new Promise((then) => answers.push(then)) : {}));
  const asks = []; // {heard, told: how many messages of it were sent, joined: the answer has come, left, expected}
  const isOpen = () => server.streams.some(([, stream]) => !stream.closed);
  const able = {
    ask: () => asks.length < 5,
    join: () => asks.some(({ joined }) => !joined),
    tell: () => isOpen() && asks.some(({ told }) => told < STORY.length),
    leave: () => asks.some(({ left }) => !left),
    close: () => isOpen(),
  };
  const moves = {
    ask() {
      const one = { id: `e${asks.length}`, heard: [], told: 0, joined: false, left: false, expected: [] };
      one.handle = server.queue.ask("start", [], (message) => one.heard.push(message));
      asks.push(one);
    },
    join(n) {
      const open = asks.filter(({ joined }) => !joined);
      const one = open[n % open.length];
      one.joined = true;
      answers[asks.indexOf(one)]({ event_id: one.id });
    },
    tell(n) {
      const left = asks.filter(({ told }) => told < STORY.length);
      const one = left[n % left.length];
      const [message, heard] = STORY[one.told++];
      server.send(message(one.id));
      if (!one.left) one.expected.push(heard);
    },
    leave(n) {
      const there = asks.filter(({ left }) => !left);
      const one = there[n % there.length];
      one.left = true;
      if (!one.joined) one.expected = []; // what came early is not heard later
      one.handle.leave();
    },
    close: () => server.send({ msg: "close_stream" }),
  };
  for (const n of list) {
    const names = Object.keys(moves).filter((name) => able[name]());
    if (!names.length) break;
    moves[names[n % names.length]](Math.floor(n / names.length));
    await flush();
    for (const { heard, expected, joined } of asks) if (joined) assert.deepEqual(heard, expected);
  }
  const left = server.posts.filter(([route]) => route === "cancel").map(([, { event_id }]) => event_id);
  assert.deepEqual(left.sort(), asks.flatMap((one) => (one.left && one.joined ? [one.id] : [])).sort());
  assert.ok(server.streams.filter(([, stream]) => !stream.closed).length <= 1, "one stream");
}

test("whatever comes when, each hears all of its own messages in their order, until it leaves", async () => {
  await fc.assert(fc.asyncProperty(numbers(60), anyOrder), { ...RANDOM, numRuns: 300 });
});

test("a message without its fields is none, and a stream that was closed says no more", async () => {
  const server = serve(numbered());
  const heard = [];
  const ask = async () => server.queue.ask("start", [], (message) => heard.push(message)) && flush();
  await ask();
  const success = { msg: "process_generating", event_id: "e1", success: true };
  server.send(null, 5, [], {}, { event_id: "e1" }, { msg: 7, event_id: "e1" }, { msg: "estimation", event_id: "e1" });
  for (const output of [null, {}, { data: null }, { data: [] }, { data: [7] }, { data: [[]] }, { data: [[[]]] }])
    server.send({ ...success, output });
  server.send({ msg: "close_stream" });
  const [[, first], [, second]] = server.streams;
  first.onerror();
  first.onmessage({ data: JSON.stringify(completed("e1")) });
  assert.ok(first.closed && !second.closed);
  second.onmessage({ data: JSON.stringify({ msg: "process_completed", event_id: "e1" }) });
  assert.deepEqual(heard, [{ place: 1 }, { refused: "The connection to the server was lost." }]);
});

test("the server’s own sentence is told, and a lost connection", async () => {
  const why = "The queue is full for you: 3 of your runs wait already. Try again in a moment.";
  const heard = [];
  const hear = (message) => heard.push(message);
  serve(() => ({ status: 503, detail: why })).queue.ask("start", [], hear);
  await flush();
  serve(() => Promise.reject(new TypeError("no network"))).queue.ask("start", [], hear);
  await flush();
  const server = serve(numbered());
  for (let i = 0; i < 2; i++) server.queue.ask("start", [], hear);
  await flush();
  server.send({ msg: "process_completed", event_id: "e1", success: false, output: { error: "Not so." } });
  server.streams[0][1].onerror();
  const lost = { lost: "The connection to the server was lost." };
  assert.deepEqual(heard, [{ refused: why }, lost, { refused: "Not so." }, lost]);
  assert.ok(server.streams[0][1].closed, "a browser would open it again and again");
});

test("on a ZeroGPU Space a run goes under its visitor’s headers", async () => {
  const server = serve(numbered());
  globalThis.location = { hostname: "owner-space.hf.space" };
  const asked = [];
  window.supports_zerogpu_headers = true;
  window.parent = {
    postMessage: (what, origin, [port]) => {
      asked.push([what, origin]);
      port.postMessage({ "X-IP-Token": "a token" });
      port.close();
    },
  };
  await new Promise((then) => {
    const { queue } = server;
    queue.ask("start", [], then);
    const look = setInterval(() => {
      if (!server.posts.length) return;
      clearInterval(look);
      then();
    }, 5);
  });
  assert.deepEqual(asked, [["zerogpu-headers", "https://huggingface.co"]]);
  assert.deepEqual(server.headers, [{ "content-type": "application/json", "X-IP-Token": "a token" }]);
});

test("a run goes on from the last message that the page has, and what it has comes once", async (t) => {
  const server = serve(numbered());
  const calls = [];
  const answers = { export: "its document", pause: true, state: "paused", stop: '{"run":"r","seq":3,"end":"stopped"}' };
  const functions = Object.fromEntries(
    Object.entries(answers).map(([name, answer]) => [name, async (id) => calls.push([name, id]) && answer]),
  );
  const source = new ServerSource({ queue: server.queue, server: functions });
  const heard = [];
  const run = source.start({ prompt: "x" }, (messages) => {
    assert.ok(messages.length, "nothing new is not heard");
    heard.push(...messages);
  });
  await flush();
  server.send({ msg: "estimation", event_id: "e1", rank: 0 }, part("e1", { run: "r", seq: 0, open: {} }));
  server.send(part("e1", { run: "r", seq: 1 }), part("e1", { run: null, seq: 0 }), completed("e1"));
  await run.pause();
  run.step();
  await flush();
  server.send(
    part("e2", { run: "r", seq: 1 }),
    part("e2", { run: "r", seq: 1 }, { run: "r", seq: 2 }),
    completed("e2"),
  );
  run.resume();
  await flush();
  const asked = server.posts
    .filter(([route]) => route === "queue/join")
    .map(([, { fn_index, data }]) => [fn_index, data]);
  assert.deepEqual(asked, [
    [7, [{ prompt: "x" }]],
    [8, ["r", 1, 1]],
    [8, ["r", 2, null]],
  ]);
  assert.equal(await source.document("r"), "its document");
  await run.stop();
  assert.deepEqual(server.posts.at(-1)[0], "cancel", "what was asked of it and had not come");
  assert.deepEqual(
    calls,
    ["pause", "state", "export", "stop"].map((name) => [name, "r"]),
  );
  assert.deepEqual(
    heard.map(({ place, seq }) => place ?? seq),
    [1, 0, 1, 0, 2, 3],
  );
  t.mock.timers.enable({ apis: ["setTimeout"] });
  functions.stop = async () => null;
  const gone = run.stop();
  for (let i = 0; i < 4; i++) await flush();
  t.mock.timers.tick(1000);
  await gone;
  assert.equal(heard.length, 6, "a run that is gone says no more");
});
