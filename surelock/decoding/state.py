"""The state of a run: canvas, schedule, and what is known of every position. Rules and policies decide by it alone.

All sequences of a batch lie on one flat axis of slots, one behind the other. Only a `Step` has padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings

Slots = NDArray[np.int64]
Flags = NDArray[np.bool_]
NONE: Slots = np.empty(0, dtype=np.int64)


class Canvas:
    """The tokens of a batch: each prompt followed by masks. Arrays are flat, over all slots [total].

    batch, total: the numbers of sequences and of slots.
    lengths, starts: [B] int64, the number of positions and the first slot of each sequence.
    generated_from: [B] int64, the first generated slot of each sequence.
    sequence, position: [total] int64, the sequence of a slot and its position there.
    is_prompt: [total] bool.
    tokens: [total] int64, changed by commits.
    masked: [total] bool, changed by commits.
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
        """Return the slots of sequence b."""
        return slice(int(self.starts[b]), int(self.starts[b] + self.lengths[b]))

    def slot(self, b: int, position: int) -> int:
        """Return the slot of a position of sequence b."""
        return int(self.starts[b]) + position

    def commit(self, slots: Slots, tokens: Slots) -> None:
        self.tokens[slots] = tokens
        self.masked[slots] = False

    def mask(self, slots: Slots) -> None:
        self.tokens[slots] = self.mask_id
        self.masked[slots] = True

    def split(self, slots: Slots) -> list[slice]:
        """Return, for each sequence, which part of the ascending `slots` is its own."""
        edges = np.searchsorted(slots, self._edges)
        return [slice(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]

    def flags(self, *lists: Slots) -> Flags:
        """Return [B, N] bool, left-padded, true at the slots of the lists."""
        marked = np.zeros(self.batch * self._shape[1], dtype=bool)
        marked[self._cells[np.concatenate(lists)]] = True
        return marked.reshape(self._shape)

    def grid(self, values: NDArray, fill: object, slots: Slots | slice = slice(None)) -> NDArray:
        """Return the values of `slots` as a left-padded array [B, N, ...], with `fill` at all other places."""
        if len(values) == self.batch * self._shape[1]:  # no pads, and all slots
            return values.reshape(*self._shape, *values.shape[1:]).copy()
        out = np.full((self.batch * self._shape[1], *values.shape[1:]), fill, dtype=values.dtype)
        out[self._cells[slots]] = values
        return out.reshape(*self._shape, *values.shape[1:])

    def flat(self, grid: Flags) -> Slots:
        """Return the slots at which a left-padded [B, N] bool is true, ascending."""
        return np.flatnonzero(grid.ravel()[self._cells])


class Schedule:
    """The progress of each sequence: its present block, the step within it, and commits owed from earlier steps.

    early: whether a block ends as soon as none of its positions is masked, before its steps are over.
    block_size: that of a block-causal network. Blocks are then counted from position 0, none is longer than the
    network's, and steps are divided among them by their lengths.

    Raises ValueError for blocks that would lie across the network's, and for fewer steps than blocks.

    running: [B] bool, whether the sequence has not ended.
    steps_in_block: [B] int64, the step within the block, 0-based.
    closing: [B] bool, whether this is the last step of the block, which commits all that is still masked.
    """

    def __init__(self, canvas: Canvas, settings: DecodeSettings, early: bool, block_size: int | None = None) -> None:
        self._canvas, self._early = canvas, early
        self._edges = [_edges(canvas, b, settings, block_size) for b in range(canvas.batch)]
        self._steps = [_divided(settings.total_steps, edges) for edges in self._edges]
        self._block, self._owed, self.steps_in_block = np.zeros((3, canvas.batch), dtype=int)
        self.running = np.ones(canvas.batch, dtype=bool)
        self.closing = np.array([steps[0] == 1 for steps in self._steps])

    def block(self, b: int) -> slice:
        """Return the slots of the present block of sequence b; none if it has ended."""
        start, stop = [*self._edges[b], self._edges[b][-1]][self._block[b] :][:2]
        return slice(start, stop)

    def open(self, b: int) -> slice:
        """Return the slots whose masks may be committed: the present block of sequence b and the blocks before it."""
        return slice(self._edges[b][0], self.block(b).stop)

    def share(self, b: int) -> int:
        """Return an even share of the block's positions for this step; the first steps share the remainder."""
        block = self.block(b)
        share, remainder = divmod(block.stop - block.start, self._steps[b][self._block[b]])
        return int(share + (self.steps_in_block[b] < remainder))

    def quota(self, b: int) -> int:
        """Return the number of commits in this step: its share and what earlier steps owe."""
        return self.share(b) + int(self._owed[b])

    def advance(self, b: int, committed: int) -> None:
        """End the step of sequence b. The next step owes the commits that this one could not make."""
        self._owed[b] = max(0, self.quota(b) - committed)
        self.steps_in_block[b] += 1
        done_early = self._early and not self._canvas.masked[self.open(b)].any()
        steps = self._steps[b]
        if self.steps_in_block[b] == steps[self._block[b]] or done_early:
            self._block[b] += 1
            self.steps_in_block[b] = self._owed[b] = 0
            self.running[b] = self._block[b] < len(steps)
        self.closing[b] = self.running[b] and self.steps_in_block[b] == steps[self._block[b]] - 1


def _edges(canvas: Canvas, b: int, settings: DecodeSettings, block_size: int | None) -> list[int]:
    """The slots at which the blocks of sequence b begin, ascending, and its end."""
    start, own = int(canvas.generated_from[b]), canvas.slots_of(b)
    length = settings.block_length or settings.gen_length
    if block_size is None:
        return [*range(start, own.stop, length), own.stop]
    # One block for all that is generated is as many of the network's as it takes.
    length = block_size if length == settings.gen_length else min(length, block_size)
    if block_size % length:
        raise ValueError(f"block_length ({length}) must divide the {block_size} positions of this network's blocks")
    begun = own.start + ((start - own.start) // length + 1) * length  # of the block behind the one with `start`
    edges = [start, *range(begun, own.stop, length), own.stop]
    if settings.total_steps < len(edges) - 1:
        told = f"the positions behind prompt {b} lie in {len(edges) - 1} blocks of this network"
        raise ValueError(f"steps ({settings.total_steps}) are too few: {told}, and each takes a step")
    return edges


def _divided(steps: int, edges: list[int]) -> list[int]:
    """The steps of each block: one, and of the others a share by its length. No block has more than its length."""
    blocks = len(edges) - 1
    more, most = steps - blocks, max(1, edges[-1] - edges[0] - blocks)
    before = [more * (edge - edges[0] - number) // most for number, edge in enumerate(edges)]
    return [1 + after - first for first, after in pairwise(before)]


class State:
    """The state of Algorithm 1 (lines 1-3) for a batch. Arrays have one value for each slot, [total].

    step: the present step, 0-based.
    tokens, masked, split: those of the canvas.
    locked: bool.
    visible: int64, forward passes that had the slot's real token as input.
    computed_at: int64, the step that last computed the slot, -1 for none.
    kl: float64, the step-wise KL of that computation in nats; NaN if the step did not read it, infinite at first.
    confidence: float64, the largest probability in that computation; NaN if the step did not read it.
    locked_at, unlocked_at, probed_at: int64, the step in which the slot was last locked, unlocked, probed; -1 for none.
    alive: bool, whether the sequence of the slot has not ended.
    open: bool, whether the present step may commit the slot: masked, in the present block or before it.
    rests: bool, in a block-causal network the slots of finished and of later blocks, which no rule decides about.
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
        self.open, self.rests = np.zeros((2, canvas.total), dtype=bool)
        self._kept: dict[str, NDArray] = {}

    def kept(self, name: str, fill: float) -> NDArray:
        """Return an array [total] that a rule or a policy keeps from step to step, filled with `fill` at first."""
        if name not in self._kept:
            self._kept[name] = np.full(self.canvas.total, fill)
        return self._kept[name]

    def lock(self, slots: Slots) -> None:
        """Lock `slots`: later steps do not compute them."""
        self.locked[slots] = True
        self.locked_at[slots] = self.step

    def unlock(self, slots: Slots) -> None:
        """Unlock `slots`: later steps compute them, the first of these without a posterior to compare with."""
        self.locked[slots] = False
        self.unlocked_at[slots] = self.step
        self.kl[slots] = np.inf
