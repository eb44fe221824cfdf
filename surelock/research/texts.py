"""What can be said of generated text without an outside judge: bounds, repeats; and files for outside judges.

None of this shows that a text is good. The bound is the model's own: it likes what it is prone to write, repetition
most of all. Tokens equal to the baseline's show how far locking changes the outcome, not for the worse or the better.
Repeated 4-grams show one way of being bad only.
"""

import json
import re
import time
import uuid
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from surelock.decoding.ends import cut_at_end, text_of
from surelock.files import write_text
from surelock.model.bound import conditional_bound
from surelock.research.lab import Lab
from surelock.research.prompts import Prompt, data_file, mt_bench_questions
from surelock.research.runner import Cell, Record

_DRAWS = 16


def text_figures(lab: Lab, prompts: Sequence[Prompt], tokens: Sequence[list[int]]) -> dict[str, list[Any]]:
    """Figures of each prompt's continuation, up to its first EOS.

    ends: tokens before the first EOS; nats: the bound on -log p(continuation | prompt), EOS included; characters: of
    its text; repeats: share of its 4-grams that are not new.
    """
    kept = [cut_at_end(ids, lab.lm.ends) for ids in tokens]
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
