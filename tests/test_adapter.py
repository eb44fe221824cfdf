"""`surelock.adapter` under LLaDA's own loop, and `surelock.custom_generate` under transformers'."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

import surelock

PROMPT = "Once upon a time, there was a"
SETTINGS = surelock.DecodeSettings(gen_length=16, steps=8, block_length=8)


def llada_loop(
    model: Any, prompt: list[int], settings: surelock.DecodeSettings, mask_id: int
) -> list[int]:
    """LLaDA's `generate` at temperature 0, batch 1: in each block, an even share of its masks in every step, those
    whose likeliest token is the most probable.
    """
    x = torch.full((1, len(prompt) + settings.gen_length), mask_id)
    x[0, : len(prompt)] = torch.tensor(prompt)
    length = settings.block_length or settings.gen_length
    blocks = settings.gen_length // length
    steps = (settings.steps or settings.gen_length) // blocks
    for block in range(blocks):
        stop = len(prompt) + (block + 1) * length
        for step in range(steps):
            logits = model(x).logits
            p, x0 = logits.double().softmax(-1).max(-1)
            p[:, stop:] = -torch.inf
            p = torch.where(x == mask_id, p, -torch.inf)
            count = length // steps + (step < length % steps)
            chosen = p[0].topk(count).indices
            x[0, chosen] = x0[0, chosen]
    return x[0].tolist()


def windows_loop(
    model: Any, prompt: list[int], length: int, block: int, mask_id: int, hides: bool
) -> list[int]:
    """diffusers' `LLaDA2Pipeline`, greedy, batch 1: the canvas ends with the block that is written, in each step one
    token of it becomes known, and written tokens that the model would change are edited. The model is called once more
    when nothing is masked. hides: a row's mask of attention ends with its block, else there is one of padding.
    """
    total = -(-(len(prompt) + length) // block) * block
    x = torch.full((1, total), mask_id)
    x[0, : len(prompt)] = torch.tensor(prompt)
    blocks = torch.arange(total) // block
    sees = (
        (blocks[:, None] >= blocks).float()[None, None]
        if hides
        else torch.ones(1, total, dtype=torch.long)
    )
    for stop in range((len(prompt) // block + 1) * block, total + 1, block):
        window = x[:, :stop]
        masked = True
        own = torch.arange(stop)[None]
        while masked:
            masked = bool((window == mask_id).any())
            seen = sees[..., :stop, :stop] if hides else sees[:, :stop]
            logits = model(input_ids=window, attention_mask=seen, position_ids=own).logits[
                :, -block:
            ]
            p, x0 = logits.softmax(-1).max(-1)
            present = window[:, -block:]
            first = max(0, len(prompt) - stop + block)
            edits = (present != mask_id) & (x0 != present) & (p > 0.5)
            edits[:, :first] = False
            surest = torch.where(present == mask_id, p, -1.0).argmax() if masked else []
            edits[0, surest] = True
            window[:, -block:] = torch.where(edits, x0, present)
    return x[0].tolist()


def dense(lm: surelock.LanguageModel) -> Any:
    return lambda x: SimpleNamespace(logits=lm.network(x))


class Dense:
    """The dense forward of a model, which names every written token, as a host that edits none wants it."""

    def __init__(self, lm: surelock.LanguageModel) -> None:
        self.lm = lm

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Any:
        logits = self.lm.network(input_ids)
        written = input_ids != self.lm.mask_id
        logits[written] = 0
        logits[written, input_ids[written]] = 30.0
        return SimpleNamespace(logits=logits)


def decoded(
    lm: surelock.LanguageModel, prompt: list[int], settings: Any, rule: surelock.ComputeRule
) -> list[int]:
    policy = surelock.LowConfidence()
    return (
        list(surelock.decode(lm, [prompt], settings, compute=rule, unmask=policy))[-1]
        .tokens[0]
        .tolist()
    )


def drawn(lm: surelock.LanguageModel, seed: int) -> tuple[list[int], surelock.DecodeSettings]:
    rng = np.random.default_rng(seed)
    words = lm.encode(PROMPT) + rng.integers(300, 3000, rng.integers(1, 9)).tolist()
    block = int(rng.integers(3, 9))
    blocks = int(rng.integers(1, 4))
    steps = int(rng.integers(2, block + 1))
    return words, surelock.DecodeSettings(
        gen_length=block * blocks, steps=steps * blocks, block_length=block
    )


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_every_position_writes_what_the_loop_writes_alone(
    stories, stories_in_torch, engine: str
) -> None:
    lm = stories if engine == "onnx" else stories_in_torch
    for seed in range(5):
        prompt, settings = drawn(lm, seed)
        for told in (settings, None):
            model = surelock.adapter(lm, surelock.Everything(), told)
            alone = llada_loop(dense(stories_in_torch), prompt, settings, lm.mask_id)
            assert llada_loop(model, prompt, settings, lm.mask_id) == alone


def test_a_host_may_write_faster_than_its_settings_say(stories, stories_in_torch) -> None:
    """The next block opens when the host has written the one before."""
    prompt = stories.encode(PROMPT)
    settings = replace(SETTINGS, steps=16)
    model = surelock.adapter(stories, surelock.Everything(), settings)
    alone = llada_loop(dense(stories_in_torch), prompt, SETTINGS, stories.mask_id)
    assert llada_loop(model, prompt, SETTINGS, stories.mask_id) == alone


@pytest.mark.parametrize(
    "rule",
    [surelock.LockRule(epsilon=0.05, percentile=50), surelock.BudgetRule(0.5)],
    ids=["lock", "budget"],
)
def test_a_rule_writes_what_decode_writes(
    stories: surelock.LanguageModel, rule: surelock.ComputeRule
) -> None:
    rows = 0
    for seed in range(25):
        prompt, settings = drawn(stories, seed)
        model = surelock.adapter(stories, rule, settings)
        assert llada_loop(model, prompt, settings, stories.mask_id) == decoded(
            stories, prompt, settings, rule
        ), seed
        assert model.run is not None
        rows += model.run.canvas.total - int(
            (model.run.state.computed_at == model.run.state.step - 1).sum()
        )
    assert rows > 0, "no row was ever left out"


def canvas(lm: surelock.LanguageModel, prompt: list[int], masks: int = 6) -> Tensor:
    return torch.tensor([[*prompt, *[lm.mask_id] * masks]])


def test_what_changes_from_outside_begins_anew(
    stories: surelock.LanguageModel, stories_in_torch
) -> None:
    """Another prompt, another length, a written token that is another or masked again: as if it were the first."""
    prompt = stories.encode(PROMPT)
    model = surelock.adapter(stories, surelock.LockRule(epsilon=1e9, percentile=None))
    x = canvas(stories, prompt)
    changes = [
        lambda x: x.index_fill(1, torch.tensor([len(prompt)]), 700),  # a commit
        lambda x: x.index_fill(1, torch.tensor([len(prompt)]), 800),  # which is another one now
        lambda x: x.index_fill(1, torch.tensor([len(prompt)]), stories.mask_id),  # and masked again
        lambda x: torch.cat((x, x[:, -1:]), dim=1),  # longer
        lambda x: canvas(stories, [*prompt, 500], 6),  # a longer prompt, the same length
        lambda x: x.index_fill(1, torch.tensor([0]), 900),  # another prompt
    ]
    model(x)
    for number, change in enumerate(changes):
        x = change(x)
        found = model(x).logits
        masked = x == stories.mask_id
        if number > 0:
            expected = stories_in_torch.network(x)[masked]
            torch.testing.assert_close(found[masked], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "rule", [surelock.Everything(), surelock.LockRule(epsilon=0.05, percentile=50)]
)
def test_windows_that_grow_are_written_as_by_the_model_alone(
    stories, stories_in_torch, rule
) -> None:
    """The last call of a window has nothing to write, and no written token is changed."""
    for seed in range(5):
        prompt, settings = drawn(stories, seed)
        asked = prompt, settings.gen_length, 8, stories.mask_id, False
        found = windows_loop(surelock.adapter(stories, rule), *asked)
        assert stories.mask_id not in found and found[: len(prompt)] == prompt
        if isinstance(rule, surelock.Everything):
            assert found == windows_loop(Dense(stories_in_torch), *asked)


def test_written_positions_name_their_tokens(stories: surelock.LanguageModel) -> None:
    model = surelock.adapter(stories, surelock.Everything())
    x = canvas(stories, stories.encode(PROMPT), 3)
    for token in (700, 800, 900):
        model(x)
        x[0, (x[0] == stories.mask_id).nonzero()[0]] = token
    for _ in range(2):  # asked again, it has nothing to compute
        told = model(x).logits[0, -3:].softmax(-1)
        assert told.argmax(-1).tolist() == [700, 800, 900] and told.amax() > 0.999
    x[0, -1] = 5
    with pytest.raises(ValueError, match="without a mask"):
        model(x)


def test_a_call_that_was_broken_off_is_made_anew(
    stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an interrupt in the middle of a step: neither its half step counts nor the reading of the run before."""
    prompt = stories.encode(PROMPT)
    rule = surelock.LockRule(epsilon=1e9, percentile=None)
    model = surelock.adapter(stories, rule)
    x = canvas(stories, prompt)
    for change in (
        lambda x: x.index_fill(1, torch.tensor([len(prompt)]), 700),
        lambda x: canvas(stories, prompt[1:]),
    ):
        model(x)
        x = change(x)
        with monkeypatch.context() as patched:
            patched.setattr(
                type(stories.engine), "read", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
            )
            with pytest.raises(KeyboardInterrupt):
                model(x)
        found = model(x).logits
        masked = x == stories.mask_id
        expected = surelock.adapter(stories, rule)(x).logits
        assert torch.equal(found[masked], expected[masked])


def test_what_it_cannot_be_asked_is_one_sentence(stories: surelock.LanguageModel) -> None:
    model = surelock.adapter(stories, surelock.LockRule())
    x = canvas(stories, stories.encode(PROMPT))
    first = torch.tensor([0])
    masks = (x[0] == stories.mask_id).nonzero()
    model(x)
    for asked, words in (
        (x[0], r"shape \[batch, length\]"),
        (torch.cat((x, x.index_fill(1, masks[0], 5))), "several lengths"),
        (x.index_fill(1, first, stories.mask_id), "where a prompt must be"),
        (x[:, :3], "without a mask"),
        (x.index_fill(1, first, 10**6), "outside 0 to"),
        (torch.cat((x, *[x[:, -1:]] * 9999), dim=1), "more than the"),
    ):
        with pytest.raises(ValueError, match=words):
            model(asked)
    tril = torch.ones(14, 14).tril()[None, None]
    for mask in (torch.tensor([[0, 1]]), torch.ones(1, 3), tril):
        with pytest.raises(ValueError, match="attention_mask does not show"):
            model(x, attention_mask=mask)
    for places in ([[1]], [[0, 1, 2]]):
        with pytest.raises(ValueError, match=r"position_ids must count from 0 to 1\d"):
            model(x, position_ids=torch.tensor(places))


def test_settings_it_cannot_have_are_one_sentence(stories: surelock.LanguageModel) -> None:
    with pytest.raises(ValueError, match="must be a ComputeRule"):
        surelock.adapter(stories, "lock")  # pyright: ignore
    with pytest.raises(ValueError, match="guidance"):
        surelock.adapter(stories, surelock.LockRule(), surelock.DecodeSettings(cfg_scale=1.0))
    model = surelock.adapter(stories, surelock.LockRule(), surelock.DecodeSettings(gen_length=4))
    with pytest.raises(ValueError, match="masked from position"):
        model(canvas(stories, stories.encode(PROMPT)))


def small_host() -> Qwen3ForCausalLM:
    """A model of transformers whose weights have no part in what is written."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 8}
    counts = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=4096, **sizes, **counts))


def test_custom_generate_in_transformers_own_generate(stories: surelock.LanguageModel) -> None:
    """Of a model with GenerationMixin, whose own weights have no part in it."""
    host = small_host()
    rule = surelock.LockRule(epsilon=0.05)
    prompt = stories.encode(PROMPT)
    made = surelock.custom_generate(stories, rule)
    given = torch.tensor([[0, 0, *prompt], [*prompt, *prompt[:2]]])
    mask = torch.ones_like(given)
    mask[0, :2] = 0
    found = host.generate(given, attention_mask=mask, max_new_tokens=8, custom_generate=made)
    settings = surelock.DecodeSettings(gen_length=8)
    for b, own in enumerate((prompt, [*prompt, *prompt[:2]])):
        assert found[b, given.shape[1] :].tolist() == decoded(stories, own, settings, rule)[-8:]
    assert torch.equal(found[:, : given.shape[1]], given)


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_a_row_that_is_left_out_again_fades_again(
    stories: surelock.LanguageModel, share: float
) -> None:
    """Left out, read, left out: each time its logits are those of its last reading, scaled once."""
    model = surelock.adapter(stories, surelock.SelectRule(share))
    prompt = stories.encode("Once upon a time")
    x = torch.tensor([prompt + [stories.mask_id] * 12])
    last: dict[int, Tensor] = {}
    course = dict.fromkeys(range(len(prompt), x.shape[1]), "")
    for _ in range(10):
        logits = model(x).logits[0].clone()
        for i in (x[0] == stories.mask_id).nonzero()[:, 0].tolist():
            if float(logits[i].max() - logits[i].min()) > 1:  # read, or left as it was
                assert i not in last or not torch.equal(logits[i], last[i]), (i, course[i])
                last[i], course[i] = logits[i], course[i].rstrip("r") + "r"
            else:
                torch.testing.assert_close(logits[i], last[i] * 1e-3)
                course[i] = course[i].rstrip("l") + "l"
        place = int((x[0] == stories.mask_id).nonzero()[0])
        x[0, place] = logits[place].argmax()
    assert any("lrl" in each for each in course.values())


@pytest.mark.parametrize(
    "named",
    [
        {"use_cache": True},
        {"past_key_values": (1,)},
        {"attention_mask": "full"},
        {"position_ids": [0]},
    ],
)
def test_what_a_host_names_is_taken_where_it_asks_for_nothing(
    stories, named: dict[str, Any]
) -> None:
    model = surelock.adapter(stories, surelock.LockRule())
    x = canvas(stories, stories.encode(PROMPT))
    (name,) = named
    expected = model(x).logits.clone()
    for nothing in (None, False):
        assert torch.equal(
            surelock.adapter(stories, surelock.LockRule())(x, **{name: nothing}).logits, expected
        )
    with pytest.raises(ValueError, match=f"^{name} must be"):
        model(x, **named)


@pytest.mark.parametrize(
    ("rows", "named", "length"),
    [
        (1, {"max_length": 20}, None),
        (3, {"max_new_tokens": 8}, 8),
        (3, {"max_length": 30, "max_new_tokens": 4}, 4),
    ],
)
def test_custom_generate_heeds_the_arguments_of_generate(
    stories, named: dict[str, int], length, rows: int
) -> None:
    host = small_host()
    prompt = stories.encode(PROMPT)
    made = surelock.custom_generate(stories, surelock.LockRule())
    length = length or 20 - len(prompt)
    how = {
        "do_sample": True,
        "temperature": 1.5,
        "num_return_sequences": rows,
        "custom_generate": made,
    }
    found = host.generate(torch.tensor([prompt]), **named, **how)
    settings = surelock.DecodeSettings(gen_length=length, temperature=1.5)
    decoder = surelock.Decoder(settings=settings)
    (final,) = list(surelock.decode(stories, [prompt] * rows, **decoder.keywords()))[-1:]
    assert (
        found.tolist() == final.tokens.tolist()
        and len({tuple(row) for row in found.tolist()}) == rows
    )
