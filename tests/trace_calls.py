"""`python -m tests.trace_calls [--gen-length 8] [--engine auto] [--list]`: a prompt's way to its steps, in numbers.

It decodes one prompt twice, with the embedded model and the lock rule, and notes every function of the package that the
second time calls: the first has built what is kept. What loads the model does not count. The last line is one JSON
object: how many files, how many distinct functions, and both by file.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import surelock
from surelock.engines.flags import add_engine_flag

PACKAGE = Path(surelock.__file__).parent


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
        if path.is_relative_to(PACKAGE) and (not code.co_name.startswith("<") or code.co_name == "<lambda>"):
            found[path.relative_to(PACKAGE).as_posix()].add(code.co_qualname)
    return dict(sorted(found.items()))


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(prog="python -m tests.trace_calls", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--gen-length", type=int, default=8, help="tokens to decode (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="also print every function")
    add_engine_flag(parser)
    given = parser.parse_args()
    lm = surelock.load("stories", engine=given.engine)
    settings = surelock.DecodeSettings(gen_length=given.gen_length)

    def decode() -> None:
        for _ in surelock.decode(lm, ["The dragon was very small and"], settings, compute=surelock.LockRule()):
            pass

    decode()
    found = calls_of(decode)
    if given.list:
        for name, functions in found.items():
            print(name, *sorted(functions), sep="\n    ")
    by_file = {name: len(functions) for name, functions in found.items()}
    print(json.dumps({"files": len(found), "functions": sum(by_file.values()), "by_file": by_file}))


if __name__ == "__main__":
    main()
