"""Random numbers of the sampler: one stream per (seed of the sequence, step), over every position of the block.

A number depends on seed, step, position in the block and its place in the position's row alone, so neither locks nor
the rest of the batch change it. Positions before the block, which only an event can mask again, have a second stream,
(seed, step, 1). The generator is numpy's PCG64 on every device. It can skip numbers, so that only those of candidates
are drawn.
"""

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import Canvas, Schedule
from surelock.values import Whole, frozen


@frozen(eq=False)
class Draws:
    """The random numbers of C candidates."""

    keys: list[tuple[int, ...]]  # the keys of the streams, (seed, step) or (seed, step, 1)
    lengths: list[int]  # the numbers of positions of the streams
    stream: Whole  # [C] int64, ascending, the stream of a candidate
    row: Whole  # [C] int64, the candidate's position in its stream
    scored: bool  # whether a stream begins with one number per position, the scores of the policy `Random`

    def scores(self) -> NDArray:
        """Return one uniform number in [0, 1) per candidate, [C] float64."""
        drawn = [
            _generator(key).random(length)
            for key, length in zip(self.keys, self.lengths, strict=True)
        ]
        return np.array(
            [drawn[stream][row] for stream, row in zip(self.stream, self.row, strict=True)]
        )

    def gumbel(self, candidates: Whole, width: int) -> NDArray:
        """Return `width` uniform numbers in [0, 1) for some candidates, ascending: [K, width] float64."""
        out = np.empty((len(candidates), width))
        streams = self.stream[candidates]
        rows = self.row[candidates]
        for stream in np.unique(streams).tolist():
            where = np.flatnonzero(streams == stream)
            at = 0
            bits = np.random.PCG64(np.random.SeedSequence(self.keys[stream]))
            bits.advance(self.lengths[stream] if self.scored else 0)
            generator = np.random.Generator(bits)
            # without gaps
            for near in np.split(where, np.flatnonzero(np.diff(rows[where]) != 1) + 1):
                first, last = rows[near[[0, -1]]].tolist()
                bits.advance((first - at) * width)
                generator.random(out=out[near[0] : near[-1] + 1])
                at = last + 1
        return out


def draws(
    canvas: Canvas,
    schedule: Schedule,
    settings: DecodeSettings,
    step: int,
    slots: Whole,
    scored: bool,
) -> Draws:
    """Return the random numbers of slots [C], ascending, in or before the present blocks."""
    keys = []
    lengths = []
    streams = [slots[:0]]
    rows = [slots[:0]]
    for b, part in enumerate(canvas.split(slots)):
        candidates = slots[part]
        begin = int(canvas.generated_from[b])
        start = int(schedule.starts[b])
        stop = int(schedule.stops[b])
        cut = int(np.searchsorted(candidates, start))
        parts = (
            (candidates[:cut] - begin, start - begin, (1,)),
            (candidates[cut:] - start, stop - start, ()),
        )
        for row, length, more in parts:
            if len(row):
                streams.append(np.full(len(row), len(keys)))
                rows.append(row)
                keys.append((settings.seed_of(b), step, *more))
                lengths.append(length)
    return Draws(keys, lengths, np.concatenate(streams), np.concatenate(rows), scored)


def _generator(key: tuple[int, ...]) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
