"""Algorithm 1 of the paper (SureLock), word by word: one sequence, every row, float64, slow.

Written from the paper and the project's design notes only; it shares no code with the package, so that the two can
disagree. "Alg. 1, line n" points at the paper's listing. Sets of positions are Python sets with the paper's names.
Dense means: every step computes all N rows in every layer; where the paper computes fewer, the other rows' keys and
values are taken from the cache and their results are thrown away.

KL is the plain sum of p (log p - log q). Its rounding error (about 1e-15) may make it negative where it is truly 0;
it is compared with epsilon as it is, and `Trace.gaps` tells how near to a tie every comparison came: a run whose
smallest gap is under 1e-9 proves nothing about another implementation. Exactly equal values are ties, not near-ties.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

LLADA = {
    "embed": "model.transformer.wte", "norm": "model.transformer.ln_f", "head": "model.transformer.ff_out",
    "layer": "model.transformer.blocks.{}.", "attn_norm": "attn_norm", "q": "q_proj", "k": "k_proj", "v": "v_proj",
    "out": "attn_out", "ff_norm": "ff_norm", "gate": "ff_proj", "up": "up_proj", "down": "ff_out",
}  # fmt: skip
QWEN3 = {
    "embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head", "layer": "model.layers.{}.",
    "attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "out": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
    "ff_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
}  # fmt: skip

# Where nothing that a row sees has changed its KL is zero, and what a program finds is rounding: it must not order
# the rows of a selection. Smaller KLs count as this one there.
ZERO_KL = 1e-9

Noise = Callable[[int, int], tuple[Any, Any]]


@dataclass
class OracleNetwork:
    """A checkpoint's tensors (by their own names) and the sizes of its config.json; computes in float64."""

    tensors: dict[str, Tensor]
    names: dict[str, str]
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    head_size: int
    d_ff: int
    rope_theta: float
    norm_eps: float

    @classmethod
    def from_config(cls, tensors: dict[str, Tensor], config: dict[str, Any]) -> "OracleNetwork":
        """The network of a LLaDA config.json (`n_layers`, ...) or of a Qwen3 one (`num_hidden_layers`, ...)."""
        wide = {name: tensor.to(torch.float64) for name, tensor in tensors.items()}
        if "n_layers" in config:
            d, heads = config["d_model"], config["n_heads"]
            sizes = (config["n_layers"], d, heads, config["n_kv_heads"], d // heads, config["mlp_hidden_size"])
            return cls(wide, LLADA, *sizes, config["rope_theta"], config["rms_norm_eps"])
        d, heads = config["hidden_size"], config["num_attention_heads"]
        sizes = (config["num_hidden_layers"], d, heads, config["num_key_value_heads"], config["head_dim"])
        return cls(wide, QWEN3, *sizes, config["intermediate_size"], config["rope_theta"], config["rms_norm_eps"])

    def weight(self, part: str, layer: int | None = None, kind: str = "weight") -> Tensor | None:
        prefix = "" if layer is None else self.names["layer"].format(layer)
        return self.tensors.get(f"{prefix}{self.names[part]}.{kind}") if part in self.names else None

    def linear(self, x: Tensor, part: str, layer: int) -> Tensor:
        y, bias = x @ self.weight(part, layer).mT, self.weight(part, layer, "bias")
        return y if bias is None else y + bias

    def rms_norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Root-mean-square norm over the last dimension; no norm at all where the layout has no weight for it."""
        if weight is None:
            return x
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.norm_eps) * weight

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary embedding of x [heads, N, dh], half-split, at positions 0..N-1."""
        half = self.head_size // 2
        frequency = x.new_tensor([self.rope_theta ** (-2 * j / self.head_size) for j in range(half)])
        angle = torch.arange(x.shape[1]).to(x)[:, None] * frequency
        first, second = x[..., :half], x[..., half:]
        return torch.cat(
            [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1
        )

    def forward(self, tokens: Sequence[int], cache: dict[int, tuple[Tensor, Tensor]], fresh: set[int]) -> Tensor:
        """Logits [N, V] of all rows. K and V of the `fresh` rows are new (and cached), all others' are the cache's."""
        n, group = len(tokens), self.heads // self.kv_heads
        new = torch.tensor([i in fresh for i in range(n)])[None, :, None]
        x = self.weight("embed")[torch.tensor(tokens)]  # Alg. 1, line 7
        for layer in range(self.layers):  # Alg. 1, line 9
            h = self.rms_norm(x, self.weight("attn_norm", layer))
            q, k, v = (  # Alg. 1, line 10
                self.linear(h, part, layer).view(n, -1, self.head_size).transpose(0, 1) for part in ("q", "k", "v")
            )
            q = self.rotate(self.rms_norm(q, self.weight("q_norm", layer)))
            k = self.rotate(self.rms_norm(k, self.weight("k_norm", layer)))
            if layer in cache:  # Alg. 1, line 11
                k, v = torch.where(new, k, cache[layer][0]), torch.where(new, v, cache[layer][1])
            cache[layer] = (k, v)
            scores = q @ k.repeat_interleave(group, 0).mT / math.sqrt(self.head_size)
            weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
            weights = weights / weights.sum(-1, keepdim=True)
            attended = (weights @ v.repeat_interleave(group, 0)).transpose(0, 1).reshape(n, -1)
            x = x + self.linear(attended, "out", layer)  # Alg. 1, line 12
            h = self.rms_norm(x, self.weight("ff_norm", layer))
            gate = self.linear(h, "gate", layer)
            x = x + self.linear(gate / (1 + torch.exp(-gate)) * self.linear(h, "up", layer), "down", layer)
        head = self.weight("head")  # absent when tied
        return self.rms_norm(x, self.weight("norm")) @ (self.weight("embed") if head is None else head).mT


@dataclass
class Unlock:
    """The appendix "Optional Unlocking": P, budget, epsilon_unlock, D_interval, D_cool, rho."""

    period: int = 8
    budget: int = 8
    epsilon_unlock: float = 5e-2
    min_interval: int = 4
    cooldown: int = 4
    rho: float = 0.5


@dataclass
class Plan:
    """All that a run depends on besides network, prompt and noise. `epsilon=None` is the baseline without a rule."""

    gen_length: int
    steps: int
    block_length: int
    temperature: float = 0.0
    cfg_scale: float = 0.0
    remasking: str = "low_confidence"
    suppress_eos: bool = False
    suppress_eos_confidence: bool = False
    no_repeat_ngram_size: int = 0
    select_fraction: float = 1.0
    threshold: float = 0.9
    replay: Sequence[tuple[int, int, int]] = ()
    epsilon: float | None = None
    percentile: float | None = 20.0
    visible_steps: int = 1
    unlock: Unlock | None = None
    observe: bool = False


@dataclass
class OracleStep:
    """One step: arrays over the N positions, state after the step; kl and confidence NaN where not computed."""

    index: int
    tokens: np.ndarray
    masked: np.ndarray
    locked: np.ndarray
    newly_unmasked: np.ndarray
    newly_locked: np.ndarray
    newly_unlocked: np.ndarray
    computed: np.ndarray
    probed: np.ndarray
    kl: np.ndarray
    confidence: np.ndarray
    flops: float
    baseline_flops: float


@dataclass
class Trace:
    """The steps of a run (a `threshold` run may end early) and, per kind of comparison, its smallest gap above 0."""

    steps: list[OracleStep] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    forbidden: int = 0  # how often the likeliest token would have said an n-gram again

    @property
    def smallest_gap(self) -> float:
        return min(self.gaps.values(), default=math.inf)


def order_statistic(values: Sequence[float], percentile: float) -> float:
    """The lower order statistic that stands for the percentile: sorted(u)[floor(m (n - 1) / 100)]."""
    return sorted(values)[int(percentile * (len(values) - 1) / 100)]


def kl_divergence(log_p: Tensor, log_q: Tensor) -> float:
    return float((log_p.exp() * (log_p - log_q)).sum())


def row_flops(network: OracleNetwork, n: int, probed: bool = False) -> float:
    """Sec. "Algorithmic FLOPs" for one row of a sequence of length n; a probed row computes no K and V."""
    d, width = network.d_model, network.heads * network.head_size
    key_value = 0 if probed else 4 * d * network.kv_heads * network.head_size
    return float(network.layers * (4 * n * width + 4 * d * width + key_value + 6 * d * network.d_ff))


class Run:
    """The state of Algorithm 1 for one sequence, and one method per part of its loop body."""

    def __init__(self, network, prompt, plan: Plan, noise: Noise, mask_id: int, eos_id: int, eot_id: int | None):
        self.network, self.plan, self.noise, self.prompt_length = network, plan, noise, len(prompt)
        self.mask_id, self.eos_id, self.eos_like = mask_id, eos_id, {eos_id, eot_id}
        self.tokens = [*prompt, *[mask_id] * plan.gen_length]
        self.n = len(self.tokens)
        self.masked = set(range(self.prompt_length, self.n))  # M_t
        self.locked: set[int] = set()  # Alg. 1, line 1: lock
        self.caches: tuple[dict, dict] = ({}, {})  # Alg. 1, line 1: C, one for each pass of guidance
        self.stored: dict[int, Tensor] = {}  # Alg. 1, line 2: log p of the row's last own posterior
        self.visible = [0] * self.n  # passes that had the position's real token as input
        self.last_computed, self.last_kl = [-1] * self.n, [math.inf] * self.n  # for selection
        self.locked_at, self.unlocked_at, self.probed_at = {}, {}, {}  # position -> step
        self.blocks = plan.gen_length // plan.block_length
        self.steps_per_block = plan.steps // self.blocks
        self.block = self.step_in_block = self.committed_in_block = 0
        self.trace = Trace()

    def compare(self, kind: str, a: float, b: float) -> None:
        """Remember how near two values came whose order decides something."""
        if a != b:
            self.trace.gaps[kind] = min(self.trace.gaps.get(kind, math.inf), abs(a - b))

    def block_start(self) -> int:
        return self.prompt_length + self.block * self.plan.block_length

    def masks_of_block(self) -> set[int]:
        return self.masked & set(range(self.block_start(), self.block_start() + self.plan.block_length))

    def last_of_block(self) -> bool:
        return self.step_in_block == self.steps_per_block - 1

    def selected(self, t: int, active: set[int]) -> set[int]:
        """Experiment 5's surrogate: the ceil(k M) rows longest uncomputed, then of larger last D, then lowest."""
        fraction = self.plan.select_fraction
        if fraction >= 1 or t == 0:
            return active
        kl = [max(self.last_kl[i], ZERO_KL) for i in range(self.n)]
        order = sorted(active, key=lambda i: (self.last_computed[i], -kl[i], i))
        count = math.ceil(fraction * len(active) - 1e-9)
        if 0 < count < len(order) and self.last_computed[order[count - 1]] == self.last_computed[order[count]]:
            self.compare("selection", kl[order[count - 1]], kl[order[count]])
        return set(order[:count]) | (self.masks_of_block() if self.last_of_block() else set())

    def probes(self, t: int) -> set[int]:
        """Every P steps, a budget of locked rows: the least recently probed first, then the lowest position."""
        unlock = self.plan.unlock
        if self.plan.epsilon is None or unlock is None or t == 0 or t % unlock.period:
            return set()
        return set(sorted(self.locked, key=lambda i: (self.probed_at.get(i, -1), i))[: unlock.budget])

    def logits(self, fresh: set[int]) -> Tensor:
        """Logits [N, V] after guidance: un + (w + 1)(cond - un), the prompt masked in the unconditional pass."""
        cond = self.network.forward(self.tokens, self.caches[0], fresh)
        if not self.plan.cfg_scale > 0:
            return cond
        hidden = [self.mask_id] * self.prompt_length + self.tokens[self.prompt_length :]
        un = self.network.forward(hidden, self.caches[1], fresh)
        return un + (self.plan.cfg_scale + 1) * (cond - un)

    def said(self, i: int) -> set[int]:
        """Tokens with which an n-gram that has position i would stand in the sequence twice; no end of a text."""
        size, said = self.plan.no_repeat_ngram_size, set()
        for token in set(self.tokens) - {self.mask_id} - self.eos_like if size else ():
            with_it = [*self.tokens[:i], token, *self.tokens[i + 1 :]]
            told = [(s, with_it[s : s + size]) for s in range(self.n - size + 1)]
            told = [(s, gram) for s, gram in told if self.mask_id not in gram]
            mine = [(s, gram) for s, gram in told if s <= i < s + size]
            if any(a != b and gram == other for a, gram in mine for b, other in told):
                said.add(token)
        return said

    def candidate(self, i: int, logits: Tensor, noise: np.ndarray | None) -> int:
        """argmax, or Gumbel-max: argmax of exp(logit) / (-log u)^T; never the mask token, nothing that says an n-gram
        again unless nothing else is left.
        """
        scores = logits.numpy().copy()
        scores[[self.mask_id, self.eos_id] if self.plan.suppress_eos else [self.mask_id]] = -math.inf
        fresh = scores.copy()
        fresh[list(self.said(i))] = -math.inf
        if np.isfinite(fresh).any():
            self.trace.forbidden += int(fresh.argmax() != scores.argmax())
            scores = fresh
        if noise is not None:
            scores = scores - self.plan.temperature * np.log(-np.log(noise))
        second, best = np.partition(scores, -2)[-2:]
        self.compare("token", float(best), float(second))
        return int(np.argmax(scores))  # the lowest id among equals

    def score(self, log_p: Tensor, token: int, uniform: float | None) -> float:
        p, policy = log_p.exp(), self.plan.remasking
        if policy == "random":
            return float(uniform)
        if policy == "entropy":
            return float((p * log_p).sum())
        if policy == "margin":
            first, second = p.sort(descending=True).values[:2]
            return float(first - second)
        return float(p[token])  # low_confidence, threshold

    def update_mask(self, t: int, logits: Tensor, log_p: Tensor, computed: set[int]) -> dict[int, int]:
        """UpdateMASK: the tokens {position: token} that this step commits."""
        plan, start = self.plan, self.block_start()
        if plan.remasking == "replay":
            return {self.prompt_length + position: token for step, position, token in plan.replay if step == t}
        uniforms, gumbel = (None if drawn is None else np.asarray(drawn) for drawn in self.noise(t, self.block))
        eligible = sorted(self.masks_of_block() & computed)
        noise = {i: gumbel[i - start] if plan.temperature > 0 else None for i in eligible}
        tokens = {i: self.candidate(i, logits[i], noise[i]) for i in eligible}
        scores = {i: self.score(log_p[i], tokens[i], None if uniforms is None else uniforms[i - start]) for i in tokens}
        late = {i for i in eligible if plan.suppress_eos_confidence and tokens[i] in self.eos_like}
        order = sorted(eligible, key=lambda i: (i in late, -scores[i], i))
        count = self.count_to_commit(order, scores, late)
        if 0 < count < len(order) and (order[count - 1] in late) == (order[count] in late):
            self.compare("commit", scores[order[count - 1]], scores[order[count]])
        return {i: tokens[i] for i in order[:count]}

    def count_to_commit(self, order: list[int], scores: dict[int, float], late: set[int]) -> int:
        """How many of the ranked positions: all above tau but at least one, or the block's quota so far."""
        if self.plan.remasking == "threshold":
            for i in set(order) - late:
                self.compare("tau", scores[i], self.plan.threshold)
            above = sum(scores[i] > self.plan.threshold for i in set(order) - late)
            return len(order) if self.last_of_block() else max(above, min(1, len(order)))
        base, remainder = divmod(self.plan.block_length, self.steps_per_block)
        due = base * (self.step_in_block + 1) + min(self.step_in_block + 1, remainder)
        return min(due - self.committed_in_block, len(order))  # a quota that selection left unmet carries over

    def lock(self, t: int, kl: dict[int, float], u: list[float]) -> set[int]:
        """Alg. 1, lines 20-23: F_t."""
        plan = self.plan
        if plan.epsilon is None:
            return set()
        candidates = {i for i in set(kl) - self.masked if self.visible[i] >= plan.visible_steps}  # line 20: Z_t
        gated = plan.percentile is not None and bool(candidates)
        theta = order_statistic([u[j] for j in candidates], plan.percentile) if gated else math.inf  # line 21
        locks = set()
        for i in candidates:  # line 23
            epsilon, cooling = plan.epsilon, False
            if i in self.unlocked_at:
                epsilon, cooling = plan.unlock.rho * epsilon, t <= self.unlocked_at[i] + plan.unlock.cooldown
            self.compare("epsilon", kl[i], epsilon)
            self.compare("theta", u[i], theta)
            if u[i] <= theta and kl[i] <= epsilon and not cooling:
                locks.add(i)
        return locks

    def unlock(self, t: int, probed: set[int], computed: set[int], log_p: Tensor, u: list[float]) -> set[int]:
        """Eq. (unlock): u~ > theta_t, KL(p~ || p at the lock) > epsilon_unlock, t - t_lock > D_interval."""
        freed, plan = set(), self.plan
        gated = plan.percentile is not None and bool(computed)
        theta = order_statistic([u[j] for j in computed], plan.percentile) if gated else -math.inf
        for i in probed:
            drift = kl_divergence(log_p[i], self.stored[i])
            self.compare("theta_unlock", u[i], theta)
            self.compare("epsilon_unlock", drift, plan.unlock.epsilon_unlock)
            waited = t - self.locked_at[i] > plan.unlock.min_interval
            if u[i] > theta and drift > plan.unlock.epsilon_unlock and waited:
                freed.add(i)
        return freed

    def step(self, t: int) -> None:
        active = set(range(self.n)) - self.locked  # Alg. 1, line 6: A_t; L_t is self.locked
        computed, probed = self.selected(t, active), self.probes(t)
        logits = self.logits(computed)  # lines 7-14
        log_p = torch.log_softmax(logits, dim=-1)  # line 15
        for i in computed - self.masked:
            self.visible[i] += 1
        commits = self.update_mask(t, logits, log_p, computed)  # line 16
        self.masked -= set(commits)
        for i, token in commits.items():
            self.tokens[i] = token
        confidence = log_p.exp().max(-1).values.tolist()
        u = [1 - c for c in confidence]  # line 18
        kl = {i: kl_divergence(log_p[i], self.stored[i]) if i in self.stored else math.inf for i in computed}  # line 19
        locks, freed = self.lock(t, kl, u), self.unlock(t, probed, computed, log_p, u)
        for i in computed:
            self.stored[i], self.last_computed[i], self.last_kl[i] = log_p[i], t, kl[i]
        self.locked = (self.locked | locks) - freed  # line 24; the cache already holds what they wrote
        self.locked_at.update(dict.fromkeys(locks, t))
        self.probed_at.update(dict.fromkeys(probed, t))
        for i in freed:
            self.unlocked_at[i], self.last_kl[i] = t, math.inf
            del self.stored[i]
        self.record(t, commits, locks, freed, computed, probed, kl, confidence)
        self.advance(len(commits))

    def advance(self, committed: int) -> None:
        self.step_in_block, self.committed_in_block = self.step_in_block + 1, self.committed_in_block + committed
        done_early = self.plan.remasking == "threshold" and not self.masks_of_block()
        if done_early or self.step_in_block == self.steps_per_block:
            self.block, self.step_in_block, self.committed_in_block = self.block + 1, 0, 0

    def record(self, t, commits, locks, freed, computed, probed, kl, confidence) -> None:
        def flags(positions) -> np.ndarray:
            return np.array([i in positions for i in range(self.n)])

        network, plan, passes = self.network, self.plan, 2 if self.plan.cfg_scale > 0 else 1
        has_kl = plan.epsilon is not None or plan.observe or plan.select_fraction < 1
        flops = len(computed) * row_flops(network, self.n) + len(probed) * row_flops(network, self.n, probed=True)
        step = OracleStep(
            index=t,
            tokens=np.array(self.tokens),
            masked=flags(self.masked),
            locked=flags(self.locked),
            newly_unmasked=flags(commits),
            newly_locked=flags(locks),
            newly_unlocked=flags(freed),
            computed=flags(computed),
            probed=flags(probed),
            kl=np.array([kl[i] if i in computed and has_kl else math.nan for i in range(self.n)]),
            confidence=np.array([confidence[i] if i in computed else math.nan for i in range(self.n)]),
            flops=passes * flops,
            baseline_flops=passes * self.n * row_flops(network, self.n),
        )
        self.trace.steps.append(step)


def decode(
    network: OracleNetwork, prompt: Sequence[int], plan: Plan, noise: Noise, *, mask_id: int, eos_id: int,
    eot_id: int | None = None,
) -> Trace:  # fmt: skip
    """Run Algorithm 1 on one prompt.

    `noise(step, block)` gives the uniforms of that step for the whole current block, both float64 and in (0, 1):
    (confidence uniforms [block_length] or None, Gumbel uniforms [block_length, V] or None).
    """
    run = Run(network, prompt, plan, noise, mask_id, eos_id, eot_id)
    for t in range(plan.steps):  # Alg. 1, line 5
        if run.block == run.blocks:  # only a `threshold` run gets here before its last step
            break
        run.step(t)
    return run.trace
