"""Files that are whole or not there: they are written beside their place, synced, then renamed."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from shutil import copymode
from stat import S_ISREG
from tempfile import TemporaryDirectory

PART = ".surelock-"  # how the name begins under which something is written; a process that is killed leaves it


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder. All are written before the first has its name, and the last has its name last.

    directory: it and the folders of the files are made where they are missing.
    files: contents by name, which may hold folders.

    Raises OSError, which names the file. The former files are then unchanged.
    """
    name = ""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=PART, dir=directory) as part:
            for name, content in files.items():
                (Path(part) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(part) / name).write_bytes(content)
                sync(Path(part) / name)
            for name in files:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(part) / name).replace(directory / name)
                sync((directory / name).parent)
    except OSError as error:
        raise _not_written(error, directory / name) from error


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file, or what a link leads to. Raises OSError, which names it; the former file is then unchanged."""
    if file.exists() and not file.is_file():  # a device, a pipe
        file.write_bytes(content)
    else:
        target = file.resolve()
        write_files(target.parent, {target.name: content})


def write_text(file: Path, text: str) -> None:
    write_bytes(file, text.encode())


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """Yield a path to write to. What is written there takes the place of the file, or of what a link leads to.

    One process at a time may write the file: the path is the same each time, so that what a killed process has left
    there goes with the next writing.

    Raises OSError, which names the file. The former file is then unchanged.
    """
    target = file.resolve()
    part = part_of(file)
    try:
        part.unlink(missing_ok=True)
        try:
            yield part
            sync(part)
            if target.exists():
                copymode(target, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        sync(target.parent)
    except OSError as error:
        raise _not_written(error, file) from error


def append(file: FileIO, content: bytes) -> None:
    """Append to an open file, and return when the disk has it. A process that is killed may leave a part of it.

    Raises OSError, which names the file.
    """
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
        if S_ISREG(os.fstat(file.fileno()).st_mode):  # no pipe, no device
            os.fsync(file.fileno())
    except OSError as error:
        raise _not_written(error, Path(file.name)) from error


def sync(path: Path) -> None:
    """Return when the disk has what was written to a file, or the names that a folder holds."""
    if path.is_dir() and os.name == "nt":  # which opens no folder
        return
    # Windows syncs what it may write
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def part_of(file: Path) -> Path:
    """Return the path under which `replaced` writes a file."""
    target = file.resolve()
    return target.with_name(PART + target.name)


def check_place(file: Path) -> None:
    """Raise OSError, which names the file, if it cannot be made or added to. Nothing is changed."""
    target = file.resolve()  # of a link that leads nowhere yet
    try:
        if target.exists():
            target.open("ab").close()
        else:
            target.touch()
            target.unlink()
    except OSError as error:
        raise _not_written(error, file) from error


def check_replaced(file: Path) -> None:
    """Raise OSError, which names the file, if `replaced` cannot write it. What a killed process left of it goes."""
    try:
        part = part_of(file)
        part.touch()
        part.unlink()
    except OSError as error:
        raise _not_written(error, file) from error


def _not_written(error: OSError, file: Path) -> OSError:
    """Return the error with the name of the file, and without that of a part."""
    return OSError(error.errno, f"{error.strerror or error}: {file} was not written")
