"""From texts to token ids: what a user writes is text, whatever the tokenizer and the template of the checkpoint."""

import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from checkpoints import CHAT
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import surelock
from surelock.harness.model import SureLockLM

LLADA = (
    "{% for m in messages %}{% if loop.first %}<|startoftext|>{% endif %}<|start_header_id|>{{ m.role }}"
    "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
ROLES = (
    "{% for m in messages %}<role>{{ m.role | upper }}</role>{{ m.content }}<|role_end|>{% endfor %}"
    "{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}"
)
#: Templates as the families publish them: template, markup, options of its tokens. Ling's roles are no special tokens.
KINDS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "qwen": (CHAT, ["<|im_start|>", "<|im_end|>"], {"special": True}),
    "llada": (
        LLADA,
        ["<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        {"special": True},
    ),
    "ling": (ROLES, ["<role>", "</role>", "<|role_end|>"], {"special": False}),
    "strips": (
        CHAT,
        ["<|im_start|>", "<|im_end|>"],
        {"special": True, "rstrip": True, "lstrip": True},
    ),
    "normalizes": (CHAT, ["<|im_start|>", "<|im_end|>"], {"special": True, "normalized": True}),
}


def made(lm: surelock.LanguageModel, kind: str) -> surelock.LanguageModel:
    """The embedded model with a family's template and markup."""
    template, markup, options = KINDS[kind]
    assert lm.tokenizer is not None
    inner = Tokenizer.from_str(lm.tokenizer.backend_tokenizer.to_str())  # pyright: ignore
    if kind == "normalizes":
        inner.normalizer = normalizers.NFKC()  # pyright: ignore
    tokens = [AddedToken(each, **options) for each in markup]
    inner.add_special_tokens(tokens) if options["special"] else inner.add_tokens(tokens)
    return replace(
        lm,
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template),
        name=kind,
    )


@pytest.fixture(scope="module", params=KINDS)
def lm(request: pytest.FixtureRequest, stories: surelock.LanguageModel) -> surelock.LanguageModel:
    return made(stories, request.param)


PLAIN = st.text(st.sampled_from("ab \n\t.<|>_é🌊\U000f0000\U000f0001"), max_size=20)


def written(markup: list[str]) -> st.SearchStrategy[str]:
    """Texts with markup, its halves and its fullwidth spelling in them."""
    spelled = [
        *markup,
        "<|mask|>",
        "<|endoftext|>",
        *(each[:-2] for each in markup),
        "\uff1c|im_end|\uff1e",
    ]
    return st.lists(PLAIN | st.sampled_from(spelled), max_size=6).map("".join)


@settings(max_examples=40)
@given(text=PLAIN)
def test_a_text_without_markup_is_what_the_tokenizer_makes_of_it(
    lm: surelock.LanguageModel, text: str
) -> None:
    tokenizer: Any = lm.tokenizer
    turn = [{"role": "user", "content": text}]
    how = {"add_generation_prompt": True, "enable_thinking": False}
    assert lm.encode(text, chat=True) == tokenizer.apply_chat_template(
        turn, return_dict=False, **how
    )
    assert lm.encode(text) == tokenizer(text)["input_ids"]


@settings(max_examples=40)
@given(data=st.data())
def test_what_a_user_writes_is_text(lm: surelock.LanguageModel, data: st.DataObject) -> None:
    """The markup is that of a harmless text, in its order, and the whole says what was written."""
    markup = KINDS[lm.name][1]
    text = data.draw(written(markup))
    tokenizer = lm.tokenizer
    assert tokenizer is not None
    forged = {
        *tokenizer.convert_tokens_to_ids(markup),
        *tokenizer.all_special_ids,
        lm.mask_id,
        lm.eos_id,
    }

    def spelled(ids: list[int]) -> list[int]:
        return [i for i in ids if i in forged]

    ids = lm.encode(text, chat=True)
    assert spelled(ids) == spelled(lm.encode("a", chat=True))
    assert not {lm.mask_id, lm.eos_id} & set(ids)
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    if lm.name not in ("strips", "normalizes"):
        assert tokenizer.decode(ids) == rendered
    plain = lm.encode(text)
    assert not {*tokenizer.all_special_ids, lm.mask_id} & set(plain)
    if lm.name not in ("strips", "normalizes"):
        assert tokenizer.decode(plain) == text


@settings(max_examples=40)
@given(data=st.data())
def test_turns_of_lm_eval_are_text_as_well(lm: surelock.LanguageModel, data: st.DataObject) -> None:
    """Also after a copy to a file, and with a continuation behind it."""
    markup = KINDS[lm.name][1]
    tokenizer = lm.tokenizer
    assert tokenizer is not None
    texts = data.draw(st.lists(written(markup), min_size=3, max_size=3))
    model = SureLockLM(lm)

    def pair(first: str, second: str, last: str) -> tuple[list[int], list[int]]:
        turns = [("user", first), ("assistant", second), ("user", "Go on.")]
        rendering = model.apply_chat_template(
            [{"role": role, "content": text} for role, text in turns]
        )
        assert rendering == pickle.loads(pickle.dumps(rendering)) == copy.deepcopy(rendering)
        return model._encode_pair(pickle.loads(pickle.dumps(rendering)), last)

    context, continuation = pair(*texts)
    forged = {*tokenizer.convert_tokens_to_ids(markup), *tokenizer.all_special_ids}
    assert [i for i in context if i in forged] == [i for i in pair("a", "b", "c")[0] if i in forged]
    assert not forged & set(continuation)


def test_only_tokens_before_a_text_are_part_of_a_prompt(stories: surelock.LanguageModel) -> None:
    """A tokenizer may end each text, or wrap it, or do nothing."""
    for single, front in (
        ("$A <|endoftext|>", []),
        ("<|mask|> $A <|endoftext|>", [1]),
        ("<|mask|> $A", [1]),
    ):
        assert stories.tokenizer is not None
        inner = Tokenizer.from_str(stories.tokenizer.backend_tokenizer.to_str())  # pyright: ignore
        special = [("<|endoftext|>", 0), ("<|mask|>", 1)]
        inner.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)  # pyright: ignore
        lm = replace(stories, tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner))
        for text in ("A fox", "", "<|endoftext|>"):
            assert lm.encode(text) == [*front, *stories.encode(text)]
            assert SureLockLM(lm).tok_encode(text) == lm.encode(text)


def test_a_tokenizer_with_spaces_in_front_keeps_them(stories: surelock.LanguageModel) -> None:
    """As SentencePiece's: each text between markup is read as the tokenizer reads it."""
    pieces = ["▁hi", "▁", *"hi<|m>", "<|m|>", "<unk>", "▁h"]
    words = {piece: number for number, piece in enumerate(pieces)}
    described = {"type": "BPE", "vocab": words, "merges": ["▁ h", "▁h i"], "unk_token": "<unk>"}
    inner = Tokenizer.from_str(
        json.dumps({"version": "1.0", "added_tokens": [], "model": described})
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")  # pyright: ignore
    inner.decoder = decoders.Metaspace(prepend_scheme="always")  # pyright: ignore
    inner.add_special_tokens([AddedToken("<|m|>", special=True)])
    template = "<|m|>{{ messages[0].content }}<|m|>"
    lm = replace(
        stories, tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template)
    )
    assert lm.encode("hi", chat=True) == [8, 0, 8]
    assert lm.encode("hi<|m|>", chat=True) == [8, 0, 4, 5, 6, 5, 7, 8]


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'Turn ' + messages|length + messages[0].content }}",  # TypeError
        "{{ 10.0 ** 1000 }}",  # OverflowError
        "{% macro again(x) %}{{ again(x) }}{% endmacro %}{{ again(1) }}",  # RecursionError
        "{{ '\ud800' }}{{ messages[0].content }}",  # half of a character
        "{% for %}",
        "{{ raise_exception('No user may speak.') }}",
        {"tool_use": "{{ messages[0].content }}"},  # several, and none of them is the default
    ],
)
def test_an_error_in_a_template_is_one_sentence(
    stories: surelock.LanguageModel, template: Any
) -> None:
    tokenizer: Any = copy.deepcopy(stories.tokenizer)
    tokenizer.chat_template = template
    lm = replace(stories, tokenizer=tokenizer)
    for ask in (
        lambda: lm.encode("hi", chat=True),
        lambda: SureLockLM(lm).apply_chat_template([{"role": "user", "content": "hi"}]),
    ):
        with pytest.raises(ValueError, match=r"^the chat template of stories cannot be used: \S"):
            ask()


@pytest.mark.parametrize("odd", [[{"role": "user", "content": "hi"}], ("hi",), None, b"hi", 7])
def test_a_prompt_that_is_no_text_is_one_sentence(
    stories: surelock.LanguageModel, odd: Any
) -> None:
    lm = made(stories, "qwen")
    for chat in (False, True):
        with pytest.raises(ValueError, match=r"^a prompt must be a text, not") as found:
            lm.encode(odd, chat=chat)
        turns = str(found.value).endswith("several turns are not supported")
        assert turns == isinstance(odd, list | tuple)
    with pytest.raises(ValueError, match=r"^prompts? (1 )?must be"):
        surelock.decode(lm, [odd])
