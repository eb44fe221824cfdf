"""/decode: the public streaming endpoint, for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from surelock.ui.device import Decoder
from surelock.ui.models import Models, NotReady
from surelock.ui.request import Job, read_job


def make_endpoint(models: Models, decoder: Decoder, most: int) -> Callable[..., Iterator[dict[str, Any]]]:
    """The function behind /decode."""

    def decode(
        prompt: str,
        gen_length: int = 64,
        steps: int = 0,
        epsilon: float = 5e-4,
        percentile: float = 20.0,
        visible_steps: int = 1,
        block_length: int = 0,
        temperature: float = 0.0,
        cfg_scale: float = 0.0,
        remasking: str = "low_confidence",
        seed: int = 0,
        suppress_eos: bool = False,
        suppress_eos_confidence: bool = False,
        chat: bool = False,
        model: str = "",
        no_repeat_ngram_size: int = 0,
    ) -> Iterator[dict]:
        """Decode one prompt with SureLock, yielding one dict per step and a last one with the texts and totals.

        0 steps or block_length means gen_length; epsilon below 0 never locks (the baseline); an empty model is the
        server's first.
        """
        label = models.labels[0] if model == "" else model
        given = {
            "gen_length": gen_length,
            "steps": steps or None,
            "epsilon": epsilon,
            "percentile": percentile,
            "visible_steps": visible_steps,
            "block_length": block_length or None,
            "temperature": temperature,
            "cfg_scale": cfg_scale,
            "remasking": remasking,
            "seed": seed,
            "suppress_eos": suppress_eos,
            "suppress_eos_confidence": suppress_eos_confidence,
            "no_repeat_ngram_size": no_repeat_ngram_size,
        }
        try:
            lm = models.get(label)
            job = read_job(lm, label, prompt, chat, given, min(most, lm.network.config.max_length))
            yield from _steps(lm, job, decoder)
        except (NotReady, ValueError, ArithmeticError) as error:
            raise gr.Error(str(error), print_exception=False) from error

    return decode


def _steps(lm: Any, job: Job, decoder: Decoder) -> Iterator[dict[str, Any]]:
    from surelock.decoding.loop import cut_at_eos

    length = len(job.tokens) + job.settings["gen_length"]
    canvas = [*job.tokens, *[lm.mask_id] * job.settings["gen_length"]]
    locked, total = 0, {"seconds": 0.0, "flops": 0.0, "baseline_flops": 0.0, "rows": 0, "steps": 0}
    for (facts,) in decoder(job.label, job.tokens, job.settings, job.rule, True):
        for position, token in zip(facts["unmasked"].tolist(), facts["tokens"].tolist(), strict=True):
            canvas[position] = token
        locked += len(facts["locked"]) - len(facts["unlocked"])
        rows = int(facts["computed"].sum())
        for key, value in (
            ("seconds", facts["seconds"]),
            ("flops", facts["flops"]),
            ("baseline_flops", facts["baseline_flops"]),
            ("rows", rows),
            ("steps", 1),
        ):
            total[key] += value
        yield {
            "step": facts["step"],
            "unmasked": [
                {"position": p, "token": t}
                for p, t in zip(facts["unmasked"].tolist(), facts["tokens"].tolist(), strict=True)
            ],
            "newly_locked": facts["locked"].tolist(),
            "locked": locked,
            "computed": rows,
            **{key: facts[key] for key in ("seconds", "flops", "baseline_flops")},
        }
    yield {
        "done": True,
        "texts": [lm.decode(cut_at_eos(canvas[len(job.tokens) :], lm.eos_id))] if lm.tokenizer is not None else [],
        "tokens": canvas,
        "steps": total["steps"],
        "seconds": total["seconds"],
        "flops": total["flops"],
        "flops_ratio": total["flops"] / total["baseline_flops"],
        "active_ratio": total["rows"] / (length * total["steps"]),
    }
