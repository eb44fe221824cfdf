"""Writing files so that they are complete or absent: a file is written under another name, synced, then renamed.

`append` is the exception: a killed process may leave a part of what it appended.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from shutil import copymode
from stat import S_ISREG
from tempfile import TemporaryDirectory

PART = ".surelock-"  # prefix of the names of unfinished files, which a killed process may leave


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a folder. All files are written before they are renamed, in order, to their names.

    directory: the folder. It and the folders of the files are made if they are missing.
    files: the content of every file, by its name. A name may contain folders.

    Raises OSError, which names the file, if a file cannot be written. As long as no file was renamed, existing
    files are unchanged.
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
    """Write a file, or the file to which a link leads, or to a device or a pipe.

    Raises OSError. For a file it names the file, and an existing file is then unchanged.
    """
    if file.exists() and not file.is_file():  # a device or a pipe
        file.write_bytes(content)
    else:
        target = file.resolve()
        write_files(target.parent, {target.name: content})


def write_text(file: Path, text: str) -> None:
    """Write a file as UTF-8, see `write_bytes`."""
    write_bytes(file, text.encode())


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """A context manager that yields a path to write to. Afterwards that path replaces the file, or a link's target.

    The yielded path is always the same for a file. For this reason only one process at a time may write the file. For
    the same reason the unfinished file of a killed process does not stay: whoever writes the file next replaces it.

    Raises OSError, which names the file. An existing file is then unchanged.
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
    """Append to an open file. The content is on the disk when the function returns.

    A killed process may leave a part of the content. Raises OSError, which names the file.
    """
    left = memoryview(content)
    try:
        while left:
            left = left[file.write(left) :]
        if S_ISREG(os.fstat(file.fileno()).st_mode):  # pipes and devices cannot be synced
            os.fsync(file.fileno())
    except OSError as error:
        raise _not_written(error, Path(file.name)) from error


def sync(path: Path) -> None:
    """Wait until the disk has the content of a file, or the names in a folder."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    flags = (
        os.O_RDONLY if path.is_dir() else os.O_RDWR
    )  # Windows syncs only files opened for writing
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def part_of(file: Path) -> Path:
    """Return the path under which `replaced` writes a file."""
    target = file.resolve()
    return target.with_name(PART + target.name)


def check_place(file: Path) -> None:
    """Raise OSError, which names the file, if the file cannot be made or appended to. Changes nothing."""
    target = file.resolve()  # a link may lead to a file that does not exist yet
    try:
        if target.exists():
            target.open("ab").close()
        else:
            target.touch()
            target.unlink()
    except OSError as error:
        raise _not_written(error, file) from error


def check_replaced(file: Path) -> None:
    """Raise OSError, which names the file, if `replaced` cannot write it. Removes an unfinished file of it."""
    try:
        part = part_of(file)
        part.touch()
        part.unlink()
    except OSError as error:
        raise _not_written(error, file) from error


def _not_written(error: OSError, file: Path) -> OSError:
    """Return the error with the name of the file instead of the name of its unfinished file."""
    return OSError(error.errno, f"{error.strerror or error}: {file} was not written")
