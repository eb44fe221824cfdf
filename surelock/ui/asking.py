"""Reads the requests of Run and What if into jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from surelock.ui.form import Form, read_value
from surelock.ui.models import Models
from surelock.ui.request import Job, read_branch, read_job, read_lanes, read_shared


@dataclass(frozen=True, slots=True)
class Asking:
    """Reads requests on one server. most: the largest number of positions of a run."""

    models: Models
    form: Form
    most: int

    def job(self, asked: Any) -> Job:
        """Return the job of a request.

        asked: the values of the form's fields by name; or, with `prompt_tokens`, a branch of a run from one of its
        steps, see `read_branch`.

        Raises ValueError, one sentence.
        """
        if not isinstance(asked, Mapping):
            raise ValueError("A run is asked for by an object of the form's values.")
        lm = self.models.get(label := asked.get("model", ""))
        longest = min(self.most, lm.config.max_length)
        if "prompt_tokens" in asked:
            return replace(read_branch(lm, label, asked, longest), asked=key_of(asked))
        shared = read_shared({name: asked.get(name) for name in self.form.fields})
        lanes = read_lanes(read_value(asked.get("lanes")), shared)
        job = read_job(lm, label, asked.get("prompt"), bool(asked.get("chat", True)), lanes, longest)
        return replace(job, asked=key_of(asked))


def key_of(asked: Any) -> str | None:
    """Return the key of a request: equal requests are for the same job. None for what is no request.

    The request is not read, since that would hold up the server: a long prompt has ten thousand tokens.
    """
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest() if isinstance(asked, Mapping) else None
