"""The state of a run: canvas, schedule, and what is known of every position. Rules and policies decide by it alone.

All sequences of a batch lie on one flat axis of slots, one behind the other. Only a `Step` has padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings

Slots = NDArray[np.int64]
Flags = NDArray[np.bool_]
T = TypeVar("T")
NONE: Slots = np.empty(0, dtype=np.int64)


class Canvas:
    """The tokens of a batch: each prompt followed by masks. Arrays are flat, over all slots [total].

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
        self.parts = [slice(*edges) for edges in pairwise(self._edges.tolist())]
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
    starts, stops: [B] int64, where the slots of the present block begin and end; both the end of one that has ended.
    steps_in_block: [B] int64, the step within the block, 0-based.
    share: [B] int64, an even share of the block's positions for this step; the first steps share the remainder.
    quota: [B] int64, the number of commits in this step: its share and what earlier steps owe.
    closing: [B] bool, whether this is the last step of the block, which commits all that is still masked.
    """

    def __init__(self, canvas: Canvas, settings: DecodeSettings, early: bool, block_size: int | None = None) -> None:
        self._canvas, self._early = canvas, early
        self._blocks = [_blocks(canvas, b, settings, block_size) for b in range(canvas.batch)]
        self._block, self.starts, self.stops, self.share, self.quota = np.zeros((5, canvas.batch), dtype=int)
        self.steps_in_block = np.full(canvas.batch, -1)
        self.running, self.closing = np.ones((2, canvas.batch), dtype=bool)
        for b in range(canvas.batch):
            self.advance(b, 0)

    def advance(self, b: int, committed: int) -> None:
        """Go on to the next step of sequence b. It owes the commits that this one could not make."""
        edges, steps = self._blocks[b]
        owed = max(0, int(self.quota[b]) - committed)
        self.steps_in_block[b] += 1
        done_early = self._early and not self._canvas.masked[edges[0] : edges[self._block[b] + 1]].any()
        if self.steps_in_block[b] == steps[self._block[b]] or done_early:
            self._block[b] += 1
            self.steps_in_block[b] = owed = 0
        block, step = self._block[b], self.steps_in_block[b]
        self.running[b] = block < len(steps)
        if not self.running[b]:
            self.starts[b], self.closing[b] = edges[-1], False
            return
        self.starts[b], self.stops[b] = edges[block : block + 2]
        share, remainder = divmod(edges[block + 1] - edges[block], steps[block])
        self.share[b] = share + (step < remainder)
        self.quota[b] = self.share[b] + owed
        self.closing[b] = step == steps[block] - 1


def _blocks(canvas: Canvas, b: int, settings: DecodeSettings, block_size: int | None) -> tuple[list[int], list[int]]:
    """The slots at which the blocks of sequence b begin, ascending, and its end; and the steps of each block.

    A block has one step, and of the others a share by its length, but no more than its length.
    """
    start, stop = int(canvas.generated_from[b]), canvas.parts[b].stop
    length = settings.block_length or settings.gen_length
    begun = start + length
    if block_size is not None:
        # One block for all that is generated is as many of the network's as it takes.
        length = block_size if length == settings.gen_length else min(length, block_size)
        if block_size % length:
            raise ValueError(f"block_length ({length}) must divide the {block_size} positions of this network's blocks")
        first = canvas.parts[b].start
        begun = first + ((start - first) // length + 1) * length  # of the block behind the one with `start`
    edges = [start, *range(begun, stop, length), stop]
    blocks, steps = len(edges) - 1, settings.total_steps
    if steps < blocks:
        told = f"the positions behind prompt {b} lie in {blocks} blocks of this network"
        raise ValueError(f"steps ({steps}) are too few: {told}, and each takes a step")
    more, most = steps - blocks, max(1, stop - start - blocks)
    before = [more * (edge - start - number) // most for number, edge in enumerate(edges)]
    return edges, [1 + after - first for first, after in pairwise(before)]


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

    def __init__(self, canvas: Canvas, schedule: Schedule, rests: Flags) -> None:
        self.canvas, self.schedule, self.rests = canvas, schedule, rests
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
        self._memories: dict[Callable[[int], Any], Any] = {}

    def memory(self, kind: Callable[[int], T]) -> T:
        """Return what a rule or a policy remembers from step to step: an instance of its class `kind`.

        The run makes it at the first call, as `kind(total)`, and keeps one of each class.
        """
        if kind not in self._memories:
            self._memories[kind] = kind(self.canvas.total)
        return self._memories[kind]

    def lock(self, slots: Slots) -> None:
        """Lock `slots`: later steps do not compute them."""
        self.locked[slots] = True
        self.locked_at[slots] = self.step

    def unlock(self, slots: Slots) -> None:
        """Unlock `slots`: later steps compute them, the first of these without a posterior to compare with."""
        self.locked[slots] = False
        self.unlocked_at[slots] = self.step
        self.kl[slots] = np.inf
