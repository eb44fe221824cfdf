"""What is trained on: stories as text, as windows of tokens, and as masked windows, on any device."""

import lzma
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from surelock.research.renaming import renamed_copies

Ids = Sequence[int] | NDArray[np.int32]

EOS = "<|endoftext|>"
MASK = "<|mask|>"
EOS_ID = 0
MASK_ID = 1
_HEADING = re.compile(r"^(?:#+ .*|\*\*[^*\n]+\*\*)$\n?", re.MULTILINE)
_SHORTEST = 80  # characters, characters, share of the characters
_BEGINNING = 64
_ASCII = 0.99
_AT_ONCE = 4096  # stories


def read_stories(path: Path) -> list[str]:
    """The stories of a UTF-8 text file, closed by `<|endoftext|>`. Raises ValueError when there are none.

    path: a name that ends in `.xz` is a compressed file.
    """
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            text = file.read()
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise ValueError(f"{path} cannot be read as text: {error}") from error
    stories = [story.strip() for story in text.split(EOS)]
    stories = [story for story in stories if story]
    if not stories:
        raise ValueError(f"{path} holds no story")
    return stories


def training_stories(
    paths: Iterable[Path], held_out: Sequence[str], renamed: int = 0, seed: int = 0
) -> list[str]:
    """The stories of these files that can be trained on, then `renamed` copies of each with other names.

    Headings in markdown are removed. Left out are stories of less than 80 characters, those that are not in ASCII but
    for one character of a hundred, and those that begin as something in a held-out story does (64 characters): before
    they are renamed, since a copy of one would not be known again. Raises ValueError when none is left of a file.
    """
    unseen = EOS.join(held_out)
    stories: list[str] = []
    for path in paths:
        cleaned = [_HEADING.sub("", story).strip() for story in read_stories(path)]
        fit = [story for story in cleaned if len(story) >= _SHORTEST and _is_ascii(story)]
        kept = [story for story in fit if story[:_BEGINNING] not in unseen]
        if not kept:
            raise ValueError(
                f"{path} holds no story of {_SHORTEST} characters in ASCII that is not held out"
            )
        stories += kept
    copies: list[str] = []
    for number in range(renamed):
        copies += renamed_copies(stories, seed + number)
    return stories + copies


def _is_ascii(story: str) -> bool:
    return len(story.encode("ascii", "ignore")) > _ASCII * len(story)


def train_tokenizer(stories: Iterable[str], pieces: int = 4096) -> Tokenizer:
    """Byte-level BPE of `pieces` entries: EOS (also the pad) is 0, the mask token 1, then 256 bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {"special_tokens": [EOS, MASK], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(stories, trainers.BpeTrainer(vocab_size=pieces, **special))
    return tokenizer


def encode(tokenizer: Tokenizer, stories: Sequence[str]) -> list[NDArray[np.int32]]:
    """The token ids by story, without EOS."""
    encoded = []
    for at in range(0, len(stories), _AT_ONCE):
        batch = tokenizer.encode_batch(stories[at : at + _AT_ONCE])
        encoded += [np.array(story.ids, dtype=np.int32) for story in batch]
    return encoded


def generator_of(device: torch.device, *key: int) -> torch.Generator:
    """A generator whose numbers are a pure function of the key, which are integers from 0, and the kind of device."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(seed[0]))


class Corpus:
    """Stories as a stream of tokens on a device, shuffled anew in every epoch.

    A batch is a pure function of the seed and of `drawn`, the number of windows that were drawn before it.
    """

    def __init__(
        self, stories: Iterable[Ids], seed: int, length: int, device: torch.device
    ) -> None:
        """stories: token ids without EOS. length: of a window."""
        ended = [np.array([*story, EOS_ID], dtype=np.int32) for story in stories]
        self.tokens = torch.from_numpy(np.concatenate(ended)).to(device)
        self.lengths = torch.tensor([len(story) for story in ended], device=device)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.seed = seed
        self.length = length
        self.drawn = 0
        self._epochs = lru_cache(maxsize=4)(self._shuffle)

    def _shuffle(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The tokens of these epochs, one after the other, and where the stories start in them."""
        device = self.tokens.device
        orders = []
        for epoch in range(first, last + 1):
            generator = generator_of(device, self.seed, epoch)
            orders.append(torch.randperm(len(self.lengths), device=device, generator=generator))
        order = torch.cat(orders)
        lengths = self.lengths[order]
        starts = lengths.cumsum(0) - lengths
        shifts = torch.repeat_interleave(self.starts[order] - starts, lengths)
        return self.tokens[shifts + torch.arange(len(shifts), device=device)], starts

    def batch(self, rows: int) -> Tensor:
        """[rows, length] int64: every other window starts where a story starts, the others tile the stream.

        A model that is to continue openings must know them at position 0, and tiling alone hardly ever shows one there.
        """
        first = self.drawn
        self.drawn += rows
        tiles = self._windows(first // 2, self.drawn // 2, tiled=True)
        stories = self._windows((first + 1) // 2, (self.drawn + 1) // 2, tiled=False)
        return torch.cat((tiles, stories))

    def _windows(self, first: int, last: int, tiled: bool) -> Tensor:
        """The windows number first to last - 1 of those that tile the stream, or of those that begin with a story."""
        if first == last:
            return self.tokens.new_empty((0, self.length), dtype=torch.int64)
        stride, total = (self.length, len(self.tokens)) if tiled else (1, len(self.lengths))
        epoch = first * stride // total
        stream, starts = self._epochs(epoch, (last - 1) * stride // total)
        places = torch.arange(first, last, device=stream.device) * stride - epoch * total
        begins = places if tiled else starts[places]
        offsets = torch.arange(self.length, device=stream.device)
        return stream[(begins[:, None] + offsets) % len(stream)].long()


def prompt_lengths(generator: torch.Generator, rows: int, length: int, share: float) -> Tensor:
    """[rows] int64: uniform on 0..length - 1 in a random `share` of the rows, 0 in the others."""
    device = generator.device
    prompted = torch.rand(rows, device=device, generator=generator) < share
    return prompted * torch.randint(length, (rows,), device=device, generator=generator)


def stratified_counts(generator: torch.Generator, lengths: Tensor) -> Tensor:
    """`surelock.model.bound.stratified_counts` on a device: [B] int64, uniform on 1..lengths [B].

    There are as many strata as rows, in random order: else the windows that tile would always have the same rates.
    """
    rows = len(lengths)
    device = generator.device
    strata = torch.randperm(rows, device=device, generator=generator)
    within = torch.rand(rows, device=device, generator=generator, dtype=torch.float64)
    return 1 + ((strata + within) / rows * lengths).long()


def draw_masks(generator: torch.Generator, counts: Tensor, length: int, prompts: Tensor) -> Tensor:
    """`surelock.model.bound.draw_masks` on a device: [B, length] bool, counts[b] of the positions behind prompts[b]."""
    device = generator.device
    keys = torch.rand(len(counts), length, device=device, generator=generator)
    keys = keys.masked_fill(torch.arange(length, device=device) < prompts[:, None], torch.inf)
    return keys.argsort(dim=1).argsort(dim=1) < counts[:, None]


def make_batch(windows: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The masked windows [B, N]; of M positions their place among the B * N, their token and their weight, [M] each.

    sum(weight * nats) estimates the bound in nats a token: (1/N) (N/k) sum over the k masked, the mean over windows.
    M is the most positions that stratified counts can mask, so that all batches have one shape. Those that are not
    masked have a weight of 0.
    """
    rows, length = windows.shape
    most = min(rows + (rows + 1) * length // 2, rows * length)
    weights = (masks / (masks.sum(dim=1, keepdim=True) * rows)).flatten()
    index = weights.argsort(descending=True, stable=True)[:most]
    return windows.masked_fill(masks, MASK_ID), index, windows.flatten()[index], weights[index]
