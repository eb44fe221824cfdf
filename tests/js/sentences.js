// The sentences that the page makes of a trace (narrator.js, chapters.js), each with what makes it true: held against a second
// reading of the trace's own records, which shares no code with the page's.

import assert from "node:assert/strict";

/** A lane's records after each step: {tokens, locked, computed, flops, every, changed, choices, seconds}, sums from the first on. */
export function reading({ header, records }, id) {
  const [tokens, locked, since] = [new Map(header.prompt_tokens.entries()), new Set(), new Map()];
  const sums = { flops: 0, every: 0, changed: 0, choices: 0, seconds: 0 };
  return records
    .filter(({ lane }) => lane === id)
    .map((record, t) => {
      for (const p of record.masked ?? []) tokens.delete(p);
      for (const [p, token] of [...(record.written ?? []), ...record.unmasked]) {
        if (!tokens.has(p)) since.set(p, t);
        tokens.set(p, token);
      }
      for (const p of record.unlocked ?? []) locked.delete(p);
      for (const p of record.locked) locked.add(p);
      const computed = new Set();
      for (let i = 0; i < record.computed.length; i += 2)
        for (let p = 0; p < record.computed[i + 1]; p++) computed.add(record.computed[i] + p);
      sums.flops += record.flops;
      sums.every += record.baseline_flops;
      sums.seconds += record.seconds;
      sums.changed += record.changed?.length ?? 0;
      sums.choices += record.unmasked.length;
      return { ...sums, computed, record, tokens: new Map(tokens), locked: new Set(locked), since: new Map(since) };
    });
}

export const numbersIn = (text) => (text.match(/\d+(\.\d+)?/g) ?? []).map(Number);
export const same = (told, own) => assert.ok(Math.abs(told - own) <= 0.500001, `${told}, not ${own}`);

/** The place: {trace, lane, base, t: the lane's step, step: the cursor's, now: its reading, steps: all of them, others: by lane}. */
const SENTENCES = [
  [
    /^After the prompt every cell begins as a blank/,
    ({ trace, lane }) => {
      for (let p = 0; p < trace.n; p++) assert.equal(lane.token(p, -1) < 0, p >= trace.promptLength);
    },
  ],
  [
    /computes (every token|(\d+) of (\d+) tokens; (\d+) are left out)\.$/,
    ({ trace, now }, [, all, computed, of, left]) => {
      const told = all === "every token" ? [trace.n, trace.n, 0] : [computed, of, left].map(Number);
      assert.deepEqual(told, [now.computed.size, trace.n, trace.n - now.computed.size]);
    },
  ],
  [
    /^Step \d+[^:]*: \S+ writes (“.*”|nothing)( and more)?, and/,
    ({ trace, now }, [, words, more]) => {
      const written = now.record.unmasked.map(([, token]) => trace.word(token));
      assert.equal(words, written.slice(0, 3).join(", ") || "nothing");
      assert.equal(Boolean(more), written.length > 3);
    },
  ],
  [
    /: (“.*”), (just written|written (\d+) steps? ago), (has come to rest: it )?locks/,
    ({ trace, now, steps, t }, [, word, , ago = 0]) => {
      const found = now.record.locked.filter(
        (p) => trace.word(now.tokens.get(p)) === word && t - (now.since.get(p) ?? -1) === Number(ago),
      );
      const next = steps[t + 1];
      const rests = (p) => !next?.computed.has(p) || next.record.unlocked?.includes(p);
      assert.ok(found.some(rests), "it locks in this step, and is left out of the next");
    },
  ],
  [
    /, (?:with (\d+) others? )?as the first after the prompt/,
    ({ trace, now, steps, t }, [, others = 0]) => {
      const own = ({ record }) => record.locked.filter((p) => p >= trace.promptLength).length;
      assert.deepEqual([own(now), steps.slice(0, t).some(own)], [1 + Number(others), false]);
    },
  ],
  [
    /half of all tokens are locked, (\d+) of (\d+)\.$/,
    ({ trace, now, steps, t }, [, locked, of]) => {
      assert.deepEqual([Number(locked), Number(of)], [now.locked.size, trace.n]);
      assert.ok(2 * now.locked.size >= trace.n && (!t || 2 * steps[t - 1].locked.size < trace.n));
    },
  ],
  [
    /“(.*)” has “(.*)” where “(.*)” has “(.*)”\.$/,
    ({ trace, lane, base, step }, [, , own, , other]) => {
      const text = (each) => {
        const ids = [...each.tokens(trace.race.reached(each, step)).subarray(trace.promptLength)];
        const end = ids.findIndex((id) => trace.ends.has(id));
        return trace.pieces.text(end < 0 ? ids : ids.slice(0, end));
      };
      for (const [each, word] of [
        [lane, own],
        [base, other],
      ])
        if (word !== "nothing more") assert.ok(text(each).includes(word.replaceAll("⏎", "\n")), word);
      assert.notEqual(own, other);
    },
  ],
  [
    /did (\d+) % of the work(?: of computing everything)?/,
    ({ trace, now, others }, [all, share]) => {
      const whole = trace.lanes.length > 1 ? others.get(trace.reference.id).at(-1).flops : now.every;
      same(Number(share), (100 * now.flops) / whole);
      assert.equal(all.endsWith("everything"), trace.lanes.length === 1);
    },
  ],
  [
    /in (\d+) % of the time/,
    ({ now, others, trace }, [, share]) =>
      same(Number(share), (100 * now.seconds) / others.get(trace.reference.id).at(-1).seconds),
  ],
  [
    /Skipping changed (none|\d+) of (\d+) choices?(, only [a-z ]+)?; /,
    ({ now }, [, changed, of, order]) => {
      assert.deepEqual([Number(changed === "none" ? 0 : changed), Number(of)], [now.changed, now.choices]);
      assert.ok(!order || !now.changed);
    },
  ],
];

/** Each part of a sentence that a line knows is true there, and each sentence has one. */
export function holds(sentence, at) {
  const t = Number(sentence.match(/^Step (\d+)/)?.[1] ?? at.t + 1) - 1; // the step that it says
  const place = { ...at, t, now: at.steps[t] };
  const known = SENTENCES.filter(([pattern, check]) => {
    const found = sentence.match(pattern);
    if (found) check(place, found);
    return found;
  });
  const waits = / at work\.$|^“.*” computed everything\.$/.test(sentence);
  assert.ok(known.length || waits, `nobody knows “${sentence}”`);
}
