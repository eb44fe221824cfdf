"""Calls of rules and policies from outside the package: what they raise is said with their name and the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from surelock.decoding.compute import Both, ComputeRule
from surelock.errors import first_line

if TYPE_CHECKING:
    from surelock.decoding.unmasking import UnmaskPolicy


class RuleFailed(ValueError):
    """A rule or a policy from outside the package raised something, which is the `__cause__`."""


@contextmanager
def calling(choice: ComputeRule | UnmaskPolicy, step: int) -> Iterator[None]:
    """A context in which a rule or a policy is called, and what it returns is used. step: 0-based.

    Raises RuleFailed for whatever one from outside raises: its author has to know which one it was, and when.
    """
    parts = (choice.lock, choice.select) if isinstance(choice, Both) else (choice,)
    outside = [part.kind for part in parts if not type(part).__module__.startswith("surelock.")]
    if not outside:
        yield
        return
    try:
        yield
    except Exception as error:  # it may raise anything
        what = "rule" if isinstance(choice, ComputeRule) else "policy"
        said = f"{type(error).__name__}: {first_line(error)}"
        raise RuleFailed(f"{what} `{'+'.join(outside)}` failed in step {step}: {said}") from error
