// Traces of version 1, which knew two decoders by name, as traces of version 2: surelock/trace/former.py says the same.

/** The document in version 2. What is damaged stays damaged: the check of version 2 says so. */
export function fromVersion1(document) {
  const { header, records } = document;
  if (!isObject(header) || !isObject(header.settings) || !Array.isArray(records)) return { ...document, version: 2 };
  const { settings: all, lock, ...kept } = header;
  const { remasking = "low_confidence", threshold, select_fraction: fraction = 1, replay: _, ...settings } = all;
  const unmask = { kind: remasking };
  if (remasking === "threshold" && threshold !== undefined) unmask.p = threshold;
  const select = fraction === 1 ? null : { kind: "select", fraction };
  const everything = select ?? { kind: "everything" };
  let locked = everything;
  if (isObject(lock)) {
    const { schedule: __, ...rule } = lock;
    const own = { kind: "lock", ...rule };
    locked = select ? { kind: "both", lock: own, select } : own;
  }
  const shared = { unmask, settings, events: [], parent: null };
  const names = select ? ["Selection", "SureLock and selection"] : ["Every position", "SureLock"];
  const contestants = [
    { id: "everything", name: names[0], compute: everything, ...shared },
    { id: "surelock", name: names[1], compute: locked, ...shared },
  ];
  return { ...document, version: 2, header: { ...kept, contestants }, records: records.map(recordOf) };
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function recordOf(record) {
  if (!isObject(record) || !("decoder" in record)) return record;
  const { decoder, ...kept } = record;
  return { contestant: decoder === "baseline" ? "everything" : decoder, ...kept };
}
