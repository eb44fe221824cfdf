"""The tokenizer's part of lm-eval's model."""

import logging
from collections.abc import Iterable
from typing import Any

from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]

from surelock.model.encoding import Rendering
from surelock.model.language_model import LanguageModel

_log = logging.getLogger(__name__)


class TextLM(TemplateLM):
    """A model of lm-eval, as far as it reads and writes text. Raises ValueError for a model without a tokenizer."""

    def __init__(self, lm: LanguageModel) -> None:
        super().__init__()
        if lm.tokenizer is None:
            raise ValueError(f"{lm.name} has no tokenizer, which lm-eval needs")
        self.lm, self.tokenizer, self._device = lm, lm.tokenizer, lm.device
        self._warned = False  # whether the log says that spelled special tokens are text

    @property
    def eot_token_id(self) -> int:
        return self.lm.pad_id if self.lm.eos_id is None else self.lm.eos_id

    @property
    def max_length(self) -> int:
        """The number of positions, prompt and generated part together."""
        return self.lm.config.max_length

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches templated requests."""
        return self.lm.name.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return token ids. Special tokens are those of `apply_chat_template` alone: what a task spells is text.

        add_special_tokens: whether the tokenizer's special tokens come before the text. None: unless a rendering begins
        with BOS.
        """
        begun = isinstance(string, Rendering) and string.parts[:2] == ("", self.tokenizer.bos_token_id)
        if (
            type(string) is str
            and not self._warned
            and any(each in string for each in self.tokenizer.all_special_tokens)
        ):
            self._warned = True
            _log.warning("a text spells special tokens: they are read as text, since no chat template has written them")
        return self.lm.encoder.encode(string, special=not begun if add_special_tokens is None else add_special_tokens)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the token ids of both. Spaces at the end of the context belong to the continuation."""
        head = context.rstrip()
        given = self.tok_encode(head)
        return given, self.tok_encode(head + (context[len(head) :] + continuation))[len(given) :]

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the `Rendering` of a conversation. Raises ValueError for a model without a usable chat template."""
        if not self.tokenizer.chat_template:
            raise ValueError(f"{self.lm.name} has no chat template: leave --apply_chat_template out")
        return self.lm.encoder.render(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=False,
        )


def before_stops(text: str, stops: str | Iterable[str] | None) -> str:
    for stop in [stops] if isinstance(stops, str) else stops or ():
        text = text.split(stop)[0] if stop else text
    return text
