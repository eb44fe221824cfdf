// Makes of the recorded run one that comes from the server: begin(run, steps) sends its first steps. What the page asks of
// the server is kept in `asked`; press() is what the form's Run does, and says whether it is refused.
async () => {
  const { live } = surelock;
  const { header, pieces, records } = live.recorded.toDocument();
  const asked = [];
  const call = (name, answer) => async (run) => {
    asked.push([name, run]);
    return answer;
  };
  const send = (...messages) => live.receive(JSON.stringify(messages));
  live.trigger = (name) => asked.push([name]);
  const answers = { stop: null, pause: true, state: "paused", take_back: null };
  live.server = Object.fromEntries(Object.entries(answers).map(([name, answer]) => [name, call(name, answer)]));
  const begin = (run, steps) => {
    live.cancelled = false; // as pressing Run does
    send(
      { run, seq: 0, open: { header, pieces }, pausable: true },
      { run, seq: 1, pieces: {}, records: records.filter(({ step }) => step < steps) },
    );
  };
  const whatIf = (step) => live.branch(live.stage.trace.lanes[1], { step, kind: "lock", position: 0 }, "What if");
  const { tell } = (await import(new URL("surelock/js/all.js", document.baseURI).href)).modules["bus.js"];
  const press = () => {
    const told = { refused: false };
    tell("run", told);
    return told.refused;
  };
  Object.assign(window, { asked, send, begin, whatIf, press });
};
