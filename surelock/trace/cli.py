"""`surelock decode`: continues one prompt, or a file of them in batches."""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

import surelock
from surelock.decoding.choices import Decoder, to_flat
from surelock.decoding.ends import written
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.step import Step
from surelock.decoding.totals import TotalsCounter
from surelock.engines.flags import add_model_flags, add_weights_flag
from surelock.files import write_text
from surelock.loading import load_by
from surelock.model.language_model import LanguageModel
from surelock.places import label_of
from surelock.trace.format import compact_json
from surelock.trace.lanes import alone
from surelock.trace.prompts import Prompt, check_same, read_prompts, read_results
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.table import split_step, table


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("prompt", metavar="PROMPT", nargs="*", help="texts to continue; __ in one is a blank of two tokens")
    add("--prompts", metavar="FILE", help=".txt, one a line, or .jsonl with prompt, id, settings; - is stdin")
    add("--batch", type=int, default=1, metavar="N", help="prompts decoded together (default: %(default)s)")
    results = "a .jsonl, a line a prompt as it ends; prompts that it holds are not decoded again; - is stdout"
    add("--out", metavar="FILE", help=results)
    add("--table", type=Path, metavar="FILE", help="a .csv or .parquet with a row a step and position")
    add("--trace", type=Path, metavar="DIR", help="a folder for a trace of each prompt")
    add_model_flags(parser)
    add_weights_flag(parser)
    add("--device-map", choices=("auto",), help="spread the model over all devices (default: do not)")
    add("--chat", action="store_true", help="put each prompt into the model's chat template")
    add("--no-blanks", action="store_true", help="underscores in a prompt are text")
    add_decoder_flags(parser)
    add("--json", action="store_true", help="print a JSON object after each text")
    parser.set_defaults(run=run_decode)


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with its token ids and its decoder, whose seed is a number."""

    prompt: Prompt
    tokens: list[int]
    decoder: Decoder
    head: dict[str, Any]  # of its line: what does not depend on the run


def run_decode(arguments: argparse.Namespace) -> None:
    """Decode every prompt. Raises ValueError for what cannot be decoded, before the first one is."""
    if arguments.batch < 1:
        raise ValueError(f"--batch must be at least 1, not {arguments.batch}")
    out = None if arguments.out in (None, "-") else target_file("--out", Path(arguments.out), (".jsonl",))
    prompts, given = read_prompts(arguments.prompt, arguments.prompts), given_settings(arguments)
    sheet = None if arguments.table is None else Sheet(target_file("--table", arguments.table, (".csv", ".parquet")))
    lm = load_by(arguments)
    if arguments.chat and lm.tokenizer is not None and not lm.tokenizer.chat_template:
        raise ValueError(f"--chat: {lm.name} has no chat template, leave it out")
    how = {"chat": arguments.chat, "blanks": not arguments.no_blanks}
    tasks = [_task(lm, prompt, number, given, how) for number, prompt in enumerate(prompts)]
    done = read_results(out) if out else {}
    for task in tasks:
        if out and (line := done.get(str(task.prompt.id))) is not None:
            check_same(out, line, task.head)
    todo = [task for task in tasks if str(task.prompt.id) not in done]
    if done:
        print(f"surelock: {len(tasks) - len(todo)} of {len(tasks)} prompts are in {out} already", file=sys.stderr)
    if arguments.trace is not None:
        if arguments.trace.is_file():
            raise ValueError(f"--trace must be a folder, and {str(arguments.trace)!r} is a file")
        arguments.trace.mkdir(parents=True, exist_ok=True)
    lines = []
    with ExitStack() as stack:
        file = stack.enter_context(out.open("a", encoding="utf-8")) if out else sys.stdout
        if sheet is not None:
            sheet.keep(done)
            stack.callback(sheet.close)
        total = sum(task.decoder.settings.gen_length + task.tokens.count(lm.mask_id) for task in todo)
        bar = stack.enter_context(tqdm(total=total, unit=" tokens", leave=False, disable=None))
        try:
            for batch in _batches(todo, arguments.batch):
                left = len(todo) - len(lines)
                found = _decoded(lm, batch, bar, f"{left} prompts left", sheet, arguments.trace)
                for task, line in zip(batch, found, strict=True):
                    lines.append(line)
                    if arguments.out is None:
                        whole = arguments.chat or lm.mask_id in task.tokens
                        print(("" if whole else line["prompt"]) + line["text"], flush=True)
                    if arguments.out is not None or arguments.json:
                        print(json.dumps(line, ensure_ascii=False), file=file, flush=True)
        except KeyboardInterrupt:
            kept = f"{len(tasks) - len(todo) + len(lines)} of {len(tasks)} prompts are in {out}"
            raise KeyboardInterrupt(f"interrupted{f': {kept}, the same command goes on' if out else ''}") from None
    if lines:
        print(_summary(lines), file=sys.stderr)


def _task(lm: LanguageModel, prompt: Prompt, number: int, given: dict[str, Any], how: dict[str, bool]) -> Task:
    """how: of `LanguageModel.encode`. Raises ValueError, which names the prompt."""
    seed = {"seed": given.get("seed", lm.generation.get("seed", 0)) + number}
    try:
        decoder = recommended(lm.generation, given | seed | prompt.given)
        tokens = lm.encode(prompt.text, **how)
        decode(lm, [tokens], **decoder.keywords())  # what it cannot decode is refused at the call
    except ValueError as error:
        why = re.sub(r"\bprompt 0\b", f"prompt {prompt.id}", str(error), count=1)
        raise ValueError(f"prompt {prompt.id}: {why}" if prompt.given and why == str(error) else why) from error
    head = {"id": prompt.id, "model": lm.name, "prompt": prompt.text, **how, "settings": to_flat(decoder)}
    return Task(prompt, tokens, decoder, head)


def _batches(tasks: Sequence[Task], size: int) -> Iterator[list[Task]]:
    """Yield batches of tasks whose decoders differ in their seeds alone."""
    kinds: dict[str, list[Task]] = {}
    for task in tasks:
        kinds.setdefault(json.dumps(task.head["settings"] | {"seed": 0}), []).append(task)
    for same in kinds.values():
        yield from (same[at : at + size] for at in range(0, len(same), size))


def _decoded(
    lm: LanguageModel, batch: list[Task], bar: Any, left: str, sheet: "Sheet | None", traces: Path | None
) -> list[dict[str, Any]]:
    """Decode a batch, write its tables and traces, and return its lines."""
    settings = batch[0].decoder.settings
    seeds = tuple(task.decoder.settings.seed_of(0) for task in batch)
    decoder = replace(batch[0].decoder, settings=replace(settings, seed=seeds))
    guided, observe = settings.cfg_scale > 0, sheet is not None or traces is not None
    counters = [TotalsCounter(lm.config, lm.ends, guided=guided) for _ in batch]
    runs: list[list[Step]] = [[] for _ in batch]
    sizes = [len(task.tokens) + settings.gen_length for task in batch]
    for step in decode(lm, [task.tokens for task in batch], **decoder.keywords(), observe=observe):
        for run, counter, part in zip(runs, counters, split_step(step, sizes), strict=True):
            counter.add(part)
            if not observe:
                run.clear()  # the last one is enough
            run.append(part)
        bar.set_postfix_str(f"{int(step.computed.sum())} rows a step, {left}", refresh=False)
        bar.update(int(step.newly_unmasked.sum()) - int(step.taken_back.sum()))
    for task, run in zip(batch, runs, strict=True):
        if sheet is not None:
            sheet.add(task.prompt.id, table(run, lm))
        if traces is not None:
            _write_trace(lm, task, run, traces)
    return [_line(lm, *each) for each in zip(batch, counters, (run[-1] for run in runs), strict=True)]


def _line(lm: LanguageModel, task: Task, counter: TotalsCounter, last: Step) -> dict[str, Any]:
    text, rows = written(lm, task.tokens, last.tokens[0].tolist()), int(counter.rows().computed.sum())
    return {**task.head, "text": text, "rows": rows, **asdict(counter.totals()), "version": surelock.__version__}


def _write_trace(lm: LanguageModel, task: Task, run: list[Step], folder: Path) -> None:
    lane, more = alone(task.decoder), {"name": label_of(lm.name), "chat": task.head["chat"] or None}
    recorder = Recorder(make_header(lm, task.prompt.text, task.tokens, [lane], **more), lm.tokenizer)
    for step in run:
        recorder.record(lane.id, step)
    name = re.sub(r"[^\w.-]", "_", str(task.prompt.id))
    write_text(folder / f"{name}.json", compact_json(recorder.document()))


def _summary(lines: list[dict[str, Any]]) -> str:
    sums = {name: sum(line[name] for line in lines) for name in ("tokens", "seconds", "flops", "baseline_flops")}
    what = f"{len(lines)} prompts, {sums['tokens']} tokens" if len(lines) > 1 else f"{lines[0]['steps']} steps"
    locked = f", {lines[0]['locked']:.0%} of the positions locked" if len(lines) == 1 else ""
    share = f"{sums['flops'] / sums['baseline_flops']:.0%} of the baseline's FLOPs"
    return f"{what} in {sums['seconds']:.2f} s, {sums['tokens'] / sums['seconds']:.0f} tokens/s; {share}{locked}"


class Sheet:
    """A file of tables: a CSV to which each is appended, or a Parquet file that is written at the end."""

    def __init__(self, file: Path) -> None:
        self._file, self._csv, self._parts = file, file.suffix.lower() == ".csv", []
        if not self._csv and find_spec("pyarrow") is None:
            raise ValueError("--table: a .parquet file needs pyarrow (pip install pyarrow); name a .csv file")

    def keep(self, done: dict[str, Any]) -> None:
        """Keep the rows of prompts that are done, and no others, from an earlier run of the same command."""
        if not self._file.is_file():
            return
        if done:
            texts = {"dtype": str, "keep_default_na": False}  # as they stand in the file
            frame = pd.read_csv(self._file, **texts) if self._csv else pd.read_parquet(self._file)
            self._parts = [frame[frame["id"].isin(list(done))]]
        self._file.unlink()
        if self._csv:
            for part in self._parts:
                part.to_csv(self._file, index=False)

    def add(self, prompt: int | str, frame: pd.DataFrame) -> None:
        frame = frame.drop(columns="sequence")
        frame.insert(0, "id", str(prompt))
        if self._csv:
            frame.to_csv(self._file, mode="a", index=False, header=not self._file.exists())
        else:
            self._parts.append(frame)

    def close(self) -> None:
        if not self._csv and self._parts:
            pd.concat(self._parts, ignore_index=True).to_parquet(self._file)


def target_file(flag: str, path: Path, suffixes: Sequence[str] = ()) -> Path:
    """Return the path of an output file. Raises ValueError for another suffix, or a folder that does not exist."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{flag} must be a file that ends in {' or '.join(suffixes)}, not {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} must lie in a folder that exists, not {str(path)!r}")
    return path
