"""A checkpoint's tokenizer, read and tried once: what is damaged is told when the model is loaded, not at a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from surelock.model.checkpoint import read_json
from surelock.model.errors import first_line
from surelock.model.families import CheckpointError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

FILE, DESCRIBED = "tokenizer.json", "tokenizer_config.json"


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer.json of a checkpoint. Raises CheckpointError where it is missing or damaged."""
    from tokenizers import Tokenizer

    file = directory / FILE
    if not file.is_file():
        raise CheckpointError(f"{file} does not exist")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library is Rust, and says all that is wrong with a file by this very class
        raise _damaged(directory, error) from error


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a checkpoint with its special tokens and chat template; None where there is none.

    Raises CheckpointError.
    """
    if not (directory / FILE).is_file():
        return None
    from transformers import PreTrainedTokenizerFast

    for name in (FILE, DESCRIBED):
        if (directory / name).is_file():
            read_json(directory / name)
    read_tokenizer(directory)
    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        tokenizer.decode(tokenizer("A word, two", split_special_tokens=True)["input_ids"])
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise _damaged(directory, error) from error
    return tokenizer


def _damaged(directory: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"the tokenizer in {directory} cannot be read: {first_line(error)}")
