"""Presets: the named decoders that the page, the arena and `--lane` offer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surelock.decoding.choices import Decoder, chosen_kinds
from surelock.decoding.compute import Everything
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE, TABLES, UNMASK, flat_settings, read_choice, resolved
from surelock.errors import nearest


@dataclass(frozen=True, slots=True)
class Preset:
    """A named decoder.

    given: its settings in the flat form. The model's generation_config.json sets the rest, else the defaults.
    """

    id: str
    name: str
    sentence: str
    given: dict[str, Any]

    def decoder(self, generation: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> Decoder:
        """Return the decoder for a model.

        generation: the model's generation_config.json, in the flat form.
        shared: settings in the flat form that override it; those of rules that the decoder does not use are ignored.
        """
        values = {name: value for name, value in generation.items() if name != "compute"}
        rules, policy = chosen_kinds(values | self.given)
        owners = {name: each.kind for name, each in flat_settings().items()}
        own = {name: value for name, value in (shared or {}).items() if owners.get(name) in ("", policy, *rules)}
        return recommended(values, own | self.given)


def preset_of(name: str) -> Preset:
    """Return the preset of a name: one of PRESETS, or one made for a rule or a policy, as `read_choice` reads it.

    A policy's computes every position. Raises ValueError for any other name.
    """
    if name in PRESETS:
        return PRESETS[name]
    text, base = resolved(name), {}
    kinds, pairs = re.findall(r"(?:^|\+)([a-z]\w*)", text), re.findall(r"\w+=[^,]*?(?=,|\+[a-z]|$)", text)
    if kinds and kinds[0] in UNMASK:
        choice, base = "unmask", {"compute": Everything.kind}
    elif kinds and kinds[0] in COMPUTE:
        choice = "compute"
    else:
        known = [*PRESETS, *COMPUTE, *UNMASK]
        every = f"one of {', '.join(known)}, or package.module:Class"
        raise ValueError(f"--lane must be {every}, not {name!r}{nearest(name, known)}")
    given = read_choice(choice, text)
    chosen = [TABLES[choice][kind] for kind in kinds]
    label = " and ".join(each.label for each in chosen) + (f" ({', '.join(pairs)})" if pairs else "")
    return Preset(name, label[:80], " ".join(each.sentence for each in chosen), base | given)


PRESETS: dict[str, Preset] = {
    preset.id: preset
    for preset in (
        Preset(
            "everything",
            "Every token",
            "Computes every position in every step, as LLaDA does.",
            {"compute": "everything"},
        ),
        Preset("surelock", "SureLock", "Stops computing a position once it has converged.", {"compute": "lock"}),
        Preset(
            "literal",
            "SureLock to the letter",
            "Algorithm 1 as printed: a position may lock in the step that writes it.",
            {"compute": "lock", "visible_steps": 0},
        ),
        Preset(
            "selection",
            "Selection",
            "Computes four fifths of the positions in every step: those that were left out the longest.",
            {"compute": "select"},
        ),
        Preset(
            "surelock-selection",
            "SureLock and selection",
            "Locks positions that have converged, and selects from the rest: the paper's hybrid.",
            {"compute": "lock+select"},
        ),
        Preset(
            "age",
            "Lock by age",
            "Locks a position a fixed number of steps after it was written, whatever its posterior: a control.",
            {"compute": "age"},
        ),
        Preset(
            "budget",
            "Fixed budget",
            "Computes three tenths of the positions in every step: near the next tokens, where most has changed.",
            {"compute": "budget"},
        ),
        Preset(
            "threshold",
            "Parallel threshold",
            "Writes all positions at once that are certain enough (Fast-dLLM).",
            {"compute": "everything", "unmask": "threshold"},
        ),
        Preset(
            "surelock-threshold",
            "SureLock and parallel threshold",
            "Fewer steps and fewer rows: writes all certain positions at once, and locks those that have converged.",
            {"compute": "lock", "unmask": "threshold"},
        ),
        Preset(
            "dual-cache",
            "Dual cache",
            "Computes every position when a block begins, then only the block (Fast-dLLM).",
            {"compute": "block_cache"},
        ),
        Preset(
            "delayed-cache",
            "Delayed cache",
            "Computes masked and just written positions, and every position now and then (dKV-Cache).",
            {"compute": "delayed_cache"},
        ),
        Preset(
            "entropy-cache",
            "Entropy cache",
            "Computes masked and the latest positions, and every position after an uncertain token (EntropyCache).",
            {"compute": "entropy_cache"},
        ),
        Preset(
            "early-finish",
            "Early finish",
            "Writes all that is left once the network is sure (Prophet).",
            {"compute": "everything", "unmask": "early_finish"},
        ),
        Preset(
            "remask",
            "Taking back",
            "Takes the least certain tokens back and writes them anew, in twice the steps (ReMDM).",
            {"compute": "everything", "unmask": "remask"},
        ),
        Preset(
            "klass",
            "KLASS",
            "Writes all positions that are certain and have stood still (KLASS).",
            {"compute": "everything", "unmask": "klass"},
        ),
    )
}
