// One decoder alone, as the page's worker runs it: its steps' seconds, and those that passed until its last step.
async ([preset, settings, prompt]) => {
  const { source, page } = surelock;
  const { name, compute, unmask } = page.now.presets.find(({ id }) => id === preset);
  const lanes = [{ id: preset, name, compute, unmask }];
  const told = { steps: 0, seconds: 0, flops: 0, baseline_flops: 0 };
  const began = performance.now();
  await new Promise((then, failed) => {
    const run = source.browser.start({ ...settings, model: "stories", prompt, lanes }, (messages) => {
      for (const { records = [], refused, lost } of messages) {
        if (refused ?? lost) failed(new Error(refused ?? lost));
        for (const record of records) {
          told.steps += 1;
          for (const name of ["seconds", "flops", "baseline_flops"]) told[name] += record[name];
        }
      }
      if (told.steps === settings.gen_length)
        run
          .stop()
          .then(() => run.leave(), failed)
          .then(then); // before its errors
    });
  });
  return { ...told, wall: (performance.now() - began) / 1000 };
};
