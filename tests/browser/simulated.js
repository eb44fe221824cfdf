// Makes of the recorded run one that comes from a source: begin(run, steps) opens what was asked for and sends its first
// steps. What the page asks of the source is kept in `asked`; press() is what the form's Run does.
async () => {
  const { live, page } = surelock;
  const { header, pieces, records } = page.now.recorded.toDocument();
  const asked = [];
  let latest = null; // what was asked for last
  live.source = {
    start(request, hear) {
      const note = (name) => asked.push([name, handle.id]);
      const handle = {
        id: null,
        hear,
        leave: () => note("leave"),
        resume: () => note("resume"),
        step: () => note("step"),
      };
      handle.pause = async () => note("pause");
      handle.stop = () => {
        note("stop");
        return new Promise(() => {}); // its end comes by hand
      };
      asked.push([request.prompt_tokens ? "branch" : "start"]);
      latest = handle;
      return handle;
    },
  };
  const send = (...messages) => latest.hear(messages);
  const press = () => live.press({ model: "stories", prompt: "x", lanes: '{"lanes": []}' });
  const open = (run, opened) => {
    latest.id = run;
    send({ run, seq: 0, open: opened, pausable: true });
  };
  const begin = (run, steps) => {
    if (!page.now.waits) press();
    asked.length = 0;
    open(run, { header, pieces });
    send({ run, seq: 1, pieces: {}, records: records.filter(({ step }) => step < steps) });
  };
  const branchAt = (step) => {
    const events = [{ step, kind: "lock", position: 0 }];
    return surelock.starting.branchOff(surelock.stage.trace.lanes[1], { events }, step, "A branch");
  };
  Object.assign(window, { asked, send, open, begin, branchAt, press, latest: () => latest });
};
