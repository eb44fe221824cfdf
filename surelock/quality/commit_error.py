"""What skipping rows changes, exactly and without a judge: each choice beside the one that the whole forward offers.

A rule changes one thing: rows attend to keys and values that are out of date. So the tokens that a run itself wrote are
given to the dense forward, its shadow, and in the step that commits a position the shadow's posterior is compared with
the one that the token was really drawn from: KL(shadow || run) in nats, of the raw temperature-1 posteriors, and
whether the most likely token differs. No sampling is in it and no divergence of texts; it holds for every compute rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surelock.decoding.choices import Decoder
from surelock.decoding.guidance import guided_logits
from surelock.decoding.loop import Step, decode
from surelock.decoding.posterior import kl_divergence
from surelock.decoding.settings import DecodeSettings
from surelock.model.language_model import LanguageModel

# The shadow's steps are computed together: so many rows at a time, and so many bytes of posteriors held until then.
_ROWS = {"cpu": 2**10, "cuda": 2**15}
_HELD_BYTES = 2**26


@dataclass(frozen=True, slots=True, eq=False)
class CommitError:
    """Of each commit of a run, in order of step, sequence and position: [C] arrays.

    step, sequence, position (of the sequence, prompt included): int64. error: KL(shadow || run), nats, float64; 0 where
    the step computed every row, NaN where a `Replay` committed what the step did not compute. changed: bool, whether
    the shadow's most likely token is another one.
    """

    step: NDArray[np.int64]
    sequence: NDArray[np.int64]
    position: NDArray[np.int64]
    error: NDArray[np.float64]
    changed: NDArray[np.bool_]

    def of(self, sequence: int) -> CommitError:
        """The commits of one sequence alone."""
        own = self.sequence == sequence
        return CommitError(*(getattr(self, name)[own] for name in self.__slots__))


def commit_error(
    lm: LanguageModel, run: Iterable[Step] | dict[str, Any], settings: DecodeSettings | None = None
) -> CommitError:
    """The commit error of a run: of the steps of `surelock.decode(..., keep_logits=True)`, all or its first ones.

    settings: those of the run; only their guidance is used. Rounding gives up to 1e-12 nats in float64, 1e-6 in
    float32. run may be a trace, too (a parsed document of version 2): each contestant's steps are then computed again,
    and `sequence` is the contestant's number.
    Raises ValueError for steps without logits, for ones that do not begin with the first, and for a trace that this
    model, on this machine, does not write.
    """
    if isinstance(run, dict):
        return _of_trace(lm, cast("dict[str, Any]", run))
    shadow = Shadow(lm, settings or DecodeSettings())
    for step in run:
        shadow.add(step)
    return shadow.result()


def _of_trace(lm: LanguageModel, trace: dict[str, Any]) -> CommitError:
    if trace.get("version") != 2:
        raise ValueError(f"the trace must be of version 2, not {trace.get('version')!r}")
    header, found, own_fields = trace["header"], [], [each.name for each in fields(Decoder)]
    for number, plain in enumerate(header["contestants"]):
        records = [record for record in trace["records"] if record["contestant"] == plain["id"]]
        decoder = Decoder.from_plain({name: plain[name] for name in own_fields if name in plain})
        steps = decode(lm, [header["prompt_tokens"]], **decoder.keywords(), keep_logits=True)
        shadow = Shadow(lm, decoder.settings)
        for step, record in zip(islice(steps, len(records)), records, strict=True):
            where = step.newly_unmasked[0].nonzero()[:, 0]
            if torch.stack((where, step.tokens[0, where]), dim=1).tolist() != record["unmasked"]:
                raise ValueError(
                    f"step {step.index + 1} of {plain['name']!r} is another one with this model on this machine"
                )
            shadow.add(step)
        own = shadow.result()
        own.sequence[:] = number
        found.append(own)
    return CommitError(*(np.concatenate([getattr(own, name) for own in found]) for name in CommitError.__slots__))


@dataclass(slots=True)
class _Waiting:
    """A sequence's step that the shadow has yet to see. tokens [N]: its input. places: rows of the result."""

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    logits: Tensor
    places: NDArray[np.int64]


class Shadow:
    """Collects a run's steps and computes their commit errors, many steps at a time.

    always: compute also what is 0 by definition, because the step computed every row.
    """

    def __init__(self, lm: LanguageModel, settings: DecodeSettings, *, always: bool = False) -> None:
        self._lm, self._settings, self._always = lm, settings, always
        self._present: NDArray[np.bool_] | None = None
        self._is_prompt = np.zeros(0, dtype=bool)
        self._commits: list[tuple[int, int, int]] = []
        self._error: list[float] = []
        self._changed: list[bool] = []
        self._waiting: dict[int, list[_Waiting]] = {}
        self._held = 0

    def add(self, step: Step) -> None:
        """Take in the next step. Raises ValueError where it has no logits, or is the first and not number 0."""
        if step.commit_logits is None:
            raise ValueError("the steps hold no logits of what they committed: decode with keep_logits=True")
        if self._present is None:
            if step.index != 0:
                raise ValueError(f"the steps must begin with the first, not with step {step.index}")
            self._present = step.computed.numpy()  # the first step computes every position
            self._is_prompt = self._present & ~(step.masked | step.newly_unmasked | step.written).numpy()
        unmasked, computed = step.newly_unmasked.numpy(), step.computed.numpy()
        before = np.where(unmasked, self._lm.mask_id, step.tokens.numpy())
        logits = step.commit_logits.split(unmasked.sum(axis=1).tolist())
        for b, own in enumerate(logits):
            where = np.flatnonzero(unmasked[b])
            if not len(where):
                continue
            first = int(np.argmax(self._present[b]))
            places = np.arange(len(self._commits), len(self._commits) + len(where))
            self._commits += [(step.index, b, int(p) - first) for p in where]
            self._error += [0.0] * len(where)
            self._changed += [False] * len(where)
            if self._always or not computed[b, first:].all():
                waiting = _Waiting(before[b, first:], where - first, own, places)
                self._waiting.setdefault(b, []).append(waiting)
                self._held += own.nbytes
        if self._held > _HELD_BYTES:
            self._catch_up()

    def result(self) -> CommitError:
        """All that was added."""
        self._catch_up()
        step, sequence, position = np.array(self._commits, dtype=np.int64).reshape(-1, 3).T
        return CommitError(step, sequence, position, np.array(self._error), np.array(self._changed, dtype=bool))

    def _catch_up(self) -> None:
        most = _ROWS.get(self._lm.device.type, _ROWS["cpu"])
        for b, waiting in self._waiting.items():
            each = max(1, most // len(waiting[0].tokens))
            for start in range(0, len(waiting), each):
                self._compare(b, waiting[start : start + each])
        self._waiting, self._held = {}, 0

    @torch.inference_mode()
    def _compare(self, b: int, waiting: list[_Waiting]) -> None:
        """One batch of the shadow: steps of one sequence, which are all of a length."""
        network, device = self._lm.network, self._lm.device
        wide = torch.promote_types(network.dtype, torch.float32)
        counts = [len(each.positions) for each in waiting]
        asked = np.zeros((len(waiting), max(counts)), dtype=np.int64)  # ragged: what is not asked for is position 0
        for row, each in zip(asked, waiting, strict=True):
            row[: len(each.positions)] = each.positions
        kept = torch.from_numpy(np.arange(asked.shape[1]) < np.array(counts)[:, None]).to(device)
        tokens = np.stack([each.tokens for each in waiting])

        def logits(tokens: NDArray[np.int64]) -> Tensor:
            inputs = (torch.from_numpy(x).to(device) for x in (tokens, asked))
            return network.logits(network.hidden(*inputs).to(device)[kept])

        z = logits(tokens)
        if self._settings.cfg_scale > 0:
            is_prompt = self._is_prompt[b, -tokens.shape[1] :]
            blind = np.where(is_prompt, self._lm.mask_id, tokens)
            z = guided_logits(z, logits(blind), self._settings.cfg_scale)
        z, other = z.to(wide), torch.cat([each.logits for each in waiting]).to(device, wide)
        changed = (z.argmax(dim=-1) != other.argmax(dim=-1)) & other.isfinite().all(dim=-1)
        error = kl_divergence(z.softmax(-1), z, z.logsumexp(-1), other, other.logsumexp(-1))
        told = zip(np.concatenate([each.places for each in waiting]), error.tolist(), changed.tolist(), strict=True)
        for place, nats, differs in told:
            self._error[place], self._changed[place] = nats, differs
