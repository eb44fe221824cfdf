"""The settings that a checkpoint recommends, from its generation_config.json and from its family."""

from pathlib import Path

from surelock.config import NetworkConfig
from surelock.decoding.recommended import over_recommended, recommended
from surelock.decoding.settings import DecodeSettings, described
from surelock.decoding.state import check_blocks
from surelock.errors import CheckpointError
from surelock.model.families import GENERATION, Family, read_json
from surelock.values import Fields, Json

_SHARED = dict(described(DecodeSettings))


def generation_of(family: Family, shape: NetworkConfig, directory: Path) -> Json:
    """Return the settings that a checkpoint recommends, a short spelling.

    Settings of its generation_config.json have precedence over settings of its family.
    - null means that a setting is missing, and `max_new_tokens` is read as `gen_length`.
    - If the file has steps but no length, the length is at least the number of steps.
    - A block-causal network has fixed blocks, so the family's `block_length` is left out.
    - A file with `do_sample` was written for next-token sampling, so its temperature is ignored.

    Raises CheckpointError, which names the file, for a damaged file and for impossible settings.
    """
    file = directory / GENERATION
    values = dict(family.generation)
    if shape.block_size is not None:
        values.pop("block_length", None)
    if not file.is_file():
        return values
    values_of_file = {name: value for name, value in read_json(file).items() if value is not None}
    if "do_sample" in values_of_file:
        values_of_file.pop("temperature", None)
    try:
        values = over_recommended(values, _with_length(values_of_file, values, shape.max_length))
        check_blocks(recommended(values, {}).settings)
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from error
    return values


def _with_length(values: Json, family: Fields, most: int) -> Json:
    """Return the settings of a file with `gen_length`, which transformers calls max_new_tokens.

    family: settings of the family. most: the largest number of positions of the network. Raises ValueError.
    """
    for name in _SHARED.keys() & values.keys():
        _SHARED[name].checked(name, values[name])
    if "max_new_tokens" in values:
        length = _SHARED["gen_length"].checked("max_new_tokens", values["max_new_tokens"])
        if values.setdefault("gen_length", length) != length:
            raise ValueError(
                f"gen_length ({values['gen_length']}) and max_new_tokens ({length}) must be the same"
            )
    elif values.get("steps", 0) > values.get(
        "gen_length", family.get("gen_length", DecodeSettings().gen_length)
    ):
        values.setdefault("gen_length", values["steps"])
    if values.get("gen_length", 1) < 1:
        raise ValueError(
            f"gen_length ({values['gen_length']}) must be at least 1 where a checkpoint recommends it"
        )
    if values.get("gen_length", 1) >= most:
        raise ValueError(
            f"gen_length ({values['gen_length']}) leaves no room for a prompt in {most} positions"
        )
    return values
