"""The component of the stage: static markup, and the functions that the page may call outside the queue."""

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import gradio as gr

from surelock.places import ASSETS
from surelock.ui.attended import most_attended
from surelock.ui.device import computed
from surelock.ui.models import Models
from surelock.ui.request import one_token
from surelock.ui.serving import Export
from surelock.ui.session import Sessions


def make_stage(models: Models, sessions: Sessions, most: int, sources: Sequence[str] = ("server",)) -> gr.HTML:
    """Return the component of the stage.

    sources: where runs may be computed, "server" and "browser"; the first is selected at first.

    Its functions are public. A run is reached by its unguessable id alone.
    """

    def pause(arguments: list[Any]) -> bool:
        run = sessions.find(_first(arguments))
        if run is not None:
            run.pause()
        return run is not None

    def stop(arguments: list[Any]) -> str | None:
        run = sessions.find(_first(arguments))
        return run.stop() if run is not None else None

    def state(arguments: list[Any]) -> str | None:
        """Return whether a run is running, paused or ended; None if it is not kept."""
        run = sessions.find(_first(arguments))
        return run.state if run is not None else None

    def wait(arguments: list[Any]) -> float | None:
        """Return the seconds until the run at a place of the queue begins, see `Sessions.wait`.

        arguments: the place, and the id of a paused run that waits for its turn, so that it does not count as idle.
        """
        place = _first(arguments)
        sessions.find(arguments[-1] if isinstance(arguments, list) and arguments else None)
        return sessions.wait(place) if _index(place, 10_000) else None

    def top(arguments: list[Any]) -> dict[str, Any] | None:
        if not isinstance(arguments, list) or len(arguments) != 3:
            return None
        run_id, position, step = arguments
        run = sessions.find(run_id)
        if run is None:
            return None
        recorder = run.computation.recorder
        header = recorder.header
        if not _index(position, header["length"]) or not _index(step, header["steps"]):
            return None
        return {c["id"]: recorder.top(c["id"], step, position) for c in header["lanes"]}

    turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of exports, by client

    async def export(arguments: list[Any]) -> Export | None:
        run = sessions.find(_first(arguments))
        return Export(run.computation.recorder, run.steps, turns) if run is not None else None

    def model_state(arguments: list[Any]) -> str:
        label = _first(arguments)
        return models.state(label) if label in models.labels else "This page does not offer that model."

    looking = Lock()

    def attended(arguments: list[Any]) -> list[list[float]] | None:
        """See `most_attended`. One call at a time, since runs wait for it; None while another call is computed."""
        if not looking.acquire(blocking=False):
            return None
        try:
            return computed(lambda: most_attended(models, arguments, most))
        finally:
            looking.release()

    def token(arguments: list[Any]) -> dict[str, Any]:
        """Return the single token of a text for a model, or a problem."""
        label, text = arguments if isinstance(arguments, list) and len(arguments) == 2 else ("", None)
        try:
            return one_token(models.get(label), text)
        except ValueError as error:
            return {"problem": str(error)}

    return gr.HTML(
        html_template=f'<div class="sl-stage" data-sources="{" ".join(sources)}"></div>',
        js_on_load=(ASSETS / "js" / "load" / "stage.js").read_text("utf-8"),
        server_functions=[pause, stop, state, wait, top, export, model_state, attended, token],
        apply_default_css=False,
        elem_id="sl-stage-host",
    )


def _first(arguments: Any) -> Any:
    """The first argument: `server.f(x)` sends [x] or x, and other callers may send any JSON."""
    if isinstance(arguments, list):
        return arguments[0] if arguments else None
    return arguments if isinstance(arguments, str | int) else None


def _index(value: Any, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size
