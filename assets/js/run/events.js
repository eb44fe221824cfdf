// Reads server-sent events from the body of a fetch: an EventSource cannot send headers.

const BLANK = /\r?\n\r?\n/;
const FIELD = /^([^:]+): ?(.*)$/s; // a line that begins with a colon is a comment

const fieldsOf = (block) =>
  Object.fromEntries(block.split(/\r?\n/).flatMap((line) => (FIELD.test(line) ? [FIELD.exec(line).slice(1)] : [])));

/** Null for an error of the network or an abort. Throws any other error. */
export function unlessCut(error) {
  if (!(error instanceof TypeError || error instanceof SyntaxError || error.name === "AbortError")) throw error;
  return null;
}

/** The result of a promise, null if it takes longer than `ms` milliseconds or if the connection is cut. */
async function within(ms, promise) {
  let timer;
  const over = new Promise((then) => {
    timer = setTimeout(then, ms, null);
  });
  const first = await Promise.race([promise.catch(unlessCut), over]);
  clearTimeout(timer);
  return first;
}

/**
 * Yields lists of events {event, id, data}, one list for every piece of the answer that completes an event.
 * An answer that is no stream yields one event without a name.
 * The generator ends when the answer ends, is cut, or brings nothing for `silence` milliseconds.
 */
export async function* serverEvents({ headers, body }, silence) {
  if (!headers.get("content-type")?.startsWith("text/event-stream")) return yield [{ data: "" }];
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const piece = await within(silence, reader.read());
    if (!piece || piece.done) break;
    const blocks = (rest + piece.value).split(BLANK);
    rest = blocks.pop();
    const events = blocks.map(fieldsOf).filter(({ data }) => data !== undefined);
    if (events.length) yield events;
  }
  reader.cancel().catch(unlessCut);
}
