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

    tokenizer: of transformers; None if the checkpoint has none, prompts are then token ids.
    mask_id, pad_id: the ids of the mask and of padding.
    ends: the ids that end a text. The first is EOS, which fills the rest of a text.
    generation: the settings that the family and generation_config.json recommend, a short spelling.
    stop: a text that ends an answer, where no id does; "" is none.
    weights: eight digits of the weights' files, see `digits_of_weights`; "" if unknown.
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
        """The settings that `decode` and `generate` use where none are passed, by the names of flags.

        It may be changed.
        """
        return self.generation

    @property
    def eos_id(self) -> int | None:
        """The id of EOS; None if the model has none."""
        return self.ends[0] if self.ends else None

    @property
    def network(self) -> Network:
        """The torch network. Under ONNX Runtime it is loaded on first use."""
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

        chat: put the prompt into the tokenizer's chat template as a user's turn, with thinking switched off.
        blanks: two or more underscores in a row are as many masks, unless a letter, a digit or a backslash touches
        them, and the tokenizer's own mask token is one. A space before a blank belongs to it. A list behind a blank,
        `__{red|blue|light green}`, says the words that it may become, however many underscores it has. So does a list
        of texts per blank in place of True, [["red", "blue"], None]; None is any word. Ids of a prompt with such
        blanks are `Listed`: they have the masks of the longest words until `surelock.settled` chooses.

        Raises ValueError for what is no text, for a model without a tokenizer or, with chat, without a chat template,
        for a template that cannot be used, for a text with a lone surrogate or that the tokenizer cannot read, and for
        a list that no blank can have.
        """
        encoder = self.encoder
        if blanks is not False:
            lists = None if blanks is True else blanks
            text = encoder.with_blanks(text, self.mask_id, lists)
        if chat and not encoder.tokenizer.chat_template:
            raise ValueError(f"{self.name} has no chat template: use chat=False")
        ids = encoder.encode_turn(text) if chat else encoder.encode(text)
        return (
            self._listed(ids, text.words)
            if isinstance(text, Rendering) and any(text.words)
            else ids
        )

    def _listed(self, ids: list[int], words: Sequence[Words]) -> list[int]:
        """Token ids of a prompt with the lists that begin at its masks."""
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
        """What encodes its texts. Raises ValueError for a model without a tokenizer."""
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

        Texts of parts are not the parts of a text: `written` and `filled` return those.
        """
        return self.encoder.decode([int(i) for i in ids])
