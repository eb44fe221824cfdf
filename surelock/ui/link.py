"""Reads the settings in the query of a link. One sentence lists the parts that could not be read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from surelock.decoding.settings import DecodeSettings
from surelock.trace.lanes import MOST
from surelock.ui.request import MOST_CHARACTERS
from surelock.ui.schedule import SHARED, Fitted
from surelock.values import Fields, Json

#: Parameters of a link that only the browser reads.
BROWSERS = {"step", "pins", "race", "colour", "lesson", "page", "present", "embed", "alone"}
BROWSERS |= {"touches", "weights", "tokens"}
_OTHERS = {"model", "prompt", "chat", "lanes"}
NAMES = (*_OTHERS, *SHARED)  # the parameters that fill the form
MOST_TOLD = 4  # the most problems that the sentence lists


@dataclass(slots=True)
class Link:
    """The content of a link.

    model: the label of a model, None if the link names no model of this server.
    prompt: the text, None if the link has no prompt.
    chat: whether the prompt goes into the model's chat template.
    settings: the values of shared settings, by name.
    lanes: the lanes as JSON, None for the form's first lanes (see `wanted` of `Form.lanes_value`).
    problems: one clause for every part that could not be read.
    """

    model: str | None = None
    prompt: str | None = None
    chat: bool = True
    settings: Json = field(default_factory=dict)
    lanes: Any = None
    problems: list[str] = field(default_factory=list)

    def over(self, suits: Fields) -> Json:
        """Return the model's settings `suits`, replaced by the settings of the link.

        If the link sets a length and no steps, there is one step per position: `steps` is None.
        """
        values = {**suits, **self.settings}
        if "gen_length" in self.settings and "steps" not in self.settings:
            values["steps"] = None
        return values

    def fitted(self, taken: Fitted) -> None:
        """Add a problem for every value of the link that `taken` replaces by a value that fits."""
        for name, value in taken.values.items():
            if self.settings.get(name) not in (None, value):
                problem = f"{SHARED[name].label} {self.settings[name]} does not fit ({value} taken instead)"
                self.problems.append(problem)

    @property
    def sentence(self) -> str:
        """All problems in one sentence, "" if there are no problems."""
        if not self.problems:
            return ""
        more = len(self.problems) - MOST_TOLD
        listed = self.problems[:MOST_TOLD]
        if more > 0:
            listed.append(f"and {more} more")
        return f"Not all of this link could be followed: {'; '.join(listed)}."


def read_link(query: Mapping[str, str], labels: list[str], suits: Any) -> Link:
    """Return the content of a link.

    query: the parameters of the link, by name.
    labels: the labels of the server's models; the first replaces a missing or unknown model.
    suits: a function from a model's label to the settings that replace missing and unreadable settings.
    """
    link = Link()
    wanted = query.get("model")
    if wanted in labels:
        link.model = wanted
    elif wanted:
        link.problems.append(
            f"the model {_quoted(wanted)} is not on this server ({labels[0]} taken instead)"
        )
    taken = suits(link.model or labels[0])
    link.prompt = query.get("prompt", "")[:MOST_CHARACTERS] or None
    if len(query.get("prompt", "")) > MOST_CHARACTERS:
        link.problems.append(
            f"its prompt is too long (the first {MOST_CHARACTERS:,} characters taken)"
        )
    link.chat = query.get("chat") != "false"
    _read_settings(link, query, taken)
    _read_lanes(link, query)
    return link


def _read_settings(link: Link, query: Mapping[str, str], taken: Fields) -> None:
    """Add the settings of the query to the link. Add a problem for every value that cannot be read.

    taken: the settings that the form takes in place of values that cannot be read.
    """
    for name, text in query.items():
        if name in SHARED:
            try:
                link.settings[name] = read_text(name, text)
            except ValueError:
                instead = _written(taken.get(name, getattr(DecodeSettings(), name)))
                problem = (
                    f"{SHARED[name].label} cannot be {_quoted(text)} ({instead} taken instead)"
                )
                link.problems.append(problem)
        elif name not in _OTHERS | BROWSERS and not name.startswith(("_", "utm")):
            link.problems.append(f"{_quoted(name)} is no setting (left out)")


def read_text(name: str, text: str) -> Any:
    """Return the value of a shared setting from its text in a link.

    Raises ValueError for a text that cannot be read and for a value beyond the page's range.
    """
    setting = SHARED[name]
    if setting.kind == "flag" and text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false")
    value = setting.checked(name, setting.parsed(text))
    if setting.offered and value > setting.offered[1]:
        raise ValueError(f"{name} must be at most {setting.offered[1]:g}")
    return value


def _read_lanes(link: Link, query: Mapping[str, str]) -> None:
    if "lanes" not in query:
        return
    try:
        link.lanes = json.loads(query["lanes"])
    except (ValueError, RecursionError):
        link.lanes = None
    if not isinstance(link.lanes, list) or not link.lanes:
        link.lanes = None
        link.problems.append("its lanes cannot be read (the first pair taken instead)")
    elif len(link.lanes) > MOST:
        link.problems.append(f"{len(link.lanes)} lanes are too many (the first {MOST} taken)")
        link.lanes = link.lanes[:MOST]


def _written(value: Any) -> str:
    """Return a setting's value as a sentence shows it."""
    if value is None:
        return "the default"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:g}"


def _quoted(text: str) -> str:
    """Return a text in quotation marks, cut after 40 characters."""
    end = "…" if len(text) > 40 else ""
    return f"“{text[:40]}{end}”"
