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
    /^After the prompt every cell begins as a blank|^The blanks between the given words begin as empty cells/,
    ({ trace, lane }) => {
      for (let p = 0; p < trace.n; p++) assert.equal(lane.token(p, -1) < 0, !trace.given[p]);
    },
  ],
  [
    /computes (every token|(\d+) of (\d+) tokens(, the masked among them)?; (\d+) are left out)\.$/,
    ({ trace, lane, now, t }, [, all, computed, of, masks, left]) => {
      const told = all === "every token" ? [trace.n, trace.n, 0] : [computed, of, left].map(Number);
      assert.deepEqual(told, [now.computed.size, trace.n, trace.n - now.computed.size]);
      const masked = [...now.computed].some((p) => lane.token(p, t) < 0);
      assert.ok(all === "every token" || Boolean(masks) === masked);
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
    /: (“.*”), (just written|written (\d+) steps? ago), (has settled: it )?locks/,
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
    /, (?:with (\d+) others? )?as the first (?:after the prompt|in the blanks)/,
    ({ trace, now, steps, t }, [, others = 0]) => {
      const own = ({ record }) => record.locked.filter((p) => !trace.given[p]).length;
      assert.deepEqual([own(now), steps.slice(0, t).some(own)], [1 + Number(others), false]);
    },
  ],
  [
    /half of all tokens are locked, (\d+) of (\d+)\.$/,
    ({ trace, now, steps, t }, [, locked, of]) => {
      const shown = ({ locked: all, computed }) => [...all].filter((p) => !computed.has(p)).length;
      assert.deepEqual([Number(locked), Number(of)], [shown(now), trace.n]);
      assert.ok(2 * shown(now) >= trace.n && (!t || 2 * shown(steps[t - 1]) < trace.n));
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
    /^“.*?”: (?:(\d+) % (less|more)|as much) work/,
    ({ trace, now, others }, [, change = 0, which]) => {
      const whole = trace.lanes.length > 1 ? others.get(trace.reference.id).at(-1).flops : now.every;
      const sign = which === "more" ? -1 : 1;
      same(Number(change), sign * 100 * (1 - now.flops / whole));
    },
  ],
  [
    /^“.*?”: [^,“]*, (\d+) % (less|more) time/,
    ({ now, others, trace }, [, change, which]) => {
      const sign = which === "more" ? -1 : 1;
      same(Number(change), sign * 100 * (1 - now.seconds / others.get(trace.reference.id).at(-1).seconds));
    },
  ],
  [
    /^“.*?”: [^,“]*, time: no difference to be seen here \(([\d.]+) s and ([\d.]+) s, one run each\)/,
    ({ now, others, trace }, [, theirs, mine]) => {
      const base = others.get(trace.reference.id).at(-1).seconds;
      assert.ok(Math.abs(Number(mine) - now.seconds) < 0.51 && Math.abs(Number(theirs) - base) < 0.51);
    },
  ],
  [
    /[Ss]kipping changed (none|\d+) of (\d+) choices?(, only [a-z ]+)?; /,
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
  const waits = / at work\.$|^“.*”: every token was computed\.$/.test(sentence);
  assert.ok(known.length || waits, `nobody knows “${sentence}”`);
}
