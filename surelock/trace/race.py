"""Two decoders in lockstep: the baseline and SureLock, one step each in turn, each timed on its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from surelock.decoding.loop import Step, decode
from surelock.decoding.settings import DecodeSettings, LockRule
from surelock.model.language_model import LanguageModel
from surelock.trace.format import DECODERS, TOP_K, unit_to_bytes

Facts = dict[str, Any]


def race(
    lm: LanguageModel, prompt: list[int], settings: DecodeSettings, rule: LockRule, *, alone: bool = False
) -> Iterator[list[Facts]]:
    """Decode one prompt (token ids) with and without ``rule``, yielding the facts of a step of each (one alone once
    the other has finished).

    ``alone`` leaves the baseline out, and likely tokens with it.

    The two alternate which goes first, so that neither always finds the warmer machine. ``seconds`` excludes what
    observing costs.
    Raises what ``surelock.decode`` raises.
    """
    top_k = 0 if alone else min(TOP_K, lm.network.config.vocab_size)
    rules = {"surelock": rule} if alone else dict(zip(DECODERS, (None, rule), strict=True))
    runs = {name: decode(lm, [prompt], settings, lock=lock, observe=True, top_k=top_k) for name, lock in rules.items()}
    for turn in range(settings.total_steps):
        order = list(runs) if turn % 2 == 0 else list(runs)[::-1]
        steps = {name: next(runs[name], None) for name in order}
        pair = [facts(name, step) for name in runs if (step := steps[name]) is not None]
        if not pair:
            return
        yield pair


def facts(decoder: str, step: Step) -> Facts:
    """What a trace keeps of a step of a batch of one, as plain numbers and arrays: it can cross to another process.

    Lists of positions are int64 arrays. kl, confidence: float32 [R] over the R computed positions; top_ids int32 and
    top_p uint8 [R, top_k] or None.
    """
    computed = step.computed[0].numpy()
    unmasked = np.flatnonzero(step.newly_unmasked[0].numpy())
    top = (
        None
        if step.top_ids is None or step.top_probs is None
        else (step.top_ids[0].numpy()[computed], step.top_probs[0].numpy()[computed])
    )
    return {
        "decoder": decoder,
        "step": step.index,
        "unmasked": unmasked,
        "tokens": step.tokens[0].numpy()[unmasked],
        **{key: np.flatnonzero(getattr(step, f"newly_{key}")[0].numpy()) for key in ("locked", "unlocked")},
        "probed": np.flatnonzero(step.probed[0].numpy()),
        "computed": computed,
        "kl": step.kl[0].numpy()[computed].astype(np.float32),
        "confidence": step.confidence[0].numpy()[computed].astype(np.float32),
        "top_ids": None if top is None else top[0].astype(np.int32),
        "top_p": None if top is None else unit_to_bytes(top[1]),
        "seconds": step.seconds,
        "flops": float(step.flops[0]),
        "baseline_flops": float(step.baseline_flops[0]),
    }
