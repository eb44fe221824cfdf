"""Commit error and regret: measures of what a run loses by leaving rows out, without sampling and without a judge.

Under a compute rule, rows attend to keys and values that are out of date. The commit error measures this. A dense
forward pass, the shadow, computes every row for the run's tokens. In the step that commits a position, the shadow's
posterior is compared with the run's posterior, from which the token was chosen. The commit error is KL(shadow || run)
in nats, of the posteriors at temperature 1. A second measure is whether the most likely token differs. The texts of two
runs are never compared.

A rule that computes few rows also limits which positions can be committed. The regret measures this. It compares the
policy's scores under the shadow: the scores of the committed positions with the best scores among all positions that
the step could have committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.bans import barred_ends
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import NO_ROWS, Choice, Layout, Plan, Step, Whole, lent
from surelock.decoding.word_lists import from_plain_lists
from surelock.model.language_model import LanguageModel
from surelock.model.machine import free_memory
from surelock.trace.format import load_document
from surelock.trace.lanes import Lane
from surelock.values import Flags, Floats, Json

# The shadow computes many steps together.
_ROWS = {"cpu": 2**10, "cuda": 2**13}  # largest number of rows in one forward pass
_SHARE = 0.5  # share of a GPU's free memory that a forward pass may take
_HELD_BYTES = 2**26  # size of collected logits at which the shadow computes the collected steps
# With a larger vocabulary, the logits of all candidates would cost more than the shadow's forward pass.
_MOST_WORDS = 2**15


@dataclass(frozen=True, slots=True, eq=False)
class CommitError:
    """The commit errors of a run: arrays [C] with one value per commit, by step, sequence and position.

    step: int64, the step of the commit, 0-based.
    sequence: int64, the number of the sequence in the batch.
    position: int64, the position in the sequence, prompt included.
    error: float64, KL(shadow || run) in nats; 0 if the step computed every row, NaN if a `Replay` committed a position
    that the step did not compute.
    changed: bool, whether the shadow's most likely token differs from the run's.
    regret: float64, the difference of two scores under the shadow. The i-th best of the k commits of a step is compared
    with the i-th best of all positions that the step could have committed. The sum over a step is the step's regret.
    The score is `UnmaskPolicy.scores` without noise: minus the entropy in nats, the margin, or the probability of the
    most likely allowed token. 0 if the step computed every row; NaN if regret was not asked for, and under `Random` and
    `Replay`, which use no posterior.
    """

    step: Whole
    sequence: Whole
    position: Whole
    error: Floats
    changed: Flags
    regret: Floats

    def of_sequence(self, b: int) -> CommitError:
        """Return the commits of sequence b of the batch."""
        chosen = self.sequence == b
        return CommitError(*(getattr(self, name)[chosen] for name in self.__slots__))


def commit_error(
    lm: LanguageModel,
    run: Iterable[Step] | Json,
    settings: DecodeSettings | None = None,
    *,
    regret: bool | None = None,
) -> CommitError:
    """Return the commit error of a run.

    run: all steps of `surelock.decode(..., keep_logits=True)`; or a trace, as a parsed document. The steps of a trace
    are computed again, and `sequence` is then the number of the lane.
    settings: the run's settings, for guidance and for whether EOS may be chosen. Default: `lm.recommended`.
    regret: whether the regret is computed, which needs the logits of all positions that a step could have committed.
    None: it is computed if the vocabulary has at most 32,768 tokens.

    Rounding adds up to 1e-12 nats in float64. In float32 it adds up to 1e-6 nats to an error below 0.01 nats, and up to
    2e-5 nats to an error above 1 nat.

    Raises ValueError for steps without logits, for steps that do not begin with step 0, and for a trace whose tokens
    this model and engine do not produce on this machine.
    """
    if isinstance(run, dict):
        return _of_trace(lm, cast("Json", run), regret)
    shadow = Shadow(lm, settings or recommended(lm.recommended, {}).settings, regret=regret)
    for step in run:
        shadow.add(step)
    return shadow.result()


def _of_trace(lm: LanguageModel, trace: Json, regret: bool | None) -> CommitError:
    """Return the commit errors of a trace, lane by lane. Its steps are computed again."""
    trace = load_document(trace)
    header = trace["header"]
    errors_by_lane = []
    prompt = from_plain_lists(header["prompt_tokens"], header.get("lists"), header["mask_id"])
    field = [Lane.from_plain(lane) for lane in header["lanes"]]
    for number, lane in enumerate(field):
        decoder = lane.decoder
        # observe=True, as in the recorded run
        steps = decode(lm, [prompt], **decoder.keywords(), observe=True, keep_logits=True)
        shadow = Shadow(lm, decoder.settings, regret=regret)
        records = [record for record in trace["records"] if record["lane"] == lane.id]
        for record in records:
            step = next(steps, None)
            unmasked = []
            if step is not None:
                where = np.flatnonzero(step.newly_unmasked[0])
                unmasked = np.stack((where, step.tokens[0, where]), axis=1).tolist()
            if step is None or unmasked != record["unmasked"]:
                place = f"step {record['step'] + 1} of {lane.name!r}"
                raise ValueError(
                    f"{place} is another one with this model and engine on this machine"
                )
            shadow.add(step)
        errors = shadow.result()
        errors.sequence[:] = number
        errors_by_lane.append(errors)
    return _joined(errors_by_lane)


def _joined(parts: list[CommitError]) -> CommitError:
    return CommitError(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in CommitError.__slots__)
    )


def _exact(step: int, sequence: int, positions: Whole, regret: float) -> CommitError:
    """Return the commits of a step with errors 0 and this regret."""
    count = len(positions)
    same = np.zeros(count)
    changed = np.zeros(count, dtype=bool)
    return CommitError(
        np.full(count, step),
        np.full(count, sequence),
        positions,
        same,
        changed,
        np.full(count, regret),
    )


class _Pending(NamedTuple):
    """A step of one sequence that the shadow has not computed yet."""

    tokens: Whole  # [N], the input of the step
    committed: Whole  # [k], the positions that the step committed
    # [c], ascending, the positions that the shadow scores, including the committed positions
    scored: Whole
    logits: NDArray  # [k, V], the run's logits of the committed positions
    errors: CommitError  # [k], commit errors that are 0 until the shadow sets them


class Shadow:
    """Collects the steps of a run and computes their commit errors, many steps together.

    lm, settings, regret: see `commit_error`.

    The error of a step that computed every row is 0 by definition, and is not computed.
    """

    def __init__(
        self, lm: LanguageModel, settings: DecodeSettings, *, regret: bool | None = None
    ) -> None:
        self._lm = lm
        self._settings = settings
        self._wants_regret = regret if regret is not None else lm.config.vocab_size <= _MOST_WORDS
        self._scores: str | None = None
        self._present: Flags | None = None
        self._given = np.zeros((0, 0), dtype=bool)
        self._errors = [_exact(0, 0, NO_ROWS, 0.0)]
        self._pending: dict[int, list[_Pending]] = {}
        self._held = 0

    def add(self, step: Step) -> None:
        """Add the next step of the run.

        Raises ValueError for a step without logits, and for a first step that is not step 0.
        """
        if step.commit_logits is None:
            raise ValueError(
                "the steps hold no logits of what they committed: decode with keep_logits=True"
            )
        if self._present is None:
            if step.index != 0:
                raise ValueError(f"the steps must begin with the first, not with step {step.index}")
            # The first step computes every position that neither rests nor is a pad.
            self._present = step.computed | step.resting
            self._given = step.given
            self._scores = step.scores if self._wants_regret else None
        unmasked = step.newly_unmasked
        computed = step.computed
        masked = unmasked if step.ended is None else unmasked | step.ended.filled
        before = np.where(masked, self._lm.mask_id, step.tokens)
        logits = np.split(step.commit_logits, np.cumsum(unmasked.sum(axis=1))[:-1])
        for b, z in enumerate(logits):
            where = np.flatnonzero(unmasked[b])
            if not len(where):
                continue
            first = int(np.argmax(self._present[b]))
            errors = _exact(step.index, b, where - first, np.nan if self._scores is None else 0.0)
            self._errors.append(errors)
            exact = (computed | step.resting)[b, first:].all() and computed[b, where].all()
            if not exact:
                scored = where if self._scores is None else np.flatnonzero(step.open[b])
                pending = _Pending(before[b, first:], where - first, scored - first, z, errors)
                self._pending.setdefault(b, []).append(pending)
                self._held += z.nbytes
        if self._held > _HELD_BYTES:
            self._catch_up()

    def copy(self) -> Shadow:
        """Return a shadow with the same steps. Steps that are added to one do not affect the other."""
        other = copy(self)
        other._errors = list(self._errors)
        other._pending = {b: list(pending) for b, pending in self._pending.items()}
        return other

    def result(self) -> CommitError:
        """Return the commit errors of the steps so far."""
        self._catch_up()
        return _joined(self._errors)

    def _catch_up(self) -> None:
        most = self._most_rows()
        for b, pending in self._pending.items():
            steps_at_once = max(1, most // len(pending[0].tokens))
            for start in range(0, len(pending), steps_at_once):
                self._compare(b, pending[start : start + steps_at_once])
        self._pending = {}
        self._held = 0

    def _most_rows(self) -> int:
        """Return the largest number of rows for one forward pass."""
        device = self._lm.device
        if device.type == "cpu":
            return _ROWS["cpu"]
        config = self._lm.config
        passes = 2 if self._settings.cfg_scale > 0 else 1
        # values per row in a layer's tables; values in float32 count twice
        width = 12 * config.d_model + 4 * config.d_ff
        row = passes * width * self._lm.engine.dtype.itemsize
        devices = {parameter.device for parameter in self._lm.network.parameters()}
        free = min(map(free_memory, devices))
        return max(1, min(_ROWS["cuda"], int(_SHARE * free) // row))

    def _compare(self, b: int, pending: list[_Pending]) -> None:
        """Set the errors of pending steps of a sequence, from one forward pass."""
        engine = self._lm.engine
        plan = self._plan(b, pending)
        length = len(pending[0].tokens)
        committed = np.concatenate(
            [step.committed + number * length for number, step in enumerate(pending)]
        )
        other = np.concatenate([step.logits for step in pending])
        passes = 1 if plan.blind is None else 2
        with lent(engine, Layout(tuple(plan.counts), passes, once=True)) as memory:
            score = engine.read(memory, plan).score
            z = engine.logits(memory, committed)
        changed = (z.argmax(axis=-1) != other.argmax(axis=-1)) & np.isfinite(other).all(axis=-1)
        edges = np.cumsum([len(step.committed) for step in pending])[:-1]
        scored = np.cumsum([len(step.scored) for step in pending])[:-1]
        parts = [np.split(values, edges) for values in (_kl_of_logits(z, other), changed)]
        for step, errors, differ, scores in zip(
            pending, *parts, np.split(score, scored), strict=True
        ):
            step.errors.error[:] = errors
            step.errors.changed[:] = differ
            if self._scores is not None:
                step.errors.regret[:] = _less(scores, np.isin(step.scored, step.committed))

    def _plan(self, b: int, pending: list[_Pending]) -> Plan:
        """Return a plan that computes every row of the pending steps. A step is a sequence of the batch."""
        lm = self._lm
        settings = self._settings
        length = len(pending[0].tokens)
        tokens = np.concatenate([step.tokens for step in pending])
        prompt = self._given[b, -length:]
        scored = np.concatenate(
            [step.scored + number * length for number, step in enumerate(pending)]
        )
        # candidates that are followed by a token of the prompt
        inner = scored % length < np.flatnonzero(prompt).max(initial=-1)
        none, candidates = np.zeros((2, len(tokens)), dtype=bool)
        candidates[scored] = True
        banned = [lm.mask_id]
        if settings.suppress_eos and lm.eos_id is not None:
            banned.append(lm.eos_id)
        blind = None
        if settings.cfg_scale > 0:
            blind = np.where(np.tile(prompt, len(pending)), lm.mask_id, tokens)
        barred = barred_ends(inner, lm.ends)
        return Plan(
            step=0,
            slots=np.arange(len(tokens)),
            counts=[length] * len(pending),
            tokens=tokens,
            positions=np.arange(len(tokens)) % length,
            probed=none,
            watches=none,
            compares=none,
            choice=Choice(candidates, self._scores, banned=banned, barred=barred),
            blind=blind,
            cfg_scale=settings.cfg_scale,
        )


def _less(scores: Floats, committed: Flags) -> Floats:
    """Return, [k], the best score of all minus the committed score of the same rank, in the order of `scores`."""
    chosen = scores[committed]
    ranked = np.argsort(-chosen, kind="stable")
    best = np.sort(scores)[::-1][: len(chosen)]
    less = np.empty(len(chosen))
    less[ranked] = best - chosen[ranked]
    return less


def _kl_of_logits(logits: NDArray, other: NDArray) -> Floats:
    """Return KL(p || q) in nats, [K], for p = softmax(logits) and q = softmax(other), both [K, V].

    It is computed as in `kl_divergence`.
    """
    log_p, log_q = (_log_softmax(array.astype(np.float64)) for array in (logits, other))
    difference = log_q - log_p
    return (np.exp(log_p) * (np.expm1(difference) - difference)).sum(axis=-1)


def _log_softmax(logits: Floats) -> Floats:
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
