"""A network with its tokenizer and the ids of its special tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import torch

from surelock.model.config import NetworkConfig, Shape
from surelock.model.errors import first_line, panics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from surelock.engines import Engine
    from surelock.model.network import Network

_ENCODING = Lock()  # a tokenizer keeps from call to call whether it reads special tokens: one text at a time


@contextmanager
def encoding(owner: str, text: str, what: str = "prompt") -> Iterator[None]:
    """Around each use of a tokenizer on a text; what: its name. Raises ValueError for half of a character, and where a
    pattern of the tokenizer's gives up.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is no UTF-8 text: it holds half of a character (a lone surrogate)") from None
    try:
        with _ENCODING:
            yield
    except panics() as error:
        raise ValueError(f"the tokenizer of {owner} cannot read this text: {first_line(error)}") from error


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """What `surelock.load` returns.

    name: what was loaded. engine: what computes its steps. tokenizer: None when the directory has none (prompts are
    then token ids). mask_id, eos_id, eot_id (end of turn), pad_id: token ids, None where the model has none (mask_id
    always is). generation: what its family and the model's own generation_config.json recommend; the library's defaults
    do not depend on it.
    """

    name: str
    engine: Engine
    tokenizer: PreTrainedTokenizerBase | None
    mask_id: int
    eos_id: int | None
    eot_id: int | None
    pad_id: int
    generation: dict[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        """Its Transformer in torch, loaded when it is first asked for where another engine computes the steps."""
        return self.engine.network

    @property
    def config(self) -> NetworkConfig:
        """The shape of its network."""
        return self.engine.config

    @property
    def device(self) -> torch.device:
        """Where logits come out."""
        return torch.device(self.engine.device)

    @property
    def dtype(self) -> str:
        """What its network computes in, such as "float32"."""
        return str(self.engine.dtype).removeprefix("torch.")

    @property
    def shape(self) -> Shape:
        """What a run must know of it."""
        return Shape(self.config, self.mask_id, self.pad_id, self.eos_id, self.eot_id)

    def encode(self, text: str, chat: bool = False) -> list[int]:
        """Token ids of a text; chat=True puts it as a user's turn into the tokenizer's chat template,
        without room to think where the template asks.

        Text that spells a special token is text, except inside a chat template. Raises ValueError without a tokenizer,
        for half of a character, for what the tokenizer cannot read and, for chat, without a template.
        """
        tokenizer = self._tokenizer()
        if not chat:
            with encoding(self.name, text):
                return list(tokenizer(text, split_special_tokens=True)["input_ids"])
        if not tokenizer.chat_template:
            raise ValueError(f"{self.name} has no chat template: use chat=False")
        turn = [{"role": "user", "content": text}]
        from jinja2 import TemplateError

        try:
            with encoding(self.name, text):
                ids = tokenizer.apply_chat_template(
                    turn, add_generation_prompt=True, return_dict=False, enable_thinking=False
                )
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
