"""Random numbers of the sampler: one stream per (seed of the sequence, step), over all positions of the present block.

A number depends only on seed, step, position in the block, and index in the numbers of that position. So locks and
other sequences of the batch do not change it. Positions before the present block can only be masked by an event; they
have a second stream, (seed, step, 1). The generator is numpy's PCG64 on every device. PCG64 can skip numbers, so only
the numbers of candidates are drawn.
"""

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import Canvas, Schedule
from surelock.values import Whole, frozen


@frozen(eq=False)
class Draws:
    """The random numbers of C candidates."""

    keys: list[tuple[int, ...]]  # by stream, its key: (seed, step) or (seed, step, 1)
    lengths: list[int]  # by stream, the number of its positions
    stream: Whole  # [C] int64, ascending, the number of the candidate's stream
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
        """Return `width` uniform numbers in [0, 1) per candidate, [K, width] float64.

        candidates: [K] int64, numbers of candidates, ascending.
        """
        out = np.empty((len(candidates), width))
        streams = self.stream[candidates]
        rows = self.row[candidates]
        for stream in np.unique(streams).tolist():
            where = np.flatnonzero(streams == stream)
            next_row = 0
            bits = np.random.PCG64(np.random.SeedSequence(self.keys[stream]))
            if self.scored:
                bits.advance(self.lengths[stream])
            generator = np.random.Generator(bits)
            # Neighbouring positions are drawn together. The numbers between such groups are skipped.
            gaps = np.flatnonzero(np.diff(rows[where]) != 1)
            for group in np.split(where, gaps + 1):
                first, last = rows[group[[0, -1]]].tolist()
                bits.advance((first - next_row) * width)
                generator.random(out=out[group[0] : group[-1] + 1])
                next_row = last + 1
        return out


def draws(
    canvas: Canvas,
    schedule: Schedule,
    settings: DecodeSettings,
    step: int,
    slots: Whole,
    scored: bool,
) -> Draws:
    """Return the random numbers of candidates. slots: [C] int64, ascending, in or before the present blocks.

    scored: whether a stream begins with one number per position, the scores of the policy `Random`.
    """
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
