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

_ENCODING = Lock()  # a tokenizer stores between calls whether it splits special tokens, so calls must not overlap


@contextmanager
def encoding(owner: str, text: str, what: str = "prompt") -> Iterator[None]:
    """A context for one use of a tokenizer.

    owner: the model, named in errors.
    text: the text to tokenize.
    what: the name of the text in errors.

    Raises ValueError for a text with a lone surrogate, and for one that the tokenizer cannot read.
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
    """A masked diffusion language model, as `surelock.load` returns it.

    name: the name that was loaded.
    engine: the engine that computes its steps.
    tokenizer: of transformers; None if the checkpoint has none, prompts are then token ids.
    mask_id, pad_id: the ids of the mask and of padding.
    eos_id, eot_id: the ids of the end of the text and of a turn; None if the model has none.
    generation: the settings that the family and generation_config.json recommend, in the flat form. The library's
    defaults do not depend on it.
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

    @property
    def shape(self) -> Shape:
        """Shape and special tokens, as a run needs them."""
        return Shape(self.engine.config, self.mask_id, self.pad_id, self.eos_id, self.eot_id)

    def encode(self, text: str, chat: bool = False) -> list[int]:
        """Return the token ids of a text. Text that spells a special token is encoded as text.

        text: a prompt.
        chat: put the prompt into the tokenizer's chat template as a user's turn, with thinking switched off.

        Raises ValueError for a model without a tokenizer or, with chat, without a chat template, for a text with a lone
        surrogate, and for one that the tokenizer cannot read.
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
        """Return the text of token ids without special tokens. Raises ValueError for a model without a tokenizer."""
        return str(self._tokenizer().decode([int(i) for i in ids], skip_special_tokens=True))

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer: give prompts as lists of token ids")
        return self.tokenizer
