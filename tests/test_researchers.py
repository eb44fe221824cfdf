"""The researchers' guide: its rule runs, its commands are known, and what it names exists."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from surelock.__main__ import _parser

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "docs" / "researchers.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


def test_its_rule_computes_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python")
    (tmp_path / "guide.py").write_text(program, "utf-8")
    names = runpy.run_path(str(tmp_path / "guide.py"))
    rows, nats = re.fullmatch(r"(\d+) rows, (\S+) nats\n", capsys.readouterr().out).groups()
    steps = names["steps"]
    assert isinstance(steps, list) and float(nats) > 0
    prompt = steps[0].tokens.shape[1] - 32
    masked_before = range(32, 0, -1)  # one is written in each step
    assert int(rows) == sum(prompt + 32 if step % 4 == 0 else masked for step, masked in enumerate(masked_before))


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_its_commands_are_known(line: str) -> None:
    python, _, module, *words = shlex.split(line)
    assert (python, module) == ("python", "surelock") and _parser().parse_args(words).run


def test_what_it_names_exists() -> None:
    paths = re.findall(r"`((?:surelock|tests|assets)/[\w/.]+)`", GUIDE) + re.findall(r"\]\((\.\./[\w./]+)", GUIDE)
    assert (
        len(paths) > 15
        and [path for path in paths if not (ROOT / "docs" / path).exists() and not (ROOT / path).exists()] == []
    )
