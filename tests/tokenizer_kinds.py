"""Small tokenizers of the kinds that checkpoints bring, trained on a few stories. What they do to spaces differs."""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

END = "</s>"
MASK = "[MASK]"
TURN = ("<turn>", "</turn>")
TEMPLATE = "{% for m in messages %}<turn>{{ m.content }}</turn>{% endfor %}"
_SPECIAL = [END, MASK, "<unk>"]
_SIZE = 400
_TEXTS = Path(__file__).parents[1] / "assets" / "results" / "openings.txt"
_LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"]


def _byte_level(prefix_space: bool) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    made.decoder = decoders.ByteLevel()
    return _trained(made, pre_tokenizers.ByteLevel.alphabet())


def _metaspace(scheme: str, split: bool = True) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    made = _trained(made, ["▁", *_LETTERS])
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    return made


def _llama() -> Tokenizer:
    """Llama 2's: a normalizer puts the space before each section, and the decoder takes one away."""
    made = _metaspace("always")
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.pre_tokenizer = None
    steps = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    made.decoder = decoders.Sequence(steps)
    return made


def _wordpiece() -> Tokenizer:
    pieces = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS), *_words(), "##ed", "##ing"]
    vocabulary = {piece: number for number, piece in enumerate([*_SPECIAL, *dict.fromkeys(pieces)])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def _unigram() -> Tokenizer:
    pieces = ["▁", *_LETTERS, *(f"▁{word}" for word in _words()), "ed", "ing", "▁a"]
    scored = [(piece, -8.0 - number / 100) for number, piece in enumerate(dict.fromkeys(pieces))]
    made = Tokenizer(models.Unigram([*((each, 0.0) for each in _SPECIAL), *scored], unk_id=2))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def _words() -> list[str]:
    """The commonest words of the stories."""
    counted = Counter(re.findall("[a-z]+", _TEXTS.read_text("utf-8").lower()))
    return [word for word, _ in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))[:200]]


def _trained(tokenizer: Tokenizer, alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=_SIZE, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXTS.read_text("utf-8").lower().splitlines(), trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": lambda: _byte_level(False),
    "byte-level with a space in front": lambda: _byte_level(True),
    "metaspace, first": lambda: _metaspace("first"),
    "metaspace, always": lambda: _metaspace("always"),
    "metaspace, whole": lambda: _metaspace("first", split=False),
    "llama": _llama,
    "wordpiece": _wordpiece,
    "unigram": _unigram,
}


@cache
def tokenizer_of(kind: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a kind, with an end, a mask, markup of turns and a chat template."""
    made = KINDS[kind]()
    made.add_special_tokens([AddedToken(each, special=True) for each in (*_SPECIAL, *TURN)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=END,
        mask_token=MASK,
        unk_token="<unk>",
        chat_template=TEMPLATE,
    )
