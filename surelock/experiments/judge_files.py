"""Answers and completions as the official judges read them: FastChat's model answers, HumanEval's samples.jsonl."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surelock.decoding.ends import text_of
from surelock.experiments.grid import Cell
from surelock.experiments.lab import Lab
from surelock.experiments.prompts import Prompt, data_file, mt_bench_questions
from surelock.experiments.runner import Record, write_text

#: Where a completion ends (Chen et al., 2021, Sec. 3.2): at the next thing that is not the function's body.
_STOP = re.compile(r"\n(?:class|def|#|if|print)")


def write_judge_files(lab: Lab, records: Sequence[Record], directory: Path) -> None:
    """`mt_bench_single/` is a bench of FastChat's (--bench-name mt_bench_single, reference_answer/ copied from
    mt_bench's); `humaneval/NAME.samples.jsonl` goes to evaluate_functional_correctness.
    """
    for record in records:
        cell = record["cell"]
        if cell["source"] not in ("mt_bench", "humaneval"):
            continue
        prompts, name = lab.prompts(cell), run_name(lab, cell)
        texts = [text_of(lab.lm, ids) for ids in record["result"]["tokens"]]
        if cell["source"] == "mt_bench":
            _write_lines(
                directory / "mt_bench_single" / "model_answer" / f"{name}.jsonl", answers(prompts, texts, name)
            )
            _write_questions(lab, directory / "mt_bench_single" / "question.jsonl")
        else:
            _write_lines(directory / "humaneval" / f"{name}.samples.jsonl", completions(prompts, texts))


def run_name(lab: Lab, cell: Cell) -> str:
    """A name for the judges' tables, such as LLaDA-8B-Instruct_gen256_steps256_eps0.0005."""
    rule = "baseline" if cell["epsilon"] is None else f"eps{cell['epsilon']:g}"
    return f"{Path(lab.lm.name).name}_gen{cell['gen_length']}_steps{cell['steps']}_{rule}"


def answers(prompts: Sequence[Prompt], texts: Sequence[str], name: str) -> list[dict[str, Any]]:
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


def completions(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[dict[str, Any]]:
    """One sample per problem; the harness runs the problem's prompt with the completion behind it."""
    return [
        {"task_id": prompt.key, "completion": _STOP.split(text, maxsplit=1)[0]}
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _write_questions(lab: Lab, file: Path) -> None:
    """The questions without their second turns, which would otherwise be judged too."""
    path = data_file("mt_bench", lab.data)
    assert path is not None
    questions = mt_bench_questions(path, lab.categories)
    _write_lines(file, [question | {"turns": question["turns"][:1]} for question in questions])


def _write_lines(file: Path, objects: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects))
