"""`surelock decode --watch`: a terminal shows the text while it is written, for one decoder or two side by side."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import groupby, zip_longest
from types import TracebackType

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from surelock.decoding.step import Step
from surelock.model.language_model import LanguageModel
from surelock.trace.pieces import Piece, Pieces

MASK = "·"
END = "■"
FRESH = "bold"
LOCKED = "dim"
PROMPT = "italic"
FRAME_SECONDS = 1 / 20  # smallest time between two frames
LEAST_WIDTH = 36  # smallest width of a lane beside another lane, in columns
PLAIN_LINES = 10  # number of lines for a run if nothing can be drawn


@dataclass(slots=True)
class Lane:
    """The shown state of one run: its last step, and sums over its steps."""

    name: str
    step: Step | None = None
    steps: int = 0
    flops: float = 0.0
    baseline_flops: float = 0.0

    def take(self, step: Step) -> None:
        """Add the next step."""
        self.step = step
        self.steps += 1
        self.flops += float(step.flops.sum())
        self.baseline_flops += float(step.baseline_flops.sum())

    @property
    def counts(self) -> str:
        """Number of steps, rows of the last step, and the share of the baseline's FLOPs so far, in words."""
        if self.step is None:
            return "not begun"
        rows = int(self.step.computed.sum())
        share = self.flops / self.baseline_flops
        return f"step {self.steps}, {rows} rows, {share:.0%} of the FLOPs"


class Watch(AbstractContextManager):
    """Draws one run, or two runs side by side.

    names: the names of the runs.
    console: rich's console of standard output. If it is no terminal, plain lines count the steps instead.
    sleep: a function that waits for a number of seconds. clock: a function that returns the time in seconds.
    """

    def __init__(
        self,
        lm: LanguageModel,
        names: Sequence[str],
        console: Console,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lanes = [Lane(name) for name in names]
        self._pieces = Pieces(lm.tokenizer)
        self._ends = frozenset(lm.ends)
        self._console = console
        self._sleep = sleep
        self._clock = clock
        self._drawn_at = -FRAME_SECONDS
        self._live: Live | None = None

    def __enter__(self) -> "Watch":
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop"
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the drawing from the terminal, also after an interruption."""
        if self._live is not None:
            self._live.stop()

    def follow(self, steps: Iterable[Step], beside: Iterable[Step] = ()) -> Iterator[Step]:
        """Yield the steps of the first run, and draw the steps of both runs. beside: the steps of the second run."""
        for first_step, second_step in zip_longest(steps, beside):
            stepped = []
            for lane, step in zip(self.lanes, (first_step, second_step), strict=False):
                if step is not None:
                    lane.take(step)
                    stepped.append(lane)
            self._show(stepped)
            if first_step is not None:
                yield first_step

    def _show(self, stepped: Sequence[Lane]) -> None:
        """Show the lanes. stepped: the lanes that have just made a step."""
        if self._live is None:
            self._print(stepped)
            return
        left = self._drawn_at + FRAME_SECONDS - self._clock()
        if left > 0:
            self._sleep(left)
        self._drawn_at = self._clock()
        self._live.update(self._drawing(), refresh=True)

    def _print(self, stepped: Sequence[Lane]) -> None:
        """Print a line for a lane about ten times in its run, and at its end."""
        for lane in stepped:
            assert lane.step is not None
            masks = int(lane.step.masked.sum())
            every = max(1, (lane.steps + masks) // PLAIN_LINES)
            if lane.steps % every == 0 or not masks:
                self._console.print(f"{lane.name}: {lane.counts}", highlight=False, soft_wrap=True)

    def _drawing(self) -> RenderableType:
        drawn = [self._lane(lane) for lane in self.lanes]
        if len(drawn) == 1 or self._console.width < LEAST_WIDTH * len(drawn):
            return Group(*drawn)
        table = Table.grid(padding=(0, 2), expand=True)
        for _ in drawn:
            table.add_column(ratio=1)
        table.add_row(*drawn)
        return table

    def _lane(self, lane: Lane) -> RenderableType:
        head = Text(f"{lane.name}: {lane.counts}", style="reverse")
        if lane.step is None:
            return head
        return Group(head, self._text(lane.step))

    def _text(self, step: Step) -> Text:
        """Return the canvas of one sequence, with a dot for a mask and a square for an end."""
        tokens = step.tokens[0].tolist()
        pieces = self._pieces.look_up(tokens)

        def piece_at(place: int) -> Piece:
            if step.masked[0, place]:
                return MASK
            token = tokens[place]
            if token in self._ends and not step.given[0, place]:
                return END
            return pieces.get(
                str(token), f" {token}"
            )  # the token's number if there is no tokenizer

        shown = Text()
        places = range(len(tokens))
        styles = styles_of(step)
        for style, run in groupby(places, key=lambda place: styles[place]):
            shown.append(joined([piece_at(place) for place in run]), style=style)
        return shown


def styles_of(step: Step) -> list[str]:
    """Return rich's styles for the positions of one sequence: new words are bold, locked words are dim."""
    styles: NDArray = np.full(step.tokens.shape[1], "", dtype=object)
    styles[step.given[0]] = PROMPT
    styles[step.locked[0]] = LOCKED
    styles[step.newly_unmasked[0]] = FRESH
    return styles.tolist()


def joined(pieces: Sequence[Piece]) -> str:
    """Return the text of adjacent pieces. Bytes of several pieces may form one character."""
    data = b"".join(piece.encode() if isinstance(piece, str) else bytes(piece) for piece in pieces)
    return data.decode("utf-8", "replace")
