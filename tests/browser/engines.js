// Times runs in a page that is cross-origin isolated, with one way to compute: one thread, two, or WebGPU.
// Returns the seconds of each run's steps, or why there are none.
async ({ module, threads, provider, prompt, lanes, repeats }) => {
  const at = (path) => new URL(path, location.href).href;
  if (provider === "webgpu" && !(await navigator.gpu?.requestAdapter())) return "there is no adapter";
  const ort = await import(at(`/node_modules/onnxruntime-web/dist/${module}`));
  const { OnnxEngine } = await import(at("/assets/js/decode/engine.js"));
  const { race } = await import(at("/assets/js/decode/race.js"));
  const bytes = async (path) => new Uint8Array(await (await fetch(at(path))).arrayBuffer());
  const told = await (await fetch(at("/assets/stories/browser.json"))).json();
  const graphs = {};
  for (const [name, text] of Object.entries(told.graphs))
    graphs[name] = await bytes(`data:application/octet-stream;base64,${text}`);
  const files = {};
  for (const name of told.weights) files[name] = await bytes(`/assets/stories/${name}`);
  ort.env.wasm.numThreads = threads;
  const InferenceSession = {
    create: (graph, options) => ort.InferenceSession.create(graph, { ...options, executionProviders: [provider] }),
  };
  const { env, Tensor } = ort;
  const made = { config: told.shape.network, graphs, files: () => files };
  let engine;
  try {
    engine = await OnnxEngine.load({ env, Tensor, InferenceSession }, made);
  } catch ({ message }) {
    return message.trim().split(". ").at(-1);
  }
  const found = lanes.map(() => []);
  for (let turn = 0; turn <= repeats; turn++)
    for (const [i, lane] of lanes.entries()) {
      let seconds = 0;
      for await (const steps of race(engine, told.shape, prompt, [lane])) {
        if (!steps.length || steps[0].commits) break;
        seconds += steps[0].step.seconds;
      }
      if (turn) found[i].push(seconds); // the first warms up
    }
  return found;
};
