"""The prompts of the experiments: beginnings of stories; and the paper's prompts (WikiText, MT-Bench, HumanEval)."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from surelock.model.language_model import LanguageModel
from surelock.places import ASSETS
from surelock.research.runner import Cell, file_of
from surelock.values import Json

OPENINGS = ASSETS / "results" / "openings.txt"

#: The files of sources that are part of the repository. Samplers are compared on openings that nothing else reads.
HELD = {
    "openings": OPENINGS,
    "sampler_openings": ASSETS / "results" / "openings_sampler.txt",
    "pairs": ASSETS / "results" / "pairs.txt",
}

#: The files that --data must name, by source. Both MT-Bench sources read the same file.
FILES = {
    "wikitext": "WikiText as text, one record per line",
    "mt_bench": "MT-Bench's question.jsonl",
    "humaneval": "HumanEval.jsonl or HumanEval.jsonl.gz",
    "sentences": "stories as text, each closed by a line <|endoftext|>",
}


class Prompt(NamedTuple):
    """A prompt of an experiment."""

    text: str  # the text in the source
    ids: list[int]  # the token ids that the model reads


def read_source(lm: LanguageModel, source: str, data: dict[str, Path]) -> list[Prompt]:
    """Return all prompts of a source. Raises ValueError if its file cannot be read."""
    return _SOURCES[source](lm, (data | HELD)[file_of(source)])


def chosen(prompts: list[Prompt], cell: Cell) -> list[Prompt]:
    """Return the prompts of a cell: cell["prompts"] of them, after the first cell["skip"] (default 0).

    prompts: all prompts of the source. Raises ValueError if there are too few.
    """
    source = cell["source"]
    count = cell["prompts"]
    skip = cell.get("skip", 0)
    wanted = prompts[skip : skip + count]
    if len(wanted) < count:
        raise ValueError(
            f"{source} has only {len(wanted)} prompts after the first {skip}, {count} are needed"
        )
    return wanted


def parse_data(flags: list[str]) -> dict[str, Path]:
    """Return the files of SOURCE=FILE flags, by source.

    Raises ValueError for an unknown source, for a second file of a source, and for a missing file.
    """
    data = {}
    for text in flags:
        source, _, file = text.partition("=")
        if source not in FILES or not file:
            raise ValueError(
                f"--data must be SOURCE=FILE with a source of {', '.join(FILES)}, not {text!r}"
            )
        if source in data:
            raise ValueError(f"--data {source} was given twice: one file is read")
        if not Path(file).is_file():
            raise ValueError(f"--data {source}: there is no file {file}")
        data[source] = Path(file)
    return data


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file with their newlines. The file may be compressed by gzip (.gz).

    A CRLF is read as a newline. Raises ValueError if the file cannot be read.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as stream:
            return list(stream)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def read_records(path: Path, fields: Iterable[str]) -> list[Json]:
    """Return the objects of a JSONL file. Raises ValueError for a line that is no object or lacks one of the fields."""
    records = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(record, dict) or not set(fields) <= record.keys():
            raise ValueError(f"{path}, line {number} must be an object with {', '.join(fields)}")
        records.append(record)
    return records


def wikitext_records(path: Path) -> list[str]:
    """Return the records of Experiment 3: of the lines that are not blank, the first 120 with an odd index from 0.

    A record keeps its newline.
    """
    return [line for line in read_lines(path) if line.strip()][1::2][:120]


def _openings(lm: LanguageModel, path: Path) -> list[Prompt]:
    return _texts(lm, path.read_text(encoding="utf-8").splitlines())


def _pairs(lm: LanguageModel, path: Path) -> list[Prompt]:
    """Return the sentences in which two masks are one name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Prompt(line, lm.encode(line, blanks=True)) for line in lines]


def _sentences(lm: LanguageModel, path: Path) -> list[Prompt]:
    """Return one sentence per story: the first of 12 to 40 tokens. The story's first sentence is left out."""
    sentences = []
    for story in path.read_text(encoding="utf-8").split("<|endoftext|>"):
        later = _texts(lm, re.split(r"(?<=[.!?])\s+", story.strip())[1:])
        sentences += [sentence for sentence in later if 12 <= len(sentence.ids) <= 40][:1]
    return sentences


def _wikitext(lm: LanguageModel, path: Path) -> list[Prompt]:
    """Return the prompts of Experiment 3: the first 64 tokens of a record. Shorter records are kept."""
    cut = [lm.encode(text)[:64] for text in wikitext_records(path)]
    return [Prompt(lm.decode(ids), ids) for ids in cut]


def _mt_bench(lm: LanguageModel, path: Path, per_category: int | None = None) -> list[Prompt]:
    """Return the first turns of MT-Bench's questions in the model's chat template, without a system message.

    per_category: the most questions of a category, None for all.
    """
    kept = []
    seen = Counter[str]()
    for question in read_records(path, ("question_id", "category", "turns")):
        seen[question["category"]] += 1
        if per_category is None or seen[question["category"]] <= per_category:
            kept.append(question["turns"][0])
    return _texts(lm, kept, chat=True)


def _human_eval(lm: LanguageModel, path: Path) -> list[Prompt]:
    """Return HumanEval's prompts unchanged: its tests run a prompt followed by the completion."""
    return _texts(lm, (record["prompt"] for record in read_records(path, ("prompt",))))


def _texts(lm: LanguageModel, texts: Iterable[str], chat: bool = False) -> list[Prompt]:
    return [Prompt(text, lm.encode(text, chat=chat)) for text in texts]


#: The readers of the sources. "mt_bench_subset" is Experiment 1's: the first four questions of a category, 32 in all.
_SOURCES: dict[str, Callable[..., list[Prompt]]] = {
    "openings": _openings,
    "sampler_openings": _openings,
    "pairs": _pairs,
    "sentences": _sentences,
    "wikitext": _wikitext,
    "mt_bench": _mt_bench,
    "mt_bench_subset": partial(_mt_bench, per_category=4),
    "humaneval": _human_eval,
}
