// Gradio's queue as the page speaks it, and the runs of the server over it.

import assert from "node:assert/strict";
import test from "node:test";

import { newSession, Queue } from "../../assets/js/run/queue.js";
import { ServerSource } from "../../assets/js/run/server_source.js";

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

test("what is asked for tells its place, its parts and that it is over, by one stream", async () => {
  const server = serve(numbered());
  const heard = [];
  server.queue.ask("start", [{ prompt: "x" }], (message) => heard.push(message));
  await flush();
  assert.deepEqual(server.posts, [["queue/join", { fn_index: 7, data: [{ prompt: "x" }], session_hash: "me" }]]);
  assert.equal(server.streams[0][0], "/gradio_api/queue/data?session_hash=me");
  server.send(
    { msg: "estimation", event_id: "e1", rank: 2, rank_eta: 9 },
    { msg: "process_starts", event_id: "e1" },
    part("e1", 1),
    { ...part("e1"), output: { data: [[["replace", [], "[2]"]]] } },
    { msg: "heartbeat" },
    completed("e1"),
  );
  assert.deepEqual(heard, [{ place: 3 }, { place: 0 }, { text: "[1]" }, { text: "[2]" }, { over: true }]);
  server.queue.ask("follow", [], () => {});
  await flush();
  server.send({ msg: "close_stream" });
  assert.equal(server.streams.length, 2, "opened anew for what was asked for meanwhile");
  assert.ok(server.streams[0][1].closed);
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

test("what comes before its own answer is not lost", async () => {
  let answer;
  const held = new Promise((then) => {
    answer = then;
  });
  const server = serve((_, { fn_index }) => (fn_index === 7 ? { event_id: "e1" } : held));
  server.queue.ask("start", [], () => {});
  await flush();
  const heard = [];
  server.queue.ask("follow", [], (message) => heard.push(message));
  await flush();
  server.send(part("e2", 1), part("other", 1));
  answer({ event_id: "e2" });
  await flush();
  assert.deepEqual(heard, [{ text: "[1]" }]);
});

test("what is not wanted leaves the queue, at once or as soon as it is in, and is not heard of again", async () => {
  const server = serve(numbered());
  const heard = [];
  const hear = (message) => heard.push(message);
  const first = server.queue.ask("start", [], hear);
  first.leave();
  await flush();
  const second = server.queue.ask("follow", [], hear);
  await flush();
  second.leave();
  server.send(part("e2", 1), completed("e2"));
  const left = server.posts.filter(([route]) => route === "cancel").map(([, body]) => body);
  assert.deepEqual(
    left,
    ["e1", "e2"].map((event_id) => ({ event_id, session_hash: "me", fn_index: -1 })),
  );
  assert.deepEqual(heard, []);
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
