"""Presets: the named decoders that the page, the arena and `--lane` offer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder, chosen_kinds
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE, TABLES, UNMASK, flat_settings, read_choice, resolved
from surelock.errors import nearest


@dataclass(frozen=True, slots=True)
class Preset:
    """A named decoder."""

    id: str
    name: str
    sentence: str
    given: dict[str, Any]  # in the flat form; the model's generation_config.json sets the rest, else the defaults

    def decoder(self, generation: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> Decoder:
        """Return the decoder for a model.

        generation: the model's generation_config.json, in the flat form.
        shared: settings in the flat form that override it; those of rules that the decoder does not use are ignored.
        """
        values = {name: value for name, value in generation.items() if name != "compute"}
        rules, policy = chosen_kinds(values | self.given)
        owners = {name: each.kind for name, each in flat_settings().items()}
        used = {name: value for name, value in (shared or {}).items() if owners.get(name) in ("", policy, *rules)}
        return recommended(values, used | self.given)


def preset_of(name: str, flag: str = "--lane") -> Preset:
    """Return the preset of a name: one of PRESETS, or one made for a rule or a policy, as `read_choice` reads it.

    A policy's computes every position. Raises ValueError, which names the flag, for any other name.
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
        known = [*(PRESETS | COMPUTE | UNMASK)]
        every = f"one of {', '.join(known)}, or package.module:Class"
        raise ValueError(f"{flag} must be {every}, not {name!r}{nearest(name, known)}")
    given = read_choice(choice, text)
    chosen = [TABLES[choice][kind] for kind in kinds]
    label = " and ".join(each.label for each in chosen) + (f" ({', '.join(pairs)})" if pairs else "")
    return Preset(name, label[:80], " ".join(each.sentence for each in chosen), base | given)


def _preset(id: str, name: str, sentence: str = "", **given: Any) -> Preset:
    """Without a sentence it has those of its rules and its policy."""
    kinds = [(choice, kind) for choice in TABLES for kind in given.get(choice, "").split("+") if kind]
    others = [each for each in kinds if each[1] != Everything.kind] or kinds
    return Preset(id, name, sentence or " ".join(TABLES[choice][kind].sentence for choice, kind in others), given)


_LITERAL = "Algorithm 1 as printed: a position may lock in the step that writes it."
PRESETS: dict[str, Preset] = {
    preset.id: preset
    for preset in (
        _preset("everything", "Every token", compute="everything"),
        _preset("surelock", "SureLock", compute="lock"),
        _preset("literal", "Algorithm 1 to the letter", _LITERAL, compute="lock", visible_steps=0),
        _preset("selection", "Selection", compute="select"),
        _preset("surelock-selection", "SureLock and selection", compute="lock+select"),
        _preset("age", "Lock by age", compute="age"),
        _preset("budget", "Fixed budget", compute="budget"),
        _preset("threshold", "Parallel threshold", compute="everything", unmask="threshold"),
        _preset("surelock-threshold", "SureLock and parallel threshold", compute="lock", unmask="threshold"),
        _preset("dual-cache", "Dual cache", compute="block_cache"),
        _preset("delayed-cache", "Delayed cache", compute="delayed_cache"),
        _preset("entropy-cache", "Entropy cache", compute="entropy_cache"),
        _preset("early-finish", "Early finish", compute="everything", unmask="early_finish"),
        _preset("remask", "Taking back", compute="everything", unmask="remask"),
        _preset("klass", "KLASS", compute="everything", unmask="klass"),
    )
}
