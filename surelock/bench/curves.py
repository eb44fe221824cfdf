"""What steps take by their rows, measured or predicted, and what runs keep in memory."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from surelock.config import NetworkConfig
from surelock.decoding.recommended import nearest_block
from surelock.decoding.step import Choice, Layout, Plan, lent
from surelock.model.language_model import LanguageModel
from surelock.model.network import empty_network
from surelock.values import frozen

BLOCK = 32  # the length of a block, or the next shorter one that divides the length
SHARES = (1.0, 0.6, 0.3, 0.1, 0.03)  # of the rows, of which steps are timed
_REPEATS = 5  # of a step; two if it is slow
_SLOW = 0.2  # seconds


@frozen
class Size:
    """What is asked about. prompt: the tokens per prompt. block: the positions of a block."""

    gen_length: int
    batch: int
    prompt: int
    block: int

    @property
    def length(self) -> int:
        """The positions of a sequence."""
        return self.prompt + self.gen_length

    @property
    def rows(self) -> int:
        """The rows of a step that computes all."""
        return self.batch * self.length

    def resized(self, gen_length: int, batch: int) -> "Size":
        """Return the size of another length and another batch."""
        return Size(gen_length, batch, self.prompt, block_of(gen_length, BLOCK))


def block_of(gen_length: int, most: int) -> int:
    """Return the length of a block of at most so many positions; all where no such block divides the length."""
    return nearest_block(gen_length, gen_length, most) or gen_length


def step_plan(size: Size, share: float, watching: bool, mask_id: int) -> tuple[Layout, Plan]:
    """Return a step in the middle of a run: half of the generated positions and of the open block are masked.

    share: of the rows that it computes. The rows are those nearest to the open block.
    watching: whether it reads the written rows, too, and compares them with what was kept.
    """
    rows = max(1, round(share * size.length))
    opened = size.prompt + size.gen_length // 2
    distance = np.abs(np.arange(size.length) - opened)
    chosen = np.sort(np.argsort(distance, kind="stable")[:rows])
    positions = np.tile(chosen, size.batch)
    slots = positions + np.repeat(np.arange(size.batch) * size.length, rows)
    masked = positions >= opened
    candidates = masked & (positions < opened + max(1, size.block // 2))
    written = ~masked if watching else np.zeros(len(slots), dtype=bool)
    plan = Plan(
        step=size.gen_length // 2,
        slots=slots,
        counts=[rows] * size.batch,
        tokens=np.where(masked, mask_id, 0),
        positions=positions,
        probed=np.zeros(len(slots), dtype=bool),
        watches=written | (candidates & watching),
        compares=written,
        choice=Choice(candidates, "confidence", banned=[mask_id]),
    )
    return Layout((size.length,) * size.batch, 1), plan


@frozen(eq=False)
class Curve:
    """The seconds of a step at SHARES of the rows. plain, watching: [len(SHARES)], see `step_plan`."""

    plain: NDArray
    watching: NDArray

    def mean(self, shares: NDArray, watching: bool) -> float:
        """Return the mean seconds of steps. shares: [steps], of the rows that a step computes."""
        values = self.watching if watching else self.plain
        return float(np.interp(shares, SHARES[::-1], values[::-1]).mean())


Seconds = Callable[[Layout, Plan], float]  # of a step


def curve_of(size: Size, seconds: Seconds, mask_id: int) -> Curve:
    """Return the curve of a size. seconds: measures or predicts a step."""
    both = []
    for watching in (False, True):
        plans = [step_plan(size, share, watching, mask_id) for share in SHARES]
        both.append(np.array([seconds(*plan) for plan in plans]))
    return Curve(*both)


def timer(lm: LanguageModel) -> Seconds:
    """Return what measures a step: the median of a few, after one that is not counted."""

    def seconds(layout: Layout, plan: Plan) -> float:
        with lent(lm.engine, layout) as memory:
            first = lm.engine.read(memory, plan).seconds
            repeats = _REPEATS if first < _SLOW else 2
            return float(np.median([lm.engine.read(memory, plan).seconds for _ in range(repeats)]))

    return seconds


def shares_of_dual_cache(size: Size) -> NDArray:
    """Return the share of the rows that the dual cache computes by step of a run: all when a block begins."""
    shares = np.full(size.gen_length, size.block / size.length)
    shares[:: size.block] = 1.0
    return shares


def run_bytes(config: NetworkConfig, size: Size, itemsize: int, keeps: bool) -> int:
    """Return the bytes of a run: keys and values of the rows, with `keeps` posteriors. itemsize: of the dtype."""
    of_row = 2 * config.n_layers * config.n_kv_heads * config.head_size
    if keeps:
        of_row += config.vocab_size
    return of_row * size.rows * itemsize


def weight_bytes(config: NetworkConfig, itemsize: int) -> int:
    """Return what the weights of a shape take. itemsize: of the dtype."""
    return itemsize * sum(parameter.numel() for parameter in empty_network(config).parameters())
