"""From texts and turns to token ids. A user's text is text: only a chat template writes markup."""

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

#: By owner: a tokenizer stores between calls whether it splits special tokens, so its calls must not overlap.
_LOCKS: defaultdict[str, Lock] = defaultdict(Lock)
_BUSY_SECONDS = 10
_MOST_GROWTH = 100  # of a text: by a factor, and by what a template adds
_MOST_ADDED = 100_000
_MOST_WORDS = 64  # of a list
_LIST = r"\{(?P<list>[^{}]*)\}"  # behind a blank
_PRIVATE = range(0xF0000, 0xFFFFE)  # characters without a meaning
_LETTER = "a"
# of texts; one of them merges with no text that follows it
_BEGINNINGS = (_LETTER, ".", "0", "x", "-", ")", "q", "7")


@contextmanager
def encoding(owner: str, text: Any, what: str = "prompt") -> Iterator[None]:
    """A context for one use of a tokenizer of `owner`. Raises ValueError for what is no text or cannot be read."""
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
    """One use of a tokenizer after the other. Any error, of a checkpoint's rules, is a ValueError that begins so."""
    if not _LOCKS[owner].acquire(timeout=_BUSY_SECONDS):  # the other one may never end
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
    """Return the pattern of a blank in a text.

    Letters and numbers are those of the tokenizers' library, as in the browser: `re` knows those of Python's edition of
    Unicode.
    """
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    others = Split(Regex(r"[^\p{L}\p{N}]+"), "removed")
    letters = {letter for run, _ in others.pre_tokenize_str(text) for letter in run}
    touching = re.escape("".join(sorted(letters)) + "_\\")
    return rf"(?<![{touching}])_{{2,}}(?![{touching}])"


def _lists_of(blanks: Sequence[re.Match[str]], lists: Lists | None) -> list[Sequence[str] | None]:
    """Return the words of every blank, None for any: those of `lists`, else those that its text says.

    Raises ValueError, one sentence.
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
    return [
        _said(blank) if words is None else words for blank, words in zip(blanks, lists, strict=True)
    ]


def _said(blank: re.Match[str]) -> list[str] | None:
    """The words that stand behind a blank in its text."""
    if blank["list"] is not None:
        return blank["list"].split("|")
    if blank["blank"] and blank.string.startswith("{", blank.end()):
        raise ValueError("prompt has a blank whose list must end with a brace, as in __{red|blue}")
    return None


#: The token ids of the words of a list; the lists of the blanks of a text, None for any word.
Words = tuple[tuple[int, ...], ...]
Lists = Sequence[Sequence[str] | None]


class Expanded(ValueError):
    """A text became far longer in a tokenizer or in a template."""


def check_growth(what: str, length: int, made: int, added: int = 0) -> None:
    """Raise Expanded if `made` tokens or characters are far more than the characters of a text and what is added."""
    if made > _MOST_GROWTH * (length + 1) + added:
        raise Expanded(
            f"{what} makes {made:,} of a text of {length:,} characters: at most {_MOST_GROWTH} times as many"
        )


class Rendering(str):
    """A text that a chat template has made, or with blanks.

    parts: texts, and between them ids of markup and masks.
    words: by mask, the words of the list whose blank begins there, as token ids; empty elsewhere.
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

    def __getnewargs__(self) -> Any:  # a copy, and a request that lm-eval keeps in a file
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

    owner: str  # the model, named in errors
    tokenizer: PreTrainedTokenizerBase  # a fast one of transformers
    # also mask and padding: markup even where the tokenizer does not call them special
    ends: frozenset[int]
    mask_id: int | None = None  # stands for text that is still to be written

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the token ids of a text, in which nothing is markup, or of a `Rendering`.

        special: put the special tokens before it that the tokenizer begins a text with. Those that it ends one with
        are left out, since the text goes on.

        Raises ValueError for what is no text, for a lone surrogate, and for a text that the tokenizer cannot read or
        makes far longer.
        """
        with encoding(self.owner, text):
            front = self._front(text) if special else []
            markup = self._markup()
            ids = (
                self._rendered(text, markup)
                if isinstance(text, Rendering)
                else self._text(text, markup)
            )
        check_growth(f"the tokenizer of {self.owner}", len(text), len(ids))
        return front + ids

    def encode_turn(self, text: str) -> list[int]:
        """Return the ids of a text as a user's turn, with thinking switched off. Raises as `encode` and `render`."""
        turn = {"role": "user", "content": text}
        return self.encode(
            self.render([turn], add_generation_prompt=True, enable_thinking=False), special=False
        )

    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids without special tokens, and without the space that the tokenizer put before it.

        Spaces are not tidied up: a text that was encoded comes back as it was.
        """
        text = str(
            self.tokenizer.decode(
                [*ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )
        return text[1:] if text.startswith(" ") and self._keeps_its_space() else text

    def with_blanks(self, text: str, mask_id: int, lists: Lists | None = None) -> str:
        """Return a text as the `Rendering` with masks for its blanks.

        lists: by blank, its words, None for any; without it the text alone says them.

        Raises ValueError, one sentence, for a list that no blank can have, and for lists of more or fewer blanks.
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
            listed_ids = (
                () if listed is None else self._words(listed, blank["space"], blank.start() > 0)
            )
            size = max(map(len, listed_ids)) if listed_ids else len(blank["blank"] or "_")
            parts += [text[at : blank.start()], *[mask_id] * size]
            words += [listed_ids, *[()] * (size - 1)]
            at = blank.end()
        parts.append(text[at:])
        written = "".join(part if isinstance(part, str) else "_" for part in parts)
        return Rendering(written, parts, words) if blanks else text

    def _words(self, words: Any, space: str, goes_on: bool) -> Words:
        """The token ids of the words of a list, as they stand in its blank. Raises ValueError, one sentence.

        space: what precedes them in the text. goes_on: whether the text begins before the blank.
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
        """Return a conversation in the chat template, in which what its turns say stays text. Raises ValueError."""
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
        """The ids of added tokens that are markup: special ones, ends, and what the template spells but words."""
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
        """The markup of a text: (id, start, stop). split: leave out special tokens.

        What the vocabulary lacks is no markup, though its token may be a special one.
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
        """A text in which a character stands for every part that would be markup, and for every mask."""
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
        """The special tokens that the tokenizer puts before a text."""
        probe = f"a {text[:100]}"
        read = self.tokenizer(
            probe, split_special_tokens=True, return_special_tokens_mask=True, verbose=False
        )
        added = read["special_tokens_mask"]
        return read["input_ids"][: added.index(0) if 0 in added else None]

    def _text(self, text: str, markup: frozenset[int], goes_on: bool = False) -> list[int]:
        """The ids of a text. A markup token that the tokenizer does not call special is broken in two.

        goes_on: whether the text goes on from another one, see `_continued`.
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
        """The ids of a text that goes on from another one: without the space that some tokenizers put before a text.

        The ids of the text alone, if they read the same there.
        """
        alone = self._ids(text, split=True)
        for beginning in _BEGINNINGS:
            first = self._ids(beginning, split=True)
            whole = self._ids(beginning + text, split=True)
            if first and whole[: len(first)] == first:
                return (
                    alone
                    if self._says([*first, *alone]) == self._says(whole)
                    else whole[len(first) :]
                )
        return alone

    def _says(self, ids: Sequence[int]) -> str:
        return str(
            self.tokenizer.decode(
                [*ids], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _keeps_its_space(self) -> bool:
        """Whether the tokenizer puts a space before a text which its decoder leaves there, as GPT-2's may."""
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
        """The ids of a rendering. Read at once, if nothing but its markup is read as markup."""
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
        """Whether a text behind a token is read as one that goes on: behind a mask; behind markup it may begin anew."""
        if token == self.mask_id:
            return True
        markup = self.tokenizer.added_tokens_decoder[token].content
        return self._ids(markup + _LETTER) != [token, *self._ids(_LETTER)]

    def _ids(self, text: str, split: bool = False) -> list[int]:
        return list(
            self.tokenizer(text, add_special_tokens=False, split_special_tokens=split)["input_ids"]
        )


class _StandIns:
    """Characters that stand for parts of texts while a template is rendered, and that it and the turns lack."""

    def __init__(self, template: str, turns: Sequence[Fields]) -> None:
        taken = {*template, *(character for turn in turns for character in str(turn["content"]))}
        self._free = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._of: dict[str | int, str] = {}

    def character(self, part: str | int) -> str:
        return self._of.setdefault(part, next(self._free))

    def parts(self, text: str) -> list[str | int]:
        """Return a text with what the characters stand for, and ids between its parts."""
        texts = {
            ord(character): part for part, character in self._of.items() if isinstance(part, str)
        }
        ids = {character: part for part, character in self._of.items() if isinstance(part, int)}
        pieces = re.split(f"([{''.join(ids)}])", text) if ids else [text]
        return [ids[piece] if piece in ids else piece.translate(texts) for piece in pieces]
