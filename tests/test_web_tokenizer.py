"""The tokenizer in JavaScript: the same token ids, and the same pieces."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_javascript import needs_node, node
from tokenizer_kinds import END, KINDS, MASK, tokenizer_of
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

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


SPACED = ("tom __, ran. he __ to the cat", "__ and tom", "he [MASK]ly  ran ___!", "x __-__ y", " a  b", "", "__")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("front", ["", MASK])
def test_tokenizers_that_put_spaces_before_texts_are_those_of_python(
    stories: Any, kind: str, front: str, tmp_path: Path
) -> None:
    """With and without a special token before a text, and with one behind it, which is no part of a prompt."""
    inner = Tokenizer.from_str(tokenizer_of(kind).backend_tokenizer.to_str())
    special = [(token, inner.token_to_id(token)) for token in (END, MASK)]
    if front:
        inner.post_processor = processors.TemplateProcessing(single=f"{front} $A {END}", special_tokens=special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, mask_token=MASK, unk_token="<unk>")
    tokenizer.save_pretrained(tmp_path)
    (end, mask), size = (each for _, each in special), len(tokenizer)
    lm = replace(stories, tokenizer=tokenizer, mask_id=mask, pad_id=end, ends=(end,))
    found = json.loads(node("tests/js/tokens.js", tmp_path, given=json.dumps({"texts": SPACED, "size": size})))
    for text, ids in zip(SPACED, found["blanks"], strict=True):
        assert ids == lm.encode(text, blanks=True), text
    expected = Pieces(tokenizer).of(range(size))
    assert {key: found["pieces"][key] for key in expected} == expected
