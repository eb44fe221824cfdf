"""Readings of no network: numbers drawn from a seed, in the shape that a plan asks for."""

import numpy as np

from surelock.decoding.step import Plan, Reading


def made_up(plan: Plan, rng: np.random.Generator, vocab_size: int) -> Reading:
    """What an engine could have found: tokens that are not banned, KLs that mostly fall."""
    count = len(plan.slots)
    candidates = int(plan.choice.rows.sum())
    read = plan.watches | plan.choice.rows | plan.observe
    confidence = np.where(read, rng.random(count), np.nan)
    kl = np.where(plan.compares | plan.observe, 10.0 ** rng.uniform(-8, 0, count), np.nan)
    kl[(plan.step == 0) & ~np.isnan(kl)] = np.inf
    tokens = rng.choice(
        [token for token in range(vocab_size) if token not in plan.choice.banned], candidates
    )
    top = np.full((count, plan.top_k), 2), np.full((count, plan.top_k), 0.1)
    score = rng.random(candidates)
    most = {"entropy": -3, "gap": 3, "input": 1}
    measures = {name: most[name] * rng.random(candidates) for name in plan.choice.measures}
    return Reading(plan.slots, plan.probed, confidence, kl, tokens, score, *top, measures)
