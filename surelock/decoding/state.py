"""The state of a run: canvas, schedule, and arrays with one value per position. Rules and policies see nothing else.

The sequences of a batch lie one after the other on one flat axis. A slot is an index on this axis. Only a `Step` has
padding.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.settings import DecodeSettings
from surelock.values import Flags, Whole

Slots = Whole
Quotas = Callable[[int, int], list[int]]
T = TypeVar("T")
NONE: Slots = np.empty(0, dtype=np.int64)


class Canvas:
    """The tokens of a batch: prompts, which may contain masks, followed by masks.

    total: number of slots, which are all positions of all sequences.
    batch: number of sequences, B.
    lengths, starts: [B] int64, by sequence, the number of its positions and its first slot.
    parts: [B] slices, by sequence, its slots.
    generated_from: [B] int64, by sequence, its first slot that is masked at the start.
    given_until: [B] int64, by sequence, the slot after its last slot that is not masked at the start.
    has_blanks: whether some prompt has a mask before one of its tokens.
    sequence, position: [total] int64, the sequence of a slot and its position there.
    is_prompt: [total] bool, whether the slot is not masked at the start.
    tokens: [total] int64, changed by commits.
    masked: [total] bool, changed by commits.
    mask_id, pad_id: the token ids of masks and, in a `Step`, of pads.

    Raises ValueError for a sequence without a mask.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], settings: DecodeSettings, mask_id: int, pad_id: int
    ) -> None:
        self.lengths = np.array([len(prompt) for prompt in prompts]) + settings.gen_length
        self.starts = np.concatenate(([0], np.cumsum(self.lengths)[:-1]))
        self.total = int(self.lengths.sum())
        self.batch = len(prompts)
        self._edges = np.append(self.starts, self.total)
        self.parts = [slice(*edges) for edges in pairwise(self._edges.tolist())]
        self.sequence = np.repeat(np.arange(self.batch), self.lengths)
        self.position = np.arange(self.total) - self.starts[self.sequence]
        self.mask_id = mask_id
        self.pad_id = pad_id
        masks = [mask_id] * settings.gen_length
        self.tokens = np.array([token for prompt in prompts for token in (*prompt, *masks)])
        self.masked = self.tokens == mask_id
        self.is_prompt = ~self.masked
        self.generated_from = self.starts.copy()
        self.given_until = self.starts.copy()
        for b, part in enumerate(self.parts):
            masked = np.flatnonzero(self.masked[part])
            prompt_positions = np.flatnonzero(self.is_prompt[part])
            if not len(masked):
                raise ValueError(
                    f"prompt {b + 1} has no mask and gen_length is 0: there is nothing to write"
                )
            self.generated_from[b] += masked[0]
            if len(prompt_positions):
                self.given_until[b] += prompt_positions[-1] + 1
        self.has_blanks = bool((self.given_until > self.generated_from).any())
        width = int(self.lengths.max())
        self._shape = (self.batch, width)
        self._cells = self.sequence * width + (width - self.lengths)[self.sequence] + self.position

    def slot(self, b: int, position: int) -> int:
        """Return the slot of a position of sequence b."""
        return int(self.starts[b]) + position

    def split(self, slots: Slots) -> list[slice]:
        """Return [B] slices: by sequence, the part of the ascending `slots` that lies in the sequence."""
        edges = np.searchsorted(slots, self._edges)
        return [slice(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]

    def flags(self, *lists: Slots) -> Flags:
        """Return [B, N] bool, padded on the left, true at the slots of the lists."""
        marked = np.zeros(self.batch * self._shape[1], dtype=bool)
        marked[self._cells[np.concatenate(lists)]] = True
        return marked.reshape(self._shape)

    def grid(self, values: NDArray, fill: object, slots: Slots | slice = slice(None)) -> NDArray:
        """Return the values of `slots` as an array [B, N, ...], padded on the left, with `fill` at all other places."""
        if len(values) == self.batch * self._shape[1]:  # all slots, and no pads between them
            return values.reshape(*self._shape, *values.shape[1:]).copy()
        out = np.full((self.batch * self._shape[1], *values.shape[1:]), fill, dtype=values.dtype)
        out[self._cells[slots]] = values
        return out.reshape(*self._shape, *values.shape[1:])

    def flat(self, grid: Flags) -> Slots:
        """Return the slots at which a [B, N] bool, padded on the left, is true, ascending int64."""
        return np.flatnonzero(grid.ravel()[self._cells])


class _Block(NamedTuple):
    start: int
    stop: int
    quotas: list[int]  # by step of the block, the number of commits that it owes


class Schedule:
    """The progress of the sequences: the present block, the step within the block, and the commits that the step owes.

    Blocks of `block_length` positions cover a sequence from its first mask to its end. The last block may be shorter.
    Blocks without a mask are left out. A block has at least one step; the remaining steps are shared among the blocks
    in proportion to their masks.

    Arguments:
    early: whether a block ends as soon as none of its positions is masked, even if it has steps left.
    quotas: maps (masks, steps) of a block to the list of commits that its steps owe. The list of a policy may have more
    steps.
    block_size: the block size of a block-causal network. Blocks are then counted from position 0, and no block is
    longer than `block_size`.

    Raises ValueError for blocks that would lie across the network's blocks, for fewer steps than blocks, and for more
    steps than masks. For a plain prompt it also raises what `check_blocks` raises.

    Attributes, by sequence:
    steps: [B] int64, the largest possible number of steps.
    running: [B] bool, whether the sequence has not ended.
    starts, stops: [B] int64, the slots at which the present block begins and ends; both are the end of the sequence
    after the sequence has ended.
    steps_in_block: [B] int64, the step within the block, 0-based.
    steps_of_block: [B] int64, the number of steps of the present block, 0 if there is none.
    share: [B] int64, the number of commits that this step owes by itself.
    quota: [B] int64, the number of commits that this step owes: its share, and commits that earlier steps still owe.
    closing: [B] bool, whether this is the last step of the block, which commits all positions that are still masked.
    """

    def __init__(
        self,
        canvas: Canvas,
        settings: DecodeSettings,
        early: bool,
        quotas: Quotas,
        block_size: int | None = None,
    ) -> None:
        self._canvas = canvas
        self._early = early
        self._blocks = [
            _blocks(canvas, b, settings, quotas, block_size) for b in range(canvas.batch)
        ]
        self.steps = np.array(
            [sum(len(block.quotas) for block in blocks) for blocks in self._blocks]
        )
        self._block, self.starts, self.stops, self.share, self.quota = np.zeros(
            (5, canvas.batch), dtype=int
        )
        self.steps_of_block = np.zeros(canvas.batch, dtype=int)
        self.steps_in_block = np.full(canvas.batch, -1)
        self.running, self.closing = np.ones((2, canvas.batch), dtype=bool)
        for b in range(canvas.batch):
            self.advance(b, 0)

    def left(self, b: int) -> list[tuple[int, int]]:
        """Return pairs of the present and later blocks of sequence b: (first slot, steps left in the block).

        Under a policy that ends blocks early the steps left are unknown: the result is one step of the present block.
        """
        blocks = self._blocks[b][int(self._block[b]) :]
        done = int(self.steps_in_block[b])
        if self._early:
            return [(blocks[0].start, 1)]
        steps = [len(block.quotas) for block in blocks]
        steps[0] -= done
        return [(block.start, count) for block, count in zip(blocks, steps, strict=True)]

    def stop(self, b: int) -> None:
        """End sequence b before its schedule does."""
        self._block[b] = len(self._blocks[b])
        self._finish(b)

    def advance(self, b: int, committed: int, goes_on: bool = False) -> None:
        """Go on to the next step of sequence b. Commits that the finished step owed and did not make are owed there.

        committed: number of commits of the finished step. goes_on: whether the block must not end early.
        """
        blocks = self._blocks[b]
        owed = max(0, int(self.quota[b]) - committed)
        self.steps_in_block[b] += 1
        while (at := int(self._block[b])) < len(blocks):
            has_masks = self._canvas.masked[blocks[0].start : blocks[at].stop].any()
            done_early = self._early and not goes_on and not has_masks
            if self.steps_in_block[b] < len(blocks[at].quotas) and not done_early:
                break
            self._block[b] += 1
            self.steps_in_block[b] = owed = 0
            goes_on = False
        self.running[b] = at < len(blocks)
        if not self.running[b]:
            self._finish(b)
            return
        block = blocks[at]
        step = self.steps_in_block[b]
        self.starts[b] = block.start
        self.stops[b] = block.stop
        self.steps_of_block[b] = len(block.quotas)
        self.share[b] = block.quotas[step]
        self.quota[b] = self.share[b] + owed
        self.closing[b] = step == len(block.quotas) - 1

    def _finish(self, b: int) -> None:
        self.running[b] = False
        self.starts[b] = self.stops[b] = self._canvas.parts[b].stop
        self.closing[b] = self.steps_of_block[b] = 0


def check_blocks(settings: DecodeSettings) -> None:
    """Raise ValueError unless the settings fit a plain prompt, one without masks.

    `block_length` must divide `gen_length`. `steps` must be at most `gen_length`, and a multiple of the number of
    blocks.
    """
    if settings.block_length is not None and settings.gen_length % settings.block_length:
        raise ValueError(
            f"block_length ({settings.block_length}) must divide gen_length ({settings.gen_length})"
        )
    if settings.steps is not None:
        if settings.steps > settings.gen_length:
            raise ValueError(
                f"steps ({settings.steps}) must be at most gen_length ({settings.gen_length})"
            )
        blocks = settings.gen_length // settings.block_length if settings.block_length else 1
        if settings.steps % blocks:
            raise ValueError(
                f"steps ({settings.steps}) must be a multiple of the number of blocks ({blocks})"
            )


def _blocks(
    canvas: Canvas, b: int, settings: DecodeSettings, quotas: Quotas, block_size: int | None
) -> list[_Block]:
    """Return the blocks of sequence b that have masks, see `Schedule`."""
    part = canvas.parts[b]
    start = int(canvas.generated_from[b])
    whole = part.stop - start
    if whole == settings.gen_length:  # a plain prompt
        check_blocks(settings)
    length = settings.block_length or whole
    second = start + length  # first slot of the second block
    if block_size is not None:
        # If a single block should cover all generated positions, the network's blocks take its place.
        length = block_size if length >= whole else min(length, block_size)
        if block_size % length:
            raise ValueError(
                f"block_length ({length}) must divide the {block_size} positions of this network's blocks"
            )
        blocks_before = (start - part.start) // length
        second = part.start + (blocks_before + 1) * length
    spans = pairwise([start, *range(second, part.stop, length), part.stop])
    block_masks = [
        (span, masks) for span in spans if (masks := int(canvas.masked[slice(*span)].sum()))
    ]
    masks_until = np.cumsum([masks for _, masks in block_masks])  # by block, masks up to its end
    blocks = len(block_masks)
    most = int(masks_until[-1])
    steps = settings.steps or most
    if steps < blocks:
        lie = f"the masks of prompt {b + 1} lie in {blocks} blocks"
        raise ValueError(f"steps ({steps}) are too few: {lie}, and each takes a step")
    if steps > most:
        raise ValueError(
            f"steps ({steps}) are too many: prompt {b + 1} has {most} masks, and each step writes one"
        )
    # A block has one step for its first mask. Its further masks get a share of the steps that are left.
    further_until = masks_until - np.arange(1, blocks + 1)
    further_steps_until = (steps - blocks) * further_until // max(1, most - blocks)
    shares = 1 + np.diff(further_steps_until, prepend=0)
    return [
        _Block(*span, quotas(masks, share))
        for (span, masks), share in zip(block_masks, shares.tolist(), strict=True)
    ]


class State:
    """The state of Algorithm 1 (lines 1 to 3) for a batch. Arrays have one value per slot, [total].

    step: the present step, 0-based.
    canvas, schedule: the tokens and the progress of the sequences.
    tokens, masked, split: `canvas.tokens`, `canvas.masked` and `canvas.split`.
    locked: bool, whether the slot is locked (L_t).
    visible: int64, number of forward passes that had the slot's real token as input.
    computed_at: int64, the step that last computed the slot; -1 for none.
    kl: float64, the step-wise KL in nats when the slot was last computed; NaN if that step did not read it, infinite
    before the first one.
    confidence: float64, the largest probability when the slot was last computed; NaN if that step did not read it.
    locked_at, unlocked_at, probed_at: int64, the step in which the slot was last locked, unlocked, probed; -1 for none.
    committed_at: int64, the step that committed the slot's token, or before which an event wrote it; -1 for none.
    score: float64, the candidate's score when it was committed; NaN for masks, prompts and tokens that an event wrote.
    measures: by name, float64 numbers of the tokens that the last step committed, NaN at other slots. While a policy
    chooses tokens, the numbers of all candidates. See `Choice.measures`.
    alive: bool, whether the sequence of the slot has not ended.
    open: bool, whether the present step may commit the slot: the slot is masked, in the present block or before it.
    rests: bool, whether the slot is in a finished or a later block of a block-causal network: no rule decides about it.
    settles: bool, whether the slot is in a finished block and the step computes it a last time.
    """

    def __init__(self, canvas: Canvas, schedule: Schedule) -> None:
        self.canvas = canvas
        self.schedule = schedule
        self.step = 0
        self.rests, self.settles = np.zeros((2, canvas.total), dtype=bool)
        self.tokens = canvas.tokens
        self.masked = canvas.masked
        self.split = canvas.split
        self.locked = np.zeros(canvas.total, dtype=bool)
        self.visible = np.zeros(canvas.total, dtype=int)
        self.computed_at = np.full(canvas.total, -1)
        self.kl = np.full(canvas.total, np.inf)
        self.confidence = np.full(canvas.total, np.nan)
        self.locked_at, self.unlocked_at, self.probed_at, self.committed_at = np.full(
            (4, canvas.total), -1
        )
        self.score = np.full(canvas.total, np.nan)
        self.measures: dict[str, NDArray] = {}
        self.alive = np.ones(canvas.total, dtype=bool)
        self.open = np.zeros(canvas.total, dtype=bool)
        self._memories: dict[Callable[[int], Any], Any] = {}

    def open_masks(self) -> Slots:
        """Set `open`, and return the masked slots that the step must commit because their block is in its last step."""
        due = [NONE]
        self.open[:] = False
        for b in np.flatnonzero(self.schedule.running).tolist():
            part = slice(int(self.canvas.generated_from[b]), int(self.schedule.stops[b]))
            self.open[part] = self.masked[part]
            if self.schedule.closing[b]:
                due.append(np.flatnonzero(self.masked[part]) + part.start)
        return np.concatenate(due)

    def memory(self, kind: Callable[[int], T]) -> T:
        """Return the memory of a rule or a policy between steps: an instance of the class `kind`.

        The first call with a class makes the instance, `kind(total)`. Later calls return the same instance.
        """
        if kind not in self._memories:
            self._memories[kind] = kind(self.canvas.total)
        return self._memories[kind]

    def commit(self, slots: Slots, tokens: Slots, score: NDArray | float = np.nan) -> None:
        """Write tokens [K] int64 at slots [K]. score: [K] float64; NaN for tokens that an event writes."""
        self.tokens[slots] = tokens
        self.masked[slots] = False
        self.visible[slots] = 0
        self.committed_at[slots] = self.step
        self.score[slots] = score

    def mask(self, slots: Slots) -> None:
        """Mask the slots again."""
        self.tokens[slots] = self.canvas.mask_id
        self.masked[slots] = True
        self.visible[slots] = 0
        self.committed_at[slots] = -1
        self.score[slots] = np.nan

    def lock(self, slots: Slots) -> None:
        """Lock the slots: later steps do not compute them."""
        self.locked[slots] = True
        self.locked_at[slots] = self.step

    def unlock(self, slots: Slots) -> None:
        """Unlock the slots: later steps compute them. The first of these steps has no posterior to compare with."""
        self.locked[slots] = False
        self.unlocked_at[slots] = self.step
        self.kl[slots] = np.inf
