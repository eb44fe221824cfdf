"""`surelock decode`: continues one prompt, or the prompts of a file in batches."""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from tqdm import tqdm

import surelock
from surelock.decoding.ends import written
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.loop import decode
from surelock.decoding.presets import preset_of
from surelock.decoding.settings import to_plain
from surelock.decoding.step import Step
from surelock.decoding.totals import TotalsCounter
from surelock.engines.flags import add_model_flags, add_weights_flag
from surelock.files import check_place
from surelock.loading import load_by
from surelock.model.language_model import LanguageModel
from surelock.trace.check import BATCH, DIFFERENT, check_flags, run_check
from surelock.trace.csv_table import CsvTable
from surelock.trace.outputs import Holding, Output, check_apart, lacking, names_of, target_file
from surelock.trace.parquet_table import ParquetTable, parts_of
from surelock.trace.prompts import Prompt, read_prompts, say_underscores
from surelock.trace.results import Results
from surelock.trace.table import split_step
from surelock.trace.tasks import Decoded, Task, batches, joint_decoder, task_of
from surelock.trace.trace_folder import TraceFolder
from surelock.trace.watch import Watch
from surelock.values import Json


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock decode`."""
    add = parser.add_argument
    add(
        "prompt",
        metavar="PROMPT",
        nargs="*",
        help="texts to continue; __ in one is a blank of two tokens",
    )
    add(
        "--prompts",
        metavar="FILE",
        help=".txt, one a line, or .jsonl with prompt, id, settings; - is stdin",
    )
    add(
        "--batch",
        type=int,
        metavar="N",
        help=f"prompts decoded together (default: 1, with --check {BATCH})",
    )
    check = "say whether prompts get the same tokens alone, in a batch, in another order, twice at once, by each engine"
    add("--check", action="store_true", help=f"{check}; exit status {DIFFERENT} if one does not")
    results = "a .jsonl, a line a prompt as it ends; prompts that it holds are not decoded again; - is stdout"
    add("--out", metavar="FILE", help=results)
    add(
        "--table",
        type=Path,
        metavar="FILE",
        help="a .csv or .parquet with a row a step and position",
    )
    add(
        "--trace",
        type=Path,
        metavar="DIR",
        help="a folder for a trace of each prompt, named by its id",
    )
    add_model_flags(parser)
    add_weights_flag(parser)
    add(
        "--device-map",
        choices=("auto",),
        help="spread the model over all devices (default: do not)",
    )
    add("--chat", action="store_true", help="put each prompt into the model's chat template")
    add("--no-blanks", action="store_true", help="underscores in a prompt are text")
    add_decoder_flags(parser)
    add("--json", action="store_true", help="print a JSON object for every prompt, after its text")
    add(
        "--watch",
        action="store_true",
        help="draw the text as it is written; where nothing can be drawn, count steps",
    )
    add(
        "--beside",
        metavar="DECODER",
        help="with --watch: a preset or a rule that runs beside it, such as everything",
    )
    parser.set_defaults(run=run_decode)


def run_decode(arguments: argparse.Namespace) -> int:
    """Decode all prompts, and return the exit status.

    Raises ValueError for prompts that cannot be decoded and for outputs that cannot be used, before it decodes.
    """
    if arguments.batch is not None and arguments.batch < 1:
        raise ValueError(f"--batch must be at least 1, not {arguments.batch}")
    if arguments.check:
        check_flags(arguments)
    _check_places(arguments)
    _check_watch(arguments)
    prompts = read_prompts(arguments.prompt, arguments.prompts)
    overrides = given_settings(arguments)
    if not arguments.no_blanks:
        say_underscores(prompts)
    results = Results(Path(arguments.out)) if arguments.out not in (None, "-") else None
    done = results.done if results else {}
    outputs = _outputs(arguments, prompts, done)
    lm = load_by(arguments)
    lm.decode([])  # raises ValueError for a model without a tokenizer
    if arguments.chat and not lm.encoder.tokenizer.chat_template:
        raise ValueError(f"--chat: {lm.name} has no chat template, leave it out")
    how = {"chat": arguments.chat, "blanks": not arguments.no_blanks}
    tasks = [task_of(lm, prompt, number, overrides, how) for number, prompt in enumerate(prompts)]
    if arguments.check:
        return run_check(lm, tasks, arguments)
    if results:
        for task in tasks:
            results.check(task.prompt.name, task.head)
    kept = _keep(results, outputs, tasks)
    _Run(lm, outputs, results, arguments).decode(tasks, kept)
    return 0


def _check_places(arguments: argparse.Namespace) -> None:
    """Raise ValueError for outputs with wrong names, and for two outputs at the same place."""
    places: dict[str, Path] = {}
    if arguments.prompts not in (None, "-"):
        places["--prompts"] = Path(arguments.prompts)
    if arguments.out not in (None, "-"):
        out = target_file("--out", Path(arguments.out), (".jsonl",))
        places["--out"] = out
        if out.is_file() or not out.exists():  # a pipe is not checked
            check_place(out)
    if arguments.table is not None:
        places["--table"] = target_file("--table", arguments.table, (".csv", ".parquet"))
        if arguments.table.suffix.lower() == ".parquet":
            places["--table's parts"] = parts_of(arguments.table)
    if arguments.trace is not None:
        places["--trace"] = arguments.trace
    check_apart(places)
    parts = places.get("--table's parts")
    for flag, place in places.items():
        if parts in place.resolve().parents:
            raise ValueError(
                f"{flag} must not lie in {str(parts)!r}, which is for the parts of the table"
            )


def _check_watch(arguments: argparse.Namespace) -> None:
    """Raise ValueError for flags that cannot be used with --watch, and for --beside without --watch."""
    if arguments.beside is not None:
        if not arguments.watch:
            raise ValueError("--beside is drawn by --watch: give both")
        preset_of(arguments.beside, "--beside")
    if arguments.watch and arguments.check:
        raise ValueError(
            "--watch draws one run and --check compares several: leave one of them out"
        )
    if arguments.watch and (arguments.batch or 1) > 1:
        raise ValueError(f"--watch draws one prompt at a time: leave out --batch {arguments.batch}")
    if arguments.watch and arguments.out == "-":
        raise ValueError("--watch draws where --out - writes: give --out a file")


def _outputs(
    arguments: argparse.Namespace, prompts: Sequence[Prompt], done: Iterable[str]
) -> list[Output]:
    """Return the outputs other than the results. Raises what their constructors raise."""
    outputs: list[Output] = []
    if arguments.table is not None:
        kind = CsvTable if arguments.table.suffix.lower() == ".csv" else ParquetTable
        outputs.append(kind(arguments.table))
    if arguments.trace is not None:
        outputs.append(TraceFolder(arguments.trace, prompts, done))
    return outputs


def _keep(results: Results | None, outputs: Sequence[Output], tasks: Sequence[Task]) -> set[str]:
    """Make the results and the other outputs agree. Returns the ids of the done prompts.

    Prompts that another output has lost are dropped from the results. Prompts that are not done are dropped from the
    other outputs.
    """
    lines = results.done if results else {}
    done = set(lines)
    holdings = [output.holding(tasks, lines) if lines else Holding() for output in outputs]
    for output, holding in zip(outputs, holdings, strict=True):
        lacks = lacking(holding, tasks, lines)
        if results and lacks.never:
            said = (
                f"{names_of(lacks.never)} that {results.file} held before {output.place} was begun"
            )
            _say(f"{output.place} will lack {said}: another --out decodes them for it")
        if results and lacks.lost:
            _say(
                f"{output.place} lacks {names_of(lacks.lost)} that {results.file} holds: decoded again"
            )
        done -= set(lacks.lost)
    if results and lines:
        number = sum(task.id in done for task in tasks)
        _say(f"{number} of {len(tasks)} prompts are in {results.file} already")
    if results:
        results.keep(done)
    for output, holding in zip(outputs, holdings, strict=True):
        output.keep(holding.whole & done)
    return done


def _say(text: str) -> None:
    print(f"surelock: {text}", file=sys.stderr)


class _Run:
    """A run over many prompts."""

    def __init__(
        self,
        lm: LanguageModel,
        outputs: Sequence[Output],
        results: Results | None,
        arguments: argparse.Namespace,
    ) -> None:
        self._lm = lm
        self._outputs = outputs
        self._results = results
        self._size = arguments.batch or 1
        self._watches = arguments.watch
        self._beside = arguments.beside
        self._as_lines = arguments.out == "-" or arguments.json
        self._as_text = arguments.out is None
        self._lines: list[Json] = []  # lines of the results, of the prompts decoded so far

    def decode(self, tasks: Sequence[Task], done: Collection[str]) -> None:
        """Decode the tasks whose prompts are not done. done: ids of the done prompts.

        A batch with some done prompts is decoded as a whole, as without an interruption, because rounding depends on
        the batch. Raises KeyboardInterrupt, whose message says how many prompts are done.
        """
        due = [
            batch
            for batch in batches(tasks, self._size)
            if any(task.id not in done for task in batch)
        ]
        with ExitStack() as stack:
            if self._results:
                stack.callback(self._results.close)
            for output in self._outputs:
                stack.callback(output.close)
            total = sum(sum(map(self._tokens_of, batch)) for batch in due)
            hidden = (
                True if self._watches else None
            )  # None: hidden unless standard error is a terminal
            bar = stack.enter_context(
                tqdm(total=total, unit=" tokens", leave=False, disable=hidden)
            )
            left = sum(len(batch) for batch in due)
            try:
                for batch in due:
                    decoded = self._decoded(batch, bar, f"{left} prompts left")
                    left -= len(batch)
                    self._write([result for result in decoded if result.task.id not in done])
            except KeyboardInterrupt:
                said = "interrupted"
                if self._results:
                    number = sum(task.id in done for task in tasks) + len(self._lines)
                    said += f": {number} of {len(tasks)} prompts are in {self._results.file}, the same command goes on"
                raise KeyboardInterrupt(said) from None
        if self._lines:
            print(_summary(self._lines), file=sys.stderr)

    def _decoded(self, batch: Sequence[Task], bar: Any, left: str) -> list[Decoded]:
        observe = bool(self._outputs)
        if not self._watches:
            return _decoded(self._lm, batch, bar, left, observe)
        (task,) = batch
        names = [task.decoder.compute.label]
        beside: Iterable[Step] = ()
        if self._beside is not None:
            preset = preset_of(self._beside)
            names.append(preset.name)
            other = preset.decoder(self._lm.generation, to_plain(task.decoder.settings))
            beside = decode(self._lm, [task.tokens], **other.keywords())
        with Watch(self._lm, names, Console()) as watch:
            return _decoded(
                self._lm, batch, bar, left, observe, lambda steps: watch.follow(steps, beside)
            )

    def _tokens_of(self, task: Task) -> int:
        """Return the number of masks of a task."""
        return task.decoder.settings.gen_length + task.tokens.count(self._lm.mask_id)

    def _write(self, decoded: Sequence[Decoded]) -> None:
        """Write decoded prompts into all outputs, and then their lines into the results."""
        for output in self._outputs:
            output.add(self._lm, decoded)
        lines = [_line(self._lm, result) for result in decoded]
        if self._results:
            self._results.add(lines)
        for result, line in zip(decoded, lines, strict=True):
            self._print(result.task, line)
        self._lines += lines

    def _print(self, task: Task, line: Json) -> None:
        if self._as_text:
            text = line["text"]
            if not task.head["chat"] and self._lm.mask_id not in task.tokens:
                text = line["prompt"] + text
            print(text, flush=True)
        if self._as_lines:
            print(json.dumps(line, ensure_ascii=False), flush=True)


def _decoded(
    lm: LanguageModel,
    batch: Sequence[Task],
    bar: Any,
    left: str,
    observe: bool,
    followed: Callable[[Iterable[Step]], Iterable[Step]] = iter,
) -> list[Decoded]:
    """Decode a batch.

    left: text for the progress bar about the prompts that are left.
    observe: keep all steps of a run, with KLs and confidences. Otherwise only its last step is kept.
    followed: a function that takes the steps and yields them, such as `Watch.follow`.
    """
    decoder = joint_decoder(batch)
    settings = decoder.settings
    guided = settings.cfg_scale > 0
    decoded = [Decoded(task, TotalsCounter(lm.config, lm.ends, guided=guided)) for task in batch]
    sizes = [len(task.tokens) + settings.gen_length for task in batch]
    steps = decode(lm, [task.tokens for task in batch], **decoder.keywords(), observe=observe)
    for step in followed(steps):
        for result, part in zip(decoded, split_step(step, sizes), strict=True):
            result.totals.add(part)
            if not observe:
                result.steps.clear()
            result.steps.append(part)
        bar.set_postfix_str(f"{int(step.computed.sum())} rows a step, {left}", refresh=False)
        filled = 0 if step.ended is None else int(step.ended.filled.sum())
        bar.update(int(step.newly_unmasked.sum()) + filled - int(step.taken_back.sum()))
    return decoded


def _line(lm: LanguageModel, decoded: Decoded) -> Json:
    """Return the line of a prompt in the results."""
    task = decoded.task
    text = written(lm, task.tokens, decoded.steps[-1].tokens[0].tolist())
    rows = int(decoded.totals.rows().computed.sum())
    totals = asdict(decoded.totals.totals())
    return {**task.head, "text": text, "rows": rows, **totals, "version": surelock.__version__}


def _summary(lines: list[Json]) -> str:
    """Return a sentence with the totals of some lines."""
    names = ("tokens", "seconds", "flops", "baseline_flops", "spared")
    sums = {name: sum(line[name] for line in lines) for name in names}
    what = f"{len(lines)} prompts, {sums['tokens']} tokens"
    locked = ""
    if len(lines) == 1:
        what = f"{lines[0]['steps']} steps"
        locked = f", {lines[0]['locked']:.0%} of the positions locked"
    share = f"{sums['flops'] / sums['baseline_flops']:.0%} of the baseline's FLOPs"
    spared = f", {sums['spared']} steps spared by the end" if sums["spared"] else ""
    pace = f"{sums['tokens'] / sums['seconds']:.0f} tokens/s"
    return f"{what} in {sums['seconds']:.2f} s, {pace}; {share}{locked}{spared}"
