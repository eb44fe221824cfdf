"""``python -m tests.mutants --seed 1``: plant single faults on lines that the tests reach, see which the tests catch.

Half are Python's, drawn by cosmic-ray's operators, half JavaScript's, drawn by Stryker's. Each is planted in a copy of
the checkout and looked for by the test files that reach its line; a Python fault that none of them reaches is drawn
again. One JSON line for each goes to --out, from which an interrupted draw goes on; one JSON line comes last.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.places import AT_ONCE, HERE, ROOT, RUNS, copy_checkout, install


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    made.add_argument("--seed", type=int, required=True)
    made.add_argument("--count", type=int, default=60, help="faults (default: %(default)s)")
    made.add_argument("--only", choices=("py", "js"), help="one language; else half of them each")
    made.add_argument("--browser", action="store_true", help="the tests in Chromium, too: about an hour more")
    made.add_argument("--most", type=int, help="ask so many test files about a Python fault, the nearest")
    made.add_argument("--list", action="store_true", help="say which would be drawn, plant none")
    made.add_argument("--again", action="store_true", help="try those again that lived, once they have tests")
    made.add_argument("--out", type=Path, help=f"where the lines go (default: {RUNS.relative_to(ROOT)}/SEED.jsonl)")
    made.add_argument("--equivalent", type=Path, default=HERE / "equivalent.jsonl", help="faults that change nothing")
    return made


def main() -> int:
    asked = parser().parse_args()
    install()
    from tests.mutants.cover import covered
    from tests.mutants.draw import drawn, key
    from tests.mutants.verdict import Trial

    known = {key(each) for each in _lines(asked.equivalent)}
    counts = {".py": (asked.count + 1) // 2, ".js": asked.count // 2}
    counts = {f".{asked.only}": asked.count} if asked.only else counts
    out = asked.out or RUNS / f"{asked.seed}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {key(each): each for each in _lines(out)}
    if asked.again:
        done = {told: each for told, each in done.items() if each["caught"] or not each["reached"]}
    with tempfile.TemporaryDirectory() as folder:
        roots = [Path(folder, str(copy)) for copy in range(AT_ONCE)]
        for root in roots:
            copy_checkout(root)
        lines = {".py": None} | ({".js": covered(roots[0], asked.browser)} if ".js" in counts else {})
        trials: SimpleQueue[Trial] = SimpleQueue()
        for root in roots:
            trials.put(Trial(root, lines.get(".js") or {}, asked.most))

        def result(planned):
            mutant, one = planned
            return one if asked.list else done.get(key(one)) or _tried(trials, mutant, one, out)

        told = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for suffix, count in counts.items():
                plan, left = drawn(roots[0], suffix, lines[suffix], asked.seed, known), count
                while left:
                    for one in pool.map(result, list(islice(plan, left))):
                        print(json.dumps(one, ensure_ascii=False), flush=True)
                        if one.get("reached", True):
                            told.append(one)
                            left -= 1
    caught = sum(bool(one.get("caught")) for one in told)
    sum_up = {"seed": asked.seed, "drawn": len(told), "caught": caught, "lived": len(told) - caught, "most": asked.most}
    print(json.dumps({"seed": asked.seed, "drawn": len(told)} if asked.list else sum_up | {"equivalent": len(known)}))
    return 0


def _tried(trials, mutant, one, out: Path) -> dict:
    trial, begun = trials.get(), time.monotonic()
    by = trial.caught_by(mutant)
    one |= {"caught": by is not None, "by": by, "reached": by is not None or trial.reaches(mutant)}
    one["seconds"] = round(time.monotonic() - begun, 1)
    trials.put(trial)
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(one, ensure_ascii=False) + "\n")
    return one


def _lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line] if file.exists() else []


if __name__ == "__main__":
    sys.exit(main())
