"""Runs over many prompts, without the time that loading and decoding take; and processes that end at any moment."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import surelock
from surelock.__main__ import main
from surelock.trace import cli

PROMPTS = [
    {"prompt": "Tom, who has 2 keys", "id": "007"},
    {"prompt": 'She said "no".\r Then', "id": "=a,b"},
    {"prompt": "Lily", "id": '\'"q"\n'},
    {"prompt": "The dog __ ran", "gen_length": 2, "compute": "age", "age": 2},
    {"prompt": "It was raining. Mia", "id": "a/b"},
]


def load_once(monkeypatch: pytest.MonkeyPatch, lm: surelock.LanguageModel) -> list[list[list[int]]]:
    """Let the command use a loaded model, and decode equal batches once. Returns the batches that it decodes."""
    kept: dict[str, list[Any]] = {}
    calls: list[list[list[int]]] = []

    def decoded(lm: Any, prompts: Any, **keywords: Any) -> Any:
        calls.append(prompts)
        key = f"{prompts} {keywords}"
        if key not in kept:
            kept[key] = list(surelock.decode(lm, prompts, **keywords))
        return iter(kept[key])

    monkeypatch.setattr(cli, "load_by", lambda _: lm)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power fails here
    monkeypatch.setattr(cli, "decode", decoded)
    return calls


def words_of(
    folder: Path, table: str, *more: str, prompts: list[dict[str, Any]] | None = None
) -> list[str]:
    """Return the command's words: its prompts are in a file of the folder, and its outputs in the folder `kept`."""
    kept = folder / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(prompt) for prompt in (PROMPTS if prompts is None else prompts)]
    (folder / "prompts.jsonl").write_text("\n".join(lines), "utf-8")
    words = [
        "decode",
        "--prompts",
        str(folder / "prompts.jsonl"),
        "--gen-length",
        "3",
        "--batch",
        "2",
    ]
    words += ["--out", str(kept / "o.jsonl")]
    words += ["--table", str(kept / table)] if table else ["--trace", str(kept / "traces")]
    return [*words, *more]


def contents(folder: Path) -> dict[str, Any]:
    """Return what the outputs hold, by the names of the files, without times."""
    return {
        str(path.relative_to(folder)): _timeless(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _timeless(path: Path) -> Any:
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
    if path.suffix == ".json":
        document = json.loads(path.read_bytes())
        del document["header"]["created"]
        for record in document["records"]:
            del record["seconds"]
        return document
    return path.read_bytes()


class Stopped(BaseException):
    """The process has ended."""


class Disk:
    """Counts what a process does to files. At one of these moments it ends, and does nothing more to any file.

    at: the number of the moment, from 1. None is never.
    half: at this moment half of a piece is written.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, at: int | None = None, half: bool = False
    ) -> None:
        self.moments: list[str] = []
        self._at = at
        self._half = half
        for name in (
            "replace",
            "rename",
            "unlink",
            "rmdir",
            "mkdir",
            "truncate",
            "fsync",
            "chmod",
            "open",
        ):
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))
        opened = io.open

        def counted(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not set(mode) & set("wax+"):
                return opened(file, mode, *args, **kwargs)
            self.moment("create")
            return _File(self, opened(file, mode, *args, **kwargs))

        monkeypatch.setattr(io, "open", counted)

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.moment(name)
            return function(*args, **kwargs)

        return counted

    def moment(self, name: str) -> bool:
        """Count a moment. Raises Stopped at the last one and later; returns whether half is written before."""
        ended = self._at is not None and len(self.moments) >= self._at
        self.moments.append(name)
        last = len(self.moments) == self._at
        if ended or (last and not (self._half and name == "write")):
            raise Stopped
        return last


class _File:
    """A file that is open for writing."""

    def __init__(self, disk: Disk, file: Any) -> None:
        self._disk = disk
        self._file = file

    def write(self, content: Any) -> int:
        if self._disk.moment("write"):
            self._file.write(content[: len(content) // 2])
            self._file.flush()
            raise Stopped
        return self._file.write(content)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()


def run(*words: str) -> int:
    return main(list(words))


if __name__ == "__main__":
    # Load the model once. For each command of the standard input fork a process and print its id; then, after an empty
    # line, its status.
    import sys

    lm = surelock.load("stories", device="cpu")
    cli.load_by = lambda _: lm
    while line := sys.stdin.readline():
        if (child := os.fork()) == 0:
            status = main(json.loads(line))
            sys.stderr.flush()
            os._exit(status)
        print(child, flush=True)
        sys.stdin.readline()  # until then its id is of no other process
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
