"""Calls of rules and policies. An error of a rule from outside the package is reported with its name and the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from surelock.decoding.unmasking import UnmaskPolicy
from surelock.errors import first_line

P = ParamSpec("P")
T = TypeVar("T")


class RuleFailed(ValueError):
    """Raised when a rule or a policy from outside the package raises an exception, its `__cause__`, or returns None."""


def ask(step: int, method: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a method of a rule or a policy, and return its answer. step: number of the present step, 0-based.

    Raises RuleFailed for any exception of a rule or a policy from outside the package. The message has its name and the
    step, because its author needs both.
    """
    answer = tell(step, method, *arguments, **more)
    if answer is None:
        raise _failed(step, method, "it returned None")
    return answer


def tell(step: int, method: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a method of a rule or a policy whose answer may be None. Raises RuleFailed as `ask` does."""
    if _choice_of(method).__module__.startswith("surelock."):
        return method(*arguments, **more)
    try:
        return method(*arguments, **more)
    except RuleFailed:
        raise
    except Exception as error:  # code from outside may raise any exception
        raise _failed(step, method, f"{type(error).__name__}: {first_line(error)}") from error


def _choice_of(method: Any) -> Any:
    return method.__self__


def _failed(step: int, method: Any, said: str) -> RuleFailed:
    choice = _choice_of(method)
    what = "policy" if isinstance(choice, UnmaskPolicy) else "rule"
    return RuleFailed(f"{what} `{choice.kind}` failed in step {step}: {said}")
