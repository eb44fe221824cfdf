"""How much a run generates, in which steps and blocks, and how its tokens are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surelock.decoding.setting import check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """What every decoder needs, whatever it computes and commits. Each field says what it means (`help`).

    gen_length: positions to generate. steps: denoising steps, None for gen_length. block_length: semi-autoregressive
    blocks, left to right, None for one block. temperature: of the Gumbel-max choice of tokens; 0 takes the argmax.
    cfg_scale: classifier-free guidance, 0 is off. seed: whole number (sequence b of a batch gets seed + b) or one per
    sequence. suppress_eos: EOS is never chosen. suppress_eos_confidence: positions that would become EOS or end-of-turn
    are committed last. no_repeat_ngram_size: a token with which an n-gram of this size would stand in the sequence
    twice, prompt included, is not chosen; 0 is off. EOS and end-of-turn always may be, and tokens committed in the same
    step do not know of each other. Raises ValueError, which begins with the field's name.
    """

    gen_length: int = setting("whole", 128, "Generated length", "Positions to generate.", low=1, offered=(8, 512, 8))
    steps: int | None = setting(
        "whole",
        None,
        "Steps",
        "Equal to the length unmasks one token per step.",
        low=1,
        none="one per position",
        offered=(1, 512, 1),
    )
    block_length: int | None = setting(
        "whole",
        None,
        "Block length",
        "Semi-autoregressive blocks from left to right.",
        low=1,
        none="one block",
        advanced=True,
    )
    temperature: float = setting(
        "number",
        0.0,
        "Temperature",
        "0 always takes the most likely token.",
        low=0,
        high=1000,
        offered=(0, 2, 0.05),
        advanced=True,
    )
    cfg_scale: float = setting(
        "number",
        0.0,
        "Guidance",
        "Classifier-free guidance; above 0 every step runs twice.",
        low=0,
        high=1000,
        offered=(0, 4, 0.1),
        advanced=True,
    )
    seed: int | Sequence[int] = setting(
        "whole", 0, "Seed", "The same seed gives the same run.", low=0, several=True, advanced=True
    )
    suppress_eos: bool = setting(
        "flag", False, "Never choose end of text", "The end-of-text token is never chosen.", advanced=True
    )
    suppress_eos_confidence: bool = setting(
        "flag",
        False,
        "Unmask end of text last",
        "Positions that would end the text or the turn are unmasked last.",
        advanced=True,
    )
    no_repeat_ngram_size: int = setting(
        "whole",
        0,
        "Phrase not said again",
        "No phrase of this many tokens comes twice; 0 allows it.",
        low=0,
        offered=(0, 12, 1),
        advanced=True,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.block_length is not None and self.gen_length % self.block_length:
            raise ValueError(f"block_length ({self.block_length}) must divide gen_length ({self.gen_length})")
        if self.steps is not None:
            if self.steps > self.gen_length:
                raise ValueError(f"steps ({self.steps}) must be at most gen_length ({self.gen_length})")
            if self.steps % self.blocks:
                raise ValueError(f"steps ({self.steps}) must be a multiple of the number of blocks ({self.blocks})")

    @property
    def blocks(self) -> int:
        return self.gen_length // (self.block_length or self.gen_length)

    @property
    def total_steps(self) -> int:
        return self.steps or self.gen_length

    def seed_of(self, sequence: int) -> int:
        """The seed of one sequence of the batch."""
        return self.seed + sequence if isinstance(self.seed, int) else self.seed[sequence]
