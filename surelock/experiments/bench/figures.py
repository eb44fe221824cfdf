"""The figures of `bench decode`.

Both samplers are timed as the paper's appendix on runtime metrics defines them: E2E-TPS is unmasked tokens over the
wall-clock time of the decoding calls. A step's time is its median over the repeats, so that outliers do not count; the
spread, and when a ratio is refused, is that of `surelock.experiments.spread`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from surelock.decoding.loop import Step
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.totals import TotalsCounter
from surelock.experiments.roofline import Roofline
from surelock.experiments.spread import Figures, joined, told
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network

#: Refused when their spread is wider than their effect.
RATIOS = ("speedup", "forward_speedup", "commit_error_over_baseline")


def speeds(
    seconds: Mapping[str, Sequence[Sequence[float]]], commit_errors: Sequence[float], tokens: int, flops_ratio: float
) -> Figures:
    """What the times say. seconds: of each sampler ("baseline", "locked") and of its forward alone, [repeats][steps].

    commit_errors: seconds of each repeat. tokens: that a run unmasks.
    """

    def measure(repeats: Sequence[int]) -> Figures:
        steps = {name: np.median([values[r] for r in repeats], axis=0) for name, values in seconds.items()}
        base, locked = steps["baseline"], steps["locked"]
        other = {name: (steps[name] - steps[f"{name} forward"]) / np.median(base) for name in ("baseline", "locked")}
        return {
            "baseline_step_ms": 1e3 * float(np.median(base)),
            "locked_step_ms": 1e3 * float(np.median(locked)),
            "locked_last_step_ms": 1e3 * float(np.median(locked[-len(locked) // 8 :])),
            "baseline_tps": tokens / float(base.sum()),
            "locked_tps": tokens / float(locked.sum()),
            "speedup": float(base.sum() / locked.sum()),
            "forward_speedup": float(steps["baseline forward"].sum() / steps["locked forward"].sum()),
            "baseline_other_share": float(np.median(other["baseline"])),
            "locked_other_share": float(np.mean(other["locked"])),
            "locked_other_share_p90": float(np.quantile(other["locked"], 0.9)),
            "commit_error_over_baseline": float(np.median([commit_errors[r] for r in repeats]) / base.sum()),
        }

    figures = told(measure, len(commit_errors), RATIOS)
    if figures["speedup"] is None:
        return joined(figures, {"efficiency": None, "refused": {"efficiency": "its speedup is refused"}})
    return {**figures, "efficiency": figures["speedup"] * flops_ratio}


def costs(lm: LanguageModel, settings: DecodeSettings, steps: Mapping[str, Sequence[Step]]) -> Figures:
    """What a locked run computes beside the unlocked one; nothing here is a time."""
    totals = {}
    for name, run in steps.items():
        counter = TotalsCounter(lm.network.config, settings.gen_length, lm.eos_id)
        for step in run:
            counter.add(step)
        totals[name] = counter.totals()
    return {
        "tokens": totals["locked"].tokens,
        "flops_ratio": totals["locked"].flops_ratio,
        "active_ratio": totals["locked"].active_ratio,
        "active_ratio_to_eos": totals["locked"].active_ratio_to_eos,
    }


def rooflines(network: Network, steps: Mapping[str, Sequence[Step]]) -> Figures:
    """The least that the device could take for each run, from its own measured rates."""
    roofline = Roofline.measure(network)
    figures = {"copy_bandwidth_gb_s": roofline.bandwidth / 1e9, "matmul_tflop_s": roofline.rate / 1e12}
    for name, run in steps.items():
        bounds = [roofline.seconds(float(s.flops.sum()), int(s.computed.sum())) for s in run]
        figures[f"{name}_roofline_step_ms"] = 1e3 * float(np.median(bounds))
        figures[f"{name}_roofline_tps"] = float(sum(int(s.newly_unmasked.sum()) for s in run) / sum(bounds))
    return figures
