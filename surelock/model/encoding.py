"""Encode texts and conversations to token ids. Only a chat template writes markup: text of a user stays text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any

from surelock.errors import first_line, panics, shown
from surelock.values import Fields, frozen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: By owner of a tokenizer. A call changes whether the tokenizer splits special tokens, so calls must not overlap.
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
_BUSY_SECONDS = 10
_MOST_GROWTH = 100  # largest number of tokens or characters made per character of a text
_MOST_ADDED = 100_000  # largest number of characters that a template may add
_MOST_WORDS = 64  # largest number of words of a list
_LIST = r"\{(?P<list>[^{}]*)\}"  # the pattern of a list after a blank
_PRIVATE = range(0xF0000, 0xFFFFE)  # private-use characters, which have no meaning
_LETTER = "a"
# Beginnings of texts. For any following text, at least one of them should not merge with it into a common token.
_BEGINNINGS = (_LETTER, ".", "0", "x", "-", ")", "q", "7")


@contextmanager
def encoding(owner: str, text: Any, what: str = "prompt") -> Iterator[None]:
    """A context manager for one use of the tokenizer of `owner`.

    what: the name of the text in errors.

    Raises ValueError for a value that is no text, for a lone surrogate, and for an error of the tokenizer.
    """
    if not isinstance(text, str):
        turns = ": several turns are not supported" if isinstance(text, list | tuple) else ""
        raise ValueError(f"a {what} must be a text, not {shown(text)}{turns}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} is no UTF-8 text: it holds half of a character (a lone surrogate)"
        ) from None
    with _using(owner, f"the tokenizer of {owner} cannot read this text"):
        yield


@contextmanager
def _using(owner: str, words: str) -> Iterator[None]:
    """A context manager that excludes other uses of the same tokenizer.

    Any error in the body becomes a ValueError that begins with `words`: a checkpoint's tokenizer or template may raise
    any exception.
    """
    if not _LOCKS[owner].acquire(timeout=_BUSY_SECONDS):  # the other use may never end
        raise ValueError(
            f"the tokenizer of {owner} has been busy with another text for {_BUSY_SECONDS} s"
        )
    try:
        yield
    except (Exception, *panics()) as error:
        raise ValueError(f"{words}: {first_line(error)}") from error
    finally:
        _LOCKS[owner].release()


def _blank(text: str) -> str:
    """Return the pattern of a blank in this text.

    Letters and numbers are classified by the tokenizers library, as in the browser. `re` would use the version of
    Unicode that Python has.
    """
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    others = Split(Regex(r"[^\p{L}\p{N}]+"), "removed")
    letters = {letter for run, _ in others.pre_tokenize_str(text) for letter in run}
    touching = re.escape("".join(sorted(letters)) + "_\\")
    return rf"(?<![{touching}])_{{2,}}(?![{touching}])"


def _lists_of(blanks: Sequence[re.Match[str]], lists: Lists | None) -> list[Sequence[str] | None]:
    """Return, by blank, the words that it may become, or None for any words.

    lists: by blank, its words; an entry None, or None in place of all lists, means the words in the text.

    Raises ValueError, one sentence, for lists that do not fit the blanks.
    """
    if lists is None:
        lists = [None] * len(blanks)
    if not isinstance(lists, list | tuple):
        raise ValueError(
            f"blanks must be True, False or a list with an entry for every blank, not {shown(lists)}"
        )
    if len(lists) != len(blanks):
        raise ValueError(
            f"blanks must have an entry for every blank of the text, {len(blanks)}, not {len(lists)}"
        )
    pairs = zip(blanks, lists, strict=True)
    return [_list_in_text(blank) if words is None else words for blank, words in pairs]


def _list_in_text(blank: re.Match[str]) -> list[str] | None:
    """Return the words that follow a blank in its text, None for a blank without a list."""
    if blank["list"] is not None:
        return blank["list"].split("|")
    if blank["blank"] and blank.string.startswith("{", blank.end()):
        raise ValueError("prompt has a blank whose list must end with a brace, as in __{red|blue}")
    return None


#: By word of a list, its token ids.
Words = tuple[tuple[int, ...], ...]
#: By blank of a text, its list of words; None for any words.
Lists = Sequence[Sequence[str] | None]


class Expanded(ValueError):
    """Raised when a tokenizer or a template makes a text far longer."""


def check_growth(what: str, length: int, made: int, added: int = 0) -> None:
    """Raise Expanded if a tokenizer or a template has made too much of a text.

    what: its name in the error. length: number of characters of the text. made: number of tokens or characters made.
    added: number of characters that may be added, whatever the length.
    """
    if made > _MOST_GROWTH * (length + 1) + added:
        raise Expanded(
            f"{what} makes {made:,} of a text of {length:,} characters: at most {_MOST_GROWTH} times as many"
        )


class Rendering(str):
    """A text that a chat template has made, or a text with blanks.

    parts: the text in parts; ids of markup and masks are between texts.
    words: by mask, the token ids of the words of the list whose blank begins at the mask; empty for other masks.
    """

    parts: tuple[str | int, ...]
    words: tuple[Words, ...]

    def __new__(
        cls, text: str, parts: Iterable[str | int], words: Iterable[Words] = ()
    ) -> Rendering:
        made = super().__new__(cls, text)
        made.parts = tuple(parts)
        made.words = tuple(words)
        return made

    def __getnewargs__(
        self,
    ) -> Any:  # for copies, and for pickles: lm-eval writes requests into a file
        return str(self), self.parts, self.words

    def __add__(self, text: str) -> Rendering:
        *before, last = self.parts
        return Rendering(str(self) + text, (*before, f"{last}{text}"), self.words)

    def rstrip(self, *characters: Any) -> Rendering:
        *before, last = self.parts
        kept = str(last).rstrip(*characters)
        return Rendering(
            self[: len(self) - len(str(last)) + len(kept)], (*before, kept), self.words
        )


@frozen
class Encoder:
    """Encodes texts, and renders conversations."""

    owner: str  # name of the model, for errors
    tokenizer: PreTrainedTokenizerBase  # a fast tokenizer of transformers
    # ids of ends, mask and padding, which are markup even if the tokenizer does not call them special
    ends: frozenset[int]
    mask_id: int | None = None

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text. Markup in a plain text is encoded as text; in a `Rendering` it is markup.

        special: add the special tokens with which the tokenizer begins a text. Special tokens with which it ends a text
        are never added, since generated text follows.

        Raises ValueError for a value that is no text, for a lone surrogate, and for a text that the tokenizer cannot
        read or makes far longer.
        """
        with encoding(self.owner, text):
            front = self._front(text) if special else []
            markup = self._markup()
            is_rendering = isinstance(text, Rendering)
            ids = self._rendered(text, markup) if is_rendering else self._text(text, markup)
        check_growth(f"the tokenizer of {self.owner}", len(text), len(ids))
        return front + ids

    def encode_turn(self, text: str) -> list[int]:
        """Return the token ids of a text as a user's turn in the chat template, with thinking switched off.

        Raises what `encode` and `render` raise.
        """
        turn = {"role": "user", "content": text}
        rendering = self.render([turn], add_generation_prompt=True, enable_thinking=False)
        return self.encode(rendering, special=False)

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids, without special tokens and without a space that the tokenizer adds in front.

        Other spaces are unchanged, so decoding returns the text that was encoded.
        """
        text = self._decoded(ids, skip_special_tokens=True)
        return text[1:] if text.startswith(" ") and self._keeps_its_space() else text

    def with_blanks(self, text: str, mask_id: int, lists: Lists | None = None) -> str:
        """Return a text as a `Rendering` with masks for its blanks, or the text itself if it has no blanks.

        lists: by blank, its words; an entry None, or None in place of all lists, means the words in the text.

        Raises ValueError, one sentence, for a wrong list, and for more or fewer lists than blanks.
        """
        mask = self.tokenizer.added_tokens_decoder.get(mask_id)
        parts: list[str | int] = []
        words: list[Words] = []
        at = 0
        with encoding(self.owner, text):
            pattern = f"(?P<blank>{_blank(text)})(?:{_LIST})?"
            if mask is not None:
                pattern += f"|{re.escape(mask.content)}"
            blanks = list(re.finditer(f"(?P<space> ?)(?:{pattern})", text))
        for blank, listed in zip(blanks, _lists_of(blanks, lists), strict=True):
            listed_ids: Words = ()
            size = len(blank["blank"] or "_")
            if listed is not None:
                listed_ids = self._words(listed, blank["space"], blank.start() > 0)
                size = max(map(len, listed_ids))
            parts += [text[at : blank.start()], *[mask_id] * size]
            words += [listed_ids, *[()] * (size - 1)]
            at = blank.end()
        parts.append(text[at:])
        written = "".join(part if isinstance(part, str) else "_" for part in parts)
        return Rendering(written, parts, words) if blanks else text

    def _words(self, words: Any, space: str, goes_on: bool) -> Words:
        """Return the token ids of the words of a list, as they would be in its blank.

        space: the space before the blank, or "". goes_on: whether there is text before the blank.

        Raises ValueError, one sentence, for a wrong list.
        """
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"the words of a blank must be a list of texts, not {shown(words)}")
        different = {word.strip() for word in words}
        if not 2 <= len(different) == len(words) <= _MOST_WORDS or "" in different:
            how = f"2 to {_MOST_WORDS} different words, as in __{{red|blue}}"
            raise ValueError(
                f"prompt has a blank whose list must hold {how}, not {shown('|'.join(words))}"
            )
        ids_of_words = []
        for word in words:
            with encoding(self.owner, word):
                ids = self._text(space + word.strip(), self._markup(), goes_on)
            if not ids or not self.ends.isdisjoint(ids):
                raise ValueError(
                    f"prompt has a blank whose list holds {shown(word)}, which is no text of {self.owner}"
                )
            ids_of_words.append(tuple(ids))
        return tuple(ids_of_words)

    def render(self, turns: Sequence[Fields], **how: Any) -> Rendering:
        """Return a conversation in the chat template. Markup in the turns stays text.

        turns: mappings with "role" and "content". how: further arguments of `apply_chat_template`.

        Raises ValueError for a turn that is no text, and for a template that cannot be used.
        """
        unusable = f"the chat template of {self.owner} cannot be used"
        with _using(self.owner, unusable):
            markup = self._markup()
            stand_ins = _StandIns(self.tokenizer.get_chat_template(), turns)
            safe = []
        for turn in turns:
            with encoding(self.owner, turn["content"]):
                safe.append({**turn, "content": self._hidden(turn["content"], markup, stand_ins)})
        with _using(self.owner, unusable):
            rendered: Any = self.tokenizer.apply_chat_template(safe, tokenize=False, **how)
            rendered.encode()
            parts = []
            at = 0
            for i, start, stop in self._found(rendered, markup):
                parts += [*stand_ins.parts(rendered[at:start]), i]
                at = stop
            parts += stand_ins.parts(rendered[at:])
            made = Rendering(
                "".join(part for part in stand_ins.parts(rendered) if isinstance(part, str)), parts
            )
        spoken = sum(len(turn["content"]) for turn in turns)
        check_growth(f"the chat template of {self.owner}", spoken, len(made), _MOST_ADDED)
        return made

    def _markup(self) -> frozenset[int]:
        """Return the ids of added tokens that are markup.

        These are special tokens, ends, and tokens in the template's text that are no words.
        """
        template = str(self.tokenizer.chat_template or "")

        def spelled(text: str) -> bool:
            return text in template and bool(text.strip()) and not text.strip().isalnum()

        added = self.tokenizer.added_tokens_decoder
        return frozenset(
            i
            for i, token in added.items()
            if token.special or i in self.ends or spelled(token.content)
        )

    def _found(
        self, text: str, markup: frozenset[int], split: bool = False
    ) -> list[tuple[int, int, int]]:
        """Return the markup in a text as (id, start, stop). split: leave out special tokens.

        The unknown token counts only if the text spells it, not if it stands for text that the vocabulary lacks.
        """
        read = self.tokenizer(
            text,
            add_special_tokens=False,
            split_special_tokens=split,
            return_offsets_mapping=True,
            verbose=False,
        )
        places = [
            (i, *place)
            for i, place in zip(read["input_ids"], read["offset_mapping"], strict=True)
            if i in markup
        ]
        unknown = self.tokenizer.unk_token_id
        word = self.tokenizer.unk_token
        return [
            (i, start, stop)
            for i, start, stop in places
            if i != unknown or text[start:stop].strip() == word
        ]

    def _hidden(self, text: str, markup: frozenset[int], stand_ins: _StandIns) -> str:
        """Return a text in which a stand-in character replaces every part that would be markup, and every mask."""
        if isinstance(text, Rendering):
            parts = [
                stand_ins.character(part) if isinstance(part, int) else str(part)
                for part in text.parts
            ]
            return "".join(self._hidden(part, markup, stand_ins) for part in parts)
        made = ""
        at = 0
        for _, start, stop in self._found(text, markup):
            made += text[at:start] + stand_ins.character(text[start:stop])
            at = stop
        return made + text[at:]

    def _front(self, text: str) -> list[int]:
        """Return the special tokens with which the tokenizer begins a text."""
        probe = f"a {text[:100]}"
        read = self.tokenizer(
            probe, split_special_tokens=True, return_special_tokens_mask=True, verbose=False
        )
        added = read["special_tokens_mask"]
        return read["input_ids"][: added.index(0) if 0 in added else None]

    def _text(self, text: str, markup: frozenset[int], goes_on: bool = False) -> list[int]:
        """Return the ids of a text. Markup that the tokenizer does not call special is divided, so that it is text.

        goes_on: whether other text precedes this text, see `_continued`.
        """
        places = self._found(text, markup, split=True)
        cuts = [(start + stop) // 2 for _, start, stop in places if stop - start > 1]
        if not cuts:
            return self._continued(text) if goes_on else self._ids(text, split=True)
        ids = []
        for start, stop in pairwise((0, *cuts, len(text))):
            ids += self._text(text[start:stop], markup, goes_on or start > 0)
        return ids

    def _continued(self, text: str) -> list[int]:
        """Return the ids of a text that follows other text, without the space that some tokenizers put before a text.

        If the ids of the text alone have the same text there, these ids are returned.
        """
        alone = self._ids(text, split=True)
        for beginning in _BEGINNINGS:
            first = self._ids(beginning, split=True)
            whole = self._ids(beginning + text, split=True)
            if first and whole[: len(first)] == first:
                if self._decoded([*first, *alone]) == self._decoded(whole):
                    return alone
                return whole[len(first) :]
        return alone

    def _decoded(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return str(
            self.tokenizer.decode(
                [*ids],
                skip_special_tokens=skip_special_tokens,
                clean_up_tokenization_spaces=False,
            )
        )

    def _keeps_its_space(self) -> bool:
        """Return whether the tokenizer adds a space before a text and its decoder keeps that space, as GPT-2's may."""
        inner: Any = self.tokenizer.backend_tokenizer
        text = inner.normalizer.normalize_str(_LETTER) if inner.normalizer else _LETTER
        words = (
            inner.pre_tokenizer.pre_tokenize_str(text)
            if inner.pre_tokenizer
            else [(text, (0, len(text)))]
        )
        return (
            inner.decoder is not None
            and inner.decoder.decode([word for word, _ in words]) == f" {_LETTER}"
        )

    def _rendered(self, text: Rendering, markup: frozenset[int]) -> list[int]:
        """Return the ids of a rendering.

        The whole text is encoded at once if the tokenizer then finds only the rendering's markup. Otherwise its parts
        are encoded one by one.
        """
        whole = self._ids(text)
        read = [i for i in whole if i in markup]
        if self.tokenizer.unk_token_id in read:
            read = [i for i, _, _ in self._found(text, markup)]
        if read == [part for part in text.parts if isinstance(part, int)]:
            return whole
        ids = []
        for part in text.parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._text(part, markup, goes_on=bool(ids) and self._goes_on_after(ids[-1]))
        return ids

    def _goes_on_after(self, token: int) -> bool:
        """Return whether the tokenizer encodes a text after this token like a continuation.

        It does after a mask. After markup, some tokenizers encode a text like the beginning of a text.
        """
        if token == self.mask_id:
            return True
        markup = self.tokenizer.added_tokens_decoder[token].content
        return self._ids(markup + _LETTER) != [token, *self._ids(_LETTER)]

    def _ids(self, text: str, split: bool = False) -> list[int]:
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=split)["input_ids"]
        )


class _StandIns:
    """Stand-ins: private-use characters that replace parts of texts while a template is rendered.

    Characters that the template or the turns contain are not used.
    """

    def __init__(self, template: str, turns: Sequence[Fields]) -> None:
        taken = {*template, *(character for turn in turns for character in str(turn["content"]))}
        self._free = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._of: dict[str | int, str] = {}

    def character(self, part: str | int) -> str:
        """Return the stand-in for a part."""
        return self._of.setdefault(part, next(self._free))

    def parts(self, text: str) -> list[str | int]:
        """Return a text in parts, with the stand-ins replaced by their parts. Ids are parts by themselves."""
        texts = {
            ord(character): part for part, character in self._of.items() if isinstance(part, str)
        }
        ids = {character: part for part, character in self._of.items() if isinstance(part, int)}
        pieces = re.split(f"([{''.join(ids)}])", text) if ids else [text]
        return [ids[piece] if piece in ids else piece.translate(texts) for piece in pieces]
