"""`bench decode` times a decoder with locks beside the same decoder without locks. They take turns, step by step.

Both decoders run in every repeat, so that the ratio of a repeat compares times that were measured together.
"""

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from tqdm import tqdm

from surelock.bench.subject import add_subject_flags, prompts_for, setup_of, subject
from surelock.bench.timing import Figures, load_of_cores, summary, timed
from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.step import Step
from surelock.decoding.totals import TotalsCounter
from surelock.model.language_model import LanguageModel
from surelock.model.machine import peak_memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench decode`."""
    add_subject_flags(parser)
    add_decoder_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Run the benchmark and return its JSON object.

    As in `surelock decode`, the decoder is the one that the model recommends, and flags override its settings. The
    field `settings` contains the whole decoder.

    Raises ValueError for flags that cannot be followed.
    """
    load_at_start = load_of_cores()
    lm, seconds = subject(arguments)
    locked = recommended(lm.generation, given_settings(arguments))
    bench = Lockstep(lm, prompts_for(lm, arguments.batch, arguments.prompt_length), locked)
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    head = {
        "load": load_at_start,
        **setup_of(lm),
        "loading_seconds": seconds,
        "peak_memory": peak_memory(),
    }
    head |= {"batch": arguments.batch, "repeats": arguments.repeats, "settings": locked.to_plain()}
    return {"benchmark": "decode", **head, **bench.result()}


class Turns:
    """Runs several decoders step by step. They take turns in going first.

    decoders: the decoders by name. They differ only in their compute rule.

    Raises ValueError for decoders that cannot run.
    """

    def __init__(
        self, lm: LanguageModel, prompts: list[list[int]], decoders: Mapping[str, Decoder]
    ) -> None:
        self.lm = lm
        self.prompts = prompts
        self.decoders = decoders
        self.steps: dict[str, list[Step]] = {}  # by name, the steps of the last repeat
        # by name, the seconds of every step of every repeat: [repeats][steps]
        self.seconds: dict[str, list[list[float]]] = defaultdict(list)
        for decoder in decoders.values():  # raises ValueError before anything is allocated
            decode(lm, prompts, **decoder.keywords())

    def repeat(self) -> None:
        """Run all decoders once, and record their steps and seconds."""
        runs = {
            name: decode(self.lm, self.prompts, **decoder.keywords())
            for name, decoder in self.decoders.items()
        }
        seconds: dict[str, list[float]] = defaultdict(list)
        steps: dict[str, list[Step]] = {name: [] for name in runs}
        most = max(decoder.steps_of() for decoder in self.decoders.values())
        for t in tqdm(range(most), unit="step", leave=False, disable=None):
            for name in sorted(runs, reverse=t % 2 == 0):
                took, step = timed(self.lm.device, lambda run=runs[name]: next(run, None))
                if step is not None:  # a policy may end a run early
                    steps[name].append(step)
                    seconds[name].append(took)
        self.steps = steps
        for name, values in seconds.items():
            self.seconds[name].append(values)


class Lockstep(Turns):
    """Runs a decoder and its baseline in turn.

    locked: the decoder with locks. The baseline is the same decoder with every row computed.
    """

    def __init__(self, lm: LanguageModel, prompts: list[list[int]], locked: Decoder) -> None:
        super().__init__(
            lm, prompts, {"baseline": replace(locked, compute=Everything()), "locked": locked}
        )

    def measure(self, repeats: Sequence[int], tokens: int) -> Figures:
        """Return figures of some repeats. The time of a step is its median over these repeats.

        tokens: the number of tokens that a run commits.
        """
        steps = {}
        for name, values in self.seconds.items():
            steps[name] = np.median([values[repeat] for repeat in repeats], axis=0)
        base = steps["baseline"]
        locked = steps["locked"]
        figures: Figures = {
            "locked_last_step_ms": 1e3 * float(np.median(locked[-len(locked) // 8 :]))
        }
        for name in self.decoders:
            figures[f"{name}_step_ms"] = 1e3 * float(np.median(steps[name]))
            figures[f"{name}_tps"] = tokens / float(steps[name].sum())
        return figures | {"speedup": float(base.sum() / locked.sum())}

    def result(self) -> Figures:
        """Return all figures.

        The efficiency is speedup * flops_ratio. It is 1 if the time falls by the same factor as the FLOPs.
        """
        guided = self.decoders["locked"].settings.cfg_scale > 0
        counter = TotalsCounter(self.lm.config, self.lm.ends, guided=guided)
        for step in self.steps["locked"]:
            counter.add(step)
        totals = counter.totals()
        names = ("tokens", "steps", "flops_ratio", "active_ratio", "active_ratio_to_eos")
        costs = {name: getattr(totals, name) for name in names}
        figures = summary(
            lambda chosen: self.measure(chosen, costs["tokens"]),
            len(self.seconds["baseline"]),
            ["speedup"],
        )
        if figures["speedup"] is None:
            figures["refused"]["efficiency"] = "its speedup is refused"
            return {**figures, "efficiency": None, **costs}
        return {**figures, "efficiency": figures["speedup"] * costs["flops_ratio"], **costs}
