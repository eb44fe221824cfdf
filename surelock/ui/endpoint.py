"""/decode: the public streaming endpoint. Its parameters are the settings of the library in the flat form."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import gradio as gr
import numpy as np
from gradio.context import LocalContext

from surelock.decoding.choices import Decoder, check_owners, chosen_kinds, from_flat, read_event
from surelock.decoding.ends import written
from surelock.decoding.rules import CHOICES, flat_settings
from surelock.errors import reason_of, shown
from surelock.trace.lanes import StepsOver, alone
from surelock.ui.device import Runner
from surelock.ui.limits import Limits, check_size, within
from surelock.ui.models import Models, NotReady
from surelock.ui.parameters import FLAGS, NONE_IS_ZERO, check_names, docstring, parameters
from surelock.ui.readers import Readers
from surelock.ui.request import MOST_EVENTS, Job, check_prompt, read_job

if TYPE_CHECKING:
    from surelock.quality.commit_error import CommitError


def make_endpoint(
    models: Models, decoder: Runner, most: int, readers: Readers | None = None, limits: Limits | None = None
) -> Callable[..., Iterator[dict[str, Any]]]:
    """Return the function behind /decode. Its signature is derived from the descriptions of the settings.

    decoder: runs a job, see `make_decoder`.
    readers: the open streams; a call that nobody reads ends.
    """
    readers, seconds = readers or Readers(), (limits or Limits()).run_seconds
    signature = inspect.Signature(parameters(), return_annotation=Iterator[dict])

    def decode(*args: Any, **kwargs: Any) -> Iterator[dict]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given: dict[str, Any] = bound.arguments
        try:
            lm = models.get(label := models.labels[0] if given["model"] == "" else given["model"])
            check_flags(given)
            lane, longest = alone(read_decoder(given)), min(most, lm.config.max_length)
            job = read_job(lm, label, given["prompt"], bool(given["chat"]), [lane], longest)
            extras = {name: bool(given[name]) for name in ("commit_error", "trace")}
            if extras["trace"]:
                steps = lane.decoder.settings.steps_of(job.tokens.count(lm.mask_id))
                check_size("trace", len(job.tokens) + job.gen_length, steps)
            steps = _steps(lm, job, decoder, **extras)
            request = LocalContext.request.get(None)
            yield from within(steps, seconds, readers.watched(getattr(request, "session_hash", None)))
        except (NotReady, ValueError, ArithmeticError) as error:
            raise gr.Error(str(error), print_exception=False) from error
        except (RuntimeError, MemoryError) as error:  # torch's, out of memory on a GPU among them
            raise gr.Error(f"The run stopped: {reason_of(error)}.", print_exception=False) from error

    decode.__doc__ = docstring()
    decode.__signature__ = signature  # type: ignore[attr-defined]
    decode.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    decode.__annotations__["return"] = signature.return_annotation
    return decode


def check_call(models: Models, given: Mapping[str, Any]) -> None:
    """Raise ValueError, one sentence, for parameters by name that `decode` refuses whatever the queue holds."""
    check_names(given)
    values = {each.name: each.default for each in parameters()} | {"prompt": ""} | dict(given)
    models.get(models.labels[0] if values["model"] == "" else values["model"])
    read_decoder(values)
    check_prompt(values["prompt"])
    check_flags(values)


def check_flags(given: Mapping[str, Any]) -> None:
    """Raise ValueError for a flag of a call that is neither true nor false; None is the default."""
    for name in FLAGS:
        if given[name] not in (None, True, False):
            raise ValueError(f"{name} must be true or false, not {shown(given[name])}")


def read_decoder(given: Mapping[str, Any]) -> Decoder:
    """Return the decoder of a call's parameters.

    Raises ValueError, which begins with the setting's name.
    """
    known, values = flat_settings(), {name: given[name] for name in CHOICES if name in given}
    for name, value in given.items():
        if name in known and not (value is None and known[name].kind):  # null: not given
            spelled = known[name].setting.spells_none(value) or (name in NONE_IS_ZERO and value == 0)
            values[name] = None if spelled else value
    rules, policy = chosen_kinds(values)
    check_owners(values, (*rules, policy))
    events = [] if given["events"] is None else given["events"]
    if not isinstance(events, list) or len(events) > MOST_EVENTS:
        raise ValueError(f"events must be a list of at most {MOST_EVENTS}")
    return replace(from_flat(values), events=tuple(read_event(event) for event in events))


def _steps(lm: Any, job: Job, decoder: Runner, *, commit_error: bool, trace: bool) -> Iterator[dict[str, Any]]:
    from surelock.trace.race import Errors, LaneStep  # torch: only once somebody decodes
    from surelock.trace.recorder import Recorder, make_header

    recorder = None
    if trace:
        header = make_header(lm, job.prompt, job.tokens, job.lanes, name=job.label, chat=job.chat)
        recorder = Recorder(header, lm.tokenizer)
    length = len(job.tokens) + job.gen_length
    total: dict[str, Any] = {"seconds": 0.0, "flops": 0.0, "baseline_flops": 0.0, "rows": 0, "steps": 0}
    last, canvas = {}, []
    for item in chain.from_iterable(decoder(job, False, commit_error)):
        if isinstance(item, StepsOver):
            continue
        if recorder is not None:
            recorder.take([item])
        if isinstance(item, Errors):
            last["commit_error"] = _plain_errors(item.commits)
            continue
        assert isinstance(item, LaneStep)
        step, canvas = item.step, item.step.tokens[0].tolist()
        rows = int(step.computed.sum())
        costs = {name: float(np.sum(getattr(step, name))) for name in ("seconds", "flops", "baseline_flops")}
        for name, value in (*costs.items(), ("rows", rows), ("steps", 1)):
            total[name] += value
        yield {
            "step": step.index,
            "unmasked": [{"position": p, "token": canvas[p]} for p in np.flatnonzero(step.newly_unmasked[0]).tolist()],
            "newly_locked": np.flatnonzero(step.newly_locked[0]).tolist(),
            "locked": int(step.locked.sum()),
            "computed": rows,
            **costs,
        }
    if recorder is not None:
        last["trace"] = recorder.document()
    yield {
        "done": True,
        "texts": [written(lm, job.tokens, canvas)] if lm.tokenizer is not None else [],
        "tokens": canvas,
        "steps": total["steps"],
        "seconds": total["seconds"],
        "flops": total["flops"],
        "flops_ratio": total["flops"] / total["baseline_flops"],
        "active_ratio": total["rows"] / (length * total["steps"]),
        **last,
    }


def _plain_errors(commits: CommitError) -> dict[str, Any]:
    """Commit errors as JSON: mean (nats), mean regret, number of commits and of changed likely tokens, and for each
    commit step, position, error, changed and regret. An undefined regret is None.
    """
    columns = {name: getattr(commits, name).tolist() for name in ("step", "position", "error", "changed")}
    regret = [value if math.isfinite(value) else None for value in commits.regret.tolist()]
    columns["regret"] = regret
    return {
        "mean": float(commits.error.mean()),
        "regret": None if None in regret else float(commits.regret.mean()),
        "commits": len(commits.error),
        "changed": int(commits.changed.sum()),
        "each": [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)],
    }
