"""What lessons ask of a run, by the page's own answer book in Node, of trace documents."""

import json
import math
from typing import Any

from test_javascript import node

Document = dict[str, Any]  # a trace


def answers(run: Document, asked: list[dict[str, Any]]) -> list[Any]:
    """Of each of {"is": name, parameters} the answer."""
    return json.loads(
        node("tests/js/answers-of.js", given=json.dumps({"run": run, "asked": asked}))
    )


def answer(run: Document, asked: dict[str, Any]) -> Any:
    return answers(run, [asked])[0]


def holds(run: Document, claim: dict[str, Any]) -> bool:
    """Whether the effect that a lesson speaks of shows on a run."""
    return shows(answer(run, claim["answer"]), claim)


def shows(found: Any, claim: dict[str, Any]) -> bool:
    """Whether it shows where the claim's answer is that."""
    if "equals" in claim:
        return found in (
            claim["equals"] if isinstance(claim["equals"], list) else [claim["equals"]]
        )
    return bool(claim.get("at_least", -math.inf) <= found <= claim.get("at_most", math.inf))
