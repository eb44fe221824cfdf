"""The tokenizer in JavaScript: the same token ids, and the same pieces."""

import json
from typing import Any

import numpy as np
from test_javascript import needs_node, node

from surelock.places import ASSETS
from surelock.trace.pieces import Pieces

pytestmark = needs_node
TEXTS = (
    "Once upon a time there was a little girl.",
    "“Where's the café?” — naïve Zoë's 3 dogs' 1,000.50 €!?",
    "  two  spaces\n\nand\tlines \r\n ",
    "漢字かな交じり 🙂👩‍👩‍👧 é \u00a0\u200b\ufeff",
    "a __ b, ___<|mask|>. __init__ a__b \\__ é__ __é “__”\n__\n  ____",
    "__",
    "<|mask|> spelt, and <|endoftext|>, is text",
    "I'll we've he'd o'clock DON'T can't",
    "x" * 300,
    "",
)


def random_texts(count: int) -> list[str]:
    """Characters of many kinds, words of letters, and what stands between them."""
    rng = np.random.default_rng(0)
    kinds = [list("abcdefgh etaoin  ,.'\"\n"), list("ÀÉñß œ…—¿"), list("0123456789 .,"), list("中文🙂ÅЖשع\u0301 ")]
    kinds.append(list("___  a5\\.é"))
    return ["".join(rng.choice(kinds[rng.integers(len(kinds))], rng.integers(1, 40)).tolist()) for _ in range(count)]


def test_texts_and_pieces_are_those_of_python(stories: Any) -> None:
    texts, size = [*TEXTS, *random_texts(400)], stories.config.vocab_size + 2
    given = json.dumps({"texts": texts, "size": size})
    found = json.loads(node("tests/js/tokens.js", ASSETS / "stories", given=given))
    for text, ids in zip(texts, found["ids"], strict=True):
        assert ids == stories.encode(text), text
    for text, ids in zip(texts, found["blanks"], strict=True):
        assert ids == stories.encode(text, blanks=True), text
    expected = Pieces(stories.tokenizer).of(range(size))
    assert {key: found["pieces"][key] for key in expected} == expected
