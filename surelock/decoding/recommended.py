"""The decoder that a model's generation_config.json recommends."""

from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.spelling import check_owners, flat_settings, kinds_of, unfolded
from surelock.values import Fields, Json


def recommended(generation: Fields, given: Fields) -> Decoder:
    """Return the decoder that a model recommends.

    generation: the model's generation_config.json, a short spelling.
    given: one that overrides it.

    Raises ValueError, which begins with the setting's name, also for a given setting of a kind that is not chosen,
    whatever its value.
    """
    given = unfolded(given)
    values = over_recommended(generation, given)
    check_owners(given, kinds_of(values))
    return read_decoder(values)


def over_recommended(generation: Fields, given: Fields) -> Json:
    """Return the settings of a model, overridden by the given ones. Both are short spellings.

    A given setting of a group asks for the group. A given gen_length or steps drops the model's steps, and changes its
    block_length to `nearest_block`.
    """
    values = {**unfolded(generation), **given}
    known = flat_settings()
    for group in {known[name].group for name in given if name in known} - {"", *given}:
        values[group] = values.get(group) or True
    if not given.keys() & {"gen_length", "steps"}:
        return values
    if "steps" not in given:
        values.pop("steps", None)
    if "block_length" not in given and (most := values.pop("block_length", None)):
        length = values.get("gen_length", DecodeSettings().gen_length)
        if block := nearest_block(length, values.get("steps") or length, most):
            values["block_length"] = block
    return values


def nearest_block(gen_length: int, steps: int, most: int) -> int | None:
    """Return the largest possible block length from half of `most` to `most`; None, which is one block, without one."""
    return max(
        (block for block in block_choices(gen_length, steps, most) if 2 * block >= most),
        default=None,
    )


def block_choices(gen_length: int, steps: int, most: int | None = None) -> list[int]:
    """Return the block lengths up to `most` that divide `gen_length` into a number of blocks that divides `steps`."""
    blocks = range(1, gen_length + 1 if most is None else min(most, gen_length) + 1)
    return [
        block for block in blocks if gen_length % block == 0 and steps % (gen_length // block) == 0
    ]
