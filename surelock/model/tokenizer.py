"""A checkpoint's tokenizer, read and tried once: what is damaged is told when the model is loaded, not at a prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from surelock.model.checkpoint import read_json
from surelock.model.errors import first_line
from surelock.model.families import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

FILE, DESCRIBED = "tokenizer.json", "tokenizer_config.json"
SLOW = ("vocab.json", "merges.txt")  # all that Dream and DiffuCoder publish of theirs, which is Qwen2's
Made = TypeVar("Made")


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer.json of a checkpoint. Raises CheckpointError where it is missing or damaged."""
    from tokenizers import Tokenizer

    file = directory / FILE
    if not file.is_file():
        raise CheckpointError(f"{file} does not exist")
    return _tried(directory, lambda: Tokenizer.from_file(str(file)))


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a checkpoint with its special tokens and chat template; None where there is none.

    Without a tokenizer.json it is Qwen2's of the vocabulary and the merges. Raises CheckpointError.
    """
    whole, *slow = (directory / name for name in (FILE, *SLOW))
    if not whole.is_file() and not all(file.is_file() for file in slow):
        return None
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
        _tried(directory, lambda: BPE.from_file(*map(str, slow)))
    try:
        tokenizer = kind.from_pretrained(directory)
        tokenizer.decode(tokenizer("A word, two", split_special_tokens=True)["input_ids"])
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise _damaged(directory, error) from error
    return tokenizer


def _tried(directory: Path, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except Exception as error:  # the library is Rust, and says all that is wrong with a file by this very class
        raise _damaged(directory, error) from error


def _damaged(directory: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"the tokenizer in {directory} cannot be read: {first_line(error)}")
