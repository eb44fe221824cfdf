"""Random numbers of the sampler: one generator per (seed of the sequence, step), over every position of the block.

A number depends on seed, step, position in the block and token alone: neither locks nor batch mates ever shift it.
On the CPU the generator can jump, so only the rows that are asked for are drawn; on other devices the rows between are
drawn and dropped. The numbers differ from one kind of device to another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.canvas import Canvas
from surelock.decoding.schedule import Schedule
from surelock.decoding.settings import DecodeSettings
from surelock.model.language_model import LanguageModel


class StepNoise:
    """The noise of one sequence in one step: `uniforms` first where the policy wants them, then `gumbel` row by row."""

    def __init__(self, seed: int, step: int, vocab_size: int, device: torch.device) -> None:
        source = np.random.SeedSequence((seed, step))
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
    """The noise of one step for a batch: asked for by ascending slots of the blocks that the sequences fill."""

    def __init__(
        self, canvas: Canvas, schedule: Schedule, settings: DecodeSettings, step: int, lm: LanguageModel
    ) -> None:
        self._canvas = canvas
        self._blocks = [schedule.block(b) for b in range(canvas.batch)]
        self._streams: list[StepNoise] = []
        self._uniforms: list[NDArray] = []
        if settings.temperature > 0 or settings.remasking == "random":
            vocab_size = lm.network.config.vocab_size
            self._streams = [StepNoise(settings.seed_of(b), step, vocab_size, lm.device) for b in range(canvas.batch)]
        if settings.remasking == "random":
            block_length = settings.block_length or settings.gen_length
            self._uniforms = [stream.uniforms(block_length).numpy(force=True) for stream in self._streams]

    def uniforms(self, slots: NDArray[np.int64]) -> NDArray:
        """One number per slot: [len(slots)] float64."""
        return np.concatenate([drawn[at] for drawn, at in zip(self._uniforms, self._within(slots), strict=True)])

    def gumbel(self, slots: NDArray[np.int64]) -> Tensor:
        """One number per slot and token: [len(slots), vocab_size] float64; later calls must ask for later slots."""
        parts = zip(self._streams, self._within(slots), strict=True)
        return torch.cat([stream.gumbel(at.tolist()) for stream, at in parts if len(at)])

    def _within(self, slots: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Positions within the block, per sequence."""
        parts = zip(self._canvas.split(slots), self._blocks, strict=True)
        return [slots[part] - block.start for part, block in parts]


def block_noise(
    seed: int,
    step: int,
    block_length: int,
    vocab_size: int,
    *,
    uniforms: bool,
    gumbel: bool,
    device: torch.device | str = "cpu",
) -> tuple[Tensor | None, Tensor | None]:
    """All the noise of a block: uniforms [block_length] and Gumbel uniforms [block_length, vocab_size], float64."""
    noise = StepNoise(seed, step, vocab_size, torch.device(device))
    return (
        noise.uniforms(block_length) if uniforms else None,
        noise.gumbel(range(block_length)) if gumbel else None,
    )
