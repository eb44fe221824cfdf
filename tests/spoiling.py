"""Odd things in values and files, by a seeded generator."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, 5, -1, 0, 1.5, 10**9, 10**30, 1e308, float("nan"), float("inf"), "",
    "x", "\ud800", [], [1], [[]], {}, {"a": 1},
)  # fmt: skip


def damaged(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one odd thing somewhere: set, added or taken away."""
    value = json.loads(json.dumps(value))
    place, key = None, None
    inner = value
    while isinstance(inner, dict | list) and inner and (place is None or rng.random() < 0.8):
        place, key = inner, rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))
        inner = inner[key]
    if place is None or rng.random() < 0.03:
        return rng.choice(ODD)
    if isinstance(place, dict) and rng.random() < 0.2:
        del place[key]
    else:
        place[key] = rng.choice(ODD)
    return value


def torn(content: bytes, rng: random.Random) -> bytes:
    """A file that was cut, or has other bytes somewhere."""
    at = rng.randrange(len(content))
    if rng.random() < 0.5:
        return content[:at]
    return content[:at] + rng.randbytes(rng.randint(1, 9)) + content[at + rng.randint(0, 9) :]


def spoil(file: Path, rng: random.Random) -> None:
    """Damage a JSON file, as a value or as bytes."""
    if file.suffix != ".json" or rng.random() < 0.2:
        file.write_bytes(torn(file.read_bytes(), rng))
    else:
        file.write_text(json.dumps(damaged(json.loads(file.read_text("utf-8")), rng)), "utf-8")
