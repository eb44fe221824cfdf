"""Every figure of our own in the README's Results and in the model card, computed anew from the committed cells.

A sentence stands here with its figures computed, and must stand in the text word for word. Whatever figure is left in
the text beside these sentences must be listed in ELSEWHERE, with the reason why no cell holds it. Nothing of
`surelock.experiments` is used: what the experiments' tables compute is computed a second time.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from io import StringIO
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

import surelock
from surelock.experiments.bench import speeds
from surelock.experiments.estimates import student_t
from surelock.experiments.judged import pairs_of, read_scores
from surelock.experiments.lab import Lab

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "assets" / "results"
Array = NDArray[np.float64]
Record = dict[str, Any]


def words(text: str) -> str:
    """Without line breaks, so that a sentence is found wherever its lines end."""
    return " ".join(text.split())


README = (ROOT / "README.md").read_text("utf-8")
CARD = (ROOT / "assets" / "stories" / "README.md").read_text("utf-8")


def section(text: str, heading: str) -> str:
    """The text under a heading, up to the next of its rank."""
    return text.split(f"\n## {heading}", 1)[1].split("\n## ", 1)[0]


@cache
def rows() -> dict[str, str]:
    """What the table of Results says of ours, by experiment; the paper's own column is the paper's."""
    found = {}
    for line in section(README, "Results").splitlines():
        if re.match(r"\| [^-|]", line):
            name, _, here, why = (part.strip() for part in line[1:].removesuffix("|").split("|"))
            found[name.split()[-1].strip("`")] = f"{here} | {why}"
    return found


# --- the cells --------------------------------------------------------------------------------------------------------


@cache
def records(experiment: str) -> list[Record]:
    return [json.loads(line) for line in (RESULTS / experiment / "cells.jsonl").read_text("utf-8").splitlines()]


def where(experiment: str, **cell: Any) -> list[Record]:
    """The results of the cells with these settings."""
    return [
        record["result"]
        for record in records(experiment)
        if all(record["cell"].get(name) == value for name, value in cell.items())
    ]


def one(experiment: str, **cell: Any) -> Record:
    (result,) = where(experiment, **cell)
    return result


# --- figures as the texts write them ----------------------------------------------------------------------------------


def dot(value: float, digits: int = 3) -> str:
    """.596, and -.014 (but 1.50)."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def signed(value: float, digits: int = 3) -> str:
    return ("+" if value >= 0 else "") + dot(value, digits)


def span(values: Iterable[float], write: Callable[[float], str] = dot) -> str:
    """The least and the largest: .66 to 1.03."""
    found = list(values)
    return f"{write(min(found))} to {write(max(found))}"


def two(value: float) -> str:
    return dot(value, 2)


def times(value: float) -> str:
    return f"{dot(value, 2)}x"


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


# --- estimates over prompts -------------------------------------------------------------------------------------------


class Change:
    """A figure over prompts: its value, and what each prompt adds to it, from which its error comes."""

    def __init__(self, value: float, parts: Array) -> None:
        self.value, self.parts = value, parts

    def __sub__(self, other: Change) -> Change:
        return Change(self.value - other.value, self.parts - other.parts)

    @property
    def error(self) -> float:
        return float(np.std(self.parts, ddof=1) / math.sqrt(len(self.parts)))

    @property
    def z(self) -> float:
        return self.value / self.error

    def __str__(self) -> str:
        return f"{signed(self.value)} ({dot(self.error)})"


def together(changes: Iterable[Change]) -> Change:
    """The mean of figures of the same prompts."""
    found = list(changes)
    return Change(float(np.mean([c.value for c in found])), np.mean([c.parts for c in found], axis=0))


def mean(values: Any) -> Change:
    x = np.asarray(values, dtype=float)
    return Change(float(x.mean()), x - x.mean())


def bits(result: Record) -> Change:
    """Bits per character of all texts together: the ratio of sums, linearised."""
    own, characters = np.array(result["nats"]) / math.log(2), np.array(result["characters"], dtype=float)
    value = own.sum() / characters.sum()
    return Change(float(value), (own - value * characters) / characters.mean())


def ranks(values: Iterable[float]) -> Array:
    """Equal values share theirs."""
    x = np.array(list(values))
    return (np.searchsorted(np.sort(x), x, "left") + np.searchsorted(np.sort(x), x, "right")) / 2


def changes(experiment: str, **cell: Any) -> list[tuple[Record, Change]]:
    """(cell, change of the bits against the same sampler's baseline) of the locked cells with these settings."""
    rule = ("epsilon", "visible_steps", "unlock_period", "percentile")
    found = []
    for record in records(experiment):
        own = record["cell"]
        if own["epsilon"] is not None and all(own[name] == value for name, value in cell.items()):
            sampler = {name: value for name, value in own.items() if name not in rule}
            found.append((own, bits(record["result"]) - bits(one(experiment, epsilon=None, **sampler))))
    return found


def change(experiment: str, **cell: Any) -> Change:
    ((_, found),) = changes(experiment, **cell)
    return found


# --- the outside judge ------------------------------------------------------------------------------------------------

JUDGE = "judge-SmolLM2-135M-Instruct.Q4_1"


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(ROOT / "assets" / "stories" / "tokenizer.json"))


@cache
def openings() -> list[str]:
    return (ROOT / "surelock" / "experiments" / "openings.txt").read_text("utf-8").splitlines()


def repeats(text: str) -> float:
    """Share of the 4-grams of tokens that were there before; NaN where there is none."""
    ids = tokenizer().encode(text).ids
    grams = list(zip(ids, ids[1:], ids[2:], ids[3:], strict=False))
    return 1 - len(set(grams)) / len(grams) if grams else math.nan


class Read:
    """What the judge makes of a cell's texts, found under the hash of what it read: prompts and texts to the end."""

    def __init__(self, experiment: str, cell: Record) -> None:
        result = one(experiment, **cell)
        texts = [tokenizer().decode(ids[:end]) for ids, end in zip(result["tokens"], result["ends"], strict=True)]
        pairs = list(zip(openings()[: len(texts)], texts, strict=True))
        key = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]
        (score,) = (r["result"] for r in records(f"{experiment}/{JUDGE}") if r["cell"] == {"texts": key})
        self.nats, self.tokens, self.characters = (np.array(score[k]) for k in ("nats", "tokens", "characters"))
        self.repeats = np.array([repeats(text) for text in texts])

    @property
    def per_text(self) -> Array:
        """Bits per character of each text."""
        return self.nats / math.log(2) / self.characters

    @property
    def preference(self) -> float:
        """Rank correlation of bits and repeats over the texts."""
        known = ~np.isnan(self.repeats)
        return float(np.corrcoef(ranks(self.per_text[known]), ranks(self.repeats[known]))[0, 1])


class Judged:
    """Locked cells beside their baseline: each prompt's texts count together."""

    def __init__(self, experiment: str, cells: list[Record]) -> None:
        self.own = [Read(experiment, cell) for cell in cells]
        self.base = Read(experiment, cells[0] | {"epsilon": None, "visible_steps": 1})

    def _ratio(self, reads: list[Read], unit: str) -> Change:
        over, under = (np.sum([getattr(read, name) for read in reads], axis=0) for name in ("nats", unit))
        value = over.sum() / under.sum()
        return Change(float(value), (over - value * under) / under.mean())

    @property
    def bits(self) -> Change:
        found = self._ratio(self.own, "characters") - self._ratio([self.base], "characters")
        return Change(found.value / math.log(2), found.parts / math.log(2))

    @property
    def perplexity(self) -> Change:
        """Times the baseline's."""
        found = self._ratio(self.own, "tokens") - self._ratio([self.base], "tokens")
        return Change(math.exp(found.value), math.exp(found.value) * found.parts)

    @property
    def where_repeats_stay(self) -> Change:
        """The bits' change there: where a straight line through all texts' changes meets it."""
        more = np.array([read.repeats - self.base.repeats for read in self.own])
        change = np.array([read.per_text - self.base.per_text for read in self.own])
        assert not np.isnan(more).any()
        design = np.stack([np.ones_like(more), more], axis=-1)
        flat = design.reshape(-1, 2)
        line = np.linalg.lstsq(flat, change.ravel(), rcond=None)[0]
        of_prompts = np.einsum("cpi,cp->pi", design, change - design @ line)  # one prompt's texts hang together
        parts = np.linalg.solve(flat.T @ flat, of_prompts.T)[0] * len(of_prompts)
        return Change(float(line[0]), parts)


def locked(experiment: str, **cell: Any) -> list[Record]:
    return [own for own, _ in changes(experiment, **cell)]


def plain(found: Change, digits: int = 2) -> str:
    return f"{dot(found.value, digits)} ({dot(found.error, digits)})"


# --- Results: one function a row --------------------------------------------------------------------------------------

EPSILONS = (5e-4, 5e-3, 5e-2)


def prompt_tokens(count: int) -> int:
    """Of the first openings together."""
    return sum(len(tokenizer().encode(text).ids) for text in openings()[:count])


def flops() -> list[str]:
    def ratios(length: int, figure: str = "flops_ratio") -> str:
        return ", ".join(f"{dot(one('flops', gen_length=length, epsilon=e)[figure])}x" for e in EPSILONS)

    for result in where("flops"):
        assert result["active_ratio"] == pytest.approx(result["flops_ratio"], abs=5e-4)
    # The paper's F_base at 64 tokens is 64 times a row's FLOPs in LLaDA-8B, linear in the length of the sequence.
    d, layers = 4096, 32
    length = (9.017e11 / 64 / layers - 8 * d * d - 6 * d * 12288) / (4 * d)
    prompts = prompt_tokens(16)
    return [
        f"{ratios(64)} (64); {ratios(256)} (256)",
        f"of the paper's positions at 64 tokens {percent(1 - 64 / length)} % are prompt or pads (by its F_base), of "
        f"ours {percent(prompts / (prompts + 16 * 64))} %",
        f"its way: {ratios(64, 'flops_ratio_padded')} at 64",
    ]


def dynamics() -> list[str]:
    def curve(percentile: float) -> list[float]:
        return one("dynamics", gen_length=256, epsilon=5e-3, percentile=percentile)["flops_ratio"]

    for result in where("dynamics"):
        assert all(later <= before for before, later in pairwise(result["flops_ratio"]))
    quarters = ", ".join(two(curve(20.0)[step - 1]) for step in (64, 128, 192, 256))
    falls = -np.diff([1.0, *(curve(20.0)[step - 1] for step in (64, 128, 192, 256))])
    assert 0.23 < falls.min() < falls.max() < 0.26  # steadily
    return [
        f"at 256, ε 5e-3, m = 20 %: {quarters} of the baseline after each quarter; never rises",
        f"m = 10 % costs {times(np.mean(curve(10.0)))} in all, 40 % {times(np.mean(curve(40.0)))}",
    ]


def quality() -> list[str]:
    greedy, every = changes("quality", remasking="low_confidence"), changes("quality")
    sampled = {e: change("quality", remasking="entropy", epsilon=e) for e in (5e-4, 5e-3)}
    totals = [bits(result).value for result in where("quality", epsilon=None)]
    cells = [one("quality", **cell) for cell, _ in greedy]
    tight, loose, both = (
        together(c for cell, c in every if cell["epsilon"] in chosen) for chosen in ((5e-4,), (5e-3,), (5e-4, 5e-3))
    )
    assert abs(tight.z) < 1
    judged = [Judged("quality", [cell]) for cell, _ in greedy]
    page = [Judged("quality", [cell]) for cell in locked("quality", remasking="entropy")]
    all_judged = together(own.bits for own in (*judged, *page))
    assert [cell["epsilon"] for cell in locked("quality", remasking="entropy")] == [5e-4, 5e-3]
    likes = [two(own.preference) for group in page for own in group.own]
    return [
        f"By SmolLM2, greedy texts have {span((j.perplexity.value for j in judged), two)} times the baseline's "
        f"Gen.-PPL (errors {span((j.perplexity.error for j in judged), two)}), their bits change by "
        f"{span((j.bits.value for j in judged), signed)} ({span(j.bits.error for j in judged)}); at the page's "
        f"settings {' and '.join(plain(j.perplexity) for j in page)} times, {' and '.join(str(j.bits) for j in page)}; "
        f"all {len(every)} together {all_judged} bits, z {all_judged.z:.1f}",
        f"rank correlation of bits and repeats {span((own.preference for j in judged for own in j.own), two)}, at the "
        f"page's settings {' and '.join(likes)}",
        f"bits per character ({span(totals, two)}) change by {span((c.value for _, c in greedy), signed)}, errors "
        f"{span(c.error for _, c in greedy)}, at {span((cell['flops_ratio'] for cell in cells), times)}",
        f"{sampled[5e-4]} at ε 5e-4, {sampled[5e-3]} at 5e-3",
        f"All {len(every)} together: {signed(both.value, 4)} ({dot(both.error, 4)}), z {both.z:.1f}",
        f"the {len(every) // 2} at 5e-3 alone {loose}, z {loose.z:.1f}",
        f"{span((equal('quality', cell) for cell, _ in every), percent)} % of the tokens stay the baseline's",
    ]


def equal(experiment: str, cell: Record) -> float:
    """Share of the tokens that are the baseline's, up to the later first EOS and with it."""
    ours, base = one(experiment, **cell), one(experiment, **cell | {"epsilon": None})
    ends = [max(pair) + 1 for pair in zip(ours["ends"], base["ends"], strict=True)]
    texts = zip(ours["tokens"], base["tokens"], ends, strict=True)
    return float(np.mean([np.mean(np.equal(a[:end], b[:end])) for a, b, end in texts]))


def runtime() -> list[str]:
    def last(result: Record) -> float:
        ratios = np.divide(result["step_tps"], result["step_tps_base"])
        return float(ratios[-len(ratios) // 8 :].mean())

    assert {len(result["tps_ratios"]) for result in where("runtime") + where("selection")} == {4}
    assert all(not result["refused"] for result in where("runtime") + where("selection"))
    apart = max(max(r["tps_ratios"]) / min(r["tps_ratios"]) - 1 for r in where("runtime"))
    speed = {n: span((r["tps_ratio"] for r in where("runtime", gen_length=n)), times) for n in (64, 256)}
    efficiency = span((r["tps_ratio"] * r["flops_ratio"] for r in where("runtime")), two)
    late = [last(result) for result in where("runtime", gen_length=256)]
    return [
        f"{speed[64]} (64), {speed[256]} (256); efficiency {efficiency}; single repeats of a cell differ by up to "
        f"{percent(apart)} %",
        f"The last eighth of the steps at 256 is {span(late, '{:.0f}'.format)} times faster",
    ]


def selection() -> list[str]:
    found = [
        one("selection", gen_length=256, epsilon=e, select_fraction=k)
        for e, k in ((5e-4, 1.0), (None, 0.8), (5e-4, 0.8))
    ]
    assert 0.8 < found[1]["flops_ratio"] < 0.81
    return [
        "at 256: " + ", ".join(f"{times(r['tps_ratio'])} ({times(r['flops_ratio'])})" for r in found),
        "computing .8 of the rows costs .80: .64 is k squared, and .28 is not .54 times .64",
    ]


def epsilon() -> list[str]:
    def told(e: float, *, first: bool = False) -> str:
        own = change("epsilon", epsilon=e)
        named = (" bits", "error ") if first else ("", "")
        return f"{cost(e)} ({signed(own.value)}{named[0]}, {named[1]}{dot(own.error)})"

    def cost(e: float) -> str:
        return times(one("epsilon", epsilon=e)["flops_ratio"])

    every = [found for _, found in changes("epsilon")]
    assert all(0 < found.z < 2 for found in every) and len(every) == 7
    pooled = together(every)
    judged, loose = Judged("epsilon", locked("epsilon")), Judged("epsilon", locked("epsilon", epsilon=5e-3))
    assert 0.4 < judged.where_repeats_stay.value / judged.bits.value < 0.6  # "about half"
    assert all(read.repeats.mean() < judged.base.repeats.mean() and read.preference < 0 for read in judged.own)
    return [
        f"By SmolLM2 all seven together {judged.bits} bits, Gen.-PPL {plain(judged.perplexity)} times, at 5e-3 "
        f"{loose.bits}, {plain(loose.perplexity)} times",
        f"about half of the judge's {signed(judged.bits.value)} goes with fewer repeats, which it likes: "
        f"{judged.where_repeats_stay} where they stay the same",
        f"at 5e-8 {cost(5e-8)}, 5e-5 {told(5e-5, first=True)}, 5e-4 {told(5e-4)}, 5e-3 {told(5e-3)}, 5e-2 {told(5e-2)}"
        ": all upwards, none by two errors of its own; the seven together "
        f"{signed(pooled.value, 4)} ({dot(pooled.error, 4)}), z {pooled.z:.1f}",
        "posteriors never stop moving by 5e-8",
    ]


def contraction() -> list[str]:
    falls, scatter, rises, expected = [], [], [], []
    for result in where("contraction"):
        curve = np.log(result["mean_kl"])
        step = np.arange(len(curve))
        slope, start = np.polyfit(step, curve, 1)
        falls.append(-slope)
        scatter.append(float(np.std(curve - slope * step - start, ddof=2)))
        rises.append(float(np.mean(np.diff(curve) > 0)))
        expected.append(0.5 * (1 + math.erf(slope / scatter[-1] / 2)))  # P(a line with normal scatter rises)
    assert {percent(share) for share in expected} == {"49"}
    assert {record["cell"]["temperature"] for record in records("contraction")} == {0, 1}
    prompts = {record["cell"]["prompts"] for record in records("contraction")}
    return [
        f"at temperatures 0 and 1 it falls by {span((100 * f for f in falls), lambda f: dot(f, 1))} % a step and "
        f"scatters by {span(scatter, percent)} % around that: it rises in {span(rises, percent)} % of the steps, as a "
        f"line with such scatter would ({percent(expected[0])} %)",
        f"Single positions rise in {span((r['rises'] for r in where('contraction')), percent)} %, and "
        f"{span((100 * r['positions_ok'] for r in where('contraction')), lambda f: dot(f, 1))} % of them never do",
        f"the scatter is mostly that of {prompts.pop()} prompts",
    ]


def bound() -> list[str]:
    last_step, loose, correlations = [], [], []
    for result in where("bound"):
        kl, left, error = (np.array(result[name]) for name in ("kl", "left", "error"))
        root = math.sqrt(result["rho"])
        for smooth in ("smooth_max", "smooth_99"):
            scale = math.sqrt(2) * result[smooth] * np.sqrt(kl) / (1 - root)
            sums = {"all": scale, "left": scale * (1 - root**left)}
            assert (error <= sums["all"]).all()
            assert ((error <= sums["left"]) == (left > 0)).all()  # it fails exactly where nothing was left
            loose += [float(np.median(own / error)) for own in sums.values()]
        last_step.append(100 * float(np.mean(left == 0)))
        correlations.append(float(np.corrcoef(kl.argsort().argsort(), error.argsort().argsort())[0, 1]))
    assert [round(math.log10(value)) for value in (min(loose), max(loose))] == [3, 5]
    return [
        "the theorem's sum holds at every locked position, 10³ to 10⁵ times too loose; the proof's finite sum at all "
        f"that had a step left (the other {span(last_step, '{:.1f}'.format)} % locked in the last step, for which it "
        "is empty)",
        f"rank correlation {span(correlations, two)}",
    ]


@cache
def visibility() -> dict[tuple[float, float, int], Change]:
    """Change of the bits by (temperature, epsilon, visible_steps)."""
    return {(c["temperature"], c["epsilon"], c["visible_steps"]): found for c, found in changes("seen")}


def fewer_steps(temperature: float, epsilon: float, fewer: int, more: int) -> Change:
    """What seeing a token for fewer steps costs, in bits of the same prompts."""
    return visibility()[temperature, epsilon, fewer] - visibility()[temperature, epsilon, more]


def seen() -> list[str]:
    at = {v: f"{visibility()[1.0, 5e-2, v]}" for v in (0, 1, 2)}
    cost = {v: two(one("seen", temperature=1.0, epsilon=5e-2, visible_steps=v)["active_ratio"]) for v in (0, 1, 2)}
    settings = list(product((0.0, 0.5, 1.0), EPSILONS))
    compared = [fewer_steps(*own, *pair) for own in settings for pair in combinations((0, 1, 2), 2)]
    literal = fewer_steps(1.0, 5e-2, 0, 1)
    assert sum(abs(other.z) > abs(literal.z) for other in compared) == 2  # "the third largest"
    pooled = together(fewer_steps(*own, 0, 1) for own in settings)
    every = together(visibility().values())
    cells = {
        (t, e, v): locked("seen", temperature=t, epsilon=e, visible_steps=v) for t, e in settings for v in (0, 1, 2)
    }
    judged = {setting: Judged("seen", cell).bits for setting, cell in cells.items()}
    worst = judged[1.0, 5e-2, 0] - judged[1.0, 5e-2, 1]
    nine = together(judged[(*own, 0)] - judged[(*own, 1)] for own in settings)
    all_judged = together(judged.values())
    return [
        f"By SmolLM2 the three are {', '.join(str(judged[1.0, 5e-2, v]) for v in (0, 1, 2))}; literal costs "
        f"{plain(worst, 3)} more than `1`, over all nine settings {signed(nine.value, 4)} ({dot(nine.error, 4)}), "
        f"z {nine.z:.1f}",
        f"at temperature 1, ε 5e-2: literal {at[0]} bits at {cost[0]} of the rows, `visible_steps=1` {at[1]} at "
        f"{cost[1]}, `2` {at[2]} at {cost[2]}",
        f"Paired, literal costs {dot(literal.value)} ({dot(literal.error)}) more than `1` there, but that is the third "
        f"largest of {len(compared)} such comparisons; over all nine settings it is {signed(pooled.value, 4)} "
        f"({dot(pooled.error, 4)}), no clear difference",
        f"All {len(visibility())} locked settings together change the bits by {every}, z {every.z:.1f}, by "
        f"SmolLM2 by {all_judged}, z {all_judged.z:.1f}",
    ]


PAGE = {"temperature": 0.5, "remasking": "entropy", "block_length": 32, "no_repeat_ngram_size": 5}
CHOICE, FRESH = (0, 1000), (2000,)
KINDS = ("again", "strangers", "stuck")


def share(kind: str, seeds: Iterable[int] | None = None, **settings: Any) -> Change:
    """Of the continuations with a fault of this kind ("clean": with none); an opening of several seeds counts once."""
    runs = [
        record["result"]["faults"]
        for record in records("sampler")
        if all(record["cell"][name] == value for name, value in settings.items())
        and (seeds is None or record["cell"]["seed"] in seeds)
    ]
    values = [
        [not any(fault[k] for k in KINDS) if kind == "clean" else bool(fault[kind]) for fault in run] for run in runs
    ]
    return mean(np.mean(values, axis=0))


def with_error(found: Change) -> str:
    return f"{percent(found.value)} % ({percent(found.error)})"


def sampler() -> list[str]:
    unlimited = PAGE | {"no_repeat_ngram_size": 0}
    assert {record["cell"]["prompts"] for record in records("sampler")} == {96}
    before, after = ({k: share(k, CHOICE, **s).value for k in KINDS} for s in (unlimited, PAGE))
    return [
        f"{len(samplers())} samplers for the embedded model, faults counted in 96 or 192 continuations each: the "
        "page's (`entropy`, temperature .5, blocks of 32, `no_repeat_ngram_size` 5) has none in "
        f"{with_error(share('clean', CHOICE, **PAGE))} of the 192 that it was chosen by, in "
        f"{with_error(share('clean', FRESH, **PAGE))} of 96 with other seeds",
        f"without the last {with_error(share('clean', CHOICE, **unlimited))} and "
        f"{with_error(share('clean', FRESH, **unlimited))}: repetition goes from {percent(before['again'])} to "
        f"{percent(after['again'])} %, names from nowhere stay at {percent(before['strangers'])} to "
        f"{percent(after['strangers'])} %",
    ]


FIELD = {
    "SureLock": "SureLock",
    "lock by age": "Lock by age",
    "fixed budget": "Fixed budget",
    "delayed cache": "Delayed cache",
    "dual cache": "Dual cache",
    "parallel threshold": "Parallel threshold",
    "KLASS": "KLASS",
    "half the steps": "Half the steps",
}


def chance(lost: int, won: int) -> float:
    """The exact sign test's, on both sides."""
    tail = sum(math.comb(lost + won, more) for more in range(max(lost, won), lost + won + 1))
    return min(1.0, 2 * tail / 2 ** (lost + won))


def arena() -> list[str]:
    results = where("arena")
    field = records("arena")[0]["cell"]["contestants"]
    sums = {n: {k: sum(sum(r[n][k]) for r in results) for k in ("rows", "seconds", "steps")} for n in field}
    clean = {n: [float(not any(f[k] for k in KINDS)) for r in results for f in r[n]["faults"]] for n in field}
    every = "Every position"
    assert {r["threads"] for r in results} == {2}  # "two cores"
    for name, decoder in field.items():
        settings = decoder["settings"]
        assert settings["gen_length"] == settings["steps"] * (2 if name == "Half the steps" else 1)
        assert all(settings[k] == PAGE[k] for k in ("temperature", "block_length", "no_repeat_ngram_size"))
    rows = {name: own["rows"] / sums[every]["rows"] for name, own in sums.items()}
    speed = {name: sums[every]["seconds"] / own["seconds"] for name, own in sums.items()}
    change = {name: mean(own) - mean(clean[every]) for name, own in clean.items()}

    corrected = {}
    for name in field.keys() - {every}:
        pairs = list(zip(clean[every], clean[name], strict=True))
        corrected[name] = min(1.0, (len(field) - 1) * chance(pairs.count((1, 0)), pairs.count((0, 1))))
    first, second, *others = sorted(corrected, key=lambda name: corrected[name])
    assert (first, second) == ("Half the steps", "SureLock and KLASS")
    assert corrected[first] < 1e-9 and 0.05 < corrected[second] < 0.11 and all(corrected[name] == 1 for name in others)
    errs = {n: mean([e for r in results for e in r[n]["error"]]).value for n in field}
    assert min((e, n) for n, e in errs.items() if rows[n] < 0.9 and n != first)[1] == "Fixed budget"
    fastest = sorted(speed.keys() - {first}, key=lambda name: speed[name])[-2:]
    assert fastest == ["Dual cache", "Dual cache and parallel threshold"]
    (p,) = {field[name]["unmask"]["p"] for name in field if "threshold" in name}

    told = [
        f"{n} {two(rows[f])}, {times(speed[f])}, {nats(errs[f])}, {percent(mean(clean[f]).value)} %"
        for n, f in FIELD.items()
    ]
    best = change["Dual cache"]
    return [
        f"{len(clean[every])} openings at the page's settings, two cores, share of rows, speed, commit error, "
        f"continuations without a fault: every position {with_error(mean(clean[every]))}; {'; '.join(told)}",
        f"it computes {two(rows['Dual cache'] / rows['SureLock'])} of what SureLock does, and its share without a "
        f"fault changes by {signed(best.value, 2)} ({dot(best.error, 2)})",
        f"Writing in parallel takes {sums['Parallel threshold']['steps'] / len(clean[every]):.0f} steps instead of "
        f"{field[every]['settings']['steps']}: this model is hardly ever {percent(p)} % sure",
        "By SmolLM2 bits per character change by "
        + ", ".join(f"{arena_bits(name) - arena_bits(every)} {told}" for name, told in JUDGED.items()),
        f"Of the {len(field) - 1} others one writes worse beyond chance (sign test, Bonferroni), half the steps "
        f"({plain(change[first])}); KLASS with SureLock ({plain(change[second])}) has p {two(corrected[second])}, "
        "so corrected",
    ]


JUDGED = {
    "SureLock": "with SureLock",
    "Lock by age": "by age",
    "Fixed budget": "with the budget",
    "Dual cache": "with the dual cache",
    "Parallel threshold": "with the parallel threshold",
    "Half the steps": "with half the steps",
}


def unlock() -> list[str]:
    plain, probed = (one("unlock", epsilon=5e-3, unlock_period=period) for period in (None, 4))
    before, after = (change("unlock", epsilon=5e-3, unlock_period=period) for period in (None, 4))
    return [
        f"probes every 4 steps cost {times(probed['flops_ratio'] - plain['flops_ratio'])} of the FLOPs and change "
        f"nothing (bits {signed(after.value, 4)} against {signed(before.value, 4)}, error {dot(after.error)})",
    ]


# --- what skipping rows costs ---

RULES = ("the paper's rule", "wait until seen", "no gate", "no gate, smoothed", "by age", "by chance", "fixed budget")
AGAINST = ("the paper's rule", "by age", "by chance")
TARGETS = (0.52, 0.56, 0.6, 0.65)
BOTH = ("page", "whole canvas")
AWAY = ("greedy", "temperature 1", "256 tokens")


def halves(setting: str, rule: str) -> list[tuple[float, str, Array]]:
    """Of each threshold: share of rows where thresholds are chosen, the rule as JSON, errors of what is reported."""
    chosen: dict[str, list[Record]] = {}
    reported: dict[str, list[float]] = {}
    for record in records("frontier"):
        cell, result = record["cell"], record["result"]
        if (cell["setting"], cell["rule"]) == (setting, rule):
            key = json.dumps(cell["compute"])
            if cell["half"] == "choose":
                chosen.setdefault(key, []).append(result)
            else:
                reported.setdefault(key, []).extend(result["error"])
    share = {k: sum(sum(r["rows"]) for r in own) / sum(sum(r["positions"]) for r in own) for k, own in chosen.items()}
    return [(share[key], key, np.array(reported[key])) for key in sorted(share, key=lambda key: share[key])]


def at(setting: str, rule: str, target: float) -> Change | None:
    """The commit error of the mixture of two thresholds that has this share of rows, None where there is none."""
    found = between(setting, rule, target)
    if found is None:
        return None
    weight, (_, cheap), (_, dear) = found
    return mean((1 - weight) * cheap + weight * dear)


def between(setting: str, rule: str, target: float) -> tuple[float, tuple[str, Array], tuple[str, Array]] | None:
    """The weight of the second of two thresholds whose mixture has this share of rows, and the two."""
    for (low, *cheap), (high, *dear) in pairwise(halves(setting, rule)):
        if low <= target <= high:
            return (target - low) / (high - low), (cheap[0], cheap[1]), (dear[0], dear[1])
    return None


@cache
def compared() -> dict[tuple[str, str, str, float], Change]:
    """(setting, rule, other rule, target) -> the rule's error less the other's."""
    found = {}
    for setting in dict.fromkeys(record["cell"]["setting"] for record in records("frontier")):
        for rule, other, target in product(RULES, AGAINST, TARGETS):
            own, its = at(setting, rule, target), at(setting, other, target)
            if rule != other and own is not None and its is not None:
                found[setting, rule, other, target] = own - its
    return found


def beaten(rule: str, other: str, places: Sequence[str] = BOTH) -> str:
    """At how many targets of some settings a rule errs less, corrected: 6 of 8."""
    t = student_t(1 - 0.05 / len(compared()) / 2, len(halves("page", rule)[0][2]) - 1)
    own = [c for (setting, *names, _), c in compared().items() if setting in places and names == [rule, other]]
    return f"{sum(c.z < -t for c in own)} of {len(own)}"


def nats(value: float) -> str:
    """Three digits, or the first that is none of them; 0 where nothing is left out."""
    return "0" if value == 0 else dot(value, max(3, math.ceil(-math.log10(value))))


def moved(rule: str) -> str:
    """How far keys and values move after a rule's locks, and at which share of the rows."""
    results = where("drift", rule=rule)
    drifts = [float(np.mean(own)) for result in results for own in result["drift"] if own]
    share = sum(sum(result["rows"]) for result in results) / sum(sum(result["positions"]) for result in results)
    return f"{with_error3(mean(drifts))} at {two(share)} of the rows"


def with_error3(found: Change) -> str:
    return f"{dot(found.value)} ({dot(found.error)})"


def drift() -> list[str]:
    openings = sum(len(result["drift"]) for result in where("drift", rule="by age"))
    kl = {rule: np.median([x for r in where("drift", rule=rule) for own in r["kl"] for x in own]) for rule in MOVED}
    return [
        f"in the 16 steps after a lock, {openings} openings at the page's settings, keys and values move by (share "
        f"of their length): the paper's gate {moved(MOVED[0])}, without it {moved(MOVED[1])}, by age "
        f"{moved(MOVED[2])}, all as soon as they are seen {moved(MOVED[3])}",
        f"median KL at the lock {kl[MOVED[0]]:.0e} with the gate, {kl[MOVED[1]]:.0e} without it, {kl[MOVED[2]]:.0e} by "
        f"age; of the gate's own locks the surer move more (rank correlation {two(surer())})",
    ]


def surer() -> float:
    """Rank correlation of confidence and drift over the locks of the paper's gate."""
    own = where("drift", rule=MOVED[0])
    joined = [ranks(x for r in own for values in r[name] for x in values) for name in ("confidence", "drift")]
    return float(np.corrcoef(*joined)[0, 1])


MOVED = ("the paper's rule", "no gate", "by age", "at once")


def elsewhere() -> str:
    """Away from the page's settings, at .56 of the rows."""
    told = []
    for setting in AWAY:
        found = [at(setting, rule, 0.56) for rule in ("the paper's rule", "by age", "fixed budget")]
        told.append(f"{setting} {' / '.join('none' if change is None else nats(change.value) for change in found)}")
    return "; ".join(told)


def judged_key(cell: Record, texts: list[str]) -> str:
    """Under what a judge's scores of these continuations of the cell's openings are kept."""
    pairs = list(zip(openings()[cell["skip"] : cell["skip"] + cell["prompts"]], texts, strict=True))
    return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16]


def bits_per_character(nats: Array, characters: Array) -> Change:
    value = nats.sum() / characters.sum()
    parts = (nats - value * characters) / characters.mean()
    return Change(float(value) / math.log(2), parts / math.log(2))


def arena_bits(name: str) -> Change:
    """What the judge makes of a contestant's texts."""
    scores = {r["cell"]["texts"]: r["result"] for r in records(f"arena/{JUDGE}")}
    own = [scores[judged_key(r["cell"], r["result"][name]["texts"])] for r in records("arena")]
    nats, characters = (np.array([x for each in own for x in each[key]], dtype=float) for key in ("nats", "characters"))
    return bits_per_character(nats, characters)


class Texts:
    """The texts of one threshold in a setting: its characters, and what the judge made of it."""

    def __init__(self, setting: str, rule: str, compute: Record) -> None:
        cells = [r for r in records("frontier") if r["cell"]["half"] == "report"]
        asked = {"setting": setting, "rule": rule, "compute": compute}
        own = [r for r in cells if asked.items() <= r["cell"].items()]
        scores = {r["cell"]["texts"]: r["result"] for r in records(f"frontier/{JUDGE}")}
        keys = [self._key(r) for r in own]
        self.error = np.concatenate([r["result"]["error"] for r in own])
        self.characters = np.concatenate([r["result"]["characters"] for r in own]).astype(float)
        self.bound = np.concatenate([r["result"]["nats"] for r in own])
        self.judge = np.concatenate([scores[key]["nats"] for key in keys])

    @staticmethod
    def _key(record: Record) -> str:
        result = record["result"]
        texts = [tokenizer().decode(ids[:end]) for ids, end in zip(result["tokens"], result["ends"], strict=True)]
        return judged_key(record["cell"], texts)

    def bits(self, nats: Array) -> Change:
        return bits_per_character(nats, self.characters)


def judged_at(rule: str, target: float, setting: str = "page") -> Change:
    """What the judge makes of the mixture of two thresholds that has this share of rows, beside every position."""
    found = between(setting, rule, target)
    assert found is not None
    weight, *two = found
    own, dear = (Texts(setting, rule, json.loads(compute)) for compute, _ in two)
    every = Texts(setting, "every position", {"kind": "everything"})
    own.characters = (1 - weight) * own.characters + weight * dear.characters
    return own.bits((1 - weight) * own.judge + weight * dear.judge) - every.bits(every.judge)


def agreement() -> tuple[int, list[float]]:
    """How many thresholds of the page's settings and the whole canvas there are, and rank correlations over them:
    commit error and own bound, commit error and judge, own bound and judge.
    """
    rows = []
    for setting in BOTH:
        every = Texts(setting, "every position", {"kind": "everything"})
        cells = [r["cell"] for r in records("frontier")]
        asked = [c for c in cells if (c["setting"], c["half"], c["skip"]) == (setting, "report", 48)]
        for cell in asked:
            if cell["rule"] != "every position":
                own = Texts(setting, cell["rule"], cell["compute"])
                changes = [own.bits(own.bound) - every.bits(every.bound), own.bits(own.judge) - every.bits(every.judge)]
                rows.append((own.error.mean(), *(change.value for change in changes)))
    columns = [ranks(column) for column in zip(*rows, strict=True)]
    return len(rows), [float(np.corrcoef(a, b)[0, 1]) for a, b in combinations(columns, 2)]


def frontier() -> list[str]:
    def line(setting: str, rule: str) -> str:
        return " / ".join(nats(found.value) for target in TARGETS if (found := at(setting, rule, target)))

    def openings_of(setting: str) -> int:
        return len(halves(setting, "by age")[0][2])

    names = {"no gate": "without the gate", "no gate, smoothed": "smoothed without it", "by age": "by age"}
    names |= {"by chance": "by chance", "fixed budget": "a fixed budget"}
    page = "; ".join(f"{name} {line('page', rule)}" for rule, name in names.items())
    canvas = "; ".join(f"{name} {line('whole canvas', rule)}" for rule, name in names.items())
    ratio = max(
        at(setting, "fixed budget", target).value / at(setting, "the paper's rule", target).value  # type: ignore[union-attr]
        for setting, target in product(BOTH, TARGETS)
    )
    return [
        f"commit error, nats, at .52 / .56 / .60 / .65 of the rows: the page's settings, {openings_of('page')} "
        f"openings that had no part in choosing the thresholds: the paper's rule {line('page', RULES[0])}; waiting "
        f"until seen {line('page', 'wait until seen')}; {page}",
        f"The whole canvas, {openings_of('whole canvas')} openings: the paper's rule "
        f"{line('whole canvas', RULES[0])}; {canvas}",
        f"Corrected for all {len(compared())} comparisons, at those eight places: the paper's rule errs less than "
        f"chance at {beaten(RULES[0], 'by chance')}, without its gate at {beaten('no gate', 'by chance')}; age less "
        f"than the paper's at {beaten('by age', RULES[0])}; KL, smoothed or not, less than age at "
        f"{beaten('no gate', 'by age')} and {beaten('no gate, smoothed', 'by age')}; the fixed budget less than the "
        f"paper's at {beaten('fixed budget', RULES[0])}, at most {percent(ratio)} % of its error",
        f"Away from there, at .56, {openings_of('greedy')} openings each, paper / age / budget: {elsewhere()}; at all "
        f"shares age errs less than the paper's at {beaten('by age', RULES[0], AWAY)} places there, the budget at "
        f"{beaten('fixed budget', RULES[0], AWAY)}",
        f"By SmolLM2 the page's texts change at .56, mixed as the errors are, by {judged_at(RULES[0], 0.56)} bits per "
        f"character under the paper's rule, by {judged_at('by age', 0.56)} by age, by "
        f"{judged_at('fixed budget', 0.56)} with the budget",
        "Over {} thresholds, both settings, commit error and own bound have rank correlation {}, commit error and "
        "judge {}, own bound and judge {}".format(agreement()[0], *map(two, agreement()[1])),
    ]


def test_the_limit_that_the_frontier_sets() -> None:
    assert beaten("by age", RULES[0]) == beaten("fixed budget", RULES[0]) == "8 of 8"
    assert beaten(RULES[0], "by chance") == "0 of 8"
    told = words(section(README, "Limits"))
    assert "locking by age and a fixed budget changed the choices less, and the rule itself no less than" in told


def about() -> str:
    """What the page's About says of it."""
    found = {rule: at("page", rule, 0.56) for rule in RULES}
    told = {rule: nats(change.value) for rule, change in found.items() if change is not None}
    openings = len(halves("page", "by age")[0][2])
    return (
        f"What leaving rows out changes was measured here, exactly (commit error at .56 of the rows, {openings} "
        f"openings that chose no threshold): the rule of the paper errs by {told[RULES[0]]} nats a choice, without its "
        f"percentile gate by {told['no gate']}, locking by age alone by {told['by age']}, by chance by "
        f"{told['by chance']}, and a fixed budget spent where most has just changed by {told['fixed budget']}. The "
        "gate is what costs: it takes the positions that the model is surest of, and without it KL does no better "
        "than age. This is one very small model at the settings of this page; whether it holds for LLaDA-8B is one "
        "command away and has not been run."
    )


def test_the_pages_about_says_what_was_measured() -> None:
    assert about() in (ROOT / "assets" / "js" / "about.js").read_text("utf-8")


ROWS: dict[str, Callable[[], list[str]]] = {
    "flops": flops,
    "dynamics": dynamics,
    "quality": quality,
    "runtime": runtime,
    "selection": selection,
    "epsilon": epsilon,
    "contraction": contraction,
    "bound": bound,
    "seen": seen,
    "sampler": sampler,
    "arena": arena,
    "frontier": frontier,
    "drift": drift,
    "unlock": unlock,
}
#: Figures that no cell holds, and why.
ELSEWHERE: dict[str, dict[str, str]] = {
    "HumanEval": {"20.3": "the paper's", "14": "20.3 % of 69", "69": "20.3 % is 14 of them", "70": "the paper's"},
    "runtime": {"28": "beside a second measurement, which is not kept"},
}


def figures(text: str) -> set[str]:
    """Every number in a text, but those in code and in names such as A2."""
    text = re.sub(r"`[^`]*`|\bA\d|Exp\. \d|Algorithm 1|Theorem 1|Eq\. \d", " ", text)
    return {found.rstrip(".,") for found in re.findall(r"[.\d][\d.,]*(?:e-\d+)?", text) if re.search(r"\d", found)}


@pytest.mark.parametrize("row", ROWS)
def test_the_results_come_from_the_cells(row: str) -> None:
    for sentence in ROWS[row]():
        assert sentence in rows()[row]


@pytest.mark.parametrize("row", rows())
def test_no_figure_of_the_results_is_without_its_cells(row: str) -> None:
    rest = rows()[row]
    for sentence in ROWS.get(row, list)():
        rest = rest.replace(sentence, " ")
    assert figures(rest) <= ELSEWHERE.get(row, {}).keys()


def test_how_many_experiments_and_how_long() -> None:
    assert ROWS.keys() == {path.parent.name for path in RESULTS.glob("*/table.csv")}
    number = {11: "Eleven", 12: "Twelve", 13: "Thirteen", 14: "Fourteen"}[len(ROWS)]
    (device,) = {result["device"] for result in where("arena")}
    field = records("arena")[0]["cell"]["contestants"]
    minutes = sum(sum(result[name]["seconds"]) for result in where("arena") for name in field) / 60
    text = words(section(README, "Results"))
    assert f"{number} experiments ran on the embedded model with `--preset stories`" in text
    assert f"`arena` decoded for {minutes:.0f} minutes" in text and device == "cpu"


def test_the_sizes_in_the_heading() -> None:
    """5.9 M parameters, in bfloat16; LLaDA-8B has 8.0 G."""
    index = json.loads((ROOT / "assets" / "stories" / "model.safetensors.index.json").read_text("utf-8"))
    parameters = index["metadata"]["total_size"] / 2
    text = words(section(README, "Results"))
    assert f"here ({parameters / 1e6:.1f} M parameters)" in text
    assert f"a model {round(8.0e9 / parameters, -2):,.0f} times smaller" in text


# --- where the cells come from ----------------------------------------------------------------------------------------


def test_the_cells_are_of_the_weights_that_ship(stories: surelock.LanguageModel) -> None:
    """Former setups name a judge, none: a judge now keeps its scores elsewhere, under a setup of its own."""
    setup = Lab(stories).setup()
    for name in ROWS:
        assert [{"judge": None} | r["setup"] for r in records(name)] == [{"judge": None} | setup] * len(records(name))


@pytest.mark.parametrize("name", ROWS)
def test_the_cells_are_those_that_the_command_measures(name: str) -> None:
    asked, measured = import_module(f"surelock.experiments.{name}").GRIDS["stories"], [r["cell"] for r in records(name)]
    assert measured == asked
    table = (RESULTS / name / "table.md").read_text("utf-8")
    assert re.search(
        rf"`python -m surelock experiment {name} --model stories --preset stories [^`]*--out assets/results`", table
    )


def assert_tables_equal(file: Path, table: pd.DataFrame) -> None:
    """But for the last digits: processors add up in orders of their own."""
    made = StringIO(table.to_csv(index=False))
    pd.testing.assert_frame_equal(pd.read_csv(file), pd.read_csv(made), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
def test_the_tables_are_of_the_cells(name: str) -> None:
    experiment = import_module(f"surelock.experiments.{name}")
    assert_tables_equal(RESULTS / name / "table.csv", experiment.table(records(name)))


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/judge-*")), ids=lambda path: path.parent.name)
def test_the_judges_tables_are_of_its_scores(folder: Path, stories: surelock.LanguageModel) -> None:
    experiment, cells = import_module(f"surelock.experiments.{folder.parent.name}"), records(folder.parent.name)
    found = list(read_scores(Lab(stories), pairs_of(Lab(stories), experiment.texts, cells), folder.parent))
    (scores,) = (judged.scores for judged in found if judged.folder == folder)
    assert_tables_equal(folder / "table.csv", experiment.judge_table(cells, scores))


# --- the table of speeds ----------------------------------------------------------------------------------------------

SPEEDS = RESULTS / "bench" / "cells.jsonl"


def speed_lines(measured: list[Record]) -> list[str]:
    """The table's rows, machine by machine, computed from the times of each row."""
    found = []
    for setup in {json.dumps(r["setup"]): r["setup"] for r in measured}.values():
        own = [r for r in measured if r["setup"] == setup]
        for r in sorted(own, key=lambda r: (r["cell"]["batch"], r["cell"]["gen_length"])):
            cell, at = r["cell"], r["result"]
            first, third = at["spread"]["speedup"]
            ratio = at["locked_tps"] / at["baseline_tps"]
            apart = third - first > abs(ratio - 1)
            length = f"{cell['gen_length']}" + (f" in {cell['steps']} steps" if cell["steps"] else "")
            words = (
                f"{length}, {cell['batch']}",
                f"{at['baseline_step_ms']:.3g} and {at['locked_step_ms']:.3g} ms",
                f"{at['baseline_tps']:.3g} and {at['locked_tps']:.3g}",
                f"{'refused' if apart else f'{ratio:.2f}x'} ({first:.2f} to {third:.2f})",
                f"{at['flops_ratio']:.2f}x",
                "" if apart else f"{ratio * at['flops_ratio']:.2f}",
                f"{at['load']:.1f}",
            )
            found.append(f"| {' | '.join(words)} |")
    return found


def table_rows(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if re.match(r"\| \d", line)]


def test_the_readmes_speeds_are_those_of_the_rows() -> None:
    _, inside, after = speeds.split(README)
    measured = [json.loads(line) for line in SPEEDS.read_text("utf-8").splitlines()]
    assert table_rows(inside) == speed_lines(measured)
    assert inside == speeds.render(measured)

    def of(name: str) -> list[float]:
        return [record["result"][name] for record in measured]

    def shares(name: str) -> str:
        return f"{100 * min(of(name)):.0f} to {100 * max(of(name)):.0f} % of"

    *first, last = [f"{ratio:.2f}x" for ratio in of("forward_speedup")]
    assert f"its forward alone gains {', '.join(first)} and {last} on these rows" in words(after)
    beside = f"{shares('baseline_other_share')} an unlocked step, in a locked run {shares('locked_other_share')} one"
    assert f"All that is beside the forward takes {beside}" in words(after)


def test_the_commands_table_is_what_these_tests_compute() -> None:
    """On made-up rows of two machines, one of them of a ratio that its repeats do not bear."""
    times = {"baseline_step_ms": 21.345, "locked_step_ms": 11.7, "measured": "2026-11-22", "load": 0.04}
    told = times | {"baseline_tps": 40.0, "locked_tps": 70.0, "flops_ratio": 0.53, "spread": {"speedup": [1.7, 1.8]}}
    wide = told | {"spread": {"speedup": [1.1, 2.1]}, "speedup": None, "efficiency": None}
    setup = dict.fromkeys(("model", "weights", "dtype", "device", "processor", "torch"), "x") | {
        "cores": 2,
        "threads": 2,
    }
    made = [
        {"setup": setup | {"processor": chip}, "cell": {"gen_length": n, "batch": b, "steps": steps}, "result": result}
        for chip in "xy"
        for n, b, steps, result in (
            (2048, 1, 256, told | {"speedup": 70 / 40, "efficiency": 70 / 40 * 0.53}),
            (256, 4, None, wide),
            (256, 1, None, told | {"speedup": 70 / 40, "efficiency": 70 / 40 * 0.53}),
        )
    ]
    assert table_rows(speeds.render(made)) == speed_lines(made) and len(speed_lines(made)) == 6


# --- the model card ---------------------------------------------------------------------------------------------------

SAMPLER = ("temperature", "remasking", "block_length", "no_repeat_ngram_size")


def new_trigrams(**settings: Any) -> float:
    """Share of the word trigrams that are new in their continuation, the mean over continuations."""
    shares = []
    for result in where("sampler", **settings):
        for text in result["texts"]:
            said = re.findall(r"\w+", text.lower())
            trigrams = list(zip(said, said[1:], said[2:], strict=False))
            shares += [len(set(trigrams)) / len(trigrams)] if trigrams else []
    return float(np.mean(shares))


def samplers() -> list[dict[str, Any]]:
    """The settings that were compared, each once."""
    found = {tuple(record["cell"][name] for name in SAMPLER): None for record in records("sampler")}
    return [dict(zip(SAMPLER, own, strict=True)) for own in found]


def sampler_lines() -> list[str]:
    """The card's table of samplers; the seeds that had no part in the choice are left out."""
    lines = []
    for settings in samplers():
        runs = [r for seed in CHOICE for r in where("sampler", seed=seed, **settings)]
        counted = [with_error(share(kind, CHOICE, **settings)) for kind in (*KINDS, "clean")]
        new = np.mean([new_trigrams(seed=s, **settings) for s in CHOICE if where("sampler", seed=s, **settings)])
        marks = "**" if settings == PAGE else ""
        cells = [*map(str, settings.values()), str(96 * len(runs)), *counted, f"{new:.2f}"]
        lines.append("| " + " | ".join(f"{marks}{cell}{marks}" for cell in cells) + " |")
    return lines


def visibility_lines() -> list[str]:
    lines = []
    for t, e in product((0.0, 0.5, 1.0), EPSILONS):
        active = [one("seen", temperature=t, epsilon=e, visible_steps=v)["active_ratio"] for v in (0, 1, 2)]
        cells = [f"{visibility()[t, e, v]} r {dot(active[v])}" for v in (0, 1, 2)]
        lines.append(f"| {t:g} | {e:.0e} | ".replace("e-0", "e-") + " | ".join(cells) + " |")
    return lines


def compared_samplers() -> list[str]:
    """The card's sentences on the samplers."""
    limited = [own for own in samplers() if own["no_repeat_ngram_size"] == 5]
    pairs = [(own, own | {"no_repeat_ngram_size": 0}) for own in limited]
    pairs = [(own, unlimited) for own, unlimited in pairs if unlimited in samplers()]
    told = {}
    for kind in (*KINDS, "clean"):
        after, before = (together(share(kind, (0,), **pair[i]) for pair in pairs) for i in (0, 1))
        told[kind] = before.value, after.value, after - before
    again, stranger, stuck, clean = (
        f"{percent(before)} % and {percent(after)} % ({{}}{signed(100 * c.value, 1)}, {{}}{dot(100 * c.error, 1)})"
        for before, after, c in told.values()
    )

    def cleanest(*temperatures: float) -> str:
        kept = [s for s in limited if s["remasking"] == "entropy" and s["temperature"] in temperatures]
        return percent(together(share("clean", CHOICE, **s) for s in kept).value)

    # what these weights' predecessor shipped with
    former = {"temperature": 0.6, "remasking": "entropy", "block_length": 16, "no_repeat_ngram_size": 0}
    better = share("clean", CHOICE, **PAGE) - share("clean", CHOICE, **former)
    assert len(pairs) == 11
    fresh = share("clean", FRESH, **PAGE)
    return [
        "Over eleven settings with and without it, openings paired: a sentence again "
        f"{again.format('difference ', 'error ')}, a stranger {stranger.format('', '')}, stuck {stuck.format('', '')}, "
        f"clean {clean.format('', '')}",
        f"clean {cleanest(0.3, 0.4, 0.5)} % at 0.3 to 0.5 in all block lengths, {cleanest(0.6)} % at 0.6, "
        f"{cleanest(0.7)} % at 0.7",
        f"{percent(share('clean', (0,), **PAGE).value)} % with the first seeds and "
        f"{percent(share('clean', (1000,), **PAGE).value)} % with the second",
        f"has {percent(share('clean', CHOICE, **former).value)} % on these weights; the difference is "
        f"{percent(better.value)} points (error {percent(better.error)})",
        f"With the third, which had no part in the choice, {with_error(fresh)} are clean",
    ]


def card_dynamics() -> list[str]:
    page = one("quality", **{k: PAGE[k] for k in PAGE}, epsilon=5e-4)
    literal = fewer_steps(1.0, 5e-2, 0, 1), fewer_steps(1.0, 5e-2, 0, 2)
    largest = fewer_steps(0.0, 5e-2, 2, 1)
    settings = list(product((0.0, 0.5, 1.0), EPSILONS))
    pooled = [together(fewer_steps(*own, 0, more) for own in settings) for more in (1, 2)]
    compared = [fewer_steps(*own, *pair) for own in settings for pair in combinations((0, 1, 2), 2)]
    assert max(abs(other.z) for other in compared) == largest.z

    def cost(found: Change, digits: int = 3) -> str:
        return f"{dot(found.value, digits)} ({dot(found.error, digits)})"

    return [
        f"active ratio {dot(page['active_ratio'])}; {percent(page['locked'])} % of the positions, prompts among them, "
        "are locked at the end",
        f"costs {cost(literal[0])} more than one visible step and {cost(literal[1])} more than two",
        f"at temperature 0, where two steps cost {cost(largest)} more than one",
        f"Over all nine settings the letter costs +{cost(pooled[0], 4)} more than one step and +{cost(pooled[1], 4)} "
        "more than two",
    ]


def card_limits() -> list[str]:
    found = {kind: share(kind, CHOICE, **PAGE) for kind in (*KINDS, "clean")}
    without = {kind: f"{percent(1 - own.value)} % ({percent(own.error)})" for kind, own in found.items()}
    fresh = share("clean", FRESH, **PAGE)
    return [
        f"{without['strangers']} of the 192 continuations above keep their names, {without['again']} say no sentence "
        f"twice, {with_error(found['clean'])} have no fault that the rule finds, {with_error(fresh)} of those with "
        "other seeds",
        f"{fresh.value:.2f} to the power of 20 is {percent(round(fresh.value, 2) ** 20)} %",
    ]


@pytest.mark.parametrize("claims", [sampler_lines, visibility_lines, compared_samplers, card_dynamics, card_limits])
def test_the_cards_figures_come_from_the_cells(claims: Callable[[], list[str]]) -> None:
    for sentence in claims():
        assert sentence in words(CARD)
