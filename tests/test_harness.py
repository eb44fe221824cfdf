"""lm-evaluation-harness's model: what it answers is what the library says, whatever the batch, the order, the cache."""

import copy
import sys
import tomllib
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import pytest
import torch
from checkpoints import write_chat_model, write_lfm2_model, write_mdlm_model
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval.api.instance import Instance
from lm_eval.api.model import CachingLM
from lm_eval.api.registry import get_model
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, normalizers, processors
from transformers import PreTrainedTokenizerFast

import surelock
from surelock.decoding.algorithm import NonFiniteLogits
from surelock.harness import __main__ as harness
from surelock.harness import model as module
from surelock.harness.arguments import read_request
from surelock.harness.model import SureLockLM
from surelock.model.bound import conditional_bound

ROOT = Path(__file__).resolve().parents[1]
GREEDY = {"until": ["\n\n"], "do_sample": False, "temperature": 0.0}
LONG = pytest.mark.long
STORY = "Once upon a time, there was a little"


@pytest.fixture(autouse=True)
def at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The task's file is named from the repository; what `datasets` makes of it is kept nowhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "datasets"))


def requests(kind: str, *asked: tuple[Any, ...]) -> list[Instance]:
    return [Instance(kind, {}, arguments, number) for number, arguments in enumerate(asked)]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> surelock.LanguageModel:
    """A small model of Qwen3's kind."""
    path = tmp_path_factory.mktemp("qwen")
    write_chat_model(path)
    return surelock.load(path, device="cpu")


@pytest.fixture(scope="module")
def blocks_model(tmp_path_factory: pytest.TempPathFactory) -> surelock.LanguageModel:
    """Its block-causal sibling, by its name."""
    path = tmp_path_factory.mktemp("qwen") / "bd3lm"
    write_chat_model(path)
    return surelock.load(path, device="cpu")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("stories", {"no_repeat_ngram_size": 5}), ("chat_model", {}), ("blocks_model", {}),
        pytest.param(write_mdlm_model, {}, marks=LONG),
        (partial(write_mdlm_model, block_size=4), {}),
        pytest.param(write_lfm2_model, {"block_length": 16}, marks=LONG),
    ],
)  # fmt: skip
def test_ten_problems_are_answered_as_a_direct_call_answers_them(
    name: Any, changes: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Greedy, since the task says so; the locks and the length, since the arguments do."""
    how = {} if isinstance(name, str) else name(tmp_path / "model")
    lm = (
        request.getfixturevalue(name)
        if isinstance(name, str)
        else surelock.load(tmp_path / "model", **how)
    )
    found = lm_eval.simple_evaluate(
        "surelock",
        "".join(f"{key}={value}," for key, value in how.items())
        + f"pretrained={lm.name},gen_length=32,compute=lock,epsilon=5e-3,unmask=low_confidence",
        ["gsm8k_ten"],
        batch_size=4,
        device="cpu",
        bootstrap_iters=0,
        task_manager=TaskManager(include_path="tests/harness", include_defaults=False),
    )
    assert found is not None
    samples = found["samples"]["gsm8k_ten"]
    prompts = [f"Question: {each['doc']['question']}\nAnswer:" for each in samples]
    settings = surelock.DecodeSettings(**{"gen_length": 32, "block_length": 32} | changes)
    rule = surelock.LockRule(epsilon=5e-3, percentile=20.0)
    policy = surelock.LowConfidence()
    direct = surelock.generate(lm, prompts, settings, compute=rule, unmask=policy)
    assert len(samples) == 10 and [each["resps"][0][0] for each in samples] == [
        text.split("Question:")[0] for text in direct
    ]
    work = found["config"]["surelock"]
    assert work["texts"] == 10 and work["steps"] == 3 * 32 and 0 < work["flops_ratio"] < 1
    assert found["results"]["gsm8k_ten"]["exact_match,flexible-extract"] == 0.0


def test_the_command_line_of_lm_eval_knows_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    """And the entry point of the package names it."""
    words = "lm-eval run --model surelock --model_args gen_length=8,compute=everything --tasks gsm8k_ten --limit 1"
    monkeypatch.setattr(
        sys, "argv", [*words.split(), "--include_path", "tests/harness", "--batch_size", "1"]
    )
    # saves seconds
    monkeypatch.setattr("lm_eval.tasks.TaskManager", partial(TaskManager, include_defaults=False))
    harness.main()
    assert "|gsm8k_ten|" in capsys.readouterr().out
    assert get_model("surelock") is SureLockLM and get_model("dummy"), (
        "its own models are there, too"
    )
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"][
        "lm_eval.models"
    ]
    assert EntryPoint("surelock", points["surelock"], "lm_eval.models").load() is SureLockLM


def test_without_lm_eval_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="needs the package lm-eval"):
        harness.main()


@pytest.fixture
def model(stories: surelock.LanguageModel) -> SureLockLM:
    return SureLockLM(stories, batch_size=3, gen_length=8, compute="everything")


def test_a_text_depends_on_its_own_request_only(stories: surelock.LanguageModel) -> None:
    """Not on its batch, nor on the order; asked again, with a temperature, it has the next seed."""
    sampled = SureLockLM(stories, batch_size=3, gen_length=8, temperature=1.0, seed=5)
    asked = [
        (STORY, GREEDY),
        ("Tom had a red ball. He", GREEDY),
        (STORY, GREEDY),
        ("The old bear", GREEDY),
    ]
    texts = sampled.generate_until(requests("generate_until", *asked))
    settings = replace(sampled.decoder_for(GREEDY).settings, seed=(5, 5, 6, 5))
    decoder = replace(sampled.decoder_for(GREEDY), settings=settings)
    assert texts == [
        text.split("\n\n")[0]
        for text in surelock.generate(stories, [a for a, _ in asked], **decoder.keywords())
    ]
    assert texts[0] != texts[2]
    alone = SureLockLM(stories, gen_length=8, temperature=1.0, seed=5)
    assert alone.generate_until(requests("generate_until", *asked[:2])) == texts[:2]


def test_repeats_are_counted_within_their_settings(stories: surelock.LanguageModel) -> None:
    """The same prompt under other settings is no repeat."""
    sampled = SureLockLM(stories, temperature=1.0, seed=5)
    short = GREEDY | {"max_gen_toks": 6}
    long = GREEDY | {"max_gen_toks": 8}
    asked = [(STORY, short), (STORY, long), (STORY, short), (STORY, long)]
    texts = sampled.generate_until(requests("generate_until", *asked))
    for text, (_, wanted), seed in zip(texts, asked, (5, 5, 6, 6), strict=True):
        decoder = sampled.decoder_for(wanted)
        decoder = replace(decoder, settings=replace(decoder.settings, seed=seed))
        assert text == surelock.generate(stories, [STORY], **decoder.keywords())[0].split("\n\n")[0]


def test_what_is_asked_for_comes_in_order(stories: surelock.LanguageModel) -> None:
    """The arguments, then the request, then the model; what is greedy is so whatever the model recommends."""
    model = SureLockLM(stories, epsilon=0.25, percentile=50)
    wanted = model.decoder_for(
        {"max_gen_toks": 24, "do_sample": False, "steps": 12, "epsilon": 0.5}
    )
    assert (wanted.settings.gen_length, wanted.settings.steps, wanted.settings.temperature) == (
        24,
        12,
        0.0,
    )
    assert isinstance(wanted.compute, surelock.LockRule) and wanted.compute.epsilon == 0.25
    assert wanted.unmask == surelock.Entropy()  # stories' own
    assert (
        model.decoder_for({"do_sample": True}).settings.temperature
        == stories.generation["temperature"]
    )
    assert model.decoder_for({"do_sample": True, "temperature": 0.7}).settings.temperature == 0.7
    assert SureLockLM(stories, steps="none").decoder_for({}).settings.steps is None


def test_what_it_does_not_know_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert read_request({"top_p": 0.9, "until": ["x"]}) == {"temperature": 0.0}
    assert [record.getMessage() for record in caplog.records] == [
        "top_p is nothing that this sampler knows: it is left out"
    ]


def test_what_cannot_be_is_refused_before_the_work() -> None:
    for name, value, said in (
        ("espilon", 0.1, "espilon is no argument"),
        ("batch_size", "auto", "batch_size must be a whole number"),
        ("draws", 5, "draws must be an even number"),
        ("mask_batch", 0, "mask_batch must be a whole number"),
        ("dtype", "float8", "dtype must be one of"),
    ):
        with pytest.raises(ValueError, match=said):
            SureLockLM("stories", device="cpu", **{name: value})


def test_it_goes_on_where_it_was_interrupted(
    model: SureLockLM, tmp_path: Path, monkeypatch: Any
) -> None:
    asked = requests(
        "generate_until",
        *((f"{name} had a red ball.", GREEDY) for name in ("Al", "Tom", "Lucy", "Lily")),
    )
    cached = CachingLM(model, str(tmp_path / "cache.db"))
    decoded: list[int] = []

    def once(lm: Any, prompts: list[Any], *rest: Any, **named: Any) -> Any:
        if decoded == [3]:
            raise KeyboardInterrupt
        decoded.append(len(prompts))
        return surelock.decode(lm, prompts, *rest, **named)

    monkeypatch.setattr(module, "decode", once)
    with pytest.raises(KeyboardInterrupt):
        cached.generate_until(asked)
    decoded.append(0)
    texts = cached.generate_until(asked)
    assert decoded == [3, 0, 1] and texts == model.generate_until(asked)


def made_for(lm: surelock.LanguageModel, positions: int) -> surelock.LanguageModel:
    """The model, as if it were made for so many positions."""
    engine = copy.copy(lm.engine)
    engine.config = replace(lm.config, max_length=positions)
    return replace(lm, engine=engine)


def test_a_prompt_that_is_too_long_loses_its_beginning(
    model: SureLockLM, caplog: pytest.LogCaptureFixture
) -> None:
    model.lm = made_for(model.lm, 12)
    asked = requests("generate_until", ("One day, the old bear saw a little girl", GREEDY))
    (text,) = model.generate_until(asked)
    last = model.tok_encode("One day, the old bear saw a little girl")[-4:]
    assert (
        text
        == surelock.generate(model.lm, [last], **model.decoder_for(GREEDY).keywords())[0].split(
            "\n\n"
        )[0]
    )
    assert "loses its first" in caplog.text
    model._overrides["gen_length"] = 12
    with pytest.raises(ValueError, match=r"gen_length \(12\) leaves no room"):
        model.generate_until(asked)


def test_a_likelihood_is_the_librarys_bound(stories: surelock.LanguageModel) -> None:
    """Whatever is masked at once; the space before a word belongs to the word; no context is none."""
    model = SureLockLM(stories, draws=16, mask_batch=3, mask_seed=4)
    asked = [
        (STORY, " girl named Lily."),
        (f"{STORY} ", "girl named Lily."),
        ("", "Tom had a ball."),
    ]
    found = model.loglikelihood(requests("loglikelihood", *asked))
    for (context, continuation), (told, _) in zip(asked, found, strict=True):
        tokens = np.array(
            stories.encode(context.rstrip() + (" " * context.endswith(" ")) + continuation)
        )
        given = len(stories.encode(context.rstrip())) if context else 0
        rng = np.random.default_rng(4)
        bounds = conditional_bound(
            stories.network, tokens, given, draws=16, rng=rng, mask_id=stories.mask_id
        )
        assert told == pytest.approx(-bounds.mean(), rel=1e-5)
    assert found[0][0] == found[1][0] and found[2][1] is False
    assert model.loglikelihood(requests("loglikelihood", asked[2])) == found[2:]


@given(data=st.data())
@settings(max_examples=30)
def test_a_continuation_that_meets_its_context_in_a_token_has_that_token(
    stories: surelock.LanguageModel, data: st.DataObject
) -> None:
    """Wherever a text is cut: its parts together are its tokens, and no text of letters is certain."""
    text = data.draw(
        st.sampled_from(
            ["Tom saw a bird.", "The birdhouse was in  the garden", "ox", "Unhappily, he ran"]
        )
    )
    at = data.draw(st.integers(0, len(text) - 1))
    model = SureLockLM(stories, draws=2, check_greedy=False)
    context, continuation = model._encode_pair(text[:at], text[at:])
    tokens = stories.encode(text)
    assert [*context, *continuation] == tokens and continuation
    ((score, _),) = model.loglikelihood(requests("loglikelihood", (text[:at], text[at:])))
    assert score == model._log_probability(context, continuation) < 0
    assert text.startswith(stories.decode(context))


def dropping(lm: surelock.LanguageModel) -> surelock.LanguageModel:
    """The model with a tokenizer that leaves out what it calls invisible, and begins a text with a special token."""
    assert lm.tokenizer is not None
    inner: Any = Tokenizer.from_str(lm.tokenizer.backend_tokenizer.to_str())  # pyright: ignore
    inner.normalizer = normalizers.Replace("\u200b", "")
    inner.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    return replace(lm, tokenizer=PreTrainedTokenizerFast(tokenizer_object=inner))


def test_what_has_no_tokens_is_refused_before_the_work(
    stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty text alone is certain. A special token before a text is given, never scored."""
    model = SureLockLM(dropping(stories), draws=2)
    scored = []
    bound = module.conditional_bound
    monkeypatch.setattr(
        module, "conditional_bound", lambda *a, **k: scored.append(a[2]) or bound(*a, **k)
    )
    pairs = requests("loglikelihood", ("Tom", " ran"), ("Tom saw", "\u200b\u200b"))
    with pytest.raises(
        ValueError,
        match=r"^the continuation '\\u200b\\u200b' of 'Tom saw' has no tokens of its own: ",
    ):
        model.loglikelihood(pairs)
    texts = requests("loglikelihood_rolling", ("Tom ran",), ("\u200b",))
    with pytest.raises(ValueError, match=r"^the text '\\u200b' has no tokens: "):
        model.loglikelihood_rolling(texts)
    assert not scored
    empty = requests("loglikelihood", ("Tom", ""), ("", ""))
    assert [score for score, _ in model.loglikelihood(empty)] == [0.0, 0.0]
    assert model.loglikelihood_rolling(requests("loglikelihood_rolling", ("",))) == [0.0]
    assert not scored
    (alone,) = model.loglikelihood(requests("loglikelihood", ("", "Tom ran")))
    (whole,) = model.loglikelihood_rolling(requests("loglikelihood_rolling", ("Tom ran",)))
    assert alone[0] == whole == model._log_probability([0], stories.encode("Tom ran"))


def test_a_prompt_without_tokens_is_refused_before_the_first_text(
    model: SureLockLM, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "decode", None)
    asked = requests("generate_until", (STORY, GREEDY), ("", GREEDY | {"max_gen_toks": 4}))
    with pytest.raises(
        ValueError,
        match=r"^the context '' has no tokens: a text is generated behind one token at least",
    ):
        model.generate_until(asked)


def test_what_is_no_number_is_no_likelihood(
    stories: surelock.LanguageModel, monkeypatch: Any
) -> None:
    """The largest of scores is NaN for numpy, and of scores that are all minus infinity the first one."""
    model = SureLockLM(stories, draws=2)
    logits = stories.network.logits
    for value in (float("nan"), float("inf"), float("-inf")):
        monkeypatch.setattr(
            stories.network,
            "logits",
            lambda hidden, value=value: torch.full_like(logits(hidden), value),
        )
        for ask, kind, arguments in (
            (model.loglikelihood, "loglikelihood", ("Tom", " ran")),
            (model.loglikelihood_rolling, "loglikelihood_rolling", ("Tom ran",)),
        ):
            with pytest.raises(
                NonFiniteLogits,
                match=r"^the (continuation ' ran' of 'Tom'|text 'Tom ran') cannot be scored",
            ):
                ask(requests(kind, arguments))


def test_greedy_decoding_begins_a_text_without_a_context_as_well(
    stories: surelock.LanguageModel,
) -> None:
    model = SureLockLM(stories, draws=2)
    masks = [stories.mask_id] * 3
    settings = surelock.DecodeSettings(gen_length=0)
    greedy: Any = {"compute": surelock.Everything(), "unmask": surelock.LowConfidence()}
    *_, final = surelock.decode(stories, [masks], settings, **greedy)
    written = final.tokens[0].tolist()
    assert model._is_greedy([], written)
    assert not model._is_greedy([], [*written[:2], written[2] + 1])


def test_it_says_whether_greedy_decoding_writes_it(stories: surelock.LanguageModel) -> None:
    model = SureLockLM(stories, draws=2)
    settings = surelock.DecodeSettings(gen_length=5)
    greedy: Any = {"compute": surelock.Everything(), "unmask": surelock.LowConfidence()}
    (own,) = surelock.generate(stories, [STORY], settings, **greedy)
    asked = requests("loglikelihood", (STORY, own), (STORY, " dog named Tim who"))
    assert [greedy for _, greedy in model.loglikelihood(asked)] == [True, False]
    model.check_greedy = False
    assert not any(greedy for _, greedy in model.loglikelihood(asked))


def test_a_long_text_is_taken_in_parts_that_see_what_is_before_them(
    stories: surelock.LanguageModel,
) -> None:
    model = SureLockLM(stories, draws=4)
    text = "One day, the old bear saw a little girl. She was very happy."
    ids = model.tok_encode(text)
    (whole,) = model.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert whole == model._log_probability([], ids)
    most = len(ids) - 3
    model.lm = made_for(stories, most)
    (parts,) = model.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert parts == model._log_probability([], ids[:most]) + model._log_probability(
        ids[3:most], ids[most:]
    )
    (clipped,) = model.loglikelihood(requests("loglikelihood", (text[:-11], text[-11:])))
    assert clipped[0] == model._log_probability(ids[3:-3], ids[-3:])
    (alone,) = model.loglikelihood(requests("loglikelihood", (text[:8], text[8:])))
    assert alone[0] == model._log_probability([], ids[3:]), "no context has room beside it"
    with pytest.raises(
        ValueError, match=r"^the continuation 'One day.* of '' has 16 tokens: 13 fit$"
    ):
        model.loglikelihood(requests("loglikelihood", ("", text)))


def test_a_chat_template_is_the_tokenizers_and_its_special_tokens_are_read(
    stories: surelock.LanguageModel,
) -> None:
    tokenizer = copy.deepcopy(stories.tokenizer)
    assert tokenizer is not None
    end = tokenizer.convert_ids_to_tokens(0)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}" + end + "{% endfor %}"
    model = SureLockLM(replace(stories, tokenizer=tokenizer))
    text = model.apply_chat_template(
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    )
    assert text == f"Hello{end}Hi{end}" and model.tok_encode(text).count(0) == 2
    assert (
        model.chat_template(True) == tokenizer.chat_template and model.tokenizer_name == "stories"
    )
    with pytest.raises(ValueError, match="stories has no chat template"):
        SureLockLM(stories).apply_chat_template([])
    with pytest.raises(ValueError, match="has no tokenizer"):
        SureLockLM(replace(stories, tokenizer=None))


def test_a_cuda_device_that_is_not_there_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness asks for cuda:0 unless it is told otherwise."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert SureLockLM("stories", device="cuda:0").device.type == "cpu"
