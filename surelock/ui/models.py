"""The models of a server. A background thread loads a model; a loaded model is kept until the server stops."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from surelock.errors import nearest, without_paths
from surelock.model.families import CONFIG, family_of, read_json, shape_of
from surelock.model.generation import generation_of
from surelock.model.trial import check_tokenizer
from surelock.places import ASSETS, is_hub_id, label_of
from surelock.values import Json

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel

_LOG = logging.getLogger("surelock")
EMBEDDED = "stories"
_ABOUT = (
    "The model is very small (5.9 million parameters) and writes children's stories: clumsy text comes from the model, "
    "not from the decoder."
)


class NotReady(ValueError):
    """The model cannot be used, or cannot be used yet. The message is one sentence for the page."""


class Loading(NotReady):
    """The model is being loaded. said: the sentence that the page shows, with the seconds so far."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}; try again in a moment.")
        self.said = f"{said} …"


class Models:
    """The models that the command line names, by their labels on the page.

    names: names for `surelock.load`. The label of a model is its name. For a directory the label is the last part of
        the path, so that the page shows no path of the machine.
    device_map, engine, weights, tokenizer: arguments of `surelock.load` for every model.
    decodes: whether the server computes runs. If it does not, it loads no model.

    Raises ValueError for a name that is neither a directory nor a hub id, and for two models with the same label.
    """

    def __init__(
        self,
        names: list[str],
        device_map: str | None = None,
        engine: str = "auto",
        weights: str | None = None,
        decodes: bool = True,
        tokenizer: str | None = None,
    ) -> None:
        self._options = {
            "device_map": device_map,
            "engine": engine,
            "weights": weights,
            "tokenizer": tokenizer,
        }
        self.decodes = decodes
        self._names: dict[str, str] = {}
        for name in dict.fromkeys(names):
            label = label_of(name)
            hint = nearest(name, [EMBEDDED])
            if name != EMBEDDED and not Path(name).is_dir() and not is_hub_id(name):
                raise ValueError(
                    f"--model {name}: no directory, and no hub id of the form owner/model either{hint}"
                )
            if label in self._names:
                raise ValueError(
                    f"--model {name}: the page offers another model as {label!r}; rename one of the two"
                )
            self._names[label] = name
        self._loaded: dict[str, LanguageModel] = {}
        self._failed: dict[str, str] = {}  # the reason why a model could not be loaded
        self._started: dict[str, float] = {}  # when loading began, in monotonic seconds
        self._lock = threading.Lock()

    @property
    def labels(self) -> list[str]:
        """The labels of all models, in the order of the command line."""
        return list(self._names)

    def about(self, label: str) -> str:
        """Return one sentence about a model, for the page."""
        return _ABOUT if self._names.get(label) == EMBEDDED else f"The model is {label}."

    def start_loading(self, label: str) -> None:
        """Begin to load a model in the background. Do nothing if loading has begun already."""
        with self._lock:
            if not self.decodes or label in self._started or label not in self._names:
                return
            self._started[label] = time.monotonic()
        threading.Thread(
            target=self._load, args=(label,), name=f"load {label}", daemon=True
        ).start()

    def load_all(self) -> None:
        """Load every model before returning. Do nothing on a server that computes no runs."""
        if not self.decodes:
            return
        for label in self.labels:
            self._started[label] = time.monotonic()
            self._load(label)

    def get(self, label: str) -> LanguageModel:
        """Return a loaded model.

        If the model is not loaded yet, begin to load it and raise Loading. Raises NotReady if the model could not be
        loaded or is not offered.
        """
        if not isinstance(label, str) or label not in self._names:
            raise NotReady("model must be one of those this page offers.")
        if not self.decodes:
            raise NotReady(
                "This server computes no runs (--decode-in browser): the page does, in its visitor's browser."
            )
        if label in self._loaded:
            return self._loaded[label]
        if label in self._failed:
            raise NotReady(f"The model {label} could not be loaded: {self._failed[label]}")
        self.start_loading(label)
        waited = time.monotonic() - self._started[label]
        raise Loading(f"The model {label} is still loading ({waited:.0f} s so far)")

    def failure(self, label: str) -> str:
        """Wait until a model is loaded or has failed. Return why it failed, "" if it is loaded."""
        while label in self._started and label not in self._loaded and label not in self._failed:
            time.sleep(0.1)
        return self._failed.get(label, "")

    def ready(self, label: str) -> LanguageModel | None:
        """Return the model if it is loaded, else None. Never begins to load it."""
        return self._loaded.get(label)

    def state(self, label: str) -> str:
        """Return "ready", "loading", or the reason why the model cannot be used."""
        if label in self._loaded:
            return "ready"
        return self._failed.get(label, "loading")

    def recommended(self, label: str) -> Json:
        """Return the settings that the model's files recommend, by their short names.

        The files of a local model are read even if its weights are not loaded yet. A model from the hub has no
        recommended settings before it is loaded.
        """
        if label in self._loaded:
            return dict(self._loaded[label].generation)
        name = self._names.get(label, "")
        directory = ASSETS / EMBEDDED if name == EMBEDDED else Path(name)
        try:
            if not (directory / CONFIG).is_file():
                return {}
            config = read_json(directory / CONFIG)
            family = family_of(config)
            return generation_of(family, shape_of(family, config, name), directory)
        except (OSError, ValueError):
            return {}  # loading the model reports the problem

    def _load(self, label: str) -> None:
        """Load a model, or record why it could not be loaded."""
        try:
            # these modules import torch, which takes seconds: the page is served first
            from surelock.loading import find_device, find_directory, load
            from surelock.model.footprint import check_room

            name = self._names[label]
            if name != EMBEDDED:
                placement = {option: self._options[option] for option in ("device_map", "weights")}
                check = partial(check_room, name, device=find_device(None), **placement)
                check_tokenizer(find_directory(name, check))
            self._loaded[label] = load(name, **self._options)
        except (ValueError, OSError, RuntimeError, ImportError, MemoryError) as error:
            self._failed[label] = without_paths(error).replace(self._names[label], label)
            _LOG.error("The model %s could not be loaded: %s", label, error)
        finally:
            # even after an error that is not handled above, no request may wait for this thread
            if label not in self._loaded:
                self._failed.setdefault(
                    label, "something in its files is damaged; the server's log says more."
                )
