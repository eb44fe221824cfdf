"""Random numbers of the sampler: one generator per (seed of the sequence, step), over every position of the block.

A number depends on seed, step, position in the block and token alone: neither locks nor batch mates ever shift it.
Positions before the block, which only a person can have masked again, have a generator of their own, (seed, step, 1).
On the CPU the generator can jump, so only the rows that are asked for are drawn; on other devices the rows between are
drawn and dropped. The numbers differ from one kind of device to another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.canvas import Canvas
from surelock.decoding.schedule import Schedule
from surelock.decoding.settings import DecodeSettings
from surelock.model.language_model import LanguageModel


class StepNoise:
    """The noise of one sequence in one step: `uniforms` first where the policy wants them, then `gumbel` row by row.

    key: what it depends on, seed and step.
    """

    def __init__(self, key: tuple[int, ...], vocab_size: int, device: torch.device) -> None:
        source = np.random.SeedSequence(key)
        self._vocab_size = vocab_size
        self._device = device
        self._at = 0
        if device.type == "cpu":
            self._bits = np.random.PCG64(source)
            self._numpy = np.random.Generator(self._bits)
        else:
            state = int(source.generate_state(1, np.uint64)[0])
            self._torch = torch.Generator(device).manual_seed(state >> 1)

    def uniforms(self, block_length: int) -> Tensor:
        """One uniform number in [0, 1) per position of the block: [block_length] float64. Call it before `gumbel`."""
        if self._device.type == "cpu":
            return torch.from_numpy(self._numpy.random(block_length))
        return torch.rand(block_length, dtype=torch.float64, device=self._device, generator=self._torch)

    def gumbel(self, positions: Sequence[int]) -> Tensor:
        """Uniform numbers in [0, 1), [len(positions), vocab_size] float64, for ascending positions of the block.

        Later calls must ask for later positions.
        """
        out = torch.empty(len(positions), self._vocab_size, dtype=torch.float64, device=self._device)
        for row, position in zip(out, positions, strict=True):
            if self._device.type == "cpu":
                self._bits.advance((position - self._at) * self._vocab_size)
                self._numpy.random(out=row.numpy())
            else:
                for _ in range(position - self._at + 1):
                    row.uniform_(generator=self._torch)
            self._at = position + 1
        return out


class BatchNoise:
    """The noise of one step for a batch: asked for by ascending slots, masked ones of the blocks or of those before.

    uniforms: whether the policy draws its scores.
    """

    def __init__(
        self, canvas: Canvas, schedule: Schedule, settings: DecodeSettings, step: int, lm: LanguageModel, uniforms: bool
    ) -> None:
        self._canvas, self._settings, self._lm, self._step, self._draws = canvas, settings, lm, step, uniforms
        self._blocks = [schedule.block(b) for b in range(canvas.batch)]
        self._windows: dict[tuple[int, bool], tuple[StepNoise, NDArray]] = {}

    def uniforms(self, slots: NDArray[np.int64]) -> NDArray:
        """One number per slot: [len(slots)] float64. Only where the policy draws its scores."""
        parts = [self._window(b, before)[1][at] for b, before, at in self._places(slots)]
        return np.concatenate(parts) if parts else np.empty(0)

    def gumbel(self, slots: NDArray[np.int64]) -> Tensor:
        """One number per slot and token: [len(slots), vocab_size] float64; later calls must ask for later slots."""
        return torch.cat([self._window(b, before)[0].gumbel(at.tolist()) for b, before, at in self._places(slots)])

    def _places(self, slots: NDArray[np.int64]) -> Iterator[tuple[int, bool, NDArray[np.int64]]]:
        """(sequence, before its block?, positions within the block or what is before it), in order of the slots."""
        for b, part in enumerate(self._canvas.split(slots)):
            own, start = slots[part], self._blocks[b].start
            cut = int(np.searchsorted(own, start))
            if cut:
                yield b, True, own[:cut] - self._canvas.generated_from[b]
            if cut < len(own):
                yield b, False, own[cut:] - start

    def _window(self, b: int, before: bool) -> tuple[StepNoise, NDArray]:
        """The stream of a sequence's block, or of what is before it, and its uniforms, which are drawn first."""
        if (b, before) not in self._windows:
            block = self._blocks[b]
            key = (self._settings.seed_of(b), self._step, *((1,) if before else ()))
            stream = StepNoise(key, self._lm.network.config.vocab_size, self._lm.device)
            length = block.start - int(self._canvas.generated_from[b]) if before else block.stop - block.start
            drawn = stream.uniforms(length).numpy(force=True) if self._draws else np.empty(0)
            self._windows[b, before] = stream, drawn
        return self._windows[b, before]
