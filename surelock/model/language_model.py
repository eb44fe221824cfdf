"""A network with its tokenizer and the ids of its special tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import torch

from surelock.config import NetworkConfig, Shape
from surelock.decoding.word_lists import Listed, WordList
from surelock.model.encoding import Encoder, Lists, Rendering, Words
from surelock.values import Json, frozen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from surelock.decoding.step import Engine
    from surelock.model.network import Network


@frozen
class LanguageModel:
    """A masked diffusion language model, as `surelock.load` returns it.

    name: the model's name, as it was passed to `surelock.load`.
    engine: computes the rows of runs.
    tokenizer: a tokenizer of transformers; None if the checkpoint has none. Prompts are then token ids.
    mask_id, pad_id: the ids of the mask and of padding.
    ends: the ids that end a text. The first is EOS. The model itself writes the positions after an end; with
    `stop_at_end` the run fills those that are still masked with that end, see surelock/decoding/stopping.py.
    generation: the recommended settings of the family and generation_config.json, as a flat mapping of setting names,
    see surelock/decoding/spelling.py.
    stop: the text that ends an answer, if no token id does; "" if there is no such text.
    weights: eight hexadecimal digits of a hash that identifies the weights' files, see `digits_of_weights`; "" if
    unknown.
    shape: the network's shape and the special tokens, as a run needs them.
    """

    name: str
    engine: Engine
    tokenizer: PreTrainedTokenizerBase | None
    mask_id: int
    pad_id: int
    ends: tuple[int, ...] = ()
    generation: Json = field(default_factory=dict)
    stop: str = ""
    weights: str = ""
    shape: Shape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = Shape(self.engine.config, self.mask_id, self.pad_id, self.ends)
        object.__setattr__(self, "shape", shape)

    @property
    def recommended(self) -> Json:
        """The recommended settings, keyed by flag name.

        `surelock.decode` and `surelock.generate` take from here whatever is not passed. Changes of this mapping take
        effect in later calls.
        """
        return self.generation

    @property
    def eos_id(self) -> int | None:
        """The id of EOS; None if the model has none."""
        return self.ends[0] if self.ends else None

    @property
    def network(self) -> Network:
        """The torch network. Under ONNX Runtime it is loaded at the first access."""
        return self.engine.network

    @property
    def config(self) -> NetworkConfig:
        """The shape of the network."""
        return self.engine.config

    @property
    def device(self) -> torch.device:
        """The device of the logits."""
        return torch.device(self.engine.device)

    @property
    def dtype(self) -> str:
        """The dtype of the computation, such as "float32"."""
        return str(self.engine.dtype).removeprefix("torch.")

    def encode(self, text: str, chat: bool = False, blanks: bool | Lists = False) -> list[int]:
        """Return the token ids of a text. Text that spells a special token is encoded as text.

        chat: put the text into the tokenizer's chat template as a user's turn, with thinking switched off.
        blanks: whether blanks become masks.
        - n underscores in a row, n at least 2, become n masks, unless a letter, a digit or a backslash touches them.
        - The text of the tokenizer's mask token becomes one mask.
        - One space before a blank is removed with the blank: the token that fills the blank brings the space.
        - A list after a blank, `__{red|blue|light green}`, contains the words that the blank may become. The number of
          underscores then has no effect.
        - blanks may also be a list with an entry per blank, such as [["red", "blue"], None]. An entry is a list of
          words, which replaces a list in the text, or None to keep the text's list (any words if the text has none).

        The ids of a text whose blanks have lists are `Listed`. A blank has as many masks as its longest word has
        tokens, until `surelock.settled` chooses a number.

        Raises ValueError for:
        - a value that is no text, and a text that has a lone surrogate;
        - a model without a tokenizer, and with chat a model without a chat template;
        - a text that the tokenizer cannot read, and a template that cannot be used;
        - a text that the tokenizer or the template makes far longer;
        - a wrong list, and more or fewer entries in `blanks` than blanks;
        - lists together with a chat template that has masks.
        """
        encoder = self.encoder
        if blanks is not False:
            lists = None if blanks is True else blanks
            text = encoder.with_blanks(text, self.mask_id, lists)
        if chat and not encoder.tokenizer.chat_template:
            raise ValueError(f"{self.name} has no chat template: use chat=False")
        ids = encoder.encode_turn(text) if chat else encoder.encode(text)
        if isinstance(text, Rendering) and any(text.words):
            return self._listed(ids, text.words)
        return ids

    def _listed(self, ids: list[int], words: Sequence[Words]) -> list[int]:
        """Return the token ids of a prompt with lists.

        words: one entry per mask: the token ids of the listed words if a blank with a list begins at this mask,
        otherwise ().

        Raises ValueError if the chat template has masks.
        """
        masks = [position for position, token in enumerate(ids) if token == self.mask_id]
        if len(masks) != len(words):
            raise ValueError(
                f"the chat template of {self.name} has masks: blanks from a list cannot be told from them"
            )
        lists = [
            WordList(start, listed) for start, listed in zip(masks, words, strict=True) if listed
        ]
        return Listed(ids, lists, self.mask_id)

    @property
    def encoder(self) -> Encoder:
        """The `Encoder` for the model's texts. Raises ValueError for a model without a tokenizer."""
        if self.tokenizer is None:
            ways = "name one (--tokenizer), put tokenizer.json beside its weights, or give lists of token ids in Python"
            raise ValueError(f"{self.name} has no tokenizer, which texts need: {ways}")
        return Encoder(
            self.name,
            self.tokenizer,
            frozenset({self.mask_id, self.pad_id, *self.ends}),
            self.mask_id,
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of token ids without special tokens. Raises ValueError for a model without a tokenizer.

        Decoding two halves of a sequence separately and joining the texts may not give the text of the whole. To get
        part of a text, use `surelock.written` or `surelock.filled`.
        """
        return self.encoder.decode([int(i) for i in ids])
