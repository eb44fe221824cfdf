"""What a run knows: the sequences on one flat axis, how far each is, and the state of every position.

All that a compute rule and an unmask policy may decide by. Padding exists only where a Step is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings

Slots = NDArray[np.int64]
Flags = NDArray[np.bool_]
NONE: Slots = np.empty(0, dtype=np.int64)


class Canvas:
    """Prompts followed by masks. All arrays are flat, over `total` slots: the sequences' positions, one after another.

    lengths, starts [B]: positions of each sequence and its first slot. sequence, position [total]: what a slot is.
    is_prompt [total]. tokens [total] int64 and masked [total] bool change as the run unmasks.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], settings: DecodeSettings, mask_id: int, pad_id: int) -> None:
        prompt_lengths = np.array([len(prompt) for prompt in prompts])
        self.lengths = prompt_lengths + settings.gen_length
        self.starts = np.concatenate(([0], np.cumsum(self.lengths)[:-1]))
        self.total = int(self.lengths.sum())
        self.batch = len(prompts)
        self._edges = np.append(self.starts, self.total)
        self.sequence = np.repeat(np.arange(self.batch), self.lengths)
        self.position = np.arange(self.total) - self.starts[self.sequence]
        self.is_prompt = self.position < prompt_lengths[self.sequence]
        self.generated_from = self.starts + prompt_lengths
        self.mask_id = mask_id
        self.pad_id = pad_id
        self.tokens = np.full(self.total, mask_id)
        self.tokens[self.is_prompt] = np.concatenate([np.asarray(prompt) for prompt in prompts])
        self.masked = ~self.is_prompt
        width = int(self.lengths.max())
        self._shape = (self.batch, width)
        self._cells = self.sequence * width + (width - self.lengths)[self.sequence] + self.position

    def slots_of(self, b: int) -> slice:
        """The slots of sequence b."""
        return slice(int(self.starts[b]), int(self.starts[b] + self.lengths[b]))

    def slot(self, b: int, position: int) -> int:
        """The slot of a sequence's position."""
        return int(self.starts[b]) + position

    def commit(self, slots: Slots, tokens: Slots) -> None:
        self.tokens[slots] = tokens
        self.masked[slots] = False

    def mask(self, slots: Slots) -> None:
        self.tokens[slots] = self.mask_id
        self.masked[slots] = True

    def split(self, slots: Slots) -> list[slice]:
        """Where each sequence's part of ascending `slots` lies."""
        edges = np.searchsorted(slots, self._edges)
        return [slice(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]

    def flags(self, *lists: Slots) -> Flags:
        """[B, N] bool, left-padded: true at the slots of all lists."""
        marked = np.zeros(self.batch * self._shape[1], dtype=bool)
        marked[self._cells[np.concatenate(lists)]] = True
        return marked.reshape(self._shape)

    def grid(self, values: NDArray, fill: object, slots: Slots | slice = slice(None)) -> NDArray:
        """Values of `slots` as a left-padded array [B, N, ...], `fill` at pads and everywhere else."""
        if len(values) == self.batch * self._shape[1]:  # no pads, and all slots
            return values.reshape(*self._shape, *values.shape[1:]).copy()
        out = np.full((self.batch * self._shape[1], *values.shape[1:]), fill, dtype=values.dtype)
        out[self._cells[slots]] = values
        return out.reshape(*self._shape, *values.shape[1:])

    def flat(self, grid: Flags) -> Slots:
        """The slots at which a left-padded [B, N] bool is true, ascending."""
        return np.flatnonzero(grid.ravel()[self._cells])


class Schedule:
    """How far each sequence is: the block it fills, the step within it, and commits still owed from earlier steps.

    early: a block ends as soon as none of its positions is masked, not only after its steps.
    running [B] bool: the sequences that have not ended. steps_in_block [B]: each one's step within its block, 0-based.
    closing [B] bool: this is the last step of its block, which must commit all that is still masked there.
    """

    def __init__(self, canvas: Canvas, settings: DecodeSettings, early: bool) -> None:
        self._canvas, self._early = canvas, early
        self._length = settings.block_length or settings.gen_length
        self._blocks = settings.gen_length // self._length
        self._steps = settings.total_steps // self._blocks
        self._block, self._owed, self.steps_in_block = np.zeros((3, canvas.batch), dtype=int)
        self.running = np.ones(canvas.batch, dtype=bool)
        self.closing = np.full(canvas.batch, self._steps == 1)

    def block(self, b: int) -> slice:
        """The slots of the block that sequence b fills."""
        start = int(self._canvas.generated_from[b] + self._block[b] * self._length)
        return slice(start, start + self._length)

    def open(self, b: int) -> slice:
        """The slots whose masks sequence b may commit: its block, and what is before it."""
        start = int(self._canvas.generated_from[b])
        return slice(start, start + (int(self._block[b]) + 1) * self._length)

    def share(self, b: int) -> int:
        """Positions of this step by an even share of the block's, the remainder in the first steps."""
        share, remainder = divmod(self._length, self._steps)
        return int(share + (self.steps_in_block[b] < remainder))

    def quota(self, b: int) -> int:
        """Positions to commit in this step: its share, and what is owed."""
        return self.share(b) + int(self._owed[b])

    def advance(self, b: int, committed: int) -> None:
        """Close the step of sequence b. Commits that selection could not meet carry over to the next."""
        self._owed[b] = max(0, self.quota(b) - committed)
        self.steps_in_block[b] += 1
        done_early = self._early and not self._canvas.masked[self.open(b)].any()
        if self.steps_in_block[b] == self._steps or done_early:
            self._block[b] += 1
            self.steps_in_block[b] = self._owed[b] = 0
            self.running[b] = self._block[b] < self._blocks
        self.closing[b] = self.steps_in_block[b] == self._steps - 1


class State:
    """The state of Algorithm 1 (lines 1-3) for a batch. Arrays are flat, one value for each of the canvas' slots.

    step: the present one. tokens int64, masked bool, split: the canvas' own. locked bool. visible int: forward passes
    that had the slot's real token as input. computed_at int: the step that computed it last, -1 for never. kl,
    confidence float64: of that computation, NaN where the step did not read it. locked_at, unlocked_at, probed_at int:
    the step in which it last was, -1 for never. alive bool: of a sequence that has not ended. open bool: masked, and in
    the block of its sequence or before it, so that the present step may commit it.
    """

    def __init__(self, canvas: Canvas, schedule: Schedule) -> None:
        self.canvas, self.schedule = canvas, schedule
        self.step = 0
        self.tokens, self.masked, self.split = canvas.tokens, canvas.masked, canvas.split
        self.locked = np.zeros(canvas.total, dtype=bool)
        self.visible = np.zeros(canvas.total, dtype=int)
        self.computed_at = np.full(canvas.total, -1)
        self.kl = np.full(canvas.total, np.inf)
        self.confidence = np.full(canvas.total, np.nan)
        self.locked_at, self.unlocked_at, self.probed_at = np.full((3, canvas.total), -1)
        self.alive = np.ones(canvas.total, dtype=bool)
        self.open = np.zeros(canvas.total, dtype=bool)
        self._kept: dict[str, NDArray] = {}

    def kept(self, name: str, fill: float) -> NDArray:
        """A rule's or a policy's own array, [total], kept from step to step; `fill` everywhere at first."""
        if name not in self._kept:
            self._kept[name] = np.full(self.canvas.total, fill)
        return self._kept[name]

    def lock(self, slots: Slots) -> None:
        """Lock `slots`: they are no longer computed."""
        self.locked[slots] = True
        self.locked_at[slots] = self.step

    def unlock(self, slots: Slots) -> None:
        """Unlock `slots`: they are computed again, and have no earlier posterior to be compared with."""
        self.locked[slots] = False
        self.unlocked_at[slots] = self.step
        self.kl[slots] = np.inf
