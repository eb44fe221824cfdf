"""`python -m tests.trace_calls`: a prompt's way to its steps, in numbers.

It decodes one prompt twice, with the embedded model and the lock rule, and notes every function of the package that the
second time calls: the first has built what is kept. What loads the model does not count. The last line is one JSON
object: how many files, how many distinct functions, and these by file.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import surelock

PACKAGE = Path(surelock.__file__).parent
LM = surelock.load("stories")
SETTINGS = surelock.DecodeSettings(gen_length=8)


def calls_of(act: Callable[[], Any]) -> dict[str, set[str]]:
    """The functions of the package that `act` calls, by file. Comprehensions belong to the function around them."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    found = defaultdict(set)
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and (
            not code.co_name.startswith("<") or code.co_name == "<lambda>"
        ):
            found[path.relative_to(PACKAGE).as_posix()].add(code.co_qualname)
    return dict(sorted(found.items()))


def decode() -> None:
    for _ in surelock.decode(
        LM, ["The dragon was very small and"], SETTINGS, compute=surelock.LockRule()
    ):
        pass


if __name__ == "__main__":
    decode()
    by_file = {name: sorted(functions) for name, functions in calls_of(decode).items()}
    print(
        json.dumps(
            {
                "files": len(by_file),
                "functions": sum(map(len, by_file.values())),
                "by_file": by_file,
            }
        )
    )
