// Writes a WebM file with one VP8 track, as the Matroska and WebM specifications describe it. A file consists of
// elements, and an element of an id, a size and a content.

const text = (words) => new TextEncoder().encode(words);

/** A whole number as `size` bytes, the most significant byte first. */
function bytes(number, size) {
  const array = new Uint8Array(size);
  for (let i = size - 1, left = number; i >= 0; i--, left = Math.floor(left / 256)) array[i] = left % 256;
  return array;
}

const float = (number) => {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, number);
  return new Uint8Array(view.buffer);
};

/** An element as a list of byte arrays. id: hexadecimal. content: byte arrays, or other elements. */
function element(id, ...content) {
  const parts = content.flat();
  const size = parts.reduce((sum, { length }) => sum + length, 0);
  const head = bytes(size, 8);
  head[0] = 1; // the size takes eight bytes, and this byte is the first of them
  return [bytes(Number.parseInt(id, 16), id.length / 2), head, ...parts];
}
const whole = (id, number) => element(id, bytes(number, 4));

/** The file as a list of byte arrays, for a Blob. frames: [{ms, key, data}, ...] in order; the first is a key frame. */
export function webm(frames, { width, height, ms }) {
  const head = element(
    "1A45DFA3",
    whole("4286", 1), // version
    whole("42F7", 1),
    whole("42F2", 4), // longest id
    whole("42F3", 8), // longest size
    element("4282", text("webm")),
    whole("4287", 2),
    whole("4285", 2),
  );
  const information = element(
    "1549A966",
    whole("2AD7B1", 1_000_000), // nanoseconds in a unit of time
    element("4489", float(ms)),
    element("4D80", text("SureLock")),
    element("5741", text("SureLock")),
  );
  const track = element(
    "AE",
    whole("D7", 1), // number of the track
    whole("73C5", 1), // id of the track
    whole("83", 1), // type of the track: video
    element("86", text("V_VP8")),
    element("E0", whole("B0", width), whole("BA", height)),
  );
  return [...head, ...element("18538067", information, element("1654AE6B", track), clusters(frames))];
}

/**
 * The clusters. A cluster begins with a key frame and ends before the next one. A frame's time counts from its begin.
 */
function clusters(frames) {
  const groups = [];
  for (const frame of frames) {
    if (frame.key) groups.push([]);
    groups.at(-1).push(frame);
  }
  return groups.flatMap((group) => {
    const blocks = group.map(({ ms, key, data }) =>
      element("A3", [bytes(0x81, 1), bytes(ms - group[0].ms, 2), bytes(key ? 0x80 : 0, 1), data]),
    );
    return element("1F43B675", whole("E7", group[0].ms), ...blocks);
  });
}
