"""The results of a run over many prompts: a line of JSON for each prompt that is done. They say what is done."""

import json
import os
from collections.abc import Collection, Sequence
from io import FileIO
from pathlib import Path

from surelock.decoding.decoder import read_decoder
from surelock.errors import shown
from surelock.files import append, replaced
from surelock.values import Json

_START = b'{"id": '  # of each line


class Results:
    """A file of results. Nothing is written before `keep`."""

    def __init__(self, file: Path) -> None:
        """Read the lines, without a last one that a killed process has left half.

        Raises ValueError for a file that holds something else, and OSError.
        """
        self.file = file
        self._opened: FileIO | None = None
        content = file.read_bytes() if file.is_file() else b""
        *self._whole, self._half = content.split(b"\n")
        for number, line in enumerate((*self._whole, self._half), 1):
            if not line.startswith(_START[: len(line)]):
                raise ValueError(f"--out: {file}, line {number} is no result of this command: choose another file")
        try:
            lines = [json.loads(line or b"null") for line in self._whole]
        except (ValueError, RecursionError) as error:
            raise ValueError(f"--out: {file} is damaged: {error}") from error
        self._ids = [None if line is None else str(line["id"]) for line in lines]
        #: The lines by the ids of their prompts, in the order of the file.
        self.done: dict[str, Json] = {str(line["id"]): line for line in lines if line is not None}

    def check(self, where: str, head: Json) -> None:
        """Raise ValueError if the line of a prompt is of another model, prompt or setting than this command has.

        where: the prompt, as a sentence names it.
        head: what its line would begin with.
        """
        line = self.done.get(str(head["id"]))
        if line is None:
            return
        for name, new in head.items():
            if name == "id":
                continue
            old = line.get(name)
            if name == "settings" and isinstance(old, dict) and "compute" in old and "settings" not in old:
                old = read_decoder(old).to_plain()  # a short spelling, as before version 5
            if old == new:
                continue
            while isinstance(old, dict) and isinstance(new, dict):
                name = next(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
                old, new = old.get(name), new.get(name)
            change = f"{name} {shown(old)}, and now it is {shown(new)}"
            raise ValueError(f"--out: {self.file} has {where} with {change}: choose another file")

    def keep(self, ids: Collection[str]) -> None:
        """Drop all lines but those of some prompts, and a half one; then open the file for more. Raises OSError."""
        if not self.done.keys() <= set(ids):
            kept = [line + b"\n" for line, name in zip(self._whole, self._ids, strict=True) if name in ids]
            with replaced(self.file) as part:
                part.write_bytes(b"".join(kept))
        elif self._half:
            os.truncate(self.file, self.file.stat().st_size - len(self._half))
        self._opened = self.file.open("ab", buffering=0)

    def add(self, lines: Sequence[Json]) -> None:
        """Call prompts done: the disk has their lines on return. Raises OSError."""
        assert self._opened is not None
        append(self._opened, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode())

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
