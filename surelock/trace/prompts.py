"""Prompts from a command line or a file."""

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from surelock.decoding.rules import DECODER_PARTS
from surelock.decoding.spelling import flat_settings
from surelock.errors import nearest, shown
from surelock.values import Json, frozen

_SURROGATE = re.compile("[\ud800-\udfff]")
# an underscore next to no letter, digit, underscore or backslash
_ALONE = re.compile(r"(?<![\w\\])_(?!\w)")
_ENCODING = ("chat", "blanks")
_LONGEST_LABEL = 60  # characters of an id, in a sentence


@frozen
class Prompt:
    """A prompt of the command line or of a file."""

    # unique; from the file, or else the number of the line or of the argument, from 1
    id: int | str
    text: str
    settings: Json  # settings of only this prompt, a short spelling
    where: str = ""  # its file and line, for messages; empty for an argument
    # arguments of `LanguageModel.encode` (`chat`, `blanks`) for only this prompt
    encoding: Json = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the prompt in messages."""
        label = str(self.id)
        if not label.isprintable() or len(label) > _LONGEST_LABEL:
            label = shown(label)
        return f"prompt {label}"


def read_prompts(texts: Sequence[str], source: str | None) -> list[Prompt]:
    """Return the prompts of the arguments, or of a file.

    texts: the arguments.
    source: a file with a text per line, without empty lines; or a .jsonl file with a JSON object per line, which has
    `prompt`, and optionally `id`, `chat`, `blanks` and settings by their short names. "-" is the standard input, in
    either form.

    Raises ValueError, which names the line, for wrong content, and OSError for a file that cannot be read.
    """
    if bool(texts) == (source is not None):
        raise ValueError("give prompts as arguments, or a file of them by --prompts FILE")
    if source is None:
        for text in filter(os.path.isfile, texts):
            print(
                f"surelock: {text!r} is a file, continued as a text; --prompts {text} reads it",
                file=sys.stderr,
            )
        return [Prompt(number, text, {}) for number, text in enumerate(texts, 1)]
    name = "the standard input" if source == "-" else source
    content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#x} at {error.start}"
        raise ValueError(f"{name} is no UTF-8 text ({byte}): save it as UTF-8") from None
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]
    objects = source.lower().endswith(".jsonl") or (
        source == "-" and numbered and numbered[0][1].startswith('{"')
    )
    if objects:
        prompts = [_read(f"{name}, line {number}", number, line) for number, line in numbered]
    else:
        prompts = [Prompt(number, line, {}, f"{name}, line {number}") for number, line in numbered]
    if not prompts:
        raise ValueError(f"{name} holds no prompt")
    _check_ids(name, prompts)
    return prompts


def say_underscores(prompts: Sequence[Prompt]) -> None:
    """Print to standard error which prompt has a single underscore, which looks like a blank but is text."""
    named = [
        prompt.name
        for prompt in prompts
        if prompt.encoding.get("blanks", True) and _ALONE.search(prompt.text)
    ]
    if not named:
        return
    more = f" (and {len(named) - 1} more)" if len(named) > 1 else ""
    print(
        f"surelock: {named[0]}{more}: one underscore is text, a blank has two or more: __",
        file=sys.stderr,
    )


def _check_ids(source: str, prompts: list[Prompt]) -> None:
    """Raise ValueError if two prompts have the same id."""
    first: dict[str, Prompt] = {}
    for prompt in prompts:
        earlier = first.setdefault(str(prompt.id), prompt)
        if earlier is not prompt:
            lines = " and ".join(one.where.rsplit(", ", 1)[1] for one in (earlier, prompt))
            raise ValueError(f"{source} has two prompts of the id {shown(str(prompt.id))}: {lines}")


def _read(where: str, number: int, line: str) -> Prompt:
    """Return the prompt of a line of JSON. Raises ValueError, which begins with `where`."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        hint = ""
        if isinstance(values, dict) and "prompt" not in values:
            hint = nearest("prompt", values)
        raise ValueError(f"{where} must be an object with a text `prompt`{hint}")
    text = values.pop("prompt")
    name = values.pop("id", number)
    if not isinstance(name, int | str) or isinstance(name, bool) or name == "":
        raise ValueError(f"{where}: id must be a text or a whole number, not {shown(name)}")
    if _SURROGATE.search(str(name)):
        raise ValueError(
            f"{where}: id is no UTF-8 text: it holds half of a character (a lone surrogate)"
        )
    encoding = {key: values.pop(key) for key in _ENCODING if key in values}
    for key, value in encoding.items():
        if not isinstance(value, bool):
            raise ValueError(f"{where}: {key} must be true or false, not {shown(value)}")
    names = flat_settings().keys() | DECODER_PARTS.keys()
    if unknown := [key for key in values if key not in names]:
        raise ValueError(
            f"{where}: {unknown[0]!r} is no setting{nearest(unknown[0], {*names, *_ENCODING})}"
        )
    return Prompt(name, text, values, where, encoding)
