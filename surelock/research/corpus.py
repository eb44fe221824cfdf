"""The training data: stories as text, as windows of tokens, and as masked windows, on any device."""

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
_SHORTEST = 80  # the fewest characters of a story
_BEGINNING = 64  # characters; a story that begins like part of a held-out story is left out
_ASCII = 0.99  # the least share of ASCII characters in a story
_AT_ONCE = 4096  # how many stories are encoded at once


def read_stories(path: Path) -> list[str]:
    """Return the stories of a UTF-8 text file, in which `<|endoftext|>` ends a story.

    path: the file; if its name ends in `.xz`, it is compressed.

    Raises ValueError if the file cannot be read or contains no story.
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
    """Return the stories of text files that can be trained on, followed by `renamed` rounds of copies.

    In a copy the persons of the story have other names. Headings in Markdown are removed. Left out are stories of less
    than _SHORTEST characters, stories in which 1 % or more of the characters are not ASCII (see `_is_ascii`), and
    stories whose first _BEGINNING characters occur in a held-out story. Stories are compared before they are renamed,
    since a renamed story could not be recognized.

    held_out: stories that must not be trained on.
    renamed: how many times the stories are copied. A story without a person to rename is not copied, see
    `renaming.rename`.
    seed: the seed of the names.

    Raises ValueError for a file of which no story is left.
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
    """Return a byte-level BPE tokenizer with `pieces` entries, trained on stories.

    Ids: 0 is EOS, which is also the padding token; 1 is the mask token; then come the 256 bytes, then the merged
    pieces.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {"special_tokens": [EOS, MASK], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(stories, trainers.BpeTrainer(vocab_size=pieces, **special))
    return tokenizer


def encode(tokenizer: Tokenizer, stories: Sequence[str]) -> list[NDArray[np.int32]]:
    """Return the token ids of stories, without EOS: one array [tokens] int32 per story."""
    encoded = []
    for at in range(0, len(stories), _AT_ONCE):
        batch = tokenizer.encode_batch(stories[at : at + _AT_ONCE])
        encoded += [np.array(story.ids, dtype=np.int32) for story in batch]
    return encoded


def generator_of(device: torch.device, *key: int) -> torch.Generator:
    """Return a generator whose numbers depend only on the key and the kind of device. key: integers from 0 on."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(seed[0]))


class Corpus:
    """Stories as a stream of tokens on a device. The stories are shuffled in every epoch.

    A batch depends only on the seed and on `drawn`, the number of windows that were drawn before the batch.
    """

    def __init__(
        self, stories: Iterable[Ids], seed: int, length: int, device: torch.device
    ) -> None:
        """Join the stories to a stream.

        stories: the token ids of stories without EOS. length: the tokens of a window.
        """
        ended = [np.array([*story, EOS_ID], dtype=np.int32) for story in stories]
        self.tokens = torch.from_numpy(np.concatenate(ended)).to(device)
        self.lengths = torch.tensor([len(story) for story in ended], device=device)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.seed = seed
        self.length = length
        self.drawn = 0
        self._epochs = lru_cache(maxsize=4)(self._shuffle)

    def _shuffle(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Return the tokens of the epochs `first` to `last`, joined, and the positions where their stories begin."""
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
        """Return the next windows, [rows, length] int64.

        Half of the windows tile the stream, the other half begin with a story. Windows that tile hardly ever begin with
        a story, but a model that continues the beginning of a story must have seen beginnings at position 0.
        """
        first = self.drawn
        self.drawn += rows
        tiles = self._windows(first // 2, self.drawn // 2, tiled=True)
        stories = self._windows((first + 1) // 2, (self.drawn + 1) // 2, tiled=False)
        return torch.cat((tiles, stories))

    def _windows(self, first: int, last: int, tiled: bool) -> Tensor:
        """Return the windows `first` to `last` - 1 of one of two series, [last - first, length] int64.

        tiled: True for the series of windows that tile the stream, False for the series of windows that begin with
        stories. first, last: numbers of windows in that series.
        """
        if first == last:
            return self.tokens.new_empty((0, self.length), dtype=torch.int64)
        if tiled:
            stride = self.length
            total = len(self.tokens)
        else:
            stride = 1
            total = len(self.lengths)
        epoch = first * stride // total
        stream, starts = self._epochs(epoch, (last - 1) * stride // total)
        places = torch.arange(first, last, device=stream.device) * stride - epoch * total
        begins = places if tiled else starts[places]
        offsets = torch.arange(self.length, device=stream.device)
        return stream[(begins[:, None] + offsets) % len(stream)].long()


def prompt_lengths(generator: torch.Generator, rows: int, length: int, share: float) -> Tensor:
    """Return the lengths of the prompts of windows, [rows] int64.

    With probability `share` a row has a prompt, of a length uniform on 0..length - 1. Otherwise the row's prompt length
    is 0.
    """
    device = generator.device
    prompted = torch.rand(rows, device=device, generator=generator) < share
    return prompted * torch.randint(length, (rows,), device=device, generator=generator)


def stratified_counts(generator: torch.Generator, lengths: Tensor) -> Tensor:
    """Return numbers of masked tokens, [B] int64, uniform on 1..lengths [B], as `model.bound.stratified_counts` does.

    There is one stratum per row, in random order. Without the random order the windows that tile the stream, which come
    first in a batch, would always have the low masking rates.
    """
    rows = len(lengths)
    device = generator.device
    strata = torch.randperm(rows, device=device, generator=generator)
    within = torch.rand(rows, device=device, generator=generator, dtype=torch.float64)
    return 1 + ((strata + within) / rows * lengths).long()


def draw_masks(generator: torch.Generator, counts: Tensor, length: int, prompts: Tensor) -> Tensor:
    """Return random masks, [B, length] bool, as `surelock.model.bound.draw_masks`.

    In row b, counts[b] of the positions from prompts[b] on are masked.
    """
    device = generator.device
    keys = torch.rand(len(counts), length, device=device, generator=generator)
    keys = keys.masked_fill(torch.arange(length, device=device) < prompts[:, None], torch.inf)
    return keys.argsort(dim=1).argsort(dim=1) < counts[:, None]


def make_batch(windows: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four tensors: the masked windows [B, N], and the index, the true token and the weight of M positions, [M].

    The index is that of the position in the flattened windows. The weight is 1 / (B k), with k the number of masks in
    the position's window, or 0 for a position that is not masked. So the sum of weight * -log p is the batch mean of
    the loss per masked token. With the counts of `stratified_counts` this mean estimates the bound of
    `surelock.model.bound` in nats per token.

    M is an upper bound on the number of positions that stratified counts can mask. M depends on B and N alone, so all
    batches have the same shape.

    windows: [B, N] int64. masks: [B, N] bool.
    """
    rows, length = windows.shape
    most = min(rows + (rows + 1) * length // 2, rows * length)
    weights = (masks / (masks.sum(dim=1, keepdim=True) * rows)).flatten()
    index = weights.argsort(descending=True, stable=True)[:most]
    return windows.masked_fill(masks, MASK_ID), index, windows.flatten()[index], weights[index]
