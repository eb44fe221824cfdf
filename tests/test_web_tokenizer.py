"""The tokenizer in JavaScript: the same token ids, and the same pieces."""

import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_javascript import needs_node, node
from tokenizer_kinds import END, KINDS, MASK, tokenizer_of
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from surelock.browser_parts import check_tokenizer
from surelock.decoding.word_lists import lists_of, plain_list
from surelock.places import ASSETS
from surelock.trace.pieces import Pieces
from surelock.ui.request import one_token

pytestmark = needs_node
TEXTS = (
    "Once upon a time there was a little girl.",
    "“Where's the café?” — naïve Zoë's 3 dogs' 1,000.50 €!?",
    "  two  spaces\n\nand\tlines \r\n ",
    "漢字かな交じり 🙂👩‍👩‍👧 é \u00a0\u200b\ufeff",
    "a __ b, ___<|mask|>. __init__ a__b \\__ é__ __é “__”\n__\n  ____",
    "__",
    "Tom had a __{red|blue|light green} ball, __ and ___{ A|b }s.",
    "__{one|Two words}, {a|b} __ {c|d}",
    "a __{\x85red\x1c|\ufeffblue |light green}",
    "<|mask|> spelt, and <|endoftext|>, is text",
    "I'll we've he'd o'clock DON'T can't",
    "x" * 300,
    "",
)


def random_texts(count: int) -> list[str]:
    """Characters of many kinds, words of letters, and what stands between them."""
    rng = np.random.default_rng(0)
    kinds = [
        list("abcdefgh etaoin  ,.'\"\n"),
        list("ÀÉñß œ…—¿"),
        list("0123456789 .,"),
        list("中文🙂ÅЖשع\u0301 "),
    ]
    kinds.append(list("___  a5\\.é"))
    return [
        "".join(rng.choice(kinds[rng.integers(len(kinds))], rng.integers(1, 40)).tolist())
        for _ in range(count)
    ]


def in_node(texts: Any, folder: Path = ASSETS / "stories", size: int = 0) -> dict[str, list[Any]]:
    """What the page's tokenizer of a folder makes of texts, and the pieces of so many tokens."""
    given = {"texts": texts, "size": size, "classes": shipped()}
    return json.loads(node("tests/js/tokens.js", folder, given=json.dumps(given)))


def test_texts_and_pieces_are_those_of_python(stories):
    texts = [*TEXTS, *random_texts(400)]
    size = stories.config.vocab_size + 2
    found = in_node(texts, size=size)
    for text, ids in zip(texts, found["ids"], strict=True):
        assert ids == stories.encode(text), text
    for text, ids, lists in zip(texts, found["blanks"], found["lists"], strict=True):
        prompt = stories.encode(text, blanks=True)
        assert ids == prompt, text
        assert lists == [plain_list(each) for each in lists_of(prompt)], text
    expected = Pieces(stories.tokenizer).look_up(range(size))
    assert {key: found["pieces"][key] for key in expected} == expected


def test_lists_that_no_blank_can_have_are_refused_as_in_python(stories):
    refused = [
        "a __{b}",
        "a __{b|}",
        "a __{b| b}",
        "a __{b|c",
        "a __{b|{c}}",
        f"a __{{{'|'.join(map(str, range(65)))}}}",
    ]
    given = json.dumps({"texts": [], "refused": refused, "size": 0, "classes": shipped()})
    sentences = json.loads(node("tests/js/tokens.js", ASSETS / "stories", given=given))["sentences"]
    for text, sentence in zip(refused, sentences, strict=True):
        with pytest.raises(ValueError) as error:
            stories.encode(text, blanks=True)
        assert sentence[:100] == str(error.value)[:100]  # behind it Python shortens the list


SPACED = (
    "tom __, ran. he __ to the cat",
    "__ and tom",
    "he [MASK]ly  ran ___!",
    "x __-__ y",
    " a  b",
    "",
    "__",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("front", ["", MASK])
def test_tokenizers_that_put_spaces_before_texts_are_those_of_python(
    stories, kind, front, tmp_path
):
    """With and without a special token before a text, and with one behind it, which is no part of a prompt."""
    inner = Tokenizer.from_str(tokenizer_of(kind).backend_tokenizer.to_str())
    special = [(token, inner.token_to_id(token)) for token in (END, MASK)]
    if front:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{front} $A {END}", special_tokens=special
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, mask_token=MASK, unk_token="<unk>"
    )
    tokenizer.save_pretrained(tmp_path)
    (end, mask) = (each for _, each in special)
    size = len(tokenizer)
    lm = replace(stories, tokenizer=tokenizer, mask_id=mask, pad_id=end, ends=(end,))
    found = in_node(SPACED, tmp_path, size)
    for text, ids in zip(SPACED, found["blanks"], strict=True):
        assert ids == lm.encode(text, blanks=True), text
    expected = Pieces(tokenizer).look_up(range(size))
    assert {key: found["pieces"][key] for key in expected} == expected


#: GPT-2's rules, of the embedded model, and Qwen2's without its contractions, which differ by more than their classes.
SPLITS: dict[str, dict[str, Any]] = {
    "GPT-2": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
    "a pattern of its own": {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {
                    "Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                },
                "behavior": "Isolated",
                "invert": False,
            },
            {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": False,
            },
        ],
    },
}
WHITE = {
    ord(each) for each in "\t\n\x1c\x1f\x85\u1680\u180e\u2000\u200b\u2028\u202f\u205f\u3000\ufeff"
}
A_TEXT = 4096  # characters of Unicode to a text
STRADDLING = (
    "a",
    "1",
    " ",
    "!",
    "'s",
    "\n",
    "\r\n",
    "\x85",
    "\ufeff",
    "\u3000",
    "é",
    "²",
    "中",
    "\u0301",
    "__",
)


def telltale(split: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer.json of a vocabulary whose ids show where a text is split: few pieces, all others unknown."""
    pieces = ["[UNK]", "a", "1", "!", "Ġ", "Ċ", "'s", "Ġ!"]
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {name: number for number, name in enumerate(pieces)},
    }
    told = json.loads((ASSETS / "stories" / "tokenizer.json").read_text("utf-8"))
    return told | {"added_tokens": [], "decoder": None, "pre_tokenizer": split, "model": model}


def without_lists(lines: Iterable[str]) -> Iterable[str]:
    """The lines but those with a brace behind a blank, where a list of words would begin."""
    return (line for line in lines if "__{" not in line)


def digest(ids: list[int]) -> str:
    return sha256(" ".join(map(str, ids)).encode()).hexdigest()


@pytest.mark.long
def test_every_character_of_unicode_is_split_as_in_python():
    """All planes; halves of characters are no text. What a browser knows of Unicode is of another year."""
    told = telltale(SPLITS["GPT-2"])
    given = {"json": told, "config": {}, "classes": shipped(), "size": A_TEXT}
    found = json.loads(node("tests/js/every_character.js", given=json.dumps(given)))
    tokenizer = Tokenizer.from_str(json.dumps(told))
    starts = range(0, 0x110000, A_TEXT)
    for start, theirs in zip(starts, found, strict=True):
        letters = [
            chr(code) for code in range(start, start + A_TEXT) if not 0xD800 <= code < 0xE000
        ]
        text = "".join(f"a{letter}1 {letter}!" for letter in letters)
        assert digest(tokenizer.encode(text).ids) == theirs, f"from U+{start:04X} on"


@pytest.mark.long
@pytest.mark.parametrize("kind", SPLITS)
def test_pairs_at_the_edges_of_its_classes_are_split_as_in_python(tmp_path, kind):
    told = telltale(SPLITS[kind])
    edges = edges_of(shipped())
    for name, content in (
        ("tokenizer", told),
        ("tokenizer_config", {}),
        ("browser", {"classes": shipped()}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(content), "utf-8")
    lines = (f"{edge}{other}{edge} {other}{edge}a" for edge in edges for other in STRADDLING)
    texts = in_lines(without_lists(lines))
    found = in_node(texts, tmp_path)
    expected = [read.ids for read in Tokenizer.from_str(json.dumps(told)).encode_batch(texts)]
    assert [
        text
        for text, mine, theirs in zip(texts, found["ids"], expected, strict=True)
        if mine != theirs
    ] == []


@pytest.mark.long
def test_letters_and_numbers_touch_a_blank_as_in_python(stories):
    """Python's edition of Unicode, which `re` knows, is another one again."""
    lines = (f"{edge}__ . __{edge} __ {edge}" for edge in edges_of(shipped()))
    texts = in_lines(without_lists(lines))
    found = in_node(texts)
    expected = [stories.encode(text, blanks=True) for text in texts]
    assert [
        text
        for text, mine, theirs in zip(texts, found["blanks"], expected, strict=True)
        if mine != theirs
    ] == []


def test_a_word_is_one_token_where_it_is_in_python(stories):
    texts = [
        *map(chr, range(1, 0x180)),
        *"\u2003\u2028\u200b\ufeff🙂中",
        "dog",
        " dog",
        "dog ",
        "  ",
        "<|mask|>",
        "é",
    ]
    found = in_node(texts)

    def single(text: str) -> int | None:
        try:
            return one_token(stories, text)["id"]
        except ValueError:
            return None

    assert dict(zip(texts, found["singles"], strict=True)) == {text: single(text) for text in texts}


def in_lines(texts: Iterable[str], many: int = 64) -> list[str]:
    """So many texts in one, each in a line: to encode one costs far more than to encode its characters."""
    left = iter(texts)
    return list(iter(lambda: "\n".join(islice(left, many)), ""))


def shipped() -> dict[str, list[int]]:
    """The classes that the page is served with, if any."""
    return json.loads((ASSETS / "stories" / "browser.json").read_text("utf-8")).get("classes")


def edges_of(classes: dict[str, list[int]]) -> list[str]:
    """The first and last characters of each range, and their neighbours outside."""
    ends = {
        code + step for ranges in classes.values() for code in ranges for step in (-1, 0, 1)
    } | WHITE
    return [chr(code) for code in sorted(ends) if not 0xD800 <= code < 0xE000]


UNLIKE: dict[str, dict[str, Any]] = {
    "a normalizer": {"normalizer": {"type": "NFKC"}},
    "punctuation": {"pre_tokenizer": {"type": "Punctuation", "behavior": "Isolated"}},
    "a space before a text": {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}
    },
    "letters of either case": {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"(?i:'s)"}, "behavior": "Isolated"}
    },
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_a_tokenizer_that_a_browser_reads_by_its_edition_of_unicode_is_refused(kind):
    with pytest.raises(
        ValueError, match="the tokenizer of it has rules for characters beside letters and numbers"
    ):
        check_tokenizer("it", telltale(SPLITS["GPT-2"]) | UNLIKE[kind])
    for split in SPLITS.values():
        check_tokenizer("it", telltale(split))
