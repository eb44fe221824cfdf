"""What can be said of generated text without an outside judge: bounds, repeats, faults; and files for outside judges.

None of this shows that a text is good. The bound is the model's own: it likes what it is prone to write, repetition
most of all. Tokens equal to the baseline's show how far locking changes the outcome, not for the worse or the better.
Repeated 4-grams show one way of being bad only. Faults (sentences said twice, names from nowhere, stuck words) find
what is plainly wrong and not what is dull; they are for comparing samplers and models, not for praise.
"""

import json
import re
import time
import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from surelock.decoding.ends import cut_at_eos, text_of
from surelock.model.bound import conditional_bound
from surelock.model.language_model import LanguageModel
from surelock.research import estimates
from surelock.research.lab import Lab
from surelock.research.prompts import Prompt, data_file, mt_bench_questions
from surelock.research.runner import Cell, Record, write_text

_DRAWS = 16


def text_figures(lab: Lab, prompts: Sequence[Prompt], tokens: Sequence[list[int]]) -> dict[str, list[Any]]:
    """Figures of each prompt's continuation, up to its first EOS.

    ends: tokens before the first EOS; nats: the bound on -log p(continuation | prompt), EOS included; characters: of
    its text; repeats: share of its 4-grams that are not new.
    """
    kept = [cut_at_eos(ids, lab.lm.eos_id) for ids in tokens]
    told = enumerate(zip(prompts, tokens, kept, strict=True))
    return {
        "ends": [len(ids) for ids in kept],
        "nats": [_bound(lab, prompt.ids, ids[: len(part) + 1], number) for number, (prompt, ids, part) in told],
        "characters": [len(lab.lm.decode(ids)) for ids in kept],
        "repeats": [repeated(ids) for ids in kept],
    }


def _bound(lab: Lab, prompt: list[int], ids: list[int], number: int) -> float:
    """The masks depend on the prompt's number alone: equal texts get equal values, so differences are not noise."""
    rng = np.random.default_rng([0, number])
    tokens = np.array([*prompt, *ids], dtype=np.int64)
    draws = conditional_bound(lab.lm.network, tokens, len(prompt), draws=_DRAWS, rng=rng, mask_id=lab.lm.mask_id)
    return float(draws.mean())


def repeated(ids: Sequence[Hashable], n: int = 4) -> float | None:
    """Share of the n-grams that occurred before; None where there is no n-gram."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else None


def equal(ids: Sequence[int], baseline: Sequence[int], end: int) -> float:
    """Share of the first end + 1 positions with the same token, where `end` is the later of the two first EOS.

    What follows would be equal for free.
    """
    return float(np.mean(np.asarray(ids[: end + 1]) == np.asarray(baseline[: end + 1])))


# --- faults -----------------------------------------------------------------------------------------------------------

_SENTENCE_END = re.compile(r"[.!?]+")
_CAPITALISED = re.compile(r"\b[A-Z][a-z]+\b")
_INSIDE_SENTENCE = re.compile(r"[a-z,;] $")
_INTRODUCED = re.compile(r"\b(?:named|called) ([A-Z][a-z]+)\b")
_STUCK = re.compile(r"\b(\w+) \1\b|(.{2,12}?)\2{3,}", re.DOTALL)
#: Capitalised words that are nobody new: everybody has a mother.
_NOBODY_NEW = re.compile(
    "mom(my)?|mum(my)?|mama|dad(dy)?|papa|(grand)?(mother|father)|grand(ma|pa)|granny|aunt|uncle|mrs?|miss|god|santa|"
    "christmas|hello|hi|hey|oh|ow|wow|yes|yay|yum|yuck|mmm|hooray|thanks|boo"
)
KINDS = ("again", "strangers", "stuck")


@dataclass(frozen=True, slots=True)
class Faults:
    """Of one continuation. sentences: those of three words or more ("Tom said" is none); again: how many of them it had
    said before; strangers: names that neither the opening nor "named" nor "called" introduced, broken ones included;
    stuck: words said twice in a row, and strings of 2 to 12 characters that come four times in a row.
    """

    sentences: int
    again: int
    strangers: list[str]
    stuck: list[str]


def find_faults(opening: str, text: str, is_word: Callable[[str], bool]) -> Faults:
    """The faults of `text`, which continues `opening`.

    is_word tells ordinary words (lower case) from names: every sentence begins with a capital. A last sentence that the
    length cut off counts as one.
    """
    said = [" ".join(re.findall(r"\w+", part.lower())) for part in _SENTENCE_END.split(text)]
    said = [sentence for sentence in said if sentence.count(" ") >= 2]
    stuck = [match[0] for match in _STUCK.finditer(text)]
    return Faults(len(said), len(said) - len(set(said)), _strangers(opening, text, is_word), stuck)


def _strangers(opening: str, text: str, is_word: Callable[[str], bool]) -> list[str]:
    known = {word.lower() for word in re.findall(r"\w+", opening)}
    known |= {name.lower() for name in _INTRODUCED.findall(text)}
    names = {}
    for match in _CAPITALISED.finditer(text):
        name = match[0].lower()
        if name in known or _NOBODY_NEW.fullmatch(name):
            continue
        if _INSIDE_SENTENCE.search(text, 0, match.start()) or not is_word(name):
            names[match[0]] = None
    return list(names)


def count_faults(lm: LanguageModel, openings: Sequence[str], texts: Sequence[str]) -> list[dict[str, Any]]:
    """The faults of each text, as dicts; a word is what the model has a token of its own for."""

    @cache
    def is_word(word: str) -> bool:
        return len(lm.encode(f" {word}")) == 1

    return [asdict(find_faults(*pair, is_word)) for pair in zip(openings, texts, strict=True)]


def clean(faults: Sequence[dict[str, Any]]) -> list[bool]:
    """Which continuations have no fault at all."""
    return [not any(fault[kind] for kind in KINDS) for fault in faults]


def shares(*runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Shares of the continuations with a fault of each kind, and of clean ones; `_se`: standard errors over openings.

    Several runs are of the same openings: an opening counts once, with its mean.
    """
    kinds = {kind: [[bool(fault[kind]) for fault in run] for run in runs] for kind in KINDS}
    kinds["clean"] = [clean(run) for run in runs]
    return estimates.named({name: estimates.mean(np.mean(values, axis=0).tolist()) for name, values in kinds.items()})


# --- files for outside judges -----------------------------------------------------------------------------------------

#: Where a completion ends (Chen et al., 2021, Sec. 3.2): at the next thing that is not the function's body.
_STOP = re.compile(r"\n(?:class|def|#|if|print)")


def write_judge_files(lab: Lab, records: Sequence[Record], directory: Path) -> None:
    """Answers and completions as the official judges read them. `mt_bench_single/` is a bench of FastChat's
    (--bench-name mt_bench_single, reference_answer/ copied from mt_bench's), without second turns, which would
    otherwise be judged too; `humaneval/NAME.samples.jsonl` goes to evaluate_functional_correctness.
    """
    for record in records:
        cell = record["cell"]
        if cell["source"] not in ("mt_bench", "humaneval"):
            continue
        prompts, name = lab.prompts(cell), _run_name(lab, cell)
        texts = [text_of(lab.lm, ids) for ids in record["result"]["tokens"]]
        if cell["source"] == "humaneval":
            pairs = zip(prompts, texts, strict=True)
            samples = [{"task_id": p.key, "completion": _STOP.split(text, maxsplit=1)[0]} for p, text in pairs]
            _write_lines(directory / "humaneval" / f"{name}.samples.jsonl", samples)
        else:
            bench, file = directory / "mt_bench_single", data_file("mt_bench", lab.data)
            questions = mt_bench_questions(file)
            _write_lines(bench / "model_answer" / f"{name}.jsonl", _answers(prompts, texts, name))
            _write_lines(bench / "question.jsonl", [each | {"turns": each["turns"][:1]} for each in questions])


def _run_name(lab: Lab, cell: Cell) -> str:
    """A name for the judges' tables, such as LLaDA-8B-Instruct_gen256_steps256_eps0.0005."""
    rule = "baseline" if cell["epsilon"] is None else f"eps{cell['epsilon']:g}"
    return f"{Path(lab.lm.name).name}_gen{cell['gen_length']}_steps{cell['steps']}_{rule}"


def _answers(prompts: Sequence[Prompt], texts: Sequence[str], name: str) -> list[dict[str, Any]]:
    """One single-turn answer per question, as gen_model_answer.py writes them."""
    return [
        {
            "question_id": prompt.key,
            "answer_id": uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {prompt.key}").hex,
            "model_id": name,
            "choices": [{"index": 0, "turns": [text.strip()]}],
            "tstamp": time.time(),
        }
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _write_lines(file: Path, objects: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects))
