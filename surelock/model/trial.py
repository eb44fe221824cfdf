"""A trial of a tokenizer and its chat template: ``python -m surelock.model.trial DIRECTORY SECONDS MEGABYTES``.

A checkpoint's template may loop forever, and its tokenizer may make a text longer without end. A process cannot stop
its own template or tokenizer. So another process encodes, renders and decodes a fixed set of texts within limits,
before a server loads the model.
"""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from surelock.current_folder import module_path
from surelock.environment import child_environment
from surelock.errors import CheckpointError
from surelock.model.encoding import Encoder, Expanded, check_growth
from surelock.model.tokenizer import has_tokenizer, load_tokenizer

SECONDS = 20
MEGABYTES = 2048
_START_SECONDS = 120  # time for importing the tokenizer's libraries, on a slow machine
_LENGTH = 4000  # characters of a text
_MOST_PIECE = 4096  # largest number of characters of a token
_RUNS = (
    "a",
    "A",
    "0",
    " ",
    "\n",
    "\t",
    ".",
    "-",
    "_",
    "é",
    "中",
    "😀",
    "ab",
    "a ",
    "0,",
    "'s ",
    "A word, two. ",
)
_LONG_TURN = "A word, two. " * 1500
_REFUSED = "refused "
_DONE = "done"


def check_tokenizer(directory: Path, seconds: int = SECONDS, megabytes: int = MEGABYTES) -> None:
    """Try the tokenizer and the chat template of a checkpoint in another process.

    seconds: the limit of its processor time. Windows has no such limit; there the wall clock is limited, with
    additional time for the start.
    megabytes: the limit of its memory, on systems that have one.

    Raises CheckpointError if tokenizer or template exceed a limit, make a text far longer, or are damaged.
    """
    if not has_tokenizer(directory):
        return
    directory = directory.absolute()
    written, complaint = _tried(directory, seconds, megabytes)
    parts = written.decode("utf-8", "replace").splitlines()
    if not parts:  # the trial did not begin
        why = complaint.decode("utf-8", "replace").strip().splitlines() or ["it was ended"]
        raise CheckpointError(
            f"the tokenizer of {directory} could not be tried in another process: {why[-1]}"
        )
    last = parts[-1]
    if last.startswith(_REFUSED):
        raise CheckpointError(last.removeprefix(_REFUSED))
    if last != _DONE:
        limits = f"{seconds} s of processor time or {megabytes} MB of memory"
        raise CheckpointError(
            f"the {last} of {directory} needs more than {limits} for texts of ordinary length"
        )


def _tried(directory: Path, seconds: int, megabytes: int) -> tuple[bytes, bytes]:
    """Run `main` in another process. Returns its standard output and its standard error.

    The process runs in an empty folder, and imports no module from the checkpoint's folder or the current folder.
    """
    flags = ["-P", "-X", "utf8", "-m", "surelock.model.trial"]
    command = [sys.executable, *flags, str(directory), str(seconds), str(megabytes)]
    path = os.pathsep.join(module_path(str(directory)))
    with TemporaryDirectory(prefix="surelock-", ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=child_environment() | {"PYTHONPATH": path, "HF_HOME": folder},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_START_SECONDS + 3 * seconds,
            )
        except subprocess.TimeoutExpired as error:
            return error.stdout or b"", b"it took too long to begin"
    return done.stdout, done.stderr


def _try(directory: Path) -> Iterator[str]:
    """Try the parts of a tokenizer. Yields a part's name before it is tried. Raises CheckpointError and Expanded."""
    yield "tokenizer"
    tokenizer: Any = load_tokenizer(directory)
    if tokenizer is None:
        return
    encoder = Encoder(str(directory), tokenizer, frozenset())
    reader = tokenizer.backend_tokenizer
    texts = [f"{(run * _LENGTH)[:_LENGTH]}!" for run in _RUNS]
    ids_of_texts = [_ids(encoder, text) for text in texts]
    for codes in _parts(sys.maxunicode):
        letters = [
            char for char in map(chr, codes) if unicodedata.category(char) not in ("Cn", "Co", "Cs")
        ]
        ids_of_texts.append(_ids(encoder, "".join(letters)))
        for letter, read in zip(
            letters, reader.encode_batch(letters, add_special_tokens=False), strict=True
        ):
            check_growth(f"the tokenizer of {directory}", len(letter), len(read.ids))
    yield "decoder"
    for ids in ids_of_texts:
        tokenizer.decode(ids)
    for ids in _parts(len(tokenizer)):
        if any(len(piece) > _MOST_PIECE for piece in tokenizer.batch_decode([[i] for i in ids])):
            raise CheckpointError(
                f"the decoder of {directory} writes more than {_MOST_PIECE:,} characters for a token"
            )
    if tokenizer.chat_template:
        yield "chat template"
        for text in ("Hello", *texts, _LONG_TURN):
            _ids(encoder, text, chat=True)


def _parts(count: int) -> Iterator[range]:
    """Yield ranges of at most _LENGTH numbers that divide the numbers from 0 to `count`."""
    yield from (range(at, min(at + _LENGTH, count)) for at in range(0, count, _LENGTH))


def _ids(encoder: Encoder, text: str, chat: bool = False) -> list[int]:
    """Return the ids of a text, or [] if it is refused, which is allowed. Raises Expanded and MemoryError."""
    try:
        return encoder.encode_turn(text) if chat else encoder.encode(text)
    except Expanded:
        raise
    except ValueError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        return []


def _limit(seconds: int, megabytes: int) -> None:
    """Limit the processor time and the memory that this process may take from now on, if the system can."""
    if find_spec("resource") is None:  # on Windows
        return
    import resource

    import jinja2.sandbox  # noqa: F401  # imported here, so that the import does not count
    from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer  # noqa: F401

    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = int(used.ru_utime + used.ru_stime) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, spent + seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = Path("/proc/self/statm")
    if pages.is_file():
        size = int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + megabytes * 2**20, size + megabytes * 2**20))


def main(directory: str, seconds: str, megabytes: str) -> None:
    """Try a tokenizer within limits. The last printed line is the verdict, or the part at which the process ended."""
    _limit(int(seconds), int(megabytes))
    try:
        for part in _try(Path(directory)):
            print(part, flush=True)
    except ValueError as error:
        print(f"{_REFUSED}{error}", flush=True)
    else:
        print(_DONE, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
