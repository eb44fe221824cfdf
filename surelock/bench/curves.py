"""The seconds of a step by its number of rows, measured or predicted, and the memory of a run."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from surelock.config import NetworkConfig
from surelock.decoding.recommended import nearest_block
from surelock.decoding.step import Choice, Layout, Plan, lent
from surelock.model.language_model import LanguageModel
from surelock.model.network import empty_network
from surelock.values import frozen

#: The length of a block; if it does not divide the length, the next shorter one that does.
BLOCK = 32
SHARES = (1.0, 0.6, 0.3, 0.1, 0.03)  # the shares of the rows that the timed steps compute
_REPEATS = 5  # how often a step is timed; a slow step is timed twice
_SLOW = 0.2  # seconds from which a step is slow


@frozen
class Size:
    """The size of a run."""

    gen_length: int  # generated tokens of a sequence
    batch: int  # sequences
    prompt: int  # tokens of a prompt
    block: int  # positions of a block

    @property
    def length(self) -> int:
        """The number of positions of a sequence."""
        return self.prompt + self.gen_length

    @property
    def rows(self) -> int:
        """The number of rows of a step that computes every row."""
        return self.batch * self.length

    def resized(self, gen_length: int, batch: int) -> "Size":
        """Return the size with another length and another batch."""
        return Size(gen_length, batch, self.prompt, block_of(gen_length, BLOCK))


def block_of(gen_length: int, most: int) -> int:
    """Return the length of a block: at most `most` positions, or all positions if no such block divides the length."""
    return nearest_block(gen_length, gen_length, most) or gen_length


def step_plan(size: Size, share: float, watching: bool, mask_id: int) -> tuple[Layout, Plan]:
    """Return the layout and the plan of a step in the middle of a run.

    Half of the generated positions, and half of the open block, are masked.

    share: the share of the rows that the step computes. It computes the rows nearest to the open block.
    watching: whether the step also reads the written rows, and compares them with their last posterior.
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
    """The seconds of a step that computes SHARES of the rows, see `step_plan`."""

    plain: NDArray  # [len(SHARES)], without watching
    watching: NDArray  # [len(SHARES)], with watching

    def mean(self, shares: NDArray, watching: bool) -> float:
        """Return the mean seconds of the steps of a run.

        shares: [steps], the share of the rows that a step computes. Seconds between SHARES are interpolated.
        watching: whether the steps compare written rows.
        """
        values = self.watching if watching else self.plain
        return float(np.interp(shares, SHARES[::-1], values[::-1]).mean())


Seconds = Callable[[Layout, Plan], float]  # a function that returns the seconds of a step


def curve_of(size: Size, seconds: Seconds, mask_id: int) -> Curve:
    """Return the curve of a size. seconds: a function that measures or predicts a step."""
    both = []
    for watching in (False, True):
        plans = [step_plan(size, share, watching, mask_id) for share in SHARES]
        both.append(np.array([seconds(*plan) for plan in plans]))
    return Curve(*both)


def timer(lm: LanguageModel) -> Seconds:
    """Return a function that measures a step: the median of a few repeats, after one that is not counted."""

    def seconds(layout: Layout, plan: Plan) -> float:
        with lent(lm.engine, layout) as memory:
            first = lm.engine.read(memory, plan).seconds
            repeats = _REPEATS if first < _SLOW else 2
            return float(np.median([lm.engine.read(memory, plan).seconds for _ in range(repeats)]))

    return seconds


def shares_of_dual_cache(size: Size) -> NDArray:
    """Return the share of the rows that the dual cache computes, [gen_length], one step per generated token.

    It computes every row in the first step of a block, and the rows of the block in the other steps.
    """
    shares = np.full(size.gen_length, size.block / size.length)
    shares[:: size.block] = 1.0
    return shares


def run_bytes(config: NetworkConfig, size: Size, itemsize: int, keeps: bool) -> int:
    """Return the bytes that a run keeps.

    itemsize: the bytes of a number.
    keeps: whether the run keeps posteriors, besides the keys and values of all rows.
    """
    of_row = 2 * config.n_layers * config.n_kv_heads * config.head_size
    if keeps:
        of_row += config.vocab_size
    return of_row * size.rows * itemsize


def weight_bytes(config: NetworkConfig, itemsize: int) -> int:
    """Return the bytes of the weights of a network. itemsize: the bytes of a number."""
    return itemsize * sum(parameter.numel() for parameter in empty_network(config).parameters())
