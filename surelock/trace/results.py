"""The results of a run over many prompts: a file with a line of JSON per prompt. A prompt with a line is done."""

import json
import os
from collections.abc import Collection, Sequence
from io import FileIO
from pathlib import Path

from surelock.decoding.decoder import read_decoder
from surelock.errors import shown
from surelock.files import append, replaced
from surelock.values import Json

_START = b'{"id": '  # beginning of every line


class Results:
    """A file of results. It is not changed before `keep`."""

    def __init__(self, file: Path) -> None:
        """Read the lines. An incomplete line at the end, which a killed process may leave, is ignored.

        Raises ValueError for a file with other content, OSError for a file that cannot be read.
        """
        self.file = file
        self._opened: FileIO | None = None
        content = file.read_bytes() if file.is_file() else b""
        *self._whole, self._half = content.split(b"\n")
        for number, line in enumerate((*self._whole, self._half), 1):
            if not line.startswith(_START[: len(line)]):
                raise ValueError(
                    f"--out: {file}, line {number} is no result of this command: choose another file"
                )
        try:
            lines = [json.loads(line or b"null") for line in self._whole]
        except (ValueError, RecursionError) as error:
            raise ValueError(f"--out: {file} is damaged: {error}") from error
        self._ids = [None if line is None else str(line["id"]) for line in lines]
        #: By id of a prompt, its line, in the order of the file.
        self.done: dict[str, Json] = {str(line["id"]): line for line in lines if line is not None}

    def check(self, where: str, head: Json) -> None:
        """Raise ValueError if the file has a line for the prompt with another model, text or setting.

        where: the name of the prompt in messages.
        head: the first fields of the line that this command would write.
        """
        line = self.done.get(str(head["id"]))
        if line is None:
            return
        for name, new in head.items():
            if name == "id":
                continue
            old = line.get(name)
            if name == "settings" and isinstance(old, dict) and _is_short(old):
                old = read_decoder(old).to_plain()
            if old == new:
                continue
            owner = ""
            while isinstance(old, dict) and isinstance(new, dict):
                owner = "" if name == "settings" else f" of {name}"
                names = (
                    "kind",
                    *new,
                    *old,
                )  # a different rule is reported before different settings
                name = next(key for key in names if old.get(key) != new.get(key))
                old = old.get(name)
                new = new.get(name)
            change = f"{name}{owner} {shown(old)}, and now it is {shown(new)}"
            raise ValueError(f"--out: {self.file} has {where} with {change}: choose another file")

    def keep(self, ids: Collection[str]) -> None:
        """Drop an incomplete line and the lines of all prompts except `ids`, and open the file for `add`.

        Raises OSError.
        """
        if not self.done.keys() <= set(ids):
            kept = [
                line + b"\n"
                for line, name in zip(self._whole, self._ids, strict=True)
                if name in ids
            ]
            with replaced(self.file) as part:
                part.write_bytes(b"".join(kept))
        elif self._half:
            os.truncate(self.file, self.file.stat().st_size - len(self._half))
        self._opened = self.file.open("ab", buffering=0)

    def add(self, lines: Sequence[Json]) -> None:
        """Add the lines of done prompts. They are on the disk when the method returns. Raises OSError."""
        assert self._opened is not None
        text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
        append(self._opened, text.encode())

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()


def _is_short(settings: Json) -> bool:
    """Return whether settings are a short spelling, as versions before 5 wrote them."""
    return "compute" in settings and "settings" not in settings
