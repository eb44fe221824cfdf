"""A folder of traces, one for each prompt of a run over many."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from surelock.errors import shown
from surelock.files import PART, check_replaced, replaced
from surelock.model.language_model import LanguageModel
from surelock.places import label_of
from surelock.trace.format import FORMAT, TraceError, compact_json, load_document
from surelock.trace.lanes import alone
from surelock.trace.outputs import Holding, Line
from surelock.trace.prompts import Prompt
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.tasks import Decoded, Task
from surelock.values import Json

_START = f'{{"format":"{FORMAT}"'.encode()
#: Names that Windows keeps for devices, whatever follows behind a dot.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_LONGEST = 255 - len(PART)  # bytes of a file's name, which has more while it is written


def trace_name(name: str) -> str:
    """Return the file name of a prompt's trace: its id as in a URL. `urllib.parse.unquote` returns the id."""
    coded = quote(name, safe="")
    if coded.startswith(".") or _DEVICE.match(coded):
        coded = f"%{ord(coded[0]):02X}{coded[1:]}"
    return f"{coded}.json"


class TraceFolder:
    """A folder with a trace of each prompt."""

    def __init__(self, folder: Path, prompts: Sequence[Prompt], done: Iterable[str]) -> None:
        """Make the folder.

        done: ids of prompts that are done, and may have traces.

        Raises ValueError for ids that cannot be names of files beside each other, for a file that would be replaced and
        is no trace, and OSError where no file can be written.
        """
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--trace must be a folder, and {str(folder)!r} is a file")
        self.place = folder
        _check_names(prompts, done)
        for prompt in prompts:
            if not _may_be_replaced(self._file(str(prompt.id))):
                raise ValueError(f"--trace: {self._file(str(prompt.id))} is no trace: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        names = [trace_name(str(prompt.id)) for prompt in prompts]
        check_replaced(folder / max(names, key=len))

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts it holds. A trace of another run does not count."""
        known = {task.id: task for task in tasks}
        result = Holding()
        for name, line in done.items():
            file = self._file(name)
            if file.is_file():
                result.begun.add(name)
                if name not in known or _is_of(file, known[name], line):
                    result.whole.add(name)
        return result

    def keep(self, ids: Collection[str]) -> None:
        """A trace that is not kept is replaced when its prompt is decoded."""

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Write the traces of prompts."""
        for each in batch:
            with replaced(self._file(each.task.id)) as part:
                part.write_bytes(compact_json(_document(lm, each)).encode())

    def close(self) -> None:
        """The files are whole."""

    def _file(self, name: str) -> Path:
        return self.place / trace_name(name)


def _check_names(prompts: Sequence[Prompt], done: Iterable[str]) -> None:
    first = {trace_name(name).lower(): name for name in done}
    for prompt in prompts:
        file = trace_name(str(prompt.id))
        where = f"{prompt.where}: " if prompt.where else ""
        if len(file) > _LONGEST:
            said = f"the id {shown(prompt.id)} makes a file name of {len(file)} bytes"
            raise ValueError(f"{where}{said}, and --trace takes {_LONGEST}: give a shorter id")
        other = first.setdefault(file.lower(), str(prompt.id))
        if other != str(prompt.id):
            said = f"the ids {shown(other)} and {shown(prompt.id)} differ in case alone"
            raise ValueError(f"{where}{said}: on some systems --trace would write one file for both, give another id")


def _may_be_replaced(file: Path) -> bool:
    """Whether there is nothing, or a trace."""
    if not file.exists():
        return True
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_START)) == _START


def _is_of(file: Path, task: Task, line: Line) -> bool:
    """Whether a file is the whole trace of a task, whose result is a line."""
    try:
        document = load_document(file)
    except TraceError:
        return False
    header = document["header"]
    lanes = json.loads(compact_json([alone(task.decoder).to_plain()]))
    same = (header["prompt_tokens"], header["lanes"]) == (task.tokens, lanes)
    return same and len(document["records"]) == line.get("steps")


def _document(lm: LanguageModel, decoded: Decoded) -> Json:
    """The trace of a run."""
    task = decoded.task
    lane = alone(task.decoder)
    about = {"name": label_of(lm.name), "chat": task.head["chat"] or None}
    recorder = Recorder(make_header(lm, task.prompt.text, task.tokens, [lane], **about), lm.tokenizer)
    for step in decoded.steps:
        recorder.record(lane.id, step)
    return recorder.document()
