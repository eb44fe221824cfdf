"""`pays` answers whether leaving out rows saves time, for a length, a batch and a machine.

It measures or predicts. If it measures, the decoders run at the size (length and batch) of the flags, in turn step by
step as in `bench decode`. Other sizes are estimated from single steps with five numbers of rows (`curves`): the time of
a decoder is scaled by the ratio of these step times. If it predicts, it counts the kernels of steps (`gpu_model`), and
SureLock locks as in a recorded run.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from surelock.bench.curves import (
    BLOCK,
    SHARES,
    Curve,
    Size,
    block_of,
    curve_of,
    run_bytes,
    shares_of_dual_cache,
    step_plan,
    timer,
    weight_bytes,
)
from surelock.bench.decode import Turns
from surelock.bench.gpu_model import CARDS, ERROR, as_launched
from surelock.bench.random_weights import SHAPES
from surelock.bench.subject import add_size_flags, prompts_for, setup_of, subject
from surelock.bench.timing import Figures, load_of_cores
from surelock.config import LLADA_8B, NetworkConfig
from surelock.decoding.compute import BlockCache, BudgetRule, ComputeRule, Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.state import check_blocks
from surelock.decoding.step import Step
from surelock.loading import find_directory
from surelock.model.families import CONFIG, family_of, read_json, shape_of
from surelock.model.language_model import LanguageModel
from surelock.model.machine import free_memory, peak_memory
from surelock.values import frozen

BASELINE = "everything"
LABELS = {"surelock": "SureLock", "budget": "Budget", "dual_cache": "Dual cache"}
WATCHING = ("surelock",)  # rules that compare written rows with their last posterior
KEEPING = ("surelock", "budget")  # rules that keep posteriors
PAYS = 1.05  # the least speed-up that pays
LENGTHS = (32, 64, 128, 256, 512, 1024)
BATCHES = (1, 2, 4, 8, 16)
#: The share of the rows that SureLock computed in every eighth of the run `assets/results/locks_stories_256.json`.
RECORDED = (0.93, 0.81, 0.69, 0.58, 0.46, 0.34, 0.23, 0.10)
MEMORY = {"h100": 80e9, "h200": 141e9}  # bytes of the cards
_FULL = 0.9  # the share of a card's memory that weights and a run may take
_MOST_REPEATS = 3  # the most repeats of whole runs
_OF_RUNS = 0.5  # the share of --seconds that whole runs may take
_OF_MEMORY = 0.25  # the share of the free memory that another size may take
_OF_STEPS = 6  # the most times that a step of a curve is computed

Shares = dict[str, NDArray]  # by decoder [steps], the share of the rows that a step computes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pays`."""
    add_size_flags(parser)
    add = parser.add_argument
    add("--gen-length", type=int, default=128, help="tokens to generate (default: %(default)s)")
    add("--steps", type=int, help="denoising steps (default: one a token)")
    add(
        "--epsilon",
        type=float,
        default=5e-4,
        help="KL in nats at which a position locks (default: %(default)s)",
    )
    add(
        "--block-length",
        type=int,
        metavar="N",
        help=f"positions of a block (default: at most {BLOCK})",
    )
    add(
        "--predict",
        choices=CARDS,
        help="predict the steps of a GPU in bfloat16, in place of measuring this machine's",
    )
    add(
        "--seconds",
        type=float,
        default=60,
        help="begin nothing after so many seconds (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Measure or predict, print the answer, and return the JSON object.

    Raises ValueError for flags that cannot be followed.
    """
    for name in ("gen_length", "batch", "prompt_length"):
        if getattr(arguments, name) < 1:
            raise ValueError(
                f"--{name.replace('_', '-')} must be at least 1, not {getattr(arguments, name)}"
            )
    if not arguments.seconds > 0:
        raise ValueError(f"--seconds must be more than 0, not {arguments.seconds:g}")
    block = arguments.block_length or block_of(arguments.gen_length, BLOCK)
    settings = DecodeSettings(
        gen_length=arguments.gen_length, steps=arguments.steps, block_length=block
    )
    check_blocks(settings)
    work = _predict if arguments.predict else _measure
    figures = work(arguments, settings)
    for line in answer(figures):
        print(line)
    return figures


def decoders_of(settings: DecodeSettings, epsilon: float) -> dict[str, Decoder]:
    """Return the decoders by name. They differ only in their compute rule."""
    rules: dict[str, ComputeRule] = {
        BASELINE: Everything(),
        "surelock": LockRule(epsilon=epsilon),
        "budget": BudgetRule(),
        "dual_cache": BlockCache(),
    }
    return {name: Decoder(settings=settings, compute=rule) for name, rule in rules.items()}


# --- measured ---------------------------------------------------------------------------------------------------------


def _measure(arguments: argparse.Namespace, settings: DecodeSettings) -> Figures:
    """Return the JSON object with measured times."""
    load_at_start = load_of_cores()
    lm, loading = subject(arguments)
    begun = time.monotonic()
    deadline = begun + arguments.seconds
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    size = Size(
        arguments.gen_length, arguments.batch, max(map(len, prompts)), settings.block_length or 1
    )
    runs = run_decoders(
        lm, prompts, size, settings, arguments.epsilon, begun + _OF_RUNS * arguments.seconds
    )
    seconds = timer(lm)
    asked = curve_of(size, seconds, lm.mask_id)
    step_seconds = float(asked.plain.sum() + asked.watching.sum())
    itemsize = getattr(torch, lm.dtype).itemsize

    def why_not(other: Size) -> str:
        """Return the reason why a size is left out, "" if it is not."""
        expected = _OF_STEPS * step_seconds * other.rows / size.rows
        if time.monotonic() + expected > deadline:
            return "time"
        nbytes = run_bytes(lm.config, other, itemsize, keeps=True)
        return "memory" if nbytes > _OF_MEMORY * free_memory(lm.device) else ""

    others, left = other_sizes(
        lm.config, size, why_not, lambda other: curve_of(other, seconds, lm.mask_id)
    )
    factors = {}
    for name, mean in runs.seconds.items():
        factors[name] = mean / asked.mean(runs.shares[name], name in WATCHING)
    head = {
        "command": "pays",
        "load": load_at_start,
        **setup_of(lm),
        "loading_seconds": loading,
        "predicted": None,
    }
    figures = figures_of(size, {size: asked, **others}, runs.shares, factors)
    steps = {"steps": settings.total_steps, "steps_run": runs.steps, "repeats": runs.repeats}
    memory = memory_of(lm.config, size, itemsize) | {"peak": _peak(lm)}
    end = {"memory": memory, "left_out": left, "seconds": time.monotonic() - begun}
    return {**head, **figures, **steps, **end}


@frozen(eq=False)
class Runs:
    """The results of whole runs."""

    seconds: dict[str, float]  # by decoder, the mean seconds of a step
    shares: Shares
    steps: int  # the number of steps of a run
    repeats: int  # how often a decoder ran


def run_decoders(
    lm: LanguageModel,
    prompts: list[list[int]],
    size: Size,
    settings: DecodeSettings,
    epsilon: float,
    until: float,
) -> Runs:
    """Run the decoders in turn, up to _MOST_REPEATS times, until the time `until` (monotonic seconds).

    If there is too little time for one repeat, the runs have fewer steps.

    Raises ValueError for settings that cannot be decoded.
    """
    decoders = decoders_of(settings, epsilon)
    turns = Turns(lm, prompts, decoders)
    first = timer(lm)(*step_plan(size, 1.0, True, lm.mask_id))
    fit = int((until - time.monotonic()) / (len(decoders) * first))
    if settings.total_steps > fit:
        blocks = size.gen_length // size.block
        steps = max(blocks, fit // blocks * blocks)
        fewer = DecodeSettings(gen_length=size.gen_length, steps=steps, block_length=size.block)
        decoders = decoders_of(fewer, epsilon)
        turns = Turns(lm, prompts, decoders)
    repeats = 0
    is_late = False
    while repeats < _MOST_REPEATS and not is_late:
        begun = time.monotonic()
        turns.repeat()
        repeats += 1
        now = time.monotonic()
        is_late = now + (now - begun) > until
    means = {name: float(np.median(turns.seconds[name], axis=0).mean()) for name in decoders}
    shares = {}
    for name in decoders:
        shares[name] = np.array([_share(step) for step in turns.steps[name]])
    return Runs(means, shares, decoders[BASELINE].steps_of(), repeats)


def _share(step: Step) -> float:
    """Return the share of the rows that a step computes, measured by FLOPs."""
    return float(step.flops.sum() / step.baseline_flops.sum())


def _peak(lm: LanguageModel) -> int | None:
    """Return the greatest memory so far in bytes: torch's on a GPU, and that of the process on a CPU."""
    if lm.device.type == "cuda":
        return torch.cuda.max_memory_allocated(lm.device)
    return peak_memory()


# --- predicted --------------------------------------------------------------------------------------------------------


def _predict(arguments: argparse.Namespace, settings: DecodeSettings) -> Figures:
    """Return the JSON object with predicted times."""
    begun = time.monotonic()
    card = arguments.predict
    itemsize = torch.bfloat16.itemsize
    name, config = _shape(arguments)
    size = Size(
        arguments.gen_length, arguments.batch, arguments.prompt_length, settings.block_length or 1
    )
    room = _FULL * MEMORY[card] - weight_bytes(config, itemsize)
    _check_room(name, config, size, card, room)

    def why_not(other: Size) -> str:
        """Return the reason why a size is left out, "" if it is not."""
        if time.monotonic() > begun + arguments.seconds:
            return "time"
        return "memory" if run_bytes(config, other, itemsize, keeps=True) > room else ""

    def curve(other: Size) -> Curve:
        return curve_of(other, lambda layout, plan: as_launched(layout, plan, config, card), 1)

    curves = {size: curve(size)}
    others, left = other_sizes(config, size, why_not, curve)
    steps = settings.total_steps
    shares = {
        BASELINE: np.ones(steps),
        "surelock": np.array(RECORDED)[np.arange(steps) * len(RECORDED) // steps],
        "budget": np.array([1.0] + [BudgetRule().share] * (steps - 1)),
        "dual_cache": shares_of_dual_cache(size),
    }
    figures = figures_of(size, curves | others, shares, dict.fromkeys(shares, 1.0))
    error = ERROR if _is_of_llada(config) else None
    head = {
        "command": "pays",
        "model": name,
        "dtype": "bfloat16",
        "predicted": card,
        "error": error,
    }
    end = {
        "memory": memory_of(config, size, itemsize),
        "left_out": left,
        "seconds": time.monotonic() - begun,
    }
    return {**head, **figures, "steps": steps, **end}


def _shape(arguments: argparse.Namespace) -> tuple[str, NetworkConfig]:
    """Return the name and the shape of the network that the flags choose. No weights are loaded."""
    if arguments.shape is not None:
        described = SHAPES[arguments.shape]
        return arguments.shape, family_of(described).read_config(described)
    described = read_json(find_directory(arguments.model, files=[CONFIG]) / CONFIG)
    return arguments.model, shape_of(family_of(described), described, arguments.model)


def _is_of_llada(config: NetworkConfig) -> bool:
    """Return whether a shape is LLaDA-8B's, apart from max_length. The error of a prediction is known for it alone."""
    return replace(config, max_length=LLADA_8B.max_length) == LLADA_8B


def _check_room(name: str, config: NetworkConfig, size: Size, card: str, room: float) -> None:
    """Raise ValueError for a size that exceeds the network's positions or the card's memory.

    room: the bytes that a run may take.
    """
    if size.length > config.max_length:
        more = f"which with gen_length {size.gen_length} is more than the {config.max_length} positions"
        raise ValueError(f"a prompt has {size.prompt} tokens, {more} of {name}")
    if run_bytes(config, size, torch.bfloat16.itemsize, keeps=True) > room:
        raise ValueError(
            f"a batch of {size.batch} does not fit an {card.upper()} beside the weights of {name}"
        )


# --- figures and answer -----------------------------------------------------------------------------------------------


def other_sizes(
    config: NetworkConfig,
    size: Size,
    why_not: Callable[[Size], str],
    curve: Callable[[Size], Curve],
) -> tuple[dict[Size, Curve], list[Figures]]:
    """Return the curves of other sizes, and the sizes that were left out.

    The other sizes have another length with the same batch, or another batch with the same length. The nearest sizes
    come first.

    why_not: returns the reason why a size is left out, "" if it is not.
    curve: returns the curve of a size.
    """
    sizes = [size.resized(length, size.batch) for length in LENGTHS if length != size.gen_length]
    sizes += [size.resized(size.gen_length, batch) for batch in BATCHES if batch != size.batch]
    possible = [other for other in sizes if other.length <= config.max_length]
    possible.sort(key=lambda other: abs(np.log2(other.rows / size.rows)))
    curves: dict[Size, Curve] = {}
    left: list[Figures] = []
    for other in tqdm(possible, desc="sizes", leave=False, disable=None):
        reason = why_not(other)
        if reason:
            left.append({"gen_length": other.gen_length, "batch": other.batch, "for": reason})
        else:
            curves[other] = curve(other)
    return curves, left


def figures_of(
    asked: Size, curves: Mapping[Size, Curve], shares: Shares, factors: Mapping[str, float]
) -> Figures:
    """Return the figures of all sizes.

    asked: the size of the flags.
    curves: the curves by size.
    shares: the shares of the rows at the size `asked`. At other sizes the dual cache has other shares.
    factors: by decoder, the mean seconds of its steps at the size `asked`, divided by the mean seconds by the curve.
    """
    sizes = []
    speedups = {}
    steps: dict[Size, dict[str, float]] = {}
    for size, curve in curves.items():
        steps[size] = {}
        for name, factor in factors.items():
            same = size == asked or name != "dual_cache"
            of_steps = shares[name] if same else shares_of_dual_cache(size)
            steps[size][name] = factor * curve.mean(of_steps, name in WATCHING)
        speedups[size] = {name: steps[size][BASELINE] / steps[size][name] for name in LABELS}
        where = {"gen_length": size.gen_length, "batch": size.batch}
        sizes.append(where | {"step_seconds": steps[size], "speedup": speedups[size]})
    rules = {}
    for name in LABELS:
        lengths = [
            (size.gen_length, ratios[name])
            for size, ratios in speedups.items()
            if size.batch == asked.batch
        ]
        batches = [
            (size.batch, ratios[name])
            for size, ratios in speedups.items()
            if size.gen_length == asked.gen_length
        ]
        rules[name] = {
            "rows": float(shares[name].mean()),
            "step_seconds": steps[asked][name],
            "speedup": speedups[asked][name],
            "pays_from_length": _from(lengths),
            "pays_from_batch": _from(batches),
        }
    curve = curves[asked]
    rows = []
    for share, plain, watching in zip(SHARES, curve.plain, curve.watching, strict=True):
        count = asked.batch * max(1, round(share * asked.length))
        rows.append({"rows": count, "seconds": float(plain), "seconds_with_kl": float(watching)})
    sizes.sort(key=lambda figures: (figures["gen_length"], figures["batch"]))
    named = {"gen_length": asked.gen_length, "batch": asked.batch, "prompt_length": asked.prompt}
    named |= {"block_length": asked.block, "every_row_step_seconds": steps[asked][BASELINE]}
    return {**named, "by_rows": rows, "rules": rules, "sizes": sizes}


def _from(speedups: Sequence[tuple[int, float]]) -> int | None:
    """Return the least length or batch from which on all speed-ups pay; None if the largest does not pay.

    speedups: (length or batch, speed-up).
    """
    least = None
    for number, speedup in sorted(speedups, reverse=True):
        if speedup < PAYS:
            break
        least = number
    return least


def memory_of(config: NetworkConfig, size: Size, itemsize: int) -> Figures:
    """Return the bytes of the weights, and the bytes that a run keeps, by decoder."""
    runs = {
        name: run_bytes(config, size, itemsize, name in KEEPING) for name in (BASELINE, *LABELS)
    }
    return {"weights": weight_bytes(config, itemsize), "runs": runs}


def answer(figures: Figures) -> Iterator[str]:
    """Yield the sentences of the answer. figures: the JSON object of `run`."""
    length = figures["gen_length"]
    batch = figures["batch"]
    card = figures["predicted"]
    place = _predicted_for(card, figures["error"]) if card else _machine(figures)
    blocks = f"blocks of {figures['block_length']}"
    yield f"{figures['model']}: {length} tokens after {figures['prompt_length']}, batch {batch}, {blocks}; {place}"
    for key, what in (
        ("seconds", "a step by its rows"),
        ("seconds_with_kl", "with KLs, as SureLock's"),
    ):
        times = [f"{row['rows']} {1e3 * row[key]:.3g} ms" for row in figures["by_rows"]]
        yield f"{what}: {', '.join(times)}"
    yield f"Every row: {1e3 * figures['every_row_step_seconds']:.3g} ms a step, {_bytes(figures, BASELINE)}"
    for name, label in LABELS.items():
        rule = figures["rules"][name]
        step = f"{1e3 * rule['step_seconds']:.3g} ms, {rule['rows']:.2f} of the rows, {_bytes(figures, name)}"
        least_length = rule["pays_from_length"]
        least_batch = rule["pays_from_batch"]
        at_length = f"from {least_length} tokens on" if least_length else "at no length"
        at_batch = f"from batch {least_batch} on" if least_batch else "at no batch"
        pays = f"pays {at_length} at batch {batch}, and {at_batch} at {length} tokens"
        yield f"{label}: {rule['speedup']:.2f} times as fast ({step}); {pays}"
    if not card and figures["steps_run"] < figures["steps"]:
        yield f"for lack of time each run took {figures['steps_run']} steps in place of {figures['steps']}"
    if figures["left_out"]:
        names = [
            f"{size['gen_length']}x{size['batch']} ({size['for']})" for size in figures["left_out"]
        ]
        yield f"sizes left out: {', '.join(names)}"


def _predicted_for(card: str, error: float | None) -> str:
    within = "its error is known for LLaDA-8B's shape alone"
    if error is not None:
        within = f"a step within {error:.0%}"
    return f"predicted for an {card.upper()} ({within})"


def _machine(figures: Mapping[str, Any]) -> str:
    where = figures["processor"] if figures["device"] == "cpu" else figures["device"]
    return f"{figures['engine']} on {where}, {figures['threads']} threads"


def _bytes(figures: Figures, name: str) -> str:
    return f"{figures['memory']['runs'][name] / 1e6:,.1f} MB"
