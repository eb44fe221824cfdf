"""`surelock decode --check`: do prompts get the same tokens alone, in a batch, and with the other engine?"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any

from tqdm import tqdm

import surelock
from surelock.errors import first_line, shown
from surelock.loading import load_by
from surelock.model.language_model import LanguageModel
from surelock.model.machine import device_name
from surelock.trace.agreement import Comparison, Difference, Moment, moments_alone, rounding
from surelock.trace.tasks import Task, batches

BATCH = 8  # default number of prompts of a batch
DIFFERENT = 1  # the exit status if a prompt got different tokens

References = Sequence[Sequence[Moment]]  # by prompt of a batch, the moments of its run by itself
Differences = Iterator[
    tuple[int, Difference]
]  # pairs (number of the prompt in its batch, difference)
Way = Callable[[Sequence[Task], References], Differences]
_CAUSES = {
    "token": "another token",
    "order": "another order",
    "rows": "other rows from step {since} on",
}
_UNITS = {"token": " nats", "order": "", "rows": ""}


def check_flags(arguments: argparse.Namespace) -> None:
    """Raise ValueError for flags that cannot be used with --check."""
    for name in ("out", "table", "trace"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--check writes no file: give --{name} or --check, not both")
    if arguments.batch == 1:
        raise ValueError(
            "--check compares batches of at least 2 prompts: --batch must be more than 1"
        )


def run_check(lm: LanguageModel, tasks: Sequence[Task], arguments: argparse.Namespace) -> int:
    """Decode the tasks in every way, print the differences, and return the exit status: 0, or 1 if a token differs."""
    beside, why_not = _other_engine(lm, arguments)
    ways = _ways(lm, beside)
    differences_by_way: dict[str, list[tuple[Task, Difference]]] = {name: [] for name in ways}
    steps = 0
    bar = tqdm(total=len(tasks) * (1 + len(ways)), unit=" decodes", leave=False, disable=None)
    with bar:
        for batch in batches(tasks, arguments.batch or BATCH):
            bar.set_postfix_str("alone", refresh=False)
            references = [list(moments_alone(lm, task)) for task in batch]
            steps += sum(map(len, references))
            bar.update(len(batch))
            for name, way in ways.items():
                bar.set_postfix_str(name, refresh=False)
                differences = way(batch, references)
                differences_by_way[name] += [
                    (batch[number], difference) for number, difference in differences
                ]
                bar.update(len(batch))
    print(
        f"alone: {_count(len(tasks), 'prompt')}, {_count(steps, 'step')}, by {lm.engine.name} in {lm.dtype}"
    )
    for name, differences in differences_by_way.items():
        _print_way(lm, name, differences)
    if why_not:
        print(f"left out: {why_not}")
    if arguments.json:
        print(
            json.dumps(
                _result(lm, len(tasks), steps, differences_by_way, why_not), ensure_ascii=False
            )
        )
    return DIFFERENT if any(differences_by_way.values()) else 0


def _other_engine(
    lm: LanguageModel, arguments: argparse.Namespace
) -> tuple[LanguageModel | None, str]:
    """Return the model with the other engine, or None and the reason if that engine cannot compute it."""
    other = "torch" if lm.engine.name.startswith("onnx") else "onnx"
    device = None if arguments.device_map else str(lm.device)
    changed = {"engine": other, "device": device}
    try:
        return load_by(argparse.Namespace(**vars(arguments) | changed)), ""
    except ValueError as error:
        return None, first_line(error)


# --- the ways ---------------------------------------------------------------------------------------------------------


def _ways(lm: LanguageModel, beside: LanguageModel | None) -> dict[str, Way]:
    """Return the ways to decode a batch, by name. beside: the model with the other engine, or None."""
    ways: dict[str, Way] = {
        "in a batch": partial(_in_a_batch, lm),
        "in another order": partial(_in_another_order, lm),
        "twice at once": partial(_twice_at_once, lm),
    }
    if beside is not None:
        ways[f"by {beside.engine.name}"] = partial(_by_another_engine, lm, beside)
    return ways


def _in_a_batch(lm: LanguageModel, batch: Sequence[Task], references: References) -> Differences:
    """Decode the batch together. A single prompt is decoded together with itself."""
    numbers = [*range(len(batch))] if len(batch) > 1 else [0, 0]
    comparison = _comparison(lm, batch, references, numbers)
    _drain(comparison)
    yield from _differences(comparison, numbers)


def _in_another_order(
    lm: LanguageModel, batch: Sequence[Task], references: References
) -> Differences:
    """Decode the batch together, in reverse order."""
    numbers = [*reversed(range(len(batch)))] if len(batch) > 1 else [0, 0]
    comparison = _comparison(lm, batch, references, numbers)
    _drain(comparison)
    yield from _differences(comparison, numbers)


def _twice_at_once(lm: LanguageModel, batch: Sequence[Task], references: References) -> Differences:
    """Decode every prompt twice at the same time: in two threads, or on a GPU by alternating steps.

    A GPU has only one queue of work, so threads would not run at the same time.
    """
    for number in range(len(batch)):
        pair = [_comparison(lm, batch, references, [number]) for _ in range(2)]
        if lm.device.type == "cuda":
            with closing(pair[0]), closing(pair[1]):
                while pair[0].step() | pair[1].step():
                    pass
        else:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(_drain, pair))  # `list` raises the exceptions of the threads
        yield from _differences(pair, [number])


def _by_another_engine(
    lm: LanguageModel, beside: LanguageModel, batch: Sequence[Task], references: References
) -> Differences:
    """Decode every prompt by itself, with the other engine."""
    for number, task in enumerate(batch):
        comparison = Comparison(beside, [task], [references[number]], lm)
        _drain(comparison)
        yield from _differences(comparison, [number])


def _comparison(
    lm: LanguageModel, batch: Sequence[Task], references: References, numbers: Sequence[int]
) -> Comparison:
    """Return the comparison of some prompts of a batch. numbers: the numbers of the prompts, in order."""
    tasks = [batch[number] for number in numbers]
    return Comparison(lm, tasks, [references[number] for number in numbers])


def _drain(comparison: Comparison) -> None:
    """Run all steps of a comparison."""
    with closing(comparison):
        while comparison.step():
            pass


def _differences(
    comparisons: Comparison | Sequence[Comparison], numbers: Sequence[int]
) -> Differences:
    """Yield the number and the first difference of every prompt that has one.

    numbers: the numbers of the prompts, in their order in the comparisons.
    """
    several = [comparisons] if isinstance(comparisons, Comparison) else comparisons
    by_number: dict[int, Difference] = {}
    for comparison in several:
        for place, difference in comparison.differences.items():
            by_number.setdefault(numbers[place], difference)
    yield from sorted(by_number.items())


# --- the report -------------------------------------------------------------------------------------------------------


def _print_way(
    lm: LanguageModel, name: str, differences: Sequence[tuple[Task, Difference]]
) -> None:
    if not differences:
        print(f"{name}: equal tokens")
        return
    print(f"{name}: other tokens for {_count(len(differences), 'prompt')}")
    for task, difference in differences:
        print(f"  {task.prompt.name}: {_sentence(lm, difference)}")


def _sentence(lm: LanguageModel, difference: Difference) -> str:
    """Return a difference in words.

    For example "step 14, position 31 is ' cat', alone ' dog' (another token; a tie of 3.0e-06 nats)".
    """
    alone, token = (_token(lm, token) for token in difference.tokens)
    cause = _CAUSES[difference.cause].format(since=difference.since.step)
    size = f"{difference.width:.1e}{_UNITS[difference.cause]}"
    tie = f"no tie: {size}, more than the {rounding(lm):.1e} that rounding may make"
    if difference.is_tie:
        tie = f"a tie of {size}"
    place = difference.place
    return (
        f"step {place.step}, position {place.position} is {token}, alone {alone} ({cause}; {tie})"
    )


def _token(lm: LanguageModel, token: int) -> str:
    return "a mask" if token == lm.mask_id else shown(lm.decode([token]) or token)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _result(
    lm: LanguageModel,
    prompts: int,
    steps: int,
    differences_by_way: dict[str, list[tuple[Task, Difference]]],
    why_not: str,
) -> dict[str, Any]:
    """Return the object that --json prints."""
    setup = {
        "model": lm.name,
        "engine": lm.engine.name,
        "dtype": lm.dtype,
        "device": device_name(lm.device),
    }
    ways = {
        name: [_plain(task, difference) for task, difference in differences]
        for name, differences in differences_by_way.items()
    }
    verdict = {
        "agree": not any(differences_by_way.values()),
        "prompts": prompts,
        "steps": steps,
        "rounding": rounding(lm),
    }
    return {
        **verdict,
        **setup,
        "differences": ways,
        "left_out": why_not,
        "version": surelock.__version__,
    }


def _plain(task: Task, difference: Difference) -> dict[str, Any]:
    """Return the JSON form of a difference."""
    plain = asdict(difference)
    place = plain.pop("place")
    since = plain.pop("since")
    alone, other = plain.pop("tokens")
    where = {
        "id": task.prompt.id,
        "step": place[0],
        "position": place[1],
        "alone": alone,
        "here": other,
    }
    return where | {"since_step": since[0], "since_position": since[1]} | plain
