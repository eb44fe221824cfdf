"""What `tests/run.py` installs for a selection of tests."""

from pathlib import Path

import pytest

from tests.run import TESTS, files_of, needs_of


@pytest.mark.parametrize(
    ("names", "needs"),
    [
        (["test_oracle.py", "test_cli.py"], set()),
        (["test_oracle.py", "test_web_race.py"], {"javascript"}),
        (["browser/test_page.py"], {"javascript", "chromium"}),
    ],
)
def test_a_selection_needs_what_its_files_use(names: list[str], needs: set[str]) -> None:
    listed = "".join(f"tests/{name}::test_a[b]\ntests/{name}::test_c\n" for name in names)
    files = files_of(f"{listed}\n3 tests collected in 1.0s\n")
    assert files == [TESTS / name for name in sorted(names)] and needs_of(files) == needs


def test_counts_of_files_are_read_too() -> None:
    """As pytest lists them where -q is given twice."""
    assert files_of("tests/test_cli.py: 12\n") == [Path(TESTS / "test_cli.py")]
