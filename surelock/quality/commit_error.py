"""What skipping rows changes, exactly and without a judge: each choice beside the one that the whole forward offers.

A rule changes one thing: rows attend to keys and values that are out of date. So the tokens that a run itself wrote are
given to the dense forward, its shadow, and in the step that commits a position the shadow's posterior is compared with
the one that the token was really drawn from: KL(shadow || run) in nats, of the raw temperature-1 posteriors, and
whether the most likely token differs. No sampling is in it and no divergence of texts; it holds for every compute rule.

That says nothing of who is committed, which a rule that computes few rows restricts. So the same shadow is asked what
its posteriors of all positions score that the step could have committed: the regret is what the committed ones score
less than the best of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.choices import Decoder
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Layout, Plan, Step
from surelock.model.language_model import LanguageModel
from surelock.trace.format import load_document

# The shadow's steps are computed together: so many rows at a time, and so many bytes of posteriors held until then.
_ROWS = {"cpu": 2**10, "cuda": 2**15}
_HELD_BYTES = 2**26
_MOST_WORDS = 2**15  # of a vocabulary: beyond it the logits of all candidates cost as much as the shadow, and more


@dataclass(frozen=True, slots=True, eq=False)
class CommitError:
    """Of each commit of a run, in order of step, sequence and position: [C] arrays.

    step, sequence, position (of the sequence, prompt included): int64. error: KL(shadow || run), nats, float64; 0 where
    the step computed every row, NaN where a `Replay` committed what the step did not compute. changed: bool, whether
    the shadow's most likely token is another one.
    regret: float64; by the policy's own score under the shadow, how much less than the best the step's commits are:
    the i-th best of the k committed is compared with the i-th best of all that the step could have committed, so that
    the sum over a step is its regret. The score is that of `UnmaskPolicy.scores`, without noise: minus the entropy in
    nats, the margin, or the probability of the likeliest token that may be chosen at all. 0 where the step computed
    every row; NaN where the policy goes by no posterior (`Random`, `Replay`) and where it was not asked for.
    """

    step: NDArray[np.int64]
    sequence: NDArray[np.int64]
    position: NDArray[np.int64]
    error: NDArray[np.float64]
    changed: NDArray[np.bool_]
    regret: NDArray[np.float64]

    def of(self, sequence: int) -> CommitError:
        """The commits of one sequence alone."""
        own = self.sequence == sequence
        return CommitError(*(getattr(self, name)[own] for name in self.__slots__))


def commit_error(
    lm: LanguageModel,
    run: Iterable[Step] | dict[str, Any],
    settings: DecodeSettings | None = None,
    *,
    regret: bool | None = None,
) -> CommitError:
    """The commit error of a run: of the steps of `surelock.decode(..., keep_logits=True)`, all or its first ones.

    settings: those of the run; their guidance is used, and whether EOS may be chosen.
    regret: whether it is computed, too, which takes the logits of all that a step could have committed; None: where
    the vocabulary has at most 32,768 words.
    Rounding gives up to 1e-12 nats in float64; in float32 1e-6 of an error below 0.01 nats, 2e-5 of one of a nat and
    more. run may be a trace, too (a parsed document of version 2 or 3): each lane's steps are then computed again, and
    `sequence` is the lane's number.
    Raises ValueError for steps without logits, for ones that do not begin with the first, and for a trace that this
    model and engine, on this machine, do not write.
    """
    if isinstance(run, dict):
        return _of_trace(lm, cast("dict[str, Any]", run), regret)
    shadow = Shadow(lm, settings or DecodeSettings(), regret=regret)
    for step in run:
        shadow.add(step)
    return shadow.result()


def _of_trace(lm: LanguageModel, trace: dict[str, Any], regret: bool | None) -> CommitError:
    trace = load_document(trace)
    header, found, own_fields = trace["header"], [], [each.name for each in fields(Decoder)]
    for number, plain in enumerate(header["lanes"]):
        records = [record for record in trace["records"] if record["lane"] == plain["id"]]
        decoder = Decoder.from_plain({name: plain[name] for name in own_fields if name in plain})
        # observed, as it was recorded
        steps = decode(lm, [header["prompt_tokens"]], **decoder.keywords(), observe=True, keep_logits=True)
        shadow = Shadow(lm, decoder.settings, regret=regret)
        for record in records:
            step = next(steps, None)
            where = [] if step is None else np.flatnonzero(step.newly_unmasked[0])
            if step is None or np.stack((where, step.tokens[0, where]), axis=1).tolist() != record["unmasked"]:
                told = f"step {record['step'] + 1} of {plain['name']!r}"
                raise ValueError(f"{told} is another one with this model and engine on this machine")
            shadow.add(step)
        own = shadow.result()
        own.sequence[:] = number
        found.append(own)
    return CommitError(*(np.concatenate([getattr(own, name) for own in found]) for name in CommitError.__slots__))


@dataclass(slots=True)
class _Waiting:
    """A sequence's step that the shadow has yet to see. tokens [N]: its input. committed: positions, whose logits these
    are. asked: the same and all others that the shadow reads, ascending. places: rows of the result.
    """

    tokens: NDArray[np.int64]
    committed: NDArray[np.int64]
    asked: NDArray[np.int64]
    logits: NDArray
    places: NDArray[np.int64]


class Shadow:
    """Collects a run's steps and computes their commit errors, many steps at a time.

    always: compute also what is 0 by definition, because the step computed every row. regret: see `commit_error`.
    """

    def __init__(
        self, lm: LanguageModel, settings: DecodeSettings, *, always: bool = False, regret: bool | None = None
    ) -> None:
        self._lm, self._settings, self._always = lm, settings, always
        self._told = regret if regret is not None else lm.config.vocab_size <= _MOST_WORDS
        self._scores: str | None = None
        self._present: NDArray[np.bool_] | None = None
        self._is_prompt = np.zeros(0, dtype=bool)
        self._commits: list[tuple[int, int, int]] = []
        self._error: list[float] = []
        self._changed: list[bool] = []
        self._regret: list[float] = []
        self._waiting: dict[int, list[_Waiting]] = {}
        self._held = 0

    def add(self, step: Step) -> None:
        """Take in the next step. Raises ValueError where it has no logits, or is the first and not number 0."""
        if step.commit_logits is None:
            raise ValueError("the steps hold no logits of what they committed: decode with keep_logits=True")
        if self._present is None:
            if step.index != 0:
                raise ValueError(f"the steps must begin with the first, not with step {step.index}")
            self._present = step.computed  # the first step computes every position
            self._is_prompt = self._present & ~(step.masked | step.newly_unmasked | step.written)
            self._scores = step.scores if self._told else None
        unmasked, computed = step.newly_unmasked, step.computed
        before = np.where(unmasked, self._lm.mask_id, step.tokens)
        logits = np.split(step.commit_logits, np.cumsum(unmasked.sum(axis=1))[:-1])
        for b, own in enumerate(logits):
            where = np.flatnonzero(unmasked[b])
            if not len(where):
                continue
            first = int(np.argmax(self._present[b]))
            places = np.arange(len(self._commits), len(self._commits) + len(where))
            self._commits += [(step.index, b, int(p) - first) for p in where]
            self._error += [0.0] * len(where)
            self._changed += [False] * len(where)
            self._regret += [np.nan if self._scores is None else 0.0] * len(where)
            if self._always or not computed[b, first:].all():
                asked = where if self._scores is None else np.flatnonzero(step.open[b])
                waiting = _Waiting(before[b, first:], where - first, asked - first, own, places)
                self._waiting.setdefault(b, []).append(waiting)
                self._held += own.nbytes
        if self._held > _HELD_BYTES:
            self._catch_up()

    def result(self) -> CommitError:
        """All that was added."""
        self._catch_up()
        step, sequence, position = np.array(self._commits, dtype=np.int64).reshape(-1, 3).T
        changed = np.array(self._changed, dtype=bool)
        return CommitError(step, sequence, position, np.array(self._error), changed, np.array(self._regret))

    def _catch_up(self) -> None:
        most = _ROWS.get(self._lm.device.type, _ROWS["cpu"])
        for b, waiting in self._waiting.items():
            each = max(1, most // len(waiting[0].tokens))
            for start in range(0, len(waiting), each):
                self._compare(b, waiting[start : start + each])
        self._waiting, self._held = {}, 0

    def _compare(self, b: int, waiting: list[_Waiting]) -> None:
        """One batch of the shadow: steps of one sequence, which are all of a length."""
        length = len(waiting[0].tokens)
        tokens = np.concatenate([each.tokens for each in waiting])
        asked, committed = (
            np.concatenate([getattr(each, name) + number * length for number, each in enumerate(waiting)])
            for name in ("asked", "committed")
        )
        blind = None
        if self._settings.cfg_scale > 0:
            is_prompt = np.tile(self._is_prompt[b, -length:], len(waiting))
            blind = np.where(is_prompt, self._lm.mask_id, tokens)
        plan, engine = self._plan(tokens, blind, length, asked), self._lm.engine
        memory = engine.memory(Layout((length,) * len(waiting), 1 if blind is None else 2))
        score = engine.read(memory, plan).score
        z, other = engine.logits(memory, committed), np.concatenate([each.logits for each in waiting])
        changed = (z.argmax(axis=-1) != other.argmax(axis=-1)) & np.isfinite(other).all(axis=-1)
        places = np.concatenate([each.places for each in waiting])
        for place, nats, differs in zip(places, _kl(z, other).tolist(), changed.tolist(), strict=True):
            self._error[place], self._changed[place] = nats, differs
        if self._scores is not None:
            parts = np.split(score, np.cumsum([len(each.asked) for each in waiting])[:-1])
            for each, scores in zip(waiting, parts, strict=True):
                for place, less in zip(each.places, _less(scores, np.isin(each.asked, each.committed)), strict=True):
                    self._regret[place] = less

    def _plan(
        self, tokens: NDArray[np.int64], blind: NDArray[np.int64] | None, length: int, asked: NDArray[np.int64]
    ) -> Plan:
        """The first step of sequences of one length: every row is computed, and those `asked` are scored."""
        count, nothing, lm = len(tokens), np.empty(0, dtype=np.int64), self._lm
        none = np.zeros(count, dtype=bool)
        chooses = none.copy()
        chooses[asked] = True
        return Plan(
            step=0,
            slots=np.arange(count),
            counts=[length] * (count // length),
            tokens=tokens,
            blind=blind,
            positions=np.arange(count) % length,
            probed=none,
            watches=none,
            compares=none,
            chooses=chooses,
            observe=False,
            forgets=nothing,
            scores=self._scores,
            banned=[lm.mask_id, *([lm.eos_id] if self._settings.suppress_eos and lm.eos_id is not None else [])],
            repeats=nothing.reshape(2, 0),
            temperature=0.0,
            draws=None,
            cfg_scale=self._settings.cfg_scale,
            top_k=0,
        )


def _less(scores: NDArray[np.float64], committed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How much less than the best the committed ones of some scores are, [k], in their order: each beside the best
    score of its own rank.
    """
    own = scores[committed]
    ranked = np.argsort(-own, kind="stable")
    less = np.empty(len(own))
    less[ranked] = np.sort(scores)[::-1][: len(own)] - own[ranked]
    return less


def _kl(logits: NDArray, other: NDArray) -> NDArray[np.float64]:
    """KL(p || q) in nats, [K], of p = softmax(logits) from q = softmax(other), both [K, V]; see `kl_divergence`."""
    log_p, log_q = (_log_softmax(each.astype(np.float64)) for each in (logits, other))
    difference = log_q - log_p
    return (np.exp(log_p) * (np.expm1(difference) - difference)).sum(axis=-1)


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
