"""Prompts from a command line or a file, and the results of those that are done."""

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surelock.decoding.rules import CHOICES, flat_settings
from surelock.errors import nearest, shown

_START = b'{"id": '  # of each line of results
_SAME = ("model", "prompt", "chat", "blanks", "settings")  # what a line must agree in to stand for a prompt


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of the command line or of a file."""

    id: int | str  # unique; the number of the line or of the argument, from 1, unless the file gives one
    text: str
    given: dict[str, Any]  # settings of this prompt alone, in the flat form


def read_prompts(texts: Sequence[str], source: str | None) -> list[Prompt]:
    """Return the prompts of the arguments, or of a file.

    source: a file of texts, one a line (empty ones are left out), or of JSON objects with `prompt`, and optionally `id`
    and settings in the flat form (.jsonl); "-" is the standard input, in either form.

    Raises ValueError, which names the line, and OSError.
    """
    if bool(texts) == (source is not None):
        raise ValueError("give prompts as arguments, or a file of them by --prompts FILE")
    if source is None:
        for text in filter(os.path.isfile, texts):
            print(f"surelock: {text!r} is a file, continued as a text; --prompts {text} reads it", file=sys.stderr)
        return [Prompt(number, text, {}) for number, text in enumerate(texts, 1)]
    name = "the standard input" if source == "-" else source
    content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        byte = f"byte {content[error.start]:#x} at {error.start}"
        raise ValueError(f"{name} is no UTF-8 text ({byte}): save it as UTF-8") from None
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]
    objects = source.endswith(".jsonl") or (source == "-" and numbered and numbered[0][1].startswith('{"'))
    found = [_read(name, *each) if objects else Prompt(*each, {}) for each in numbered]
    if not found:
        raise ValueError(f"{name} holds no prompt")
    if twice := [name for name, times in Counter(str(each.id) for each in found).items() if times > 1]:
        raise ValueError(f"{name} has two prompts of the id {twice[0]!r}")
    return found


def _read(source: str, number: int, line: str) -> Prompt:
    where = f"{source}, line {number}"
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("prompt"), str):
        hint = nearest("prompt", values) if isinstance(values, dict) and "prompt" not in values else ""
        raise ValueError(f"{where} must be an object with a text `prompt`{hint}")
    text, name = values.pop("prompt"), values.pop("id", number)
    if not isinstance(name, int | str) or name == "":
        raise ValueError(f"{where}: id must be a text or a whole number, not {shown(name)}")
    known = flat_settings().keys() | CHOICES.keys()
    if unknown := [key for key in values if key not in known]:
        raise ValueError(f"{where}: {unknown[0]!r} is no setting{nearest(unknown[0], known)}")
    return Prompt(name, text, values)


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    """Return the lines of a file of results by their ids, without a last one that a killed process has left half."""
    content = file.read_bytes() if file.is_file() else b""
    *whole, half = content.split(b"\n")
    lines = [line for line in (*whole, half) if line]
    if strange := [number for number, line in enumerate(lines, 1) if not line.startswith(_START[: len(line)])]:
        raise ValueError(f"--out: {file}, line {strange[0]} is no result of this command: choose another file")
    try:
        found = [json.loads(line) for line in whole if line]
    except ValueError as error:
        raise ValueError(f"--out: {file} is damaged: {error}") from error
    if half:
        os.truncate(file, len(content) - len(half))
    return {str(each["id"]): each for each in found}


def check_same(file: Path, done: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ValueError if a line of results is of another model, prompt or setting than this command has."""
    for name in _SAME:
        if done.get(name) != now[name]:
            old, new = done.get(name), now[name]
            if isinstance(old, dict) and isinstance(new, dict):
                name = next(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
                old, new = old.get(name), new.get(name)
            change = f"{name} {shown(old)}, and now it is {shown(new)}"
            raise ValueError(f"--out: {file} has prompt {now['id']} with {change}: choose another file")
