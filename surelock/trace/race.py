"""A race: lanes take turns step by step, and each step is timed by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surelock.decoding.ends import text_of
from surelock.decoding.loop import decode
from surelock.decoding.step import Step
from surelock.model.language_model import LanguageModel
from surelock.quality.commit_error import CommitError, Shadow
from surelock.quality.judge import Judge, Score
from surelock.trace.format import TOP_K, unit_to_bytes
from surelock.trace.lanes import Lane, StepsOver, check_field

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one step that a trace keeps, as plain data that can be sent to another process.

    lane: the id of the lane. step: the number of the step.
    unmasked, tokens: [k] int64, the committed positions and their tokens.
    written, written_tokens: [k] int64, the positions that events wrote, and their tokens.
    masked, locked, unlocked, probed: int64, positions.
    computed: [N] bool.
    kl, confidence: [R] float32, of the R computed positions.
    top_ids: [R, k] int32; top_p: [R, k] uint8, probabilities times 255; None if likely tokens were not asked for.
    seconds, flops, baseline_flops: those of `Step`.
    """

    lane: str
    step: int
    unmasked: Positions
    tokens: Positions
    written: Positions
    written_tokens: Positions
    masked: Positions
    locked: Positions
    unlocked: Positions
    probed: Positions
    computed: NDArray[np.bool_]
    kl: NDArray[np.float32]
    confidence: NDArray[np.float32]
    top_ids: NDArray[np.int32] | None
    top_p: NDArray[np.uint8] | None
    seconds: float
    flops: float
    baseline_flops: float

    def write_to(self, canvas: list[int], mask_id: int) -> None:
        """Update the token ids of a sequence from the step before to this one."""
        for position in self.masked.tolist():
            canvas[position] = mask_id
        for positions, tokens in ((self.written, self.written_tokens), (self.unmasked, self.tokens)):
            for position, token in zip(positions.tolist(), tokens.tolist(), strict=True):
                canvas[position] = token


@dataclass(frozen=True, slots=True)
class Errors:
    """The commit errors of a lane."""

    lane: str
    commits: CommitError


@dataclass(frozen=True, slots=True)
class Judged:
    """The score of a lane's text. judge: the name of the judge."""

    lane: str
    judge: str
    score: Score


Told = Facts | StepsOver | Errors | Judged
UNREAD = Score((), (), 0)  # of a text that is too long for the judge


def race(
    lm: LanguageModel,
    prompt: list[int],
    lanes: Sequence[Lane],
    *,
    top: bool = True,
    errors: bool = False,
    judge: Judge | None = None,
) -> Iterator[list[Told]]:
    """Decode one prompt with each lane. Yields a list of facts for each round, one step of every lane that still runs.

    prompt: token ids.
    lanes: one to four decoders.
    top: report likely tokens.
    errors: after the last round, yield StepsOver, then the commit errors of each lane.
    judge: then yield its scores of the texts; a text that is too long for it scores nothing.

    The lanes take turns in going first, so that none always runs on warm caches. `seconds` excludes observation. Raises
    ValueError for lanes that cannot race together, and what `surelock.decode` raises.
    """
    check_field(lanes)
    top_k = min(TOP_K, lm.config.vocab_size) if top else 0
    runs = {
        lane.id: decode(lm, [prompt], **lane.decoder.keywords(), observe=True, top_k=top_k, keep_logits=errors)
        for lane in lanes
    }
    shadows = {lane.id: Shadow(lm, lane.decoder.settings) for lane in lanes} if errors else {}
    length = lanes[0].decoder.settings.gen_length
    canvases = {own: [*prompt, *[lm.mask_id] * length] for own in runs}
    ids, turn = list(runs), 0
    while True:
        first = turn % len(ids)
        steps = {own: next(runs[own], None) for own in ids[first:] + ids[:first]}
        told = [facts(own, step) for own in ids if (step := steps[own]) is not None]
        if not told:
            if errors:
                yield [StepsOver()]
            break
        yield [*told]
        for each in told:
            each.write_to(canvases[each.lane], lm.mask_id)
        for own, shadow in shadows.items():
            if (step := steps[own]) is not None:
                shadow.add(step)
        turn += 1
    for own, shadow in shadows.items():
        yield [Errors(own, shadow.result())]
    if judge is not None and lm.tokenizer is not None:
        texts = {own: text_of(lm, canvas[-length:]) for own, canvas in canvases.items()}
        read = [own for own, text in texts.items() if judge.reads(text)]
        scores = dict(zip(read, judge.scores([(lm.decode(prompt), texts[own]) for own in read]), strict=True))
        yield [Judged(own, judge.name, scores.get(own, UNREAD)) for own in ids]


def facts(lane: str, step: Step) -> Facts:
    """Return the facts of a step of a batch of one."""
    computed, tokens = step.computed[0], step.tokens[0]

    def where(name: str) -> Positions:
        return np.flatnonzero(getattr(step, name)[0])

    top_ids = top_p = None
    if step.top_ids is not None and step.top_probs is not None:
        top_ids = step.top_ids[0][computed].astype(np.int32)
        top_p = unit_to_bytes(step.top_probs[0][computed])
    unmasked, written = where("newly_unmasked"), where("written")
    return Facts(
        lane=lane,
        step=step.index,
        unmasked=unmasked,
        tokens=tokens[unmasked],
        written=written,
        written_tokens=tokens[written],
        masked=where("newly_masked"),
        locked=where("newly_locked"),
        unlocked=where("newly_unlocked"),
        probed=where("probed"),
        computed=computed,
        kl=step.kl[0][computed].astype(np.float32),
        confidence=step.confidence[0][computed].astype(np.float32),
        top_ids=top_ids,
        top_p=top_p,
        seconds=step.seconds,
        flops=float(step.flops[0]),
        baseline_flops=float(step.baseline_flops[0]),
    )
