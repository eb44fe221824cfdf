"""Pieces: the texts of single tokens, or the bytes of tokens that are not valid text by themselves."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby, islice
from typing import Any

Piece = str | list[int]
GAP = "▁"
MOST_CHARACTERS = 100_000
LEAST_BYTES = 10  # a text with fewer bytes is never foreign
FEWEST = 2  # bytes per token; a text with fewer is foreign
MOST_A_WORD = 1.7  # tokens per word; a text with more has rare words
_FALLBACK_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Return, by character of byte-level BPE vocabularies such as GPT-2's, the byte that it encodes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(others)}


class Pieces:
    """Looks up pieces, and remembers them.

    tokenizer: a tokenizer of transformers; None: there are no pieces, and tokens are shown as numbers.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer
        self._alphabet = byte_alphabet()
        self._known: dict[int, Piece] = {}

    def look_up(self, ids: Iterable[int]) -> dict[str, Piece]:
        """Return {id as text: piece} for token ids, as traces have them."""
        if self._tokenizer is None:
            return {}
        wanted = sorted(set(ids))
        for token in wanted:
            if token not in self._known:
                self._known[token] = self._piece(token)
        return {str(token): self._known[token] for token in wanted}

    def is_foreign(self, tokens: Sequence[int]) -> bool:
        """Return whether the tokens have fewer than FEWEST bytes on average.

        The tokenizer was then made for another kind of text. assets/js/trace/pieces.js has the same measure.
        """
        pieces_by_token = self.look_up(tokens)
        pieces = (pieces_by_token.get(str(token), "") for token in tokens)
        size = sum(len(piece.encode() if isinstance(piece, str) else piece) for piece in pieces)
        return LEAST_BYTES <= size < FEWEST * len(tokens)

    def is_rare(self, tokens: Sequence[int]) -> bool:
        """Return whether the words have more than MOST_A_WORD tokens on average.

        The model then knows few of the words. Words with a capital, such as names, are left out.
        assets/js/trace/pieces.js has the same measure.
        """
        pieces = self.look_up(tokens)
        words: list[tuple[str, int]] = [("", 0)]
        for token in tokens:
            piece = pieces.get(str(token), "")
            text = piece if isinstance(piece, str) else ""
            begins = text[:1].isspace() or (text != "" and not any(char.isalpha() for char in text))
            word, size = ("", 0) if begins else words.pop()
            words.append((word + text, size + 1))
        sizes = [size for word, size in words if _begins_small(word.strip())]
        return bool(sizes) and sum(sizes) > MOST_A_WORD * len(sizes)

    def _piece(self, token: int) -> Piece:
        name = self._tokenizer.convert_ids_to_tokens(token)  # type: ignore[union-attr]
        if name is None:  # padded embeddings have ids beyond the vocabulary
            return f"#{token}"
        if match := _FALLBACK_BYTE.fullmatch(name):
            return [int(match[1], 16)]
        alone = self._decode([token])
        text = self._decode([token, token])[len(alone) :]  # the token's text after another token
        if "\ufffd" in text and all(char in self._alphabet for char in name):
            return [self._alphabet[char] for char in name]
        return text

    def _decode(self, tokens: list[int]) -> str:
        decode = self._tokenizer.decode  # type: ignore[union-attr]
        return decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def _begins_small(word: str) -> bool:
    """Return whether a word begins with a lower-case letter, or with a letter of a script without capitals."""
    return word[:1].isalpha() and not word[:1].isupper() and not word[:1].istitle()


def running_text(pieces: Mapping[str, Piece], tokens: Iterable[int]) -> str:
    """Return the text of tokens, at most MOST_CHARACTERS. A token below 0 is a mask; adjacent masks become one GAP."""
    parts = (None if token < 0 else pieces.get(str(token), f"#{token}") for token in tokens)
    characters = chain.from_iterable(_characters(list(run)) for _, run in groupby(parts, key=type))
    return "".join(islice(characters, MOST_CHARACTERS))


def _characters(run: list[Any]) -> Iterable[str]:
    """Return the characters of adjacent pieces of one kind: masks, texts, or bytes.

    Adjacent bytes are decoded together, since several bytes may form one character.
    """
    if run[0] is None:
        return GAP
    parts = chain.from_iterable(run)
    if isinstance(run[0], str):
        return parts
    return bytes(islice(parts, MOST_CHARACTERS)).decode("utf-8", "replace")
