"""The tokenizer of a checkpoint. Loading also uses it once, so that damage is reported when it is loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from surelock.errors import CheckpointError, first_line, panics
from surelock.model.families import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

FILE = "tokenizer.json"
DESCRIBED = "tokenizer_config.json"
SLOW = (
    "vocab.json",
    "merges.txt",
)  # Dream and DiffuCoder publish only these files, for Qwen2's tokenizer
#: A tokenizer with fewer pieces than this share of the embedding's rows is warned of. LLaDA, Dream and Qwen3 have .99.
_FEWEST = 0.75
# A second thread that imports transformers at the same time would get an unfinished module.
_IMPORTING = Lock()


def read_tokenizer(directory: Path) -> Tokenizer:
    """Read the tokenizer.json of a checkpoint. Raises CheckpointError if it is missing or damaged."""
    from tokenizers import Tokenizer

    file = directory / FILE
    if not file.is_file():
        raise CheckpointError(f"{file} does not exist")
    with reading(f"the tokenizer in {directory}", Exception):
        return Tokenizer.from_file(str(file))


@contextmanager
def reading(what: str, *errors: type[Exception]) -> Iterator[None]:
    """A context manager that turns errors of its body into a CheckpointError, which begins with `what`.

    errors: the classes of errors; panics of libraries in Rust are always included. Libraries in Rust report a damaged
    file by an exception of the class Exception itself, so Exception must be passed for them.
    """
    try:
        yield
    except (*errors, *panics()) as error:
        raise CheckpointError(f"{what} cannot be read: {first_line(error)}") from error


def check_pieces(tokenizer: PreTrainedTokenizerBase, rows: int, directory: Path) -> None:
    """Raise CheckpointError for a piece that the network cannot embed; warn of a tokenizer that is much too small.

    rows: number of rows of the embedding. It may exceed the number of pieces, since many checkpoints pad the embedding.
    directory: the directory of the tokenizer's files, for the message.
    """
    pieces = tokenizer.get_vocab()
    largest = max(pieces.values(), default=-1)
    if largest < rows:
        if len(pieces) < _FEWEST * rows:
            warnings.warn(
                f"the tokenizer in {directory} has {len(pieces):,} pieces, and the network embeds {rows:,}: "
                "is it the model's? (--tokenizer names another)",
                stacklevel=2,
            )
        return
    sizes = f"{len(pieces):,} pieces with ids up to {largest}, and the network embeds the ids up to {rows - 1}"
    why = (
        "they belong to two models: name the model's tokenizer (--tokenizer), or correct vocab_size in config.json "
        "(embedding_size in LLaDA's)"
    )
    raise CheckpointError(f"the tokenizer in {directory} has {sizes}; {why}")


def has_tokenizer(directory: Path) -> bool:
    """Return whether a directory has the files of a tokenizer."""
    return (directory / FILE).is_file() or all((directory / name).is_file() for name in SLOW)


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of a directory, or None if it has none. Raises CheckpointError for damaged files.

    A directory with only vocab.json and merges.txt has Qwen2's tokenizer.
    """
    if not has_tokenizer(directory):
        return None
    whole, *slow = (directory / name for name in (FILE, *SLOW))
    with _IMPORTING:
        from tokenizers.models import BPE
        from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

    for name in (FILE, DESCRIBED, SLOW[0]):
        if (directory / name).is_file():
            read_json(directory / name)
    if whole.is_file():
        kind = PreTrainedTokenizerFast
        read_tokenizer(directory)
    else:
        kind = Qwen2Tokenizer
        with reading(f"the tokenizer in {directory}", Exception):
            BPE.from_file(*map(str, slow))
    with reading(
        f"the tokenizer in {directory}", OSError, TypeError, ValueError, LookupError, AttributeError
    ):
        tokenizer = kind.from_pretrained(directory)
        tokenizer.decode(tokenizer("A word, two", split_special_tokens=True)["input_ids"])
    return tokenizer
