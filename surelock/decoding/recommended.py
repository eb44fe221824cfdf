"""The decoder that a model's generation_config.json recommends."""

from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.spelling import check_owners, flat_settings, kinds_of, unfolded
from surelock.values import Fields, Json


def recommended(generation: Fields, overrides: Fields) -> Decoder:
    """Return the decoder that a model recommends.

    generation: the model's generation_config.json, a short spelling.
    overrides: settings that override it, a short spelling.

    Raises ValueError for a wrong value, and for an override of a kind that is not chosen. The message begins with the
    setting's name.
    """
    overrides = unfolded(overrides)
    values = over_recommended(generation, overrides)
    check_owners(overrides, kinds_of(values))
    return read_decoder(values)


def over_recommended(generation: Fields, overrides: Fields) -> Json:
    """Return the settings of a model, changed by the overrides. Arguments and result are short spellings.

    An override of a setting in a group switches the group on. An override of gen_length or steps drops the model's
    steps, and changes its block_length to `nearest_block`. Raises ValueError for such an override of a wrong kind.
    """
    values = {**unfolded(generation), **overrides}
    known = flat_settings()
    for group in {known[name].group for name in overrides if name in known} - {"", *overrides}:
        values[group] = values.get(group) or True
    if not overrides.keys() & {"gen_length", "steps"}:
        return values
    if "steps" not in overrides:
        values.pop("steps", None)
    if "block_length" not in overrides and (most := values.pop("block_length", None)):
        length = values.get("gen_length", DecodeSettings().gen_length)
        steps = values.get("steps")
        known["gen_length"].setting.checked("gen_length", length)
        known["steps"].setting.checked("steps", steps)
        if block := nearest_block(length, steps or length, most):
            values["block_length"] = block
    return values


def nearest_block(gen_length: int, steps: int, most: int) -> int | None:
    """Return the largest possible block length from half of `most` to `most`, or None (one block) if there is none."""
    blocks = [block for block in block_choices(gen_length, steps, most) if 2 * block >= most]
    return max(blocks, default=None)


def block_choices(gen_length: int, steps: int, most: int | None = None) -> list[int]:
    """Return the block lengths up to `most` that divide `gen_length` into a number of blocks that divides `steps`."""
    longest = gen_length if most is None else min(most, gen_length)
    return [
        block
        for block in range(1, longest + 1)
        if gen_length % block == 0 and steps % (gen_length // block) == 0
    ]
