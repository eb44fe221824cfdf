"""The ids of mask, padding and ends. Several files of a checkpoint may name them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surelock.errors import CheckpointError, shown
from surelock.model.families import CONFIG, GENERATION, Family, read_json
from surelock.values import Fields, Json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ENDS_OF_TURN = ("<|eot_id|>", "<|im_end|>")  # LLaDA's and Qwen's
_END_OF_TEXT = "<|endoftext|>"  # Qwen's
_MASK = "mask_token_id"
_END = "eos_token_id"
_MASKS = ("<|mdm_mask|>", "[MDM_MASK]", "<|mask|>", "<|MASK|>", "<[MASK]>", "<MASK>", "[MASK]")


def special_ids(
    config: Fields,
    vocab_size: int,
    tokenizer: PreTrainedTokenizerBase | None,
    family: Family,
    directory: Path,
) -> Json:
    """Return `mask_id`, `pad_id` and `ends` of a checkpoint, by these names.

    A file may name an id, a list of ids, or no id (null, -1, an empty list). Ends and padding come from config.json and
    generation_config.json, or from the tokenizer if these files name none. If the vocabulary has an end of turn, it is
    added as the last end. The first end fills the rest of a text. If the named ends begin with the end of turn, the
    end of text is put before it, or the next named end if the vocabulary has no end of text. If no end is named and
    the vocabulary has no end of turn, the end of text is the only end.

    Raises CheckpointError for an id that the network does not have, for no mask or several masks, and for a mask or an
    end in the files that is ordinary text in the tokenizer.
    """

    def read(name: str, value: Any) -> list[int]:
        listed = value if isinstance(value, list) else [value]
        ids = [
            token
            for token in listed
            if token is not None and not (type(token) is int and token == -1)
        ]
        for token in ids:
            if type(token) is not int or not 0 <= token < vocab_size:
                wanted = f"a whole number from 0 to {vocab_size - 1}"
                raise CheckpointError(f"{directory}: {name} must be {wanted}, not {shown(value)}")
        return ids

    file = directory / GENERATION
    files = {CONFIG: config, GENERATION: read_json(file) if file.is_file() else {}}

    def find(name: str) -> list[int]:
        tokens = [token for source in files.values() for token in read(name, source.get(name))]
        return tokens or read(name, getattr(tokenizer, name, None))

    added: dict[str, int] = getattr(tokenizer, "get_added_vocab", dict)()
    sources = {f"{name}'s {_MASK}": content.get(_MASK) for name, content in files.items()}
    sources[f"the tokenizer's {_MASK}"] = getattr(tokenizer, _MASK, None)
    if family.mask_id is not None:
        sources[f"the architecture of {family.model_type}"] = family.mask_id % vocab_size
    sources |= {f"the token {token}": added.get(token) for token in _MASKS}
    mask_id = _one({source: read(_MASK, value) for source, value in sources.items()}, directory)
    if tokenizer is not None:
        for (name, content), key in product(files.items(), (_MASK, _END)):
            for token in read(key, content.get(key)):
                _check_special(f"{name}'s {key}", token, tokenizer, directory)
    ends = _ends(find(_END), {} if tokenizer is None else tokenizer.get_vocab())
    return {"mask_id": mask_id, "pad_id": [*find("pad_token_id"), *ends, mask_id][0], "ends": ends}


def _check_special(source: str, token: int, tokenizer: Any, directory: Path) -> None:
    """Raise CheckpointError for an id of a mask or an end that is ordinary text in the tokenizer.

    The tokenizer need not know the mask, but it must know an end. source: the file and key that name the id.
    """
    piece = tokenizer.convert_ids_to_tokens(token)
    is_special = token in tokenizer.all_special_ids or token in tokenizer.get_added_vocab().values()
    if is_special or (piece is None and source.endswith(_MASK)):
        return
    what = "no piece" if piece is None else f"the text {shown(tokenizer.decode([token]))}"
    why = "they belong to two models: name the model's tokenizer (--tokenizer), or correct the file"
    raise CheckpointError(
        f"{directory}: {source} is {token}, which is {what} in the tokenizer; {why}"
    )


def _ends(ends: list[int], vocabulary: Mapping[str, int]) -> tuple[int, ...]:
    """Return all ends of a text: those that files or tokenizer name, and what `special_ids` adds to them.

    ends: the named ends, in order. vocabulary: the id of every piece of the tokenizer.
    """
    turn = next((vocabulary[token] for token in _ENDS_OF_TURN if token in vocabulary), None)
    if turn is None:
        if not ends and _END_OF_TEXT in vocabulary:
            ends = [vocabulary[_END_OF_TEXT]]
        return tuple(dict.fromkeys(ends))
    if ends[:1] == [turn]:
        other = next((token for token in ends if token != turn), turn)
        ends = [vocabulary.get(_END_OF_TEXT, other), *ends]
    return tuple(dict.fromkeys([*ends, turn]))


def _one(masks: Mapping[str, list[int]], directory: Path) -> int:
    """Return the id of the mask. masks: by source, the ids that it names. Raises CheckpointError unless they agree."""
    named = [(token, source) for source, tokens in masks.items() for token in tokens]
    if not named:
        raise CheckpointError(
            f"{directory} has no mask token: neither {CONFIG} nor the tokenizer gives a {_MASK}"
        )
    if len({token for token, _ in named}) > 1:
        sentence = ", ".join(f"{token} by {source}" for token, source in named)
        raise CheckpointError(f"{directory} names more than one mask token: {sentence}")
    return named[0][0]
