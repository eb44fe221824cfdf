"""The package against the oracle: Algorithm 1 in float64, sequence by sequence, step by step."""

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from checkpoints import write_llada, write_qwen3
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import surelock
from surelock.decoding.noise import block_noise

MASK, EOS, EOT = 1, 0, 4
TOLERANCE = 1e-9
POLICIES = ("low_confidence", "random", "entropy", "margin", "threshold", "replay")
MODELS = {
    "llada": partial(write_llada, layers=2, d_model=16, heads=2, kv_heads=2, d_ff=40, vocab=17, tied=True, seed=1),
    "llada-bias": partial(
        write_llada, layers=1, d_model=24, heads=3, kv_heads=1, d_ff=40, vocab=23, tied=False, seed=2, qkv_bias=True
    ),
    "llada-shards": partial(
        write_llada, layers=3, d_model=32, heads=4, kv_heads=2, d_ff=48, vocab=40, tied=False, seed=3, shards=3
    ),
    "qwen3": partial(
        write_qwen3, layers=2, d_model=24, heads=4, kv_heads=2, head_dim=8, d_ff=40, vocab=29, tied=False, seed=4
    ),
    "qwen3-shards": partial(
        write_qwen3,
        layers=3,
        d_model=16,
        heads=2,
        kv_heads=1,
        head_dim=8,
        d_ff=32,
        vocab=37,
        tied=True,
        seed=5,
        shards=2,
    ),
}
WITH_EOT = ("llada", "qwen3")


@dataclass
class Model:
    """One checkpoint, read by both sides: the package's model and the oracle's network."""

    lm: Any
    network: oracle.OracleNetwork
    vocab: int
    config: dict[str, Any]


@dataclass
class Case:
    """One batch with its settings; `rule` and `unlock` are keyword arguments, None when absent."""

    model: str
    prompts: list[list[int]]
    settings: dict[str, Any]
    rule: dict[str, Any] | None = None
    unlock: dict[str, Any] | None = None
    observe: bool = False

    def with_settings(self, **changes: Any) -> "Case":
        return Case(self.model, self.prompts, {**self.settings, **changes}, self.rule, self.unlock, self.observe)


@dataclass
class Tally:
    """What the random cases were made of, and how many were too near a tie to decide anything."""

    cases: int = 0
    discarded: int = 0
    met: Counter = field(default_factory=Counter)


def make_model(path: Path, kind: str) -> Model:
    tensors = MODELS[kind](path)
    config = json.loads((path / "config.json").read_text())
    network = oracle.OracleNetwork.from_config(tensors, config)
    lm = surelock.load(str(path), dtype=torch.float64)
    if kind in WITH_EOT:  # it comes from a tokenizer, and these checkpoints have none
        lm = replace(lm, eot_id=EOT)
    return Model(lm, network, config["vocab_size"], config)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    return {kind: make_model(tmp_path_factory.mktemp(kind), kind) for kind in MODELS}


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model whose head is zero: every posterior is uniform, every comparison an exact tie."""
    model = make_model(tmp_path_factory.mktemp("flat"), "llada-bias")
    model.network.tensors["model.transformer.ff_out.weight"].zero_()
    with torch.no_grad():
        model.lm.network.head.weight.zero_()
    return model


# --- running both sides -----------------------------------------------------------------------------------------------


def run_library(model: Model, case: Case) -> list[Any]:
    unlock = None if case.unlock is None else surelock.UnlockRule(**case.unlock)
    rule = None if case.rule is None else surelock.LockRule(**case.rule, unlock=unlock)
    chosen = surelock.DecodeSettings(**case.settings)
    return list(surelock.decode(model.lm, case.prompts, chosen, lock=rule, observe=case.observe, top_k=0))


def run_oracle(model: Model, case: Case) -> list[oracle.Trace]:
    """The oracle on every prompt of the batch, with the package's random numbers for that sequence's seed."""
    values = dict(case.settings)
    seed, replay = values.pop("seed", 0), values.pop("replay", None)
    unlock = None if case.unlock is None else oracle.Unlock(**case.unlock)
    rule = {} if case.rule is None else {**case.rule, "unlock": unlock}
    traces = []
    for b, prompt in enumerate(case.prompts):
        plan = oracle.Plan(**values, **rule, replay=replay[b] if replay else (), observe=case.observe)
        noise = noise_of(seed[b] if isinstance(seed, list) else seed + b, plan, model.vocab)
        ids = {"mask_id": MASK, "eos_id": EOS, "eot_id": model.lm.eot_id}
        traces.append(oracle.decode(model.network, prompt, plan, noise, **ids))
    return traces


def noise_of(seed: int, plan: oracle.Plan, vocab: int) -> oracle.Noise:
    def noise(step: int, block: int) -> tuple[Any, Any]:
        wanted = {"uniforms": plan.remasking == "random", "gumbel": plan.temperature > 0}
        return block_noise(seed, step, plan.block_length, vocab, **wanted, device=torch.device("cpu"))

    return noise


def assert_equal(case: Case, steps: list[Any], traces: list[oracle.Trace]) -> None:
    """Every step of every sequence: states exactly, KL and confidence within 1e-9, FLOPs by the paper's formula."""
    assert len(steps) == max(len(trace.steps) for trace in traces)
    for b, (prompt, trace) in enumerate(zip(case.prompts, traces, strict=True)):
        n = len(prompt) + case.settings["gen_length"]
        for step in steps:
            if step.index < len(trace.steps):
                assert_step_equal(step, b, n, trace.steps[step.index])
            else:
                assert_finished(step, b, n, trace.steps[-1])


def assert_step_equal(step: Any, b: int, n: int, expected: oracle.OracleStep) -> None:
    where = f"sequence {b}, step {expected.index}"
    np.testing.assert_array_equal(step.tokens[b, -n:].numpy(), expected.tokens, f"tokens, {where}")
    for name in ("computed", "probed", "masked", "newly_unmasked", "newly_locked", "newly_unlocked", "locked"):
        flags = getattr(step, name)[b]
        np.testing.assert_array_equal(flags[-n:].numpy(), getattr(expected, name), f"{name}, {where}")
        assert not flags[:-n].any(), f"{name} at pads, {where}"
    for name in ("kl", "confidence"):
        values = getattr(step, name)[b]
        # equal_nan by default; an infinity equals only itself
        np.testing.assert_allclose(
            values[-n:].numpy(), getattr(expected, name), rtol=0, atol=TOLERANCE, err_msg=f"{name}, {where}"
        )
        assert values[:-n].isnan().all(), f"{name} at pads, {where}"
    for name in ("flops", "baseline_flops"):
        assert getattr(step, name)[b].item() == pytest.approx(getattr(expected, name), rel=1e-12), f"{name}, {where}"


def assert_finished(step: Any, b: int, n: int, last: oracle.OracleStep) -> None:
    """A finished sequence of a `threshold` batch rests: nothing computed, nothing counted, nothing changed."""
    np.testing.assert_array_equal(step.tokens[b, -n:].numpy(), last.tokens)
    np.testing.assert_array_equal(step.locked[b, -n:].numpy(), last.locked)
    for name in ("computed", "probed", "masked", "newly_unmasked", "newly_locked", "newly_unlocked"):
        assert not getattr(step, name)[b].any(), name
    assert step.kl[b].isnan().all()
    assert step.confidence[b].isnan().all()
    assert step.flops[b] == 0
    assert step.baseline_flops[b] == 0


def smallest_gap(traces: list[oracle.Trace]) -> float:
    return min(trace.smallest_gap for trace in traces)


def agree(model: Model, case: Case) -> list[Any]:
    """Run both sides on a fixed case, which must not be near a tie, and compare them; returns the package's steps."""
    traces = run_oracle(model, case)
    assert smallest_gap(traces) > TOLERANCE, "choose another seed: this case is too near a tie"
    steps = run_library(model, case)
    assert_equal(case, steps, traces)
    return steps


# --- random cases -----------------------------------------------------------------------------------------------------


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    powers = st.floats(-3, 0) | st.floats(-2, 0) | st.floats(-8, 0)
    return {
        "epsilon": draw(powers.map(lambda x: 10.0**x) | st.sampled_from([math.inf, 1.0, 1e-8, -1.0])),
        "percentile": draw(st.sampled_from([50, 20, None, 100, 0, 80, 37.5, None])),
        "visible_steps": draw(st.sampled_from([1, 0, 2])),
    }


@st.composite
def unlocks(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "period": draw(st.integers(1, 3)),
        "budget": draw(st.integers(1, 6)),
        "epsilon_unlock": 10 ** draw(st.floats(-5, -1)),
        "min_interval": draw(st.integers(0, 3)),
        "cooldown": draw(st.integers(0, 2)),
        "rho": draw(st.sampled_from([1.0, 0.5, 0.1])),
    }


def random_replay(rng: np.random.Generator, values: dict[str, Any], vocab: int) -> list[tuple[int, int, int]]:
    """(step, position, token) for each generated position; with selection no step is empty: D would be rounding."""
    gen_length, steps = values["gen_length"], values["steps"]
    at = rng.integers(0, steps, gen_length).tolist()
    if values["select_fraction"] < 1 or rng.random() < 0.7:
        at[:steps] = range(steps)
    tokens = rng.integers(2, vocab, gen_length).tolist()
    return list(zip(at, rng.permutation(gen_length).tolist(), tokens, strict=True))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Hypothesis draws the structure, so that it shrinks; prompts and replayed tokens come from one drawn seed."""
    model, rng = draw(st.sampled_from(sorted(MODELS))), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    vocab = MODELS[model].keywords["vocab"]
    shapes = [(1, 4), (1, 7), (1, 12), (1, 16), (2, 4), (2, 6), (2, 8), (3, 3), (3, 5), (4, 2), (4, 4)]
    blocks, block_length = draw(st.sampled_from(shapes))
    block_steps = draw(
        st.just(block_length) | st.integers(1, block_length) | st.integers((block_length + 1) // 2, block_length)
    )
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    values = {
        "gen_length": blocks * block_length,
        "steps": blocks * block_steps,
        "block_length": block_length,
        "temperature": draw(st.sampled_from([0.0, 0.7, 0.0, 0.3, 1.0, 1.5])),
        "cfg_scale": draw(st.sampled_from([0.0, 1.5, 0.0, 0.5])),
        "remasking": draw(st.sampled_from(POLICIES)),
        "suppress_eos": draw(st.booleans()),
        "suppress_eos_confidence": draw(st.booleans()),
        "no_repeat_ngram_size": draw(st.sampled_from([0, 2, 0, 1, 0, 3])),
        "select_fraction": draw(st.sampled_from([1.0, 0.8, 1.0, 0.5, 1.0, 0.25])),
        "threshold": draw(st.floats(0.05, 0.95)),
        "seed": draw(st.sampled_from([rng.integers(2**32).item(), rng.integers(2**32, size=len(lengths)).tolist()])),
    }
    if values["remasking"] == "replay":
        values["replay"] = [random_replay(rng, values, vocab) for _ in lengths]
    prompts = [[EOS if rng.random() < 0.1 else rng.integers(2, vocab).item() for _ in range(n)] for n in lengths]
    rule = (draw(st.sampled_from([True] * 5 + [False])) and draw(rules())) or None
    unlock = draw(st.none() | unlocks()) if rule else None
    return Case(model, prompts, values, rule, unlock, draw(st.booleans()))


def count(tally: Tally, case: Case, steps: list[Any], traces: list[oracle.Trace]) -> None:
    tally.met.update(
        {
            "rows locked": any(step.newly_locked.any() for step in steps),
            "masked and locked rows together": any(bool(step.masked.any() and step.locked.any()) for step in steps),
            "rows probed": any(step.probed.any() for step in steps),
            "rows unlocked": any(step.newly_unlocked.any() for step in steps),
            "rows locked again": bool((sum(step.newly_locked.int() for step in steps) > 1).any()),
            "ragged": len({len(prompt) for prompt in case.prompts}) > 1,
            "selection": case.settings["select_fraction"] < 1,
            "guidance": case.settings["cfg_scale"] > 0,
            "temperature": case.settings["temperature"] > 0,
            "n-grams not repeated": any(trace.forbidden for trace in traces),
            "ended early": len(steps) < case.settings["steps"],
            "no rule": case.rule is None,
            **{policy: case.settings["remasking"] == policy for policy in POLICIES},
        }
    )


def test_library_equals_the_oracle_over_random_cases(models: dict[str, Model], capsys: pytest.CaptureFixture) -> None:
    """Same tokens, lock steps, KL, confidence and FLOPs; near-ties (under 1e-9, not equal) are discarded, under 2 %."""
    tally = Tally()

    @settings(max_examples=320, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(cases())
    def check(case: Case) -> None:
        tally.cases += 1
        traces = run_oracle(models[case.model], case)
        if smallest_gap(traces) < TOLERANCE:
            tally.discarded += 1
            event("discarded: near a tie")
            return
        steps = run_library(models[case.model], case)
        count(tally, case, steps, traces)
        assert_equal(case, steps, traces)

    check()
    with capsys.disabled():
        print(f"\noracle: {tally.cases} cases, {tally.discarded} near a tie and discarded; {dict(tally.met)}")
    assert tally.cases - tally.discarded >= 200
    assert tally.discarded < 0.02 * tally.cases
    assert min(tally.met.values()) >= 10, "the cases no longer reach everything they should"


# --- fixed cases ------------------------------------------------------------------------------------------------------

BATCH = [[5, 9, 3], [4, 4, 8, 7, 2, 11, 3], [6]]
RULE = {"epsilon": 2e-2, "percentile": 50, "visible_steps": 1}


def fixed_case(model: str = "llada", rule: dict[str, Any] | None = RULE, **changes: Any) -> Case:
    values = {"gen_length": 12, "steps": 8, "block_length": 6, "threshold": 0.6, "seed": [3, 1, 4], **changes}
    if changes.get("remasking") == "replay":
        values["replay"] = [[(i // 2, i * 5 % 12, 2 + i) for i in range(12)] for _ in BATCH]
    return Case(model, BATCH, values, rule)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("remasking", POLICIES)
def test_a_rule_that_never_fires_is_the_baseline(models, remasking: str, temperature: float) -> None:
    case = fixed_case(remasking=remasking, temperature=temperature, rule=None)
    baseline = agree(models["llada"], case)
    never = run_library(models["llada"], Case(case.model, case.prompts, case.settings, {"epsilon": -1.0}))
    assert len(baseline) == len(never)
    for a, b in zip(baseline, never, strict=True):
        assert torch.equal(a.tokens, b.tokens)
        assert not b.locked.any()
        assert torch.equal(a.confidence.nan_to_num(2), b.confidence.nan_to_num(2))


@pytest.mark.parametrize("select_fraction", [1.0, 0.4])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("remasking", POLICIES)
@pytest.mark.parametrize("kind", ["llada-shards", "qwen3"])
def test_a_sequence_does_not_depend_on_its_batch(
    models, kind: str, remasking: str, temperature: float, select_fraction: float
) -> None:
    changes = {"remasking": remasking, "temperature": temperature, "select_fraction": select_fraction}
    case = fixed_case(kind, rule={**RULE, "epsilon": 0.2}, **changes)
    together = run_library(models[kind], case)
    assert any(step.locked.any() for step in together)
    for b, prompt in enumerate(BATCH):
        alone = Case(kind, [prompt], dict(case.settings), case.rule)
        alone.settings["seed"] = case.settings["seed"][b]
        if remasking == "replay":
            alone.settings["replay"] = [case.settings["replay"][b]]
        n = len(prompt) + 12
        for one, many in zip(run_library(models[kind], alone), together, strict=False):
            assert torch.equal(one.tokens[0], many.tokens[b, -n:])
            assert torch.equal(one.locked[0], many.locked[b, -n:])
            assert torch.equal(one.newly_locked[0], many.newly_locked[b, -n:])
            assert torch.equal(one.computed[0], many.computed[b, -n:])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_does_not_change_locks_when_the_same_tokens_are_replayed(models, temperature: float) -> None:
    """The paper's appendix on temperature: the rule sees the posterior before the temperature."""
    case = fixed_case("llada-shards", temperature=temperature, rule={**RULE, "epsilon": 0.2})
    sampled = run_library(models[case.model], case)
    assert any(step.newly_locked.any() for step in sampled)
    replay = [
        [(s.index, p, int(s.tokens[b, p - 12])) for s in sampled for p in range(12) if s.newly_unmasked[b, p - 12]]
        for b in range(len(BATCH))
    ]
    for other in (0.0, 0.3, temperature):
        again = run_library(
            models[case.model], case.with_settings(temperature=other, remasking="replay", replay=replay)
        )
        for a, b in zip(sampled, again, strict=True):
            assert torch.equal(a.tokens, b.tokens)
            assert torch.equal(a.locked, b.locked)
            torch.testing.assert_close(a.kl, b.kl, rtol=0, atol=TOLERANCE, equal_nan=True)


@pytest.mark.parametrize("remasking", POLICIES)
@pytest.mark.parametrize("kind", ["llada-bias", "qwen3-shards"])
def test_guidance_with_every_policy(models, kind: str, remasking: str) -> None:
    agree(models[kind], fixed_case(kind, remasking=remasking, cfg_scale=1.5, temperature=0.4))


@pytest.mark.parametrize("visible_steps", [0, 1, 2])
def test_an_infinite_epsilon_locks_as_soon_as_the_token_was_visible(models, visible_steps: int) -> None:
    """By hand: a prompt position is visible from step 0, a position committed at t from step t + 1."""
    rule = {"epsilon": math.inf, "percentile": None, "visible_steps": visible_steps}
    steps = agree(models["llada"], fixed_case(rule=rule))
    committed = torch.full_like(steps[0].tokens, -1)  # a prompt position counts as committed at step -1
    for step in steps:
        committed[step.newly_unmasked] = step.index
    is_pad = torch.stack([step.computed for step in steps]).any(0).logical_not()
    for step in steps:
        due = (committed + visible_steps).clamp(min=0) <= step.index
        assert torch.equal(step.locked, due & ~step.masked & ~is_pad)


@pytest.mark.parametrize("remasking", ["low_confidence", "entropy", "margin", "threshold"])
def test_exact_ties_go_to_the_lowest_token_and_position(flat: Model, remasking: str) -> None:
    """Uniform posteriors: KL is exactly 0 <= epsilon = 0, u equals theta, tokens and positions tie."""
    rule = {"epsilon": 0.0, "percentile": 20, "visible_steps": 0}
    case = fixed_case("llada-bias", remasking=remasking, rule=rule, threshold=0.5)
    steps = agree(flat, case)
    first = steps[0].newly_unmasked[:, -12:].nonzero()[:, 1].tolist()
    assert first == ([0] * 3 if remasking == "threshold" else [0, 1] * 3)
    generated = steps[-1].tokens[:, -12:]
    assert (generated == EOS).all()  # the lowest id; the mask token is 1
    suppressed = agree(flat, case.with_settings(suppress_eos=True))
    assert (suppressed[-1].tokens[:, -12:] == 2).all()
    assert suppressed[1].newly_locked.any()


# --- the oracle itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_oracle_and_library_networks_equal_transformers(models, kind: str) -> None:
    """A third implementation of each layout, its causal mask opened (its rotary tables are float32: 1e-5)."""
    model, n = models[kind], 11
    tokens = torch.randint(2, model.vocab, (1, n), generator=torch.Generator().manual_seed(0))
    logits = model.network.forward(tokens[0].tolist(), {}, set(range(n)))
    with torch.no_grad():
        opened = torch.zeros(1, 1, n, n, dtype=torch.float64)
        theirs = transformers_twin(model).double().eval()(input_ids=tokens, attention_mask=opened).logits[0]
        ours = model.lm.network(tokens)[0]
    torch.testing.assert_close(logits, theirs, rtol=0, atol=1e-4)
    torch.testing.assert_close(logits, ours, rtol=0, atol=1e-10)
    assert 1 < logits.std() < 4


def transformers_twin(model: Model) -> torch.nn.Module:
    config, tensors = model.config, model.network.tensors
    if model.network.names is oracle.QWEN3:
        twin = Qwen3ForCausalLM(Qwen3Config(**config, attn_implementation="eager"))
        twin.load_state_dict({"lm_head.weight": tensors["model.embed_tokens.weight"], **tensors})
        return twin
    renamed = {}
    for name, tensor in tensors.items():
        part, kind = name.rsplit(".", 1)
        inner = {v: k for k, v in oracle.LLADA.items()}
        prefix = f"model.layers.{part.split('.')[3]}." if ".blocks." in part else ""
        role = part.split(".")[-1] if prefix else part
        key = "down" if prefix and role == "ff_out" else inner[role]
        renamed[f"{prefix}{oracle.QWEN3[key]}.{kind}"] = tensor
    renamed.setdefault("lm_head.weight", renamed["model.embed_tokens.weight"])
    if config["include_qkv_bias"]:
        for layer in range(config["n_layers"]):  # its attention_bias gives the output projection one as well
            renamed[f"model.layers.{layer}.self_attn.o_proj.bias"] = torch.zeros(config["d_model"])
    twin = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config["d_model"],
            num_hidden_layers=config["n_layers"],
            num_attention_heads=config["n_heads"],
            num_key_value_heads=config["n_kv_heads"],
            intermediate_size=config["mlp_hidden_size"],
            vocab_size=config["vocab_size"],
            rope_theta=config["rope_theta"],
            rms_norm_eps=config["rms_norm_eps"],
            tie_word_embeddings=config["weight_tying"],
            attention_bias=config["include_qkv_bias"],
            attn_implementation="eager",
        )
    )
    twin.load_state_dict(renamed)
    return twin


def test_oracle_percentile_by_hand() -> None:
    u = [0.5, 0.1, 0.4, 0.2, 0.3]
    assert [oracle.order_statistic(u, m) for m in (0, 20, 24.9, 25, 50, 99, 100)] == [0.1, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
    # the same positions as linear interpolation
    for m in range(0, 101):
        assert sum(np.array(u) <= oracle.order_statistic(u, m)) == sum(np.array(u) <= np.percentile(u, m) + 1e-12)


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
def test_oracle_without_locks_is_a_dense_forward_per_step(models, cfg_scale: float) -> None:
    """With nothing locked the cache never matters: each step's posteriors are those of a forward from scratch."""
    network, prompt, everything = models["qwen3"].network, [5, 9, 3], set(range(11))
    plan = oracle.Plan(8, 4, 8, cfg_scale=cfg_scale, observe=True)
    trace = oracle.decode(network, prompt, plan, lambda t, block: (None, None), mask_id=MASK, eos_id=EOS)
    tokens, log_q = [*prompt, *[MASK] * 8], None
    for step in trace.steps:
        logits = network.forward(tokens, {}, everything)
        if cfg_scale:
            un = network.forward([MASK] * 3 + tokens[3:], {}, everything)
            logits = un + (cfg_scale + 1) * (logits - un)
        log_p = torch.log_softmax(logits, -1)
        np.testing.assert_allclose(step.confidence, log_p.exp().amax(-1), rtol=0, atol=1e-12)
        if log_q is not None:
            divergence = torch.nn.functional.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1)
            np.testing.assert_allclose(step.kl, divergence, rtol=0, atol=1e-12)
        tokens, log_q = step.tokens.tolist(), log_p
    assert MASK not in tokens


def test_oracle_commits_the_quota_by_hand(models) -> None:
    """A block of 7 in 3 steps commits 3, 2, 2; the second block starts when the first is done."""
    plan = oracle.Plan(14, 6, 7, epsilon=1e-2)
    trace = oracle.decode(models["llada"].network, [5], plan, lambda t, block: (None, None), mask_id=MASK, eos_id=EOS)
    assert [int(step.newly_unmasked.sum()) for step in trace.steps] == [3, 2, 2, 3, 2, 2]
    assert not trace.steps[2].masked[:8].any()
    assert trace.steps[2].masked[8:].all()
