"""A folder with the traces of a run over many prompts, one file per prompt."""

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
#: Names that Windows reserves for devices, with any suffix.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
_LONGEST = 255 - len(
    PART
)  # largest length of a file's name in bytes, since PART is added while it is written


def trace_name(name: str) -> str:
    """Return the file name of a prompt's trace: the id, quoted as in a URL, and `.json`.

    name: the prompt's id.
    """
    coded = quote(name, safe="")
    if coded.startswith(".") or _DEVICE.match(coded):
        coded = f"%{ord(coded[0]):02X}{coded[1:]}"
    return f"{coded}.json"


class TraceFolder:
    """A folder with a trace per prompt."""

    def __init__(self, folder: Path, prompts: Sequence[Prompt], done: Iterable[str]) -> None:
        """Make the folder.

        done: ids of prompts that are done, which may have traces in the folder.

        Raises ValueError for ids whose file names would collide or are too long, and if a file that is no trace would
        be replaced. Raises OSError if files cannot be written.
        """
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--trace must be a folder, and {str(folder)!r} is a file")
        self.place = folder
        _check_names(prompts, done)
        for prompt in prompts:
            file = self._file(str(prompt.id))
            if not _may_be_replaced(file):
                raise ValueError(f"--trace: {file} is no trace: choose another folder")
        folder.mkdir(parents=True, exist_ok=True)
        names = [trace_name(str(prompt.id)) for prompt in prompts]
        check_replaced(folder / max(names, key=len))

    def holding(self, tasks: Sequence[Task], done: Mapping[str, Line]) -> Holding:
        """Return which of the done prompts have a trace (`begun`), and of which the trace is complete (`whole`).

        tasks: what is to be decoded. The trace of a task is complete if its tokens, its decoder and its number of
            steps are those of the task. The traces of other prompts are not read and count as complete.
        done: the lines of the results, by id.
        """
        tasks_by_id = {task.id: task for task in tasks}
        result = Holding()
        for name, line in done.items():
            file = self._file(name)
            if file.is_file():
                result.begun.add(name)
                if name not in tasks_by_id or _is_of(file, tasks_by_id[name], line):
                    result.whole.add(name)
        return result

    def keep(self, ids: Collection[str]) -> None:
        """Do nothing: the traces of other prompts stay until they are written anew."""

    def add(self, lm: LanguageModel, batch: Sequence[Decoded]) -> None:
        """Write the traces of prompts."""
        for decoded in batch:
            with replaced(self._file(decoded.task.id)) as part:
                part.write_bytes(compact_json(_document(lm, decoded)).encode())

    def close(self) -> None:
        """Do nothing: all traces are on the disk."""

    def _file(self, name: str) -> Path:
        return self.place / trace_name(name)


def _check_names(prompts: Sequence[Prompt], done: Iterable[str]) -> None:
    """Raise ValueError for a file name that is too long, and for two file names that differ only in case."""
    first = {trace_name(name).lower(): name for name in done}
    for prompt in prompts:
        file = trace_name(str(prompt.id))
        where = f"{prompt.where}: " if prompt.where else ""
        if len(file) > _LONGEST:
            problem = f"the id {shown(prompt.id)} makes a file name of {len(file)} bytes"
            raise ValueError(f"{where}{problem}, and --trace takes {_LONGEST}: give a shorter id")
        other = first.setdefault(file.lower(), str(prompt.id))
        if other != str(prompt.id):
            problem = f"the ids {shown(other)} and {shown(prompt.id)} differ in case alone"
            advice = "on some systems --trace would write one file for both, give another id"
            raise ValueError(f"{where}{problem}: {advice}")


def _may_be_replaced(file: Path) -> bool:
    """Return whether a path does not exist, or is a file that begins as the traces of this module do."""
    if not file.exists():
        return True
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_START)) == _START


def _is_of(file: Path, task: Task, line: Line) -> bool:
    """Return whether a file is the complete trace of a task. line: the task's line in the results."""
    try:
        document = load_document(file)
    except TraceError:
        return False
    header = document["header"]
    lanes = json.loads(compact_json([alone(task.decoder).to_plain()]))
    is_same = header["prompt_tokens"] == task.tokens and header["lanes"] == lanes
    return is_same and len(document["records"]) == line.get("steps")


def _document(lm: LanguageModel, decoded: Decoded) -> Json:
    """Return the trace document of a decoded prompt."""
    task = decoded.task
    lane = alone(task.decoder)
    about = {"name": label_of(lm.name), "chat": task.head["chat"] or None}
    recorder = Recorder(
        make_header(lm, task.prompt.text, task.tokens, [lane], **about), lm.tokenizer
    )
    for step in decoded.steps:
        recorder.record(lane.id, step)
    return recorder.document()
