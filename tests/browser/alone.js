// One decoder alone, as the page's worker runs it: its steps' seconds, and those that passed until its last step.
async ([preset, gen_length, prompt]) => {
  const { source, page } = surelock;
  const { name, compute, unmask } = page.now.presets.find(({ id }) => id === preset);
  const defaults = JSON.parse(document.getElementById("sl-settings").textContent).settings;
  const settings = Object.fromEntries(Object.entries(defaults).map(([key, told]) => [key, told.default]));
  const lanes = [{ id: preset, name, compute, unmask }];
  const told = { steps: 0, seconds: 0, flops: 0, baseline_flops: 0 };
  const began = performance.now();
  await new Promise((then, failed) => {
    const run = source.browser.start({ ...settings, model: "stories", prompt, lanes, gen_length }, (messages) => {
      for (const { records = [], refused, lost } of messages) {
        if (refused ?? lost) failed(new Error(refused ?? lost));
        for (const record of records) {
          told.steps += 1;
          for (const name of ["seconds", "flops", "baseline_flops"]) told[name] += record[name];
        }
      }
      if (told.steps === gen_length) run.stop().then(then); // before its commit errors
    });
  });
  return { ...told, wall: (performance.now() - began) / 1000 };
};
