"""What the command line leaves on a full disk, when it is killed, and where it has no standard streams."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from surelock.__main__ import main
from surelock.files import check_place, replaced, write_bytes, write_files
from tests.browser.server import ROOT, serve


def recorded(out: Path) -> int:
    return main(["record", "--prompt", "Once", "--gen-length", "4", "--out", str(out)])


WRITERS: dict[str, Callable[[Path], int]] = {
    "page.html": lambda out: main(["site", "--one-file", str(out)]),
    "run.json": recorded,
    "replay.html": recorded,
    "site/index.html": lambda out: main(["site", str(out.parent)]),
}


@pytest.mark.parametrize("former", [None, "what was there"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_former_file_and_the_sentence_names_it(
    name, former, tmp_path, capsys
) -> None:
    out = tmp_path / name
    if former:
        out.parent.mkdir(exist_ok=True)
        out.write_text(
            former + (' <meta name="generator" content="surelock site">' if "site" in name else "")
        )
        former = out.read_text()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        assert WRITERS[name](out) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert f"File too large: {out.parent if 'site' in name else out}" in capsys.readouterr().err
    assert (out.read_text() if out.exists() else None) == former
    assert [path for path in tmp_path.rglob("*") if path not in (out, out.parent)] == []
    assert WRITERS[name](out) == 0 and out.stat().st_size > 1000, "the same command goes on"


@pytest.mark.long
def test_a_process_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    killed = "import os, sys; os.replace = os.rename = lambda *_: os._exit(9)\n"
    words = ["site", "--one-file", str(tmp_path / "a.html")]
    program = f"{killed}from surelock.__main__ import main; main(sys.argv[1:])"
    assert (
        subprocess.run(
            [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True
        ).returncode
        == 9
    )
    assert not list(tmp_path.glob("a.h*"))


def test_links_devices_and_folders_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for file in (tmp_path / "link", Path("/dev/null")):
        write_bytes(file, b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"x"
    write_files(tmp_path / "new", {"a/b": b"1", "c": b"2"})
    assert (tmp_path / "new" / "a" / "b").read_bytes() == b"1" and len(
        list(tmp_path.rglob("*"))
    ) == 6
    (tmp_path / "nowhere").symlink_to(tmp_path / "later")
    for file in (tmp_path / "link", tmp_path / "nowhere"):
        check_place(file)
        with replaced(file) as part:
            part.write_bytes(b"y")
        assert file.is_symlink() and file.read_bytes() == b"y"
    with pytest.raises(OSError, match=r"/file was not written"):
        write_files(tmp_path / "file", {"a": b""})


def test_the_page_starts_without_standard_streams() -> None:
    with serve(command=("bash", "-c", 'exec "$0" "$@" <&- >&- 2>&-', sys.executable, "app.py")):
        pass  # it answers
