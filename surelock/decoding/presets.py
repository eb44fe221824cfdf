"""Presets: the named decoders that the page and `--lane` offer."""

from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.outside import import_rules
from surelock.decoding.recommended import over_recommended
from surelock.decoding.rules import COMPUTE, UNMASK, class_of, find_class
from surelock.decoding.spelling import parts_of, unfolded
from surelock.errors import nearest
from surelock.values import Fields, frozen


@frozen
class Preset:
    """A named decoder.

    id: its name in flags and links. name: its name on the page. sentence: what it does, in one sentence.
    choices: a short spelling of its rule and its policy. Other settings come from the model's generation_config.json,
    or are the defaults.
    """

    id: str
    name: str
    sentence: str
    choices: dict[str, str]

    def decoder(self, generation: Fields, shared: Fields | None = None) -> Decoder:
        """Return the decoder for a model.

        generation: the model's generation_config.json, a short spelling.
        shared: a short spelling that overrides it. Settings of rules that the decoder does not use are ignored.
        """
        values = {name: value for name, value in generation.items() if name != "compute"}
        return read_decoder(over_recommended(values, {**(shared or {}), **unfolded(self.choices)}))


def preset_of(name: str, flag: str = "--lane") -> Preset:
    """Return the preset of a name: one of PRESETS, or a new one for a rule or a policy in the spelling of `--compute`.

    The preset of a policy computes every position. Raises ValueError, which names the flag, for any other name.
    """
    if name in PRESETS:
        return PRESETS[name]
    import_rules(name)
    kind = parts_of(name)[0][0]
    if find_class("compute", kind):
        return _preset(name, "", compute=name)
    if find_class("unmask", kind):
        return _preset(name, "", compute=Everything.kind, unmask=name)
    known = [*(PRESETS | COMPUTE | UNMASK)]
    every = f"one of {', '.join(known)}, or package.module:Class"
    raise ValueError(f"{flag} must be {every}, not {name!r}{nearest(name, known)}")


def _preset(id: str, name: str, sentence: str = "", **choices: str) -> Preset:
    """Return a preset. An empty name or sentence is made from the labels or sentences of its rules and its policy."""
    parts = []
    for choice, text in choices.items():
        parts += [(class_of(choice, kind), pairs) for kind, pairs in parts_of(text)]
    parts = [part for part in parts if part[0] is not Everything] or parts
    label = " and ".join(kind.label for kind, _ in parts)
    if values := ", ".join(pair for _, pairs in parts for pair in pairs):
        label += f" ({values})"
    return Preset(
        id, name or label[:80], sentence or " ".join(kind.sentence for kind, _ in parts), choices
    )


_LITERAL = "Algorithm 1 as printed: a position may lock in the step that writes it."
PRESETS: dict[str, Preset] = {
    preset.id: preset
    for preset in (
        _preset("everything", "Every token", compute="everything"),
        _preset("surelock", "SureLock", compute="lock"),
        _preset("literal", "Algorithm 1 to the letter", _LITERAL, compute="lock,visible_steps=0"),
        _preset("selection", "Selection", compute="select"),
        _preset("surelock-selection", "SureLock and selection", compute="lock+select"),
        _preset("age", "Lock by age", compute="age"),
        _preset("budget", "Fixed budget", compute="budget"),
        _preset("threshold", "Parallel threshold", compute="everything", unmask="threshold"),
        _preset(
            "surelock-threshold",
            "SureLock and parallel threshold",
            compute="lock",
            unmask="threshold",
        ),
        _preset("dual-cache", "Dual cache", compute="block_cache"),
        _preset("delayed-cache", "Delayed cache", compute="delayed_cache"),
        _preset("entropy-cache", "Entropy cache", compute="entropy_cache"),
        _preset("early-finish", "Early finish", compute="everything", unmask="early_finish"),
        _preset("remask", "Taking back", compute="everything", unmask="remask"),
        _preset("klass", "KLASS", compute="everything", unmask="klass"),
    )
}
