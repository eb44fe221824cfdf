"""A network with its tokenizer and the ids of its special tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import torch

from surelock.model.errors import first_line
from surelock.model.network import Network
from surelock.model.packed import PackedForward

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


#: A tokenizer keeps from call to call whether it reads special tokens: one text at a time.
_ENCODING = Lock()


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """What `surelock.load` returns.

    name: what was loaded. network: its Transformer. tokenizer: None when the directory has none (prompts are then token
    ids). mask_id, eos_id, eot_id (end of turn), pad_id: token ids, None where the model has none (mask_id always is).
    generation: what the model's own generation_config.json recommends; the library's defaults do not depend on it.
    buckets, compiled: of `PackedForward`.
    """

    name: str
    network: Network
    tokenizer: PreTrainedTokenizerBase | None
    mask_id: int
    eos_id: int | None
    eot_id: int | None
    pad_id: int
    generation: dict[str, Any] = field(default_factory=dict)
    buckets: tuple[int, ...] = ()
    compiled: bool = False

    @property
    def device(self) -> torch.device:
        """Where logits come out and everything but the network's blocks runs; the blocks may lie elsewhere."""
        return self.network.head_weight.device

    def packed(self, slots: int) -> PackedForward:
        """A run's packed forward over so many positions of its batch, nothing cached yet."""
        return PackedForward(self.network, slots, self.buckets, self.compiled)

    def encode(self, text: str, chat: bool = False) -> list[int]:
        """Token ids of a text; chat=True puts it as a user's turn into the tokenizer's chat template.

        Text that spells a special token is text, except inside a chat template. Raises ValueError without a tokenizer,
        for half of a character and, for chat, without a template.
        """
        tokenizer = self._tokenizer()
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("prompt is no UTF-8 text: it holds half of a character (a lone surrogate)") from None
        if not chat:
            with _ENCODING:
                return list(tokenizer(text, split_special_tokens=True)["input_ids"])
        if not tokenizer.chat_template:
            raise ValueError(f"{self.name} has no chat template: use chat=False")
        turn = [{"role": "user", "content": text}]
        from jinja2 import TemplateError

        try:
            with _ENCODING:
                ids = tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False)
        except TemplateError as error:
            raise ValueError(f"the chat template of {self.name} cannot be used: {first_line(error)}") from error
        return cast("list[int]", ids)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of token ids, special tokens left out. Raises ValueError without a tokenizer."""
        return str(self._tokenizer().decode([int(i) for i in ids], skip_special_tokens=True))

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer: give prompts as lists of token ids")
        return self.tokenizer
