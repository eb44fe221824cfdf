"""`bench pays` checks the speed-ups of `surelock pays` against `bench decode`, at three settings on one machine.

Run it on a quiet machine: the two commands measure times one after the other.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from surelock.bench import decode, pays
from surelock.bench.timing import Figures
from surelock.engines.flags import add_model_flags

#: (generated, batch) of the settings.
SETTINGS = ((64, 1), (256, 1), (128, 4))
RULES = {"surelock": "lock", "budget": "budget", "dual_cache": "block_cache"}
#: The settings of `pays`, for `bench decode` in place of the settings that the model recommends.
GREEDY = {"unmask": "low_confidence", "temperature": 0, "no_repeat_ngram_size": 0}
WITHIN = 0.1  # the greatest relative difference of two speed-ups that counts as right


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench pays`."""
    add_model_flags(parser)
    add = parser.add_argument
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add(
        "--repeats",
        type=int,
        default=3,
        help="runs of each in `bench decode` (default: %(default)s)",
    )
    add(
        "--seconds",
        type=float,
        default=60,
        help="of `pays`, at each setting (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Measure the speed-ups of all settings by both commands, print a line per setting, and return the differences."""
    settings = []
    for gen_length, batch in SETTINGS:
        flags = _flags(arguments) | {"gen_length": gen_length, "batch": batch}
        said = pays.run(_parsed(pays.add_arguments, flags | {"seconds": arguments.seconds}))
        blocks = {"block_length": said["block_length"], "repeats": arguments.repeats}
        same = flags | blocks | GREEDY
        for name, kind in RULES.items():
            measured = decode.run(_parsed(decode.add_arguments, same | {"compute": kind}))
            where = {"gen_length": gen_length, "batch": batch, "rule": name}
            settings.append(where | _beside(said, measured, name))
            print(_line(settings[-1]), file=sys.stderr, flush=True)
    worst = max(abs(setting["off"]) for setting in settings)
    return {"benchmark": "pays", "settings": settings, "worst": worst, "is_right": worst <= WITHIN}


def _beside(said: Figures, bench_figures: Figures, name: str) -> Figures:
    """Return the speed-ups of both commands, their relative difference, and the mean seconds of steps.

    The seconds are pairs: of a step that computes every row, and of a step by the rule.
    """
    rule = said["rules"][name]
    by_pays = [said["every_row_step_seconds"], rule["step_seconds"]]
    tokens_a_step = bench_figures["tokens"] / bench_figures["steps"]
    by_bench = [tokens_a_step / bench_figures[f"{way}_tps"] for way in ("baseline", "locked")]
    measured = by_bench[0] / by_bench[1]
    seconds = {"pays_step_seconds": by_pays, "bench_step_seconds": by_bench}
    return {
        "pays": rule["speedup"],
        "bench": measured,
        "off": rule["speedup"] / measured - 1,
        **seconds,
    }


def _line(setting: Figures) -> str:
    """Return the line that is printed for a setting."""
    sides = []
    for side in ("pays", "bench"):
        every, rule = (f"{1e3 * seconds:.3g}" for seconds in setting[f"{side}_step_seconds"])
        sides.append(f"{side} {setting[side]:.3f} times as fast ({every} and {rule} ms a step)")
    where = f"{setting['gen_length']} tokens, batch {setting['batch']}, {setting['rule']}"
    return f"{where}: {', '.join(sides)}; off by {setting['off']:+.1%}"


def _flags(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the flags that both commands share, by name."""
    names = ("model", "tokenizer", "device", "dtype", "engine", "threads")
    return {name: getattr(arguments, name) for name in names}


def _parsed(
    add: Callable[[argparse.ArgumentParser], None], values: dict[str, Any]
) -> argparse.Namespace:
    """Return the parsed arguments of a command. values: flags by name; None for a flag's default."""
    parser = argparse.ArgumentParser()
    add(parser)
    words = []
    for name, value in values.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return parser.parse_args(words)
