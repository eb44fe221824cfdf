// Traces of version 2, which called lanes contestants, as traces of version 3: surelock/trace/version2.py says the same.

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The same object with what is called `name` under another name. */
function renamed(value, name, other) {
  if (!isObject(value) || !(name in value)) return value;
  const { [name]: moved, ...kept } = value;
  return { ...kept, [other]: moved };
}

/** The document in version 3. What is damaged stays damaged: the check of version 3 says so. */
export function fromVersion2(document) {
  const { header: before, records } = document;
  const header = renamed(before, "contestants", "lanes");
  const groups = header?.timed_together;
  const timed = Array.isArray(groups) && { timed_together: groups.map((lanes) => ({ lanes })) };
  return {
    ...document,
    version: 3,
    header: isObject(header) ? { ...header, ...timed } : header,
    records: Array.isArray(records) ? records.map((record) => renamed(record, "contestant", "lane")) : records,
  };
}
