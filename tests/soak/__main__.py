"""``python -m tests.soak``: visitors and attacks. One JSON line comes last; the status is 1 if anything failed."""

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.soak.attack import ATTACKS, attack
from tests.soak.visits import visits


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tests.soak", description="Visitors and abuse, bounded, on loopback."
    )
    made.add_argument(
        "part", nargs="*", metavar="PART", help=f"of {', '.join(ATTACKS)} (default: all)"
    )
    made.add_argument("--visitors", type=int, default=20, help="at once (default: %(default)s)")
    made.add_argument(
        "--seconds", type=float, default=30, help="that they stay (default: %(default)s)"
    )
    made.add_argument("--log", type=Path, help="keep what the server prints in this file")
    return made


def main() -> int:
    given = parser().parse_args()
    chosen = ATTACKS | {"visits": partial(visits, visitors=given.visitors, seconds=given.seconds)}
    with tempfile.TemporaryDirectory() as folder:
        report = attack(
            {name: chosen[name] for name in given.part or chosen},
            given.log or Path(folder, "server.log"),
        )
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
