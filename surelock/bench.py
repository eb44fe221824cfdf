"""`bench decode`: times the locked and the unlocked sampler, which take turns step by step.

Both samplers run in each repeat, so the ratio of a repeat compares times that were measured together. The spread of a
figure is the range from the first to the third quartile of its values in the single repeats. A ratio is None, with a
sentence why, if its spread is wider than its effect |ratio - 1|, or if there are fewer than three repeats.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from surelock.decoding.choices import Decoder, from_flat
from surelock.decoding.compute import Everything
from surelock.decoding.flags import add_choice_flags, read_choices
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.rules import CHOICES
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Step
from surelock.decoding.totals import TotalsCounter
from surelock.engines.flags import add_model_flags
from surelock.engines.stopwatch import Stopwatch
from surelock.engines.torch import TorchEngine
from surelock.loading import find_device, load_by, read_dtype
from surelock.model.families import family_of
from surelock.model.language_model import LanguageModel
from surelock.model.machine import device_name, peak_memory, processor, set_threads
from surelock.model.network import empty_network
from surelock.model.random_weights import SHAPES, write_random

MOST = 10_000  # the largest number of repeats, of sequences and of tokens of a prompt
LEAST = 3  # the fewest repeats with a spread
OPENINGS = (
    "Once upon a time there was a little girl named Mia who wanted to see the sea.",
    "Ben had a small blue boat. One windy morning he took it down to",
    "The old dog slept by the door all day, until",
    "It was raining, and Grandma said that nobody could go out to play. So Tom and Ada",
)
Figures = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, gen_length=256)
    add_choice_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Run the benchmark and return its JSON object. Raises ValueError for flags that cannot be met."""
    load_at_start = load_of_cores()
    lm, seconds = loaded(arguments)
    loading = {"loading_seconds": seconds}
    chosen = read_choices({name: getattr(arguments, name) for name in CHOICES if hasattr(arguments, name)})
    given = {"gen_length": arguments.gen_length, "steps": arguments.steps, "compute": LockRule.kind} | chosen
    if "lock" in given["compute"].split("+"):
        given.setdefault("epsilon", arguments.epsilon)
    locked = from_flat(given)
    settings = locked.settings
    figures = Lockstep(lm, prompts_for(lm, arguments.batch, arguments.prompt_length), locked).run(arguments.repeats)
    head = {"load": load_at_start, **setup_of(lm), **loading, "peak_memory": peak_memory()}
    kinds = {"compute": locked.compute.kinds, "unmask": locked.unmask.kind}
    return {"benchmark": "decode", **head, **settings_of(arguments, settings), **kinds, **figures}


def add_subject_flags(parser: argparse.ArgumentParser, gen_length: int) -> None:
    """Add the flags of every benchmark that decodes with one model, or with a shape without weights, and one length."""
    add_model_flags(parser)
    add = parser.add_argument
    add("--gen-length", type=int, default=gen_length, help="positions to generate (default: %(default)s)")
    add("--steps", type=int, help="denoising steps (default: gen-length)")
    add("--batch", type=int, default=1, help="sequences decoded together (default: %(default)s)")
    add("--epsilon", type=float, default=5e-4, help="KL in nats at which a position locks (default: %(default)s)")
    add("--repeats", type=int, default=3, help="runs of each; fewer than 3 tell no ratio (default: %(default)s)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add("--shape", choices=SHAPES, help="a network of this shape instead of a model")
    add("--random-weights", action="store_true", help="required with --shape: its weights are random")
    add("--prompt-length", type=int, default=16, help="tokens of a prompt, with --shape (default: %(default)s)")


@contextmanager
def written(arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """A context with the arguments by which a model is loaded; on a CPU a shape's random weights are files first."""
    with TemporaryDirectory() as folder:
        name = arguments.shape
        if name is not None and arguments.random_weights and find_device(arguments.device).type == "cpu":
            write_random(SHAPES[name], Path(folder))
            given = {"model": folder, "tokenizer": "", "shape": None, "random_weights": False}
            arguments = argparse.Namespace(**vars(arguments) | given)
        yield arguments


def loaded(arguments: argparse.Namespace) -> tuple[LanguageModel, float]:
    """Return the model of `bench decode` and the seconds that loading took."""
    with written(arguments) as given:
        begun = time.perf_counter()
        lm = subject(given, given.engine)
        return replace(lm, name=arguments.shape or lm.name), time.perf_counter() - begun


def subject(arguments: argparse.Namespace, engine: str = "torch") -> LanguageModel:
    """Set the threads of torch and load the model. Raises ValueError for flags that cannot be met."""
    for name in ("repeats", "batch", "prompt_length"):
        if not 1 <= (value := getattr(arguments, name)) <= MOST:
            raise ValueError(f"--{name.replace('_', '-')} must be from 1 to {MOST}, not {value}")
    set_threads(arguments.threads)
    dtype = read_dtype(arguments.dtype)
    if arguments.random_weights != (arguments.shape is not None):
        raise ValueError("--shape and --random-weights belong together")
    if arguments.shape is None:
        return load_by(argparse.Namespace(**vars(arguments) | {"engine": engine}))
    if engine == "onnx":
        raise ValueError("--shape is computed by engine 'torch' on a GPU: leave --engine onnx out")
    device = find_device(arguments.device)
    return random_model(arguments.shape, device, dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32))


def random_model(shape: str, device: torch.device, dtype: torch.dtype) -> LanguageModel:
    """Return a model of one of SHAPES with random weights and no tokenizer."""
    torch.manual_seed(0)
    described = SHAPES[shape]
    network = empty_network(family_of(described).read_config(described))
    network = network.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    for name, parameter in network.named_parameters():
        if name.endswith("norm.weight"):
            parameter.fill_(1.0)
        else:
            parameter.normal_(std=0.02)
    return LanguageModel(shape, TorchEngine(network), None, mask_id=1, pad_id=0, ends=(0,))


def prompts_for(lm: LanguageModel, batch: int, prompt_length: int = 16) -> list[list[int]]:
    """Return the token ids of `batch` prompts: openings, or random tokens for a model without a tokenizer."""
    if lm.tokenizer is not None:
        return [lm.encode(OPENINGS[b % len(OPENINGS)]) for b in range(batch)]
    generator = np.random.default_rng(0)
    return generator.integers(2, lm.config.vocab_size, (batch, prompt_length)).tolist()


def settings_of(arguments: argparse.Namespace, settings: DecodeSettings) -> Figures:
    given = {name: getattr(arguments, name) for name in ("batch", "epsilon", "repeats")}
    return {"gen_length": settings.gen_length, "steps": settings.total_steps, **given}


def setup_of(lm: LanguageModel) -> Figures:
    """Return what times depend on: model, dtype, device, processor, cores, threads, torch and engine."""
    return {
        "model": lm.name,
        "dtype": lm.dtype,
        "device": device_name(lm.device),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "engine": lm.engine.name,
    }


def load_of_cores() -> float | None:
    """Return the load average of the last minute divided by the number of cores; None on Windows."""
    return os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else None


class Lockstep:
    """Runs baseline and locked sampler step by step; they take turns in going first.

    locked: the decoder with locks. The baseline is the same decoder with every row computed.
    """

    def __init__(self, lm: LanguageModel, prompts: list[list[int]], locked: Decoder) -> None:
        self.lm, self.prompts, self.settings = lm, prompts, locked.settings
        self.decoders = {"baseline": replace(locked, compute=Everything()), "locked": locked}
        self.steps: dict[str, list[Step]] = {}  # for each sampler, those of the last repeat
        self.seconds: dict[str, list[list[float]]] = defaultdict(list)  # for each sampler [repeats][steps]
        decode(lm, prompts, **locked.keywords())  # what the model cannot do is refused before anything is allocated

    def run(self, repeats: int) -> Figures:
        for _ in tqdm(range(repeats), desc="repeats", disable=None):
            self.repeat()
        return self.result()

    def repeat(self) -> None:
        runs = {name: decode(self.lm, self.prompts, **each.keywords()) for name, each in self.decoders.items()}
        seconds: dict[str, list[float]] = defaultdict(list)
        steps: dict[str, list[Step]] = {name: [] for name in runs}
        most = self.decoders["locked"].steps_of()
        for t in tqdm(range(most), unit="step", leave=False, disable=None):
            for name in sorted(runs, reverse=t % 2 == 0):
                took, step = timed(self.lm.device, lambda run=runs[name]: next(run, None))
                if step is not None:  # a policy may end a run early
                    steps[name].append(step)
                    seconds[name].append(took)
        self.steps = steps
        for name, values in seconds.items():
            self.seconds[name].append(values)

    def measure(self, repeats: Sequence[int], tokens: int) -> Figures:
        """Return figures of some repeats; times are medians over them. tokens: how many a run commits."""
        steps = {name: np.median([values[r] for r in repeats], axis=0) for name, values in self.seconds.items()}
        base, locked = steps["baseline"], steps["locked"]
        figures: Figures = {"locked_last_step_ms": 1e3 * float(np.median(locked[-len(locked) // 8 :]))}
        for name in self.decoders:
            figures[f"{name}_step_ms"] = 1e3 * float(np.median(steps[name]))
            figures[f"{name}_tps"] = tokens / float(steps[name].sum())
        return figures | {"speedup": float(base.sum() / locked.sum())}

    def result(self) -> Figures:
        """Return all figures. Efficiency is speedup * flops_ratio: 1 if every saved FLOP saves its time."""
        costs = self._costs()
        figures = summary(
            lambda chosen: self.measure(chosen, costs["tokens"]), len(self.seconds["baseline"]), ["speedup"]
        )
        if figures["speedup"] is None:
            figures["refused"]["efficiency"] = "its speedup is refused"
            return {**figures, "efficiency": None, **costs}
        return {**figures, "efficiency": figures["speedup"] * costs["flops_ratio"], **costs}

    def _costs(self) -> Figures:
        """The costs of the locked run that are no times."""
        counter = TotalsCounter(self.lm.config, self.lm.ends)
        for step in self.steps["locked"]:
            counter.add(step)
        totals = counter.totals()
        names = ("tokens", "flops_ratio", "active_ratio", "active_ratio_to_eos")
        return {name: getattr(totals, name) for name in names}


def timed(device: torch.device, call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that a call takes, and what it returns."""
    watch = Stopwatch(device)
    watch.start()
    result = call()
    return watch.seconds(), result


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the first and the third quartile, interpolated linearly."""
    return np.quantile(values, (0.25, 0.75)).tolist()


def refusal(ratio: float, repeats: Sequence[float]) -> str | None:
    """Return why the ratio of all repeats is refused, by those of single `repeats`; None if it is not."""
    if len(repeats) < LEAST:
        return f"{len(repeats)} of the {LEAST} repeats that a spread takes"
    first, third = quartiles(repeats)
    if third - first > abs(ratio - 1):
        return f"the quartiles, {first:.3g} and {third:.3g}, lie further apart than {ratio:.3g} from 1"
    return None


def summary(measure: Callable[[Sequence[int]], Mapping[str, Any]], repeats: int, ratios: Iterable[str] = ()) -> Figures:
    """Return the figures of all repeats, with their spread.

    measure: returns the figures of some repeats.
    ratios: figures that are None if they are refused.

    `spread` holds the quartiles of each figure over the single repeats (empty with fewer than LEAST), `refused` the
    reason for each refused ratio.
    """
    figures = measure(range(repeats))
    alone = [measure([repeat]) for repeat in range(repeats)]
    single = {name: [each[name] for each in alone] for name in figures}
    why = {name: refusal(figures[name], single[name]) for name in ratios}
    refused = {name: sentence for name, sentence in why.items() if sentence is not None}
    spread = {name: quartiles(values) for name, values in single.items()} if repeats >= LEAST else {}
    return {**figures, **dict.fromkeys(refused), "spread": spread, "refused": refused}
