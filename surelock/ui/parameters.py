"""The parameters of /decode for scripts and agents. They are derived from the descriptions of the settings."""

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

from surelock.decoding.compute import Both
from surelock.decoding.events import KINDS
from surelock.decoding.rules import DECODER_PARTS, TABLES
from surelock.decoding.settings import DecodeSettings, Group, Number, Setting, described
from surelock.decoding.spelling import flat_settings, names_behind
from surelock.errors import shown
from surelock.ui.limits import MOST_CELLS
from surelock.values import Json

_TYPES: dict[str, type] = {"whole": int, "number": float, "flag": bool}
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SETTINGS: dict[str, Setting] = dict(described(DecodeSettings))
#: Parameters for which 0 means the library's None.
NONE_IS_ZERO = ("steps", "block_length")
#: Defaults that differ from the library's.
DEFAULTS: Json = {"gen_length": 64}
_AS_OBJECT = "A text, or an object of its kind and its settings."
#: Type, default and description of the parameters that are not settings.
_OTHERS: dict[str, tuple[Any, Any, str]] = {
    "prompt": (str, inspect.Parameter.empty, "The text to continue, with or without blanks."),
    "chat": (bool, False, "Put the prompt into the model's chat template, where it has one."),
    "blanks": (
        bool,
        True,
        "Two or more underscores in a row in the prompt are a blank to fill in, one token per underscore; "
        "__{red|blue} is a blank for one of these words.",
    ),
    "model": (str, "", "One of the models that this server offers; empty for its first."),
    "compute": (str | dict, "", f"{DECODER_PARTS['compute']} {_AS_OBJECT}"),
    "unmask": (str | dict, "", f"{DECODER_PARTS['unmask']} {_AS_OBJECT}"),
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
#: The parameters in _OTHERS that are true or false.
FLAGS = tuple(name for name, (kind, _, _) in _OTHERS.items() if kind is bool)
ABOUT = (
    "Decode one prompt, step by step. The settings of a rule or a policy are fields of its object, such as "
    '{"kind": "lock", "epsilon": 0.005}; a setting that is left out has its default. An epsilon below 0 never locks.'
)
ANSWER = (
    "While the call waits: its place (runs before it) and the seconds until it begins, null if unknown. Then one "
    "object per step: step, unmasked (position and token of each), newly_locked (positions), locked and computed "
    "(how many), seconds, flops and baseline_flops. The last has done, texts, tokens (prompt included), steps, "
    "seconds, flops, flops_ratio (to computing every row), active_ratio (rows computed), spared (steps that "
    "stop_at_end left out), and commit_error and trace if asked for."
)


def parameters() -> list[inspect.Parameter]:
    """Return the parameters of the function that answers /decode, with types and defaults."""
    others = [name for name in _OTHERS if name != "prompt"]
    return [_parameter(name) for name in ("prompt", *_SETTINGS, *others)]


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError, one sentence, for a name that is no parameter of /decode."""
    known = [parameter.name for parameter in parameters()]
    for name in names:
        if name in known:
            continue
        setting = flat_settings().get(name)
        if setting is not None:
            choice = "compute" if setting.kind in TABLES["compute"] else "unmask"
            place = f'{choice}={{"kind": "{setting.kind}", ...}}'
            raise ValueError(f"{name} is a setting of {setting.kind}: put it into {place}.")
        listed = ", ".join(known)
        raise ValueError(f"{shown(name)} is no parameter of {ENDPOINT}; there are {listed}.")


def descriptions() -> dict[str, str]:
    """Return a description of one line for every parameter, by name."""
    lines = {name: text for name, (_, _, text) in _OTHERS.items()}
    lines |= {name: _described(name, setting) for name, setting in _SETTINGS.items()}
    return {parameter.name: lines[parameter.name] for parameter in parameters()}


def description() -> str:
    """Return the description of the endpoint: its answer, a line for every parameter, and a line for every kind of rule
    and policy.
    """
    lines = [f"{name}: {line}" for name, line in descriptions().items()]
    for choice in TABLES:
        for kind, names in names_behind(choice).items():
            lines.append(f"{choice} {kind}: {', '.join(names) or 'no settings'}")
    return "\n".join([f"{ABOUT} {ANSWER}", *lines])


def schemas(models: Sequence[str]) -> dict[str, Json]:
    """Return the JSON schema of every parameter, by name. models: the labels of the models that the server offers."""
    schemas = {parameter.name: _schema(parameter) for parameter in parameters()}
    schemas["prompt"]["minLength"] = 1
    schemas["model"]["enum"] = ["", *models]
    for name in NONE_IS_ZERO:
        schemas[name]["minimum"] = 0
    for choice, table in TABLES.items():
        kinds = [_object_schema(made, kind) for kind, made in table.items()]
        schemas[choice] = {"anyOf": [{"type": "string"}, *kinds]}
    schemas["compute"]["anyOf"].append(_BOTH)
    whole = {"type": "integer", "minimum": 0}
    event = {"step": whole, "kind": {"enum": list(KINDS)}, "position": whole, "token": whole}
    event["compute"] = {}
    schemas["events"]["items"] = {
        "type": "object",
        "properties": event,
        "required": ["step", "kind"],
    }
    return {name: schemas[name] | {"description": line} for name, line in descriptions().items()}


#: The JSON schema of the compute rule `Both`, which combines a lock rule and a select rule.
_BOTH: Json = {
    "type": "object",
    "properties": {
        "kind": {"const": Both.kind},
        "lock": {"type": "object"},
        "select": {"type": "object"},
    },
    "required": ["kind", "lock", "select"],
}


def _schema(parameter: inspect.Parameter) -> Json:
    """Return the JSON schema of a parameter's values, without None."""
    setting = _SETTINGS.get(parameter.name)
    if setting is None:
        return {"type": _JSON.get(parameter.annotation, "array")}
    return _value_schema(setting)


def _value_schema(setting: Setting) -> Json:
    """Return the JSON schema of a setting's values, without None."""
    if isinstance(setting, Group):
        return _object_schema(setting.of)
    schema: Json = {"type": _JSON[_TYPES[setting.kind]]}
    if isinstance(setting, Number):
        if setting.low > -math.inf:
            bound = "exclusiveMinimum" if setting.above else "minimum"
            schema[bound] = setting.low
        if setting.high < math.inf:
            schema["maximum"] = setting.high
    return schema


def _object_schema(made: type, kind: str = "") -> Json:
    """Return the JSON schema of a class of settings.

    kind: the kind of the rule or the policy; "" for a group of settings inside a rule.
    """
    properties: Json = {"kind": {"const": kind}} if kind else {}
    for name, setting in described(made):
        schema = _value_schema(setting)
        if setting.none is not None:
            schema = {"anyOf": [schema, {"type": "null"}]}
        properties[name] = schema | {"description": setting.help}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": ["kind"]} if kind else schema


def _parameter(name: str) -> inspect.Parameter:
    """Return the parameter of a name, with its type and default."""
    if name in _OTHERS:
        kind, default, _ = _OTHERS[name]
    else:
        kind = _TYPES[_SETTINGS[name].kind]
        library = getattr(DecodeSettings(), name)
        default = 0 if name in NONE_IS_ZERO else DEFAULTS.get(name, library)
    return inspect.Parameter(
        name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind
    )


def _described(name: str, setting: Setting) -> str:
    """Return the description of the parameter of a setting."""
    if name in NONE_IS_ZERO:
        return f"{setting.help} It is a whole number; 0 means {setting.none}."
    return f"{setting.help} It is {setting.words}."
