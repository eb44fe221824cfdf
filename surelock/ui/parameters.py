"""The parameters of /decode, derived from the descriptions of the settings, for scripts and agents."""

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

from surelock.decoding.events import KINDS
from surelock.decoding.rules import DECODER_PARTS, UNMASK
from surelock.decoding.settings import Number
from surelock.decoding.spelling import FlatSetting, flat_settings
from surelock.errors import shown
from surelock.ui.limits import MOST_CELLS
from surelock.values import Json

_TYPES: dict[str, type] = {"whole": int, "number": float, "flag": bool, "group": bool}
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}
#: Parameters for which 0 stands for the library's None.
NONE_IS_ZERO = ("steps", "block_length")
#: Defaults that differ from the library's.
DEFAULTS: Json = {"gen_length": 64}
#: Parameters that are no settings: type, default and description.
_OTHERS: dict[str, tuple[Any, Any, str]] = {
    "prompt": (str, inspect.Parameter.empty, "The text to continue, with or without blanks."),
    "chat": (bool, False, "Put the prompt into the model's chat template, where it has one."),
    "blanks": (
        bool,
        True,
        "Two or more underscores in a row in the prompt are a blank of so many tokens, to fill in; __{red|blue} is one "
        "of these words.",
    ),
    "model": (str, "", "One of the models that this server offers; empty for its first."),
    "compute": (str, "", DECODER_PARTS["compute"]),
    "unmask": (str, "", DECODER_PARTS["unmask"]),
    "events": (
        list[dict],
        None,
        'Interventions, such as [{"step": 5, "kind": "lock", "position": 12}]. Each is applied before its step, at its '
        f"position (from 0, prompt included). The kinds are {', '.join(KINDS)}; write also needs a token, rule needs a "
        "compute instead of a position.",
    ),
    "commit_error": (
        bool,
        False,
        "Measure the commit error when the run is over; the last object then holds it, position by position.",
    ),
    "trace": (
        bool,
        False,
        f"Return the trace of the run in the last object, up to {MOST_CELLS:,} positions times steps. Saved as a file, "
        "it opens on the page.",
    ),
}
ENDPOINT = "decode"
#: Parameters that are no settings, and true or false.
FLAGS = tuple(name for name, (kind, _, _) in _OTHERS.items() if kind is bool)
ABOUT = (
    "Decode one prompt, step by step. Settings of rules and policies that are null are not given; those that are given "
    "must belong to the chosen ones. An epsilon below 0 never locks."
)
ANSWER = (
    "While the call waits: its place (runs before it) and the seconds until it begins, null if unknown. Then one "
    "object per step: step, unmasked (position and token of each), newly_locked (positions), locked and computed "
    "(how many), seconds, flops and baseline_flops. The last has done, texts, tokens (prompt included), steps, "
    "seconds, flops, flops_ratio (to computing every row), active_ratio (rows computed), spared (steps that "
    "stop_at_end left out), and commit_error and trace if asked for."
)


def parameters() -> list[inspect.Parameter]:
    """Return the parameters of the function behind /decode, with types and defaults."""
    late = [name for name in _OTHERS if name != "prompt"]
    return [_parameter(name) for name in ("prompt", *flat_settings(), *late)]


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError, one sentence, for a name that is no parameter of /decode."""
    parameter_names = [parameter.name for parameter in parameters()]
    for name in names:
        if name not in parameter_names:
            raise ValueError(
                f"{shown(name)} is no parameter of {ENDPOINT}; there are {', '.join(parameter_names)}."
            )


def descriptions() -> dict[str, str]:
    """Return the descriptions of the parameters, one line per parameter."""
    settings = {name: _described(name, flat) for name, flat in flat_settings().items()}
    return {
        parameter.name: settings.get(parameter.name) or _OTHERS[parameter.name][2]
        for parameter in parameters()
    }


def description() -> str:
    """Return the description of the endpoint: the answer, and one line per parameter."""
    lines = [f"{name}{_owner(name)}: {line}" for name, line in descriptions().items()]
    return "\n".join([f"{ABOUT} {ANSWER}", *lines])


def schemas(models: Sequence[str]) -> dict[str, Json]:
    """Return the JSON schemas of the parameters. models: the labels that the server offers."""
    lines = descriptions()
    schema_by_name = {
        parameter.name: _schema(parameter) | {"description": lines[parameter.name]}
        for parameter in parameters()
    }
    schema_by_name["prompt"]["minLength"] = 1
    schema_by_name["model"]["enum"] = ["", *models]
    schema_by_name["unmask"]["enum"] = ["", *UNMASK]
    whole = {"type": "integer", "minimum": 0}
    parts = {
        "step": whole,
        "kind": {"enum": list(KINDS)},
        "position": whole,
        "token": whole,
        "compute": {},
    }
    schema_by_name["events"]["items"] = {
        "type": "object",
        "properties": parts,
        "required": ["step", "kind"],
    }
    return schema_by_name


def _schema(parameter: inspect.Parameter) -> Json:
    """The JSON schema of a parameter's type and range."""
    flat = flat_settings().get(parameter.name)
    name = parameter.name
    made: Json = {"type": _JSON.get(parameter.annotation, "array")}
    if flat is None:
        return made
    setting = flat.setting
    if isinstance(setting, Number):
        if setting.low > -math.inf:
            made["exclusiveMinimum" if setting.above else "minimum"] = (
                0 if name in NONE_IS_ZERO else setting.low
            )
        if setting.high < math.inf:
            made["maximum"] = setting.high
    if not flat.kind:
        return made
    word = [{"const": "none"}] if setting.none and setting.kind != "group" else []
    return {"anyOf": [made, *word, {"type": "null"}]}


def _parameter(name: str) -> inspect.Parameter:
    flat = flat_settings().get(name)
    if flat is None:
        kind, default, _ = _OTHERS[name]
    else:
        kind = _TYPES[flat.setting.kind]
        default = (
            None if flat.kind else DEFAULTS.get(name, 0 if name in NONE_IS_ZERO else flat.default)
        )
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def _described(name: str, flat: FlatSetting) -> str:
    setting = flat.setting
    if setting.kind == "group":
        return f"{setting.help} Its settings stand beside it."
    if name in NONE_IS_ZERO:
        return f"{setting.help} It is a whole number; 0 means {setting.none}."
    none = f', or "none" for {setting.none}' if setting.none else ""
    return f"{setting.help} It is {setting.words}{none}{f' (default: {flat.default})' if flat.kind else ''}."


def _owner(name: str) -> str:
    flat = flat_settings().get(name)
    return f" ({flat.kind})" if flat is not None and flat.kind else ""
