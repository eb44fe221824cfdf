"""Files that are whole or not there: they are written beside their place, then renamed."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

PART = ".surelock-"  # how the folder begins in which files are written; a process that is killed leaves it


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
            for name in files:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(part) / name).replace(directory / name)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {directory / name} was not written") from error


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file, or what a link leads to. Raises OSError, which names it; the former file is then unchanged."""
    if file.exists() and not file.is_file():  # a device, a pipe
        file.write_bytes(content)
    else:
        target = file.resolve()
        write_files(target.parent, {target.name: content})


def write_text(file: Path, text: str) -> None:
    write_bytes(file, text.encode())
