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
from collections.abc import Iterable, Sequence
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

MDLM = {
    "embed": "backbone.vocab_embed", "norm": "backbone.output_layer.norm_final", "head": "backbone.output_layer.linear",
    "layer": "backbone.blocks.{}.", "attn_norm": "norm1", "qkv": "attn_qkv", "out": "attn_out", "ff_norm": "norm2",
    "up": "mlp.0", "down": "mlp.2",
}  # fmt: skip
LFM2 = {
    "embed": "lfm2.embed_tokens", "norm": "lfm2.embedding_norm", "head": "lm_head", "layer": "lfm2.layers.{}.",
    "attn_norm": "operator_norm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_layernorm", "k_norm": "self_attn.k_layernorm", "out": "self_attn.out_proj",
    "in": "conv.in_proj", "conv": "conv.conv", "conv_out": "conv.out_proj", "ff_norm": "ffn_norm",
    "gate": "feed_forward.w1", "up": "feed_forward.w3", "down": "feed_forward.w2",
}  # fmt: skip

# Where nothing that a row sees has changed its KL is zero, and what a program finds is rounding: it must not order
# the rows of a selection. Smaller KLs count as this one there.
ZERO_KL = 1e-9


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
    shifted: bool = False  # Dream, CoDA: row i - 1 predicts position i
    # SDAR, OPDLM, bd3lm: i sees j where j // block_size <= i // block_size
    block_size: int | None = None
    convs: tuple[int, ...] = ()  # LFM2's layers without attention
    # of attention [heads, N, N], by layer, in the last forward
    shares: list[Tensor] = field(default_factory=list)

    @classmethod
    def from_config(cls, tensors: dict[str, Tensor], config: dict[str, Any]) -> "OracleNetwork":
        """Of a config.json of LLaDA (`n_layers`, ...), of MDLM (`n_blocks`, ...), or of Qwen3, Dream or LFM2
        (`num_hidden_layers`, ...).
        """
        wide = {name: tensor.to(torch.float64) for name, tensor in tensors.items()}
        if "n_blocks" in config:
            d = config["hidden_dim"]
            heads = config["n_heads"]
            size = config.get("block_size")
            shape = (config["n_blocks"], d, heads, heads, d // heads, 4 * d, 1e4, 1e-5)
            return OracleMDLM(wide, MDLM, *shape, block_size=size)
        if "n_layers" in config:
            d = config["d_model"]
            heads = config["n_heads"]
            sizes = (
                config["n_layers"],
                d,
                heads,
                config["n_kv_heads"],
                d // heads,
                config["mlp_hidden_size"],
            )
            return cls(wide, LLADA, *sizes, config["rope_theta"], config["rms_norm_eps"])
        d = config["hidden_size"]
        heads = config["num_attention_heads"]
        sizes = (
            config["num_hidden_layers"],
            d,
            heads,
            config["num_key_value_heads"],
            config.get("head_dim", d // heads),
        )
        if "layer_types" in config:
            convs = tuple(i for i, kind in enumerate(config["layer_types"]) if kind == "conv")
            # the file's is not the feed-forward's
            width = -(-(2 * config["intermediate_size"] // 3) // 256) * 256
            return cls(
                wide, LFM2, *sizes, width, config["rope_theta"], config["norm_eps"], convs=convs
            )
        rest = (config["intermediate_size"], config["rope_theta"], config["rms_norm_eps"])
        return cls(
            wide,
            QWEN3,
            *sizes,
            *rest,
            config["model_type"] in ("Dream", "CoDA"),
            config.get("block_size"),
        )

    def weight(self, part: str, layer: int | None = None, kind: str = "weight") -> Tensor | None:
        prefix = "" if layer is None else self.names["layer"].format(layer)
        return (
            self.tensors.get(f"{prefix}{self.names[part]}.{kind}") if part in self.names else None
        )

    def sees(self, i: int, n: int) -> int:
        """How many of n positions row i sees: the first ones."""
        return (
            n if self.block_size is None else min(n, (i // self.block_size + 1) * self.block_size)
        )

    def linear(self, x: Tensor, part: str, layer: int) -> Tensor:
        y = x @ self.weight(part, layer).mT
        bias = self.weight(part, layer, "bias")
        return y if bias is None else y + bias

    def rms_norm(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Root-mean-square norm over the last dimension; no norm at all where the layout has no weight for it."""
        if weight is None:
            return x
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.norm_eps) * weight

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary embedding of x [heads, N, dh], half-split, at positions 0..N-1."""
        half = self.head_size // 2
        frequency = x.new_tensor(
            [self.rope_theta ** (-2 * j / self.head_size) for j in range(half)]
        )
        angle = torch.arange(x.shape[1]).to(x)[:, None] * frequency
        first = x[..., :half]
        second = x[..., half:]
        return torch.cat(
            [
                first * angle.cos() - second * angle.sin(),
                second * angle.cos() + first * angle.sin(),
            ],
            dim=-1,
        )

    def forward(
        self, tokens: Sequence[int], cache: dict[int, tuple[Tensor, Tensor]], fresh: set[int]
    ) -> Tensor:
        """Logits [N, V] of all rows. K and V of the `fresh` rows are new (and cached), all others' are the cache's."""
        n = len(tokens)
        new = torch.tensor([i in fresh for i in range(n)])[None, :, None]
        x = self.weight("embed")[torch.tensor(tokens)]  # Alg. 1, line 7
        self.shares = []
        for layer in range(self.layers):  # Alg. 1, line 9
            mix = self.convolved if layer in self.convs else self.attended
            x = x + self.gated("attn", mix(self.normed("attn", x, layer), layer, cache, new), layer)
            x = x + self.gated("ff", self.fed(self.normed("ff", x, layer), layer), layer)
        head = self.weight("head")  # absent when tied
        h = self.normed("", x)
        # what a row that is not fresh left behind still predicts the position after it
        if self.shifted:
            cache[-1] = (torch.where(new[0], h, cache[-1][0] if -1 in cache else h),) * 2
            h = torch.stack([cache[-1][0][max(0, i - 1)] for i in range(n)])
        return h @ (self.weight("embed") if head is None else head).mT

    def attended(
        self, h: Tensor, layer: int, cache: dict[int, tuple[Tensor, Tensor]], new: Tensor
    ) -> Tensor:
        n = len(h)
        group = self.heads // self.kv_heads
        # Alg. 1, line 10
        q, k, v = (each.view(n, -1, self.head_size).transpose(0, 1) for each in self.qkv(h, layer))
        q = self.rotate(self.rms_norm(q, self.weight("q_norm", layer)))
        k = self.rotate(self.rms_norm(k, self.weight("k_norm", layer)))
        if layer in cache:  # Alg. 1, line 11
            k = torch.where(new, k, cache[layer][0])
            v = torch.where(new, v, cache[layer][1])
        cache[layer] = (k, v)
        scores = q @ k.repeat_interleave(group, 0).mT / math.sqrt(self.head_size)
        for i in range(n):
            scores[:, i, self.sees(i, n) :] = -math.inf
        weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
        weights = weights / weights.sum(-1, keepdim=True)
        self.shares.append(weights)
        attended = (weights @ v.repeat_interleave(group, 0)).transpose(0, 1).reshape(n, -1)
        return self.linear(attended, "out", layer)  # Alg. 1, line 12

    def convolved(
        self, h: Tensor, layer: int, cache: dict[int, tuple[Tensor, Tensor]], new: Tensor
    ) -> Tensor:
        """LFM2's centred convolution over B * X of a row and its neighbours: what is not fresh is the cache's."""
        b, c, x = self.linear(h, "in", layer).chunk(3, dim=-1)
        kept = torch.where(new[0], b * x, cache[layer][0]) if layer in cache else b * x
        cache[layer] = (kept, kept)
        n = len(h)
        weight = self.weight("conv", layer)[:, 0]
        mixed = torch.zeros_like(kept)
        for i in range(n):
            for tap, j in enumerate((i - 1, i, i + 1)):
                if 0 <= j < n:
                    mixed[i] += weight[:, tap] * kept[j]
        return self.linear(c * mixed, "conv_out", layer)

    def qkv(self, h: Tensor, layer: int) -> list[Tensor]:
        return [self.linear(h, part, layer) for part in ("q", "k", "v")]

    def normed(self, kind: str, x: Tensor, layer: int | None = None) -> Tensor:
        """The norm before a half of a layer, "attn" or "ff"; "" is the last one."""
        return self.rms_norm(x, self.weight(f"{kind}_norm".lstrip("_"), layer))

    def gated(self, kind: str, x: Tensor, layer: int) -> Tensor:
        """What a half of a layer adds."""
        return x

    def fed(self, h: Tensor, layer: int) -> Tensor:
        gate = self.linear(h, "gate", layer)
        return self.linear(
            gate / (1 + torch.exp(-gate)) * self.linear(h, "up", layer), "down", layer
        )


class OracleMDLM(OracleNetwork):
    """The DiT of kuleshov-group/mdlm as it is described: at every use the time network says how norms are shifted and
    scaled and what each half of a layer is multiplied by, at sigma 0. Some of bd3lm have none of this.
    """

    def forward(
        self, tokens: Sequence[int], cache: dict[int, tuple[Tensor, Tensor]], fresh: set[int]
    ) -> Tensor:
        return super().forward(tokens, cache, fresh) + self.weight("head", kind="bias")

    def weight(self, part: str, layer: int | None = None, kind: str = "weight") -> Tensor | None:
        return super().weight(part, layer, "embedding" if part == "embed" else kind)

    def qkv(self, h: Tensor, layer: int) -> list[Tensor]:
        return list(self.linear(h, "qkv", layer).chunk(3, dim=-1))

    def condition(self, owner: str, parts: int) -> Sequence[Tensor]:
        def product(name: str, x: Tensor) -> Tensor:
            return (
                self.tensors[f"backbone.{name}.weight"] @ x + self.tensors[f"backbone.{name}.bias"]
            )

        if f"backbone.{owner}.adaLN_modulation.weight" not in self.tensors:
            return [torch.zeros(self.d_model).double()] * 2 + [torch.ones(self.d_model).double()]
        sigma = 0.0
        steps = torch.arange(128).double()
        angles = sigma * torch.exp(-math.log(10000) * steps / 128)
        x = product("sigma_map.mlp.0", torch.cat((angles.cos(), angles.sin())))
        x = product("sigma_map.mlp.2", x * torch.sigmoid(x))
        return product(f"{owner}.adaLN_modulation", x * torch.sigmoid(x)).chunk(parts)

    def of_half(self, kind: str, layer: int | None) -> Sequence[Tensor]:
        """Shift, scale and gate of a half of a layer; of the last norm shift and scale."""
        if layer is None:
            return self.condition("output_layer", 2)
        found = self.condition(f"blocks.{layer}", 6)
        return found[-3:] if kind == "ff" else found[:3]

    def normed(self, kind: str, x: Tensor, layer: int | None = None) -> Tensor:
        shift, scale, *_ = self.of_half(kind, layer)
        centred = x - x.mean(-1, keepdim=True)
        h = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + self.norm_eps)
        return h * self.weight(f"{kind}_norm".lstrip("_"), layer) * (1 + scale) + shift

    def gated(self, kind: str, x: Tensor, layer: int) -> Tensor:
        return self.of_half(kind, layer)[2] * x

    def fed(self, h: Tensor, layer: int) -> Tensor:
        up = self.linear(h, "up", layer)
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        return self.linear(gelu, "down", layer)


# --- which rows a step computes ---------------------------------------------------------------------------------------


@dataclass
class UnlockRule:
    """The appendix "Optional Unlocking": P, budget, epsilon_unlock, D_interval, D_cool, rho."""

    period: int = 8
    budget: int = 8
    epsilon_unlock: float = 5e-2
    min_interval: int = 4
    cooldown: int = 4
    rho: float = 0.5


@dataclass
class Everything:
    """All active rows."""


@dataclass
class LockRule:
    """Algorithm 1."""

    epsilon: float = 5e-4
    percentile: float | None = 20.0
    visible_steps: int = 1
    unlock: UnlockRule | None = None
    future: bool = False  # masks of later blocks are computed only when a block begins


@dataclass
class LockByAge:
    """The control: a candidate locks once it has been visible for so many passes; no KL, no gate."""

    steps: int = 12


@dataclass
class SelectRule:
    """Experiment 5's surrogate: a fraction of the active rows."""

    fraction: float = 0.8


@dataclass
class BudgetRule:
    """A share of all rows in every step: changed tokens, then some confident masks, then the largest debt, weighted by
    how near the row is to one of the most confident masks.
    """

    share: float = 0.3
    near: float = 4.0


@dataclass
class BlockCache:
    """Fast-dLLM: only the block (dual), or the block and everything after it."""

    dual: bool = True


@dataclass
class DelayedCache:
    """dKV-Cache: what is masked or has not been seen yet; everything every `refresh` steps."""

    refresh: int = 8


@dataclass
class EntropyCache:
    """Masked rows and the latest commits; everything after a step that drew a token from too much entropy."""

    recent: int = 16
    threshold: float = 1.0


@dataclass
class Rule:
    """What decides which rows are computed and which lock: one rule, or a locking and a choosing one."""

    locking: LockRule | LockByAge | None = None
    choosing: SelectRule | BudgetRule | BlockCache | DelayedCache | EntropyCache | Everything = (
        field(default_factory=Everything)
    )


@dataclass
class LowConfidence:
    """A quota of the largest probabilities of the candidate tokens."""


@dataclass
class Random:
    """A quota in random order."""


@dataclass
class Entropy:
    """A quota of the posteriors of least entropy."""


@dataclass
class Margin:
    """A quota of the largest differences of the two largest probabilities."""


@dataclass
class Threshold:
    """All candidates of a probability above p, at least one."""

    p: float = 0.9


@dataclass
class Klass:
    """KLASS: all candidates that are confident and whose KL has been small for `history` passes in a row."""

    confidence: float = 0.9
    kl: float = 1e-2
    history: int = 2


@dataclass
class EntropyBound:
    """EB-Sampler: the largest prefix, by entropy, whose sum of entropies less the largest is at most gamma."""

    gamma: float = 0.1


@dataclass
class EarlyFinish:
    """Prophet: a quota of the largest probabilities; everything once the mean gap of the two largest logits is wide."""

    first: float = 7.5
    middle: float = 5.0
    last: float = 2.5
    answer: int = 0


@dataclass
class Remask:
    """ReMDM for LLaDA: S of a block's 2 S steps mask the least confident of its tokens again before they compute."""

    taken_back: int = 1
    begins: float = 0.875


@dataclass
class LocalLeap:
    """All candidates of a probability of at least p, and within `radius` positions of one of these from `near` on; at
    least one.
    """

    p: float = 0.9
    near: float = 0.75
    radius: int = 4


@dataclass
class Correct:
    """T2M: fills as Threshold does; after a step it masks the tokens that the step made less likely than `doubt`, few
    at a time, and few times each.
    """

    p: float = 0.7
    doubt: float = 0.5
    share: float = 0.25
    times: int = 5


@dataclass
class Replay:
    """(step, position from the first mask on, token) triples: teacher forcing."""

    commits: Sequence[tuple[int, int, int]] = ()


# these end a block as soon as nothing of it is masked
EARLY = (Threshold, Klass, EntropyBound, EarlyFinish, LocalLeap, Correct)


# --- what a person does to the run ------------------------------------------------------------------------------------

# the order in which a step's events are applied
KINDS = ("unlock", "mask", "write", "lock", "rule")


class Refused(ValueError):
    """An event that does not fit what the run has become."""


@dataclass
class Event:
    """One intervention before step `step` computes; position counts from the start of the prompt."""

    step: int
    kind: str
    position: int | None = None
    token: int | None = None
    rule: Rule | None = None


# --- a run ------------------------------------------------------------------------------------------------------------


def span_size(vocab: int) -> int:
    """The power of two next to the root of a vocabulary."""
    return 2 ** round(math.log2(math.sqrt(vocab)))


@dataclass
class Plan:
    """All that a run depends on besides network and prompt."""

    gen_length: int
    steps: int | None  # None: one for each mask
    block_length: int | None  # None: one block
    temperature: float = 0.0
    cfg_scale: float = 0.0
    seed: int = 0
    suppress_eos: bool = False
    suppress_eos_confidence: bool = False
    no_repeat_ngram_size: int = 0
    stop_at_end: bool = False
    # of blanks: the first position, and the words
    lists: Sequence[tuple[int, Sequence[Sequence[int]]]] = ()
    rule: Rule = field(default_factory=Rule)
    policy: Any = field(default_factory=LowConfidence)
    by_span: bool = False  # tokens are drawn as on a GPU


@dataclass
class OracleStep:
    """One step: arrays over the N positions, state after the step; kl and confidence NaN where not computed."""

    index: int
    tokens: np.ndarray
    masked: np.ndarray
    locked: np.ndarray
    newly_unmasked: np.ndarray
    newly_masked: np.ndarray
    taken_back: np.ndarray
    written: np.ndarray
    newly_locked: np.ndarray
    newly_unlocked: np.ndarray
    computed: np.ndarray
    probed: np.ndarray
    resting: np.ndarray
    kl: np.ndarray
    confidence: np.ndarray
    flops: float
    baseline_flops: float
    filled: np.ndarray  # by an end, when the step is over
    spared: int = 0  # steps
    shares: dict[int, list[float]] = field(default_factory=dict)  # of lists by their first position
    error: np.ndarray | None = None  # KL(shadow || run), nats, of what was committed; else NaN
    # 1.0 where the likeliest token is another one in the shadow, NaN if near a tie
    changed: np.ndarray | None = None
    # of each commit, by rank: the best scores in the shadow less those of the commits
    regret: np.ndarray | None = None


@dataclass
class Trace:
    """The steps of a run and, per kind of comparison, its smallest gap above 0."""

    steps: list[OracleStep] = field(default_factory=list)
    gaps: dict[str, float] = field(default_factory=dict)
    forbidden: int = 0  # how often the likeliest token would have said an n-gram again
    met: set[str] = field(default_factory=set)  # what became of the run that its steps do not tell
    twins: bool = False  # whether the gate fell on two positions that one hidden state predicts

    @property
    def smallest_gap(self) -> float:
        return min(self.gaps.values(), default=math.inf)


def order_statistic(values: Sequence[float], percentile: float) -> float:
    """The lower order statistic that stands for the percentile: sorted(u)[floor(m (n - 1) / 100)]."""
    return sorted(values)[int(percentile * (len(values) - 1) / 100)]


def kl_divergence(log_p: Tensor, log_q: Tensor) -> float:
    return float((log_p.exp() * (log_p - log_q)).sum())


def entropy(log_p: Tensor) -> float:
    return float(-(log_p.exp() * log_p).sum())


def row_flops(network: OracleNetwork, n: int, probed: bool = False) -> float:
    """Sec. "Algorithmic FLOPs" for one row that attends to n positions; a probed row computes no K and V."""
    d = network.d_model
    width = network.heads * network.head_size
    key_value = 0 if probed else 4 * d * network.kv_heads * network.head_size
    attention = 4 * n * width + 4 * d * width + key_value
    products = 2 if isinstance(network, OracleMDLM) else 3
    convolution = (4 if probed else 8) * d * d  # C and Out, and of a row that is not probed B and X
    mixing = sum(
        convolution if layer in network.convs else attention for layer in range(network.layers)
    )
    return float(mixing + network.layers * 2 * products * d * network.d_ff)


class Run:
    """The state of Algorithm 1 for one sequence, and one method per part of its loop body."""

    def __init__(
        self,
        network: OracleNetwork,
        prompt: Sequence[int],
        plan: Plan,
        mask_id: int,
        eos_id: int,
        eot_id: int | None,
    ) -> None:
        self.network, self.plan, self.rule = network, plan, plan.rule
        self.mask_id, self.eos_id, self.eos_like = mask_id, eos_id, {eos_id, eot_id}
        self.tokens = [*prompt, *[mask_id] * plan.gen_length]
        self.n = len(self.tokens)
        self.masked = {i for i in range(self.n) if self.tokens[i] == mask_id}  # M_t
        self.given = set(range(self.n)) - self.masked  # the prompt, which may have masks in it
        self.first = min(self.masked)
        self.last_given = max(self.given, default=-1)
        self.locked: set[int] = set()  # Alg. 1, line 1: lock
        # Alg. 1, line 1: C, one for each pass of guidance
        self.caches: tuple[dict, dict] = ({}, {})
        self.stored: dict[int, Tensor] = {}  # Alg. 1, line 2: log p of the row's last own posterior
        self.visible = [0] * self.n  # passes that had the position's real token as input
        self.still = [0] * self.n  # KLASS: passes in a row with a small KL
        self.last_computed = [-1] * self.n  # for selection
        self.last_kl = [math.inf] * self.n
        self.last_confidence = [0.0] * self.n
        self.read = list(self.tokens)  # the tokens that the budget's last step read, and that step
        self.budget_at = -2
        self.owing = [0.0] * self.n  # for the budget
        self.locked_at = {}  # position -> step
        self.unlocked_at = {}
        self.probed_at = {}
        self.written_at: dict[int, int] = {}  # the step of what stands there, if it was not given
        # the probability of what a step committed, when it did
        self.drawn_at: dict[int, float] = {}
        self.doubted: set[int] = set()  # T2M: what the last step found unlikely
        self.times: dict[int, int] = {}  # T2M: how often a position of the block was masked again
        self.checks = 0  # T2M: steps of the block that began without a mask
        # T2M: whether the block is not over, though nothing of it may be masked
        self.goes_on = False
        # of the last step's commits; None if no rule asked
        self.entropies: dict[int, float] | None = None
        self.spans, self.masks_of, self.steps_of = self.schedule()
        self.blocks = len(self.spans)
        # rows of finished blocks of a block-causal network, computed once more
        self.settled: set[int] = set()
        self.block = self.step_in_block = self.owed = 0
        self.trace = Trace()

    @property
    def finished(self) -> bool:
        return self.block == self.blocks

    def compare(self, kind: str, a: float, b: float) -> None:
        """Remember how near two values came whose order decides something."""
        if a != b:
            self.trace.gaps[kind] = min(self.trace.gaps.get(kind, math.inf), abs(a - b))

    def meet(self, what: str, met: bool = True) -> None:
        """Remember that the run came to something that its steps do not tell."""
        self.trace.met |= {what} if met else set()

    def schedule(self) -> tuple[list[range], list[int], list[int]]:
        """The blocks, and the masks and steps of each. They run from the first mask to the end; those without a mask
        are none. A block-causal network counts blocks from position 0, its own are the longest. Each has a step, and so
        many of the others as go with its masks.
        """
        plan = self.plan
        size = self.network.block_size
        room = self.n - self.first
        length = min(plan.block_length or room, room)
        begins = [i for i in range(self.first, self.n) if (i - self.first) % length == 0]
        if size is not None:
            length = size if length == room else min(size, length)
            begins = [i for i in range(self.first, self.n) if i == self.first or i % length == 0]
        self.laps = 2 if isinstance(plan.policy, Remask) else 1
        spans = [
            range(a, b)
            for a, b in zip(begins, [*begins[1:], self.n], strict=True)
            if self.masked & {*range(a, b)}
        ]
        masks = [len(self.masked & {*span}) for span in spans]
        steps = []
        given = 0
        spare = (plan.steps or sum(masks)) - len(spans)
        room = sum(masks) - len(spans)
        for number in range(1, len(spans) + 1):
            due = number + (spare * (sum(masks[:number]) - number) // room if room else 0)
            laps = 2 + plan.policy.times if isinstance(plan.policy, Correct) else self.laps
            steps.append(laps * (due - given))
            given = due
        return spans, masks, steps

    def block_start(self) -> int:
        return self.n if self.finished else self.spans[self.block].start

    def block_stop(self) -> int:
        return self.n if self.finished else self.spans[self.block].stop

    def resting(self) -> tuple[set[int], set[int]]:
        """In a block-causal network: the rows of finished and of later blocks, about which no rule decides; and those
        of finished blocks that were not computed since, which every step computes.
        """
        size = self.network.block_size
        if size is None:
            return set(), set()
        done = {
            i
            for i in range(self.n)
            if not any(self.network.sees(i, self.n) > j for j in self.masked)
        }
        later = {i for i in range(self.n) if i // size > self.block_start() // size}
        return done | later, done - self.settled

    def may_be_committed(self) -> set[int]:
        """The masked positions at or before the end of the current block."""
        return {i for i in self.masked if i < self.block_stop()}

    def last_of_block(self) -> bool:
        return self.step_in_block == self.steps_of[self.block] - 1

    # --- events

    def apply(self, t: int, event: Event) -> None:
        """What a person does before step t."""
        i = event.position
        if event.kind == "rule":
            self.rule = event.rule
        elif self.finished:
            raise Refused(event)
        elif event.kind == "lock":
            # nothing of it is in the cache
            if i in self.masked or i in self.locked or self.last_computed[i] < 0:
                raise Refused(event)
            self.locked.add(i)
            self.locked_at[i] = t
        elif event.kind == "unlock":
            if i not in self.locked:
                raise Refused(event)
            self.free(t, i)
        else:
            if i in self.given or (event.kind == "mask" and i in self.masked):
                raise Refused(event)
            if i in self.locked:
                self.free(t, i)
            self.mask(i)
            if event.kind == "write":
                self.tokens[i] = event.token
                self.written_at[i] = t
                self.masked.discard(i)

    def mask(self, i: int) -> None:
        """A position is masked again; where nothing later saw it, finished blocks stay exact."""
        self.tokens[i] = self.mask_id
        self.visible[i] = 0
        self.masked.add(i)
        self.written_at.pop(i, None)
        self.drawn_at.pop(i, None)
        self.settled = {j for j in self.settled if self.network.sees(j, self.n) <= i}

    def take_back(self) -> set[int]:
        """What the policy masks again before the step: nothing that is locked or that an event wrote."""
        taken = self.least_sure() if isinstance(self.plan.policy, Remask) else self.doubted_still()
        for i in taken:
            self.mask(i)
            self.stored.pop(i, None)
            self.last_kl[i] = math.inf
            self.last_confidence[i] = 0.0
        return taken

    def doubted_still(self) -> set[int]:
        """T2M: what the last step doubted, unless it was locked, masked or written over since."""
        found = {i for i in self.doubted if i in self.drawn_at and i not in self.locked}
        for i in found:
            self.times[i] = self.times.get(i, 0) + 1
        return found

    def doubts(self, full: bool, commits: set[int], computed: set[int], log_p: Tensor) -> None:
        """T2M, once the step has committed: which of the block's older tokens it makes unlikely, the worst of them, and
        whether the block goes on. full: the step began without a mask.
        """
        policy = self.plan.policy
        self.doubted = set()
        self.goes_on = False
        if not isinstance(policy, Correct) or self.last_of_block():
            return
        self.checks += full
        older = [
            i
            for i in self.spans[self.block]
            if i in self.drawn_at and i not in commits | self.locked
        ]
        p = {i: float(log_p[i].exp()[self.tokens[i]]) for i in older if i in computed}
        for each in p.values():
            self.compare("doubt", each, policy.doubt)
        worn = {i for i in p if self.times.get(i, 0) >= policy.times}
        unlikely = sorted(
            [i for i in p if p[i] < policy.doubt and i not in worn], key=lambda i: (p[i], i)
        )
        most = max(1, int(policy.share * len(p)))
        if most < len(unlikely):
            self.compare("doubted", p[unlikely[most - 1]], p[unlikely[most]])
        self.doubted = set(unlikely[:most])
        self.meet("only the worst are doubted", most < len(unlikely))
        self.meet("doubted often enough", any(p[i] < policy.doubt for i in worn))
        self.meet("a full block is looked at again", full)
        self.goes_on = bool(self.doubted) or not (full or self.checks >= 16)

    def least_sure(self) -> set[int]:
        """ReMDM: of the block's tokens the least probable when they were drawn, unless they are locked."""
        policy = self.plan.policy
        if self.finished or self.lap()[0] != "rewrites" or self.last_of_block():
            return set()
        drawn = {
            i: self.drawn_at[i]
            for i in self.spans[self.block]
            if i in self.drawn_at and i not in self.locked
        }
        self.meet("a locked one stays", any(i in self.locked for i in self.spans[self.block]))
        order = sorted(drawn, key=lambda i: (drawn[i], i))
        if len(order) > policy.taken_back:
            self.compare(
                "taken back",
                *(drawn[i] for i in order[policy.taken_back - 1 : policy.taken_back + 1]),
            )
        return set(order[: policy.taken_back])

    def lap(self) -> tuple[str, int]:
        """What the step of the block does, "writes" or "rewrites", and its number among those that write."""
        steps = self.steps_of[self.block] // self.laps
        number = self.step_in_block
        if not isinstance(self.plan.policy, Remask):
            return "writes", number
        begins = math.floor(self.plan.policy.begins * steps + 1e-9)
        if begins <= number < begins + steps:
            return "rewrites", begins
        return "writes", number if number < begins else number - steps

    def free(self, t: int, i: int) -> None:
        """An unlocked position is computed again and has no earlier posterior."""
        self.locked.discard(i)
        self.unlocked_at[i] = t
        self.last_kl[i] = math.inf
        self.stored.pop(i, None)

    # --- rows

    def chosen(self, t: int, active: set[int]) -> set[int]:
        """The active rows that the rule computes."""
        rows = self.chosen_of(t, active)
        locking = self.rule.locking
        if isinstance(locking, LockRule) and locking.future and self.step_in_block > 0:
            resting = {i for i in rows if i in self.masked and i >= self.block_stop()}
            self.meet("later masks rest", bool(resting))
            return rows - resting
        return rows

    def chosen_of(self, t: int, active: set[int]) -> set[int]:
        """Those that the choosing rule computes."""
        rule = self.rule.choosing
        if isinstance(rule, SelectRule):
            return self.selected(t, active, rule.fraction)
        if isinstance(rule, BudgetRule):
            return self.budgeted(t, active, rule)
        if isinstance(rule, BlockCache) and self.step_in_block > 0:
            stop = self.block_stop() if rule.dual else self.n
            return active & set(range(self.block_start(), stop))
        if (
            isinstance(rule, DelayedCache)
            and self.step_in_block not in (0, 1)
            and self.step_in_block % rule.refresh
        ):
            return {i for i in active if i in self.masked or self.visible[i] == 0}
        if isinstance(rule, EntropyCache) and self.entropies is not None:
            for value in self.entropies.values():
                self.compare("entropy", value, rule.threshold)
            sure = all(value <= rule.threshold for value in self.entropies.values())
            self.meet("rows wait behind a sure commit", sure)
            latest = sorted(self.written_at, key=lambda i: (-self.written_at[i], i))[: rule.recent]
            return active & (self.masked | set(latest)) if sure else active
        return active

    def selected(self, t: int, active: set[int], fraction: float) -> set[int]:
        """Experiment 5's surrogate: the ceil(k M) rows longest uncomputed, then of larger last D, then lowest."""
        if t == 0:
            return active
        kl = [max(self.last_kl[i], ZERO_KL) for i in range(self.n)]
        order = sorted(active, key=lambda i: (self.last_computed[i], -kl[i], i))
        count = math.ceil(fraction * len(active) - 1e-9)
        if (
            0 < count < len(order)
            and self.last_computed[order[count - 1]] == self.last_computed[order[count]]
        ):
            self.compare("selection", kl[order[count - 1]], kl[order[count]])
        return set(order[:count])

    def budgeted(self, t: int, active: set[int], rule: BudgetRule) -> set[int]:
        """ceil(share N) rows: those whose token is new to them, up to a third of confident masks, the largest debts,
        each times its nearness.
        """
        read_before = self.read
        self.read = list(self.tokens)
        last = self.budget_at
        self.budget_at = t
        if last != t - 1:
            self.owing = [0.0] * self.n
            return active
        for i in range(self.n):
            if self.last_computed[i] == t - 1:
                self.owing[i] = 0.0
        for j in range(self.n):
            if self.tokens[j] != read_before[j]:
                for i in range(self.n):
                    self.owing[i] += 1 if i == j else 1 / abs(i - j)
        count = math.ceil(rule.share * (self.n - len(self.resting()[0])) - 1e-9)
        moved = {i for i in active - self.masked if self.visible[i] == 0}
        masks = sorted(
            self.may_be_committed() & active, key=lambda i: (-self.last_confidence[i], i)
        )
        few = math.ceil(count / 3)
        if few < len(masks):
            self.compare(
                "candidates", self.last_confidence[masks[few - 1]], self.last_confidence[masks[few]]
            )
        first = set(masks[:few])
        away = dict.fromkeys(active, 0)
        counted = [1.0] * self.n
        if masks:
            if len(masks) > 4:
                self.compare(
                    "written next", self.last_confidence[masks[3]], self.last_confidence[masks[4]]
                )
            for i in active:
                away[i] = min(abs(i - c) for c in masks[:4])
                counted[i] = 0.1 + math.exp(-away[i] / rule.near)
        worth = {i: self.owing[i] * counted[i] for i in active}
        ranks = {i: 0 if i in moved else 1 if i in first else 2 for i in active}
        order = sorted(active, key=lambda i: (ranks[i], -worth[i], i))
        if 0 < count < len(order):
            a = order[count - 1]
            b = order[count]
            owed = self.owing[a] > 0 or self.owing[b] > 0
            if (
                ranks[a] == ranks[b] == 2
                and owed
                and (self.owing[a], away[a]) != (self.owing[b], away[b])
            ):
                # equal products of other factors are a near-tie, too, unless nothing is owed
                self.trace.gaps["worth"] = min(
                    self.trace.gaps.get("worth", math.inf), abs(worth[a] - worth[b])
                )
        return set(order[:count])

    def probes(self, t: int) -> set[int]:
        """Every P steps, a budget of locked rows: the least recently probed first, then the lowest position."""
        unlock = self.rule.locking.unlock if isinstance(self.rule.locking, LockRule) else None
        if unlock is None or t == 0 or t % unlock.period:
            return set()
        locked = self.locked - self.resting()[0]
        return set(sorted(locked, key=lambda i: (self.probed_at.get(i, -1), i))[: unlock.budget])

    def logits(self, fresh: set[int]) -> Tensor:
        """Logits [N, V] after guidance: un + (w + 1)(cond - un), what is given masked in the unconditional pass."""
        cond = self.network.forward(self.tokens, self.caches[0], fresh)
        if not self.plan.cfg_scale > 0:
            return cond
        hidden = [self.mask_id if i in self.given else token for i, token in enumerate(self.tokens)]
        un = self.network.forward(hidden, self.caches[1], fresh)
        return un + (self.plan.cfg_scale + 1) * (cond - un)

    # --- what skipping rows changed

    def shadow(self) -> Tensor:
        """log p [N, V] of a forward that computes every row of the present sequence."""
        kept = self.caches
        self.caches = ({}, {})
        logits = self.logits(set(range(self.n)))
        self.caches = kept
        return torch.log_softmax(logits, dim=-1)

    def damage(self, commits: set[int], log_p: Tensor, shadow: Tensor) -> dict[str, np.ndarray]:
        error, changed = np.full((2, self.n), math.nan)
        for i in commits:
            error[i] = kl_divergence(shadow[i], log_p[i])
            tops = [shadow[i].topk(2), log_p[i].topk(2)]
            if all(top.values[0] - top.values[1] > 1e-7 for top in tops):
                changed[i] = float(tops[0].indices[0] != tops[1].indices[0])
        return {"error": error, "changed": changed}

    def regrets(self, commits: set[int], shadow: Tensor) -> np.ndarray:
        """By rank, the shadow's scores of what might have been committed less those of what is; NaN of no score."""
        regret = np.full(self.n, math.nan)
        policy = self.plan.policy
        if isinstance(policy, Random | Replay):
            return regret
        scores = {}
        for i in self.may_be_committed() | commits:
            allowed = shadow[i].clone()
            allowed[list(self.never(i))] = -math.inf
            scores[i] = self.score(shadow[i], int(allowed.argmax()), None)
        best = sorted(scores.values(), reverse=True)
        for rank, i in enumerate(sorted(commits, key=lambda i: (-scores[i], i))):
            regret[i] = best[rank] - scores[i]
        return regret

    # --- UpdateMASK

    def never(self, i: int) -> set[int]:
        """What is never chosen: the mask; EOS if the plan says so; before given words no end of a text."""
        ends = (
            self.eos_like - {None}
            if i < self.last_given
            else {self.eos_id}
            if self.plan.suppress_eos
            else set()
        )
        return {self.mask_id} | ends

    def said(self, i: int) -> set[int]:
        """Tokens with which an n-gram that has position i would stand in the sequence twice; no end of a text."""
        size = self.plan.no_repeat_ngram_size
        said = set()
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
        again.
        """
        scores = logits.numpy().copy()
        scores[list(self.never(i))] = -math.inf
        self.meet(
            "no end before given words",
            int(np.argmax(logits.numpy())) in self.never(i) - {self.mask_id},
        )
        fresh = scores.copy()
        fresh[list(self.said(i))] = -math.inf
        self.trace.forbidden += int(fresh.argmax() != scores.argmax())
        scores = fresh
        if noise is not None and self.plan.by_span:
            return self.from_a_span(scores / self.plan.temperature, -np.log(-np.log(noise)))
        if noise is not None:
            scores = scores - self.plan.temperature * np.log(-np.log(noise))
        second, best = np.partition(scores, -2)[-2:]
        self.compare("token", float(best), float(second))
        return int(np.argmax(scores))  # the lowest id among equals

    def from_a_span(self, scores: np.ndarray, gumbel: np.ndarray) -> int:
        """Gumbel-max among spans of tokens by what they weigh together, then among the tokens of the best span."""
        size = span_size(len(scores))
        starts = range(0, len(scores), size)
        weights = [
            np.logaddexp.reduce(scores[s : s + size]) + g
            for s, g in zip(starts, gumbel, strict=False)
        ]
        start = starts[int(np.argmax(weights))]
        within = [
            z + g for z, g in zip(scores[start : start + size], gumbel[len(starts) :], strict=False)
        ]
        for each in (weights, within):
            second, best = np.partition(np.array([-math.inf, *each]), -2)[-2:]
            self.compare("token", float(best), float(second))
        return start + int(np.argmax(within))

    def noise(self, t: int) -> tuple[dict[int, float], dict[int, np.ndarray]]:
        """Uniforms and numbers of each position up to the block's end: one stream for the block, one for before."""
        numbers = self.network.weight("embed").shape[0]
        if self.plan.by_span:
            size = span_size(numbers)
            numbers = math.ceil(numbers / size) + size
        start = self.block_start()
        seed = self.plan.seed
        uniforms = {}
        gumbel = {}
        last = self.n if isinstance(self.plan.policy, EarlyFinish) else self.block_stop()
        for key, first, stop in (((seed, t), start, last), ((seed, t, 1), self.first, start)):
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
            positions = range(first, stop)
            if isinstance(self.plan.policy, Random):
                uniforms.update(
                    zip(positions, generator.random(len(positions)).tolist(), strict=True)
                )
            if self.plan.temperature > 0:
                gumbel.update(
                    zip(positions, generator.random((len(positions), numbers)), strict=True)
                )
        return uniforms, gumbel

    def score(self, log_p: Tensor, token: int, uniform: float | None) -> float:
        p = log_p.exp()
        policy = self.plan.policy
        if isinstance(policy, Random):
            return float(uniform)
        if isinstance(policy, Entropy | EntropyBound):
            return -entropy(log_p)
        if isinstance(policy, Margin):
            first, second = p.sort(descending=True).values[:2]
            return float(first - second)
        return float(p[token])  # the others

    def update_mask(
        self, t: int, logits: Tensor, log_p: Tensor, computed: set[int]
    ) -> dict[int, int]:
        """UpdateMASK: the tokens {position: token} that this step commits."""
        plan = self.plan
        if isinstance(plan.policy, Replay):
            return {
                self.first + position: token
                for step, position, token in plan.policy.commits
                if step == t
            }
        finishes = isinstance(plan.policy, EarlyFinish)
        eligible = sorted((self.masked if finishes else self.may_be_committed()) & computed)
        uniforms, gumbel = self.noise(t)
        tokens = {i: self.candidate(i, logits[i], gumbel.get(i)) for i in eligible}
        for start, words in plan.lists:
            tokens.update(self.best_word(start, words, set(eligible), log_p))
        scores = {i: self.score(log_p[i], tokens[i], uniforms.get(i)) for i in eligible}
        late = {i for i in eligible if plan.suppress_eos_confidence and tokens[i] in self.eos_like}
        self.meet("ends of a text are late", 0 < len(late) < len(eligible))
        ranking = sorted(eligible, key=lambda i: (i in late, -scores[i], i))
        if finishes and self.is_sure(t, eligible, logits):
            taken = ranking
        else:
            taken = self.taken([i for i in ranking if i in self.may_be_committed()], scores, late)
        self.drawn_at.update({i: scores[i] for i in taken})
        return {i: tokens[i] for i in taken}

    def best_word(
        self, start: int, words: Sequence[Sequence[int]], eligible: set[int], log_p: Tensor
    ) -> dict[int, int]:
        """Of the words of a list that can still stand in its blank the one whose tokens are the likeliest together, at
        the positions that may be committed.
        """
        span = [start + k for k in range(len(words[0]))]
        here = [i for i in span if i in eligible]
        sums = {}
        for number, word in enumerate(words):
            letters = dict(zip(span, word, strict=True))
            if all(i in self.masked or self.tokens[i] == letters[i] for i in span):
                sums[number] = math.fsum(float(log_p[i][letters[i]]) for i in here)
        self.meet("a list without a word that fits", bool(here) and not sums)
        if not here or not sums:
            return {}
        weights = [
            math.exp(sums[number]) if number in sums else 0.0 for number in range(len(words))
        ]
        self.found_shares[start] = [weight / sum(weights) for weight in weights]
        order = sorted(sums, key=lambda number: (-sums[number], number))
        if len(order) > 1:
            self.compare("word", sums[order[0]], sums[order[1]])
            self.meet("words of a list compete")
        self.meet("a word of a list is begun", any(i not in self.masked for i in span))
        return {i: words[order[0]][i - start] for i in here}

    def is_sure(self, t: int, eligible: list[int], logits: Tensor) -> bool:
        """Prophet, after step t + 1 of T: the mean gap of the two largest logits of what decides."""
        policy = self.plan.policy
        progress = (t + 1) / sum(self.steps_of)
        first = self.first + policy.answer - 1
        deciding = [i for i in eligible if policy.answer == 0 or i in range(first, first + 5)]
        if not deciding:
            return False
        gap = sum(float(logits[i].topk(2).values.diff().neg()) for i in deciding) / len(deciding)
        least = (
            policy.first if progress < 0.33 else policy.middle if progress < 0.67 else policy.last
        )
        self.compare("gap", gap, least)
        self.meet(
            "finished early", gap >= least and self.step_in_block + 1 < self.steps_of[self.block]
        )
        return gap >= least

    def taken(self, ranking: list[int], scores: dict[int, float], late: set[int]) -> list[int]:
        """Those of the ranked candidates that this step commits; the last step of a block commits them all."""
        policy = self.plan.policy
        due = [i for i in ranking if i not in late]
        base, remainder = divmod(self.masks_of[self.block], self.steps_of[self.block] // self.laps)
        does, number = self.lap()
        share = policy.taken_back if does == "rewrites" else base + (number < remainder)
        if self.last_of_block():
            return ranking
        if isinstance(policy, LocalLeap):
            return self.near_anchors(due, scores) or self.best(ranking, scores, late, 1)
        if isinstance(policy, Threshold | Correct):
            for i in due:
                self.compare("p", scores[i], policy.p)
            return [i for i in due if scores[i] > policy.p] or self.best(ranking, scores, late, 1)
        if isinstance(policy, Klass):
            for i in due:
                self.compare("confidence", scores[i], policy.confidence)
            steady = [
                i
                for i in due
                if self.still[i] >= policy.history and self.step_in_block >= policy.history - 1
            ]
            ready = [i for i in steady if scores[i] > policy.confidence]
            self.meet("committed as ready", bool(ready))
            return ready or self.best(ranking, scores, late, share)
        if isinstance(policy, EntropyBound):
            count = 1
            for size in range(2, len(due) + 1):
                entropies = [-scores[i] for i in due[:size]]
                ignored = sum(entropies) - max(entropies)
                self.compare("gamma", ignored, policy.gamma)
                count = size if ignored <= policy.gamma else count
            return self.best(ranking, scores, late, count)
        quota = share + self.owed
        # what selection, or an event, left unmet carries over
        self.owed = max(0, quota - len(ranking))
        self.meet("quota not met", self.owed > 0)
        return self.best(ranking, scores, late, quota)

    def near_anchors(self, due: list[int], scores: dict[int, float]) -> list[int]:
        """LocalLeap: the candidates that are sure enough where they stand."""
        policy = self.plan.policy
        found = []
        anchors = [i for i in due if scores[i] >= policy.p]
        for i in due:
            for least in (policy.p, policy.near):
                self.compare("leap", scores[i], least)
            beside = min((abs(i - anchor) for anchor in anchors), default=math.inf) <= policy.radius
            if scores[i] >= (policy.near if beside else policy.p):
                found.append(i)
                self.meet("written near an anchor", i not in anchors)
        return found

    def best(
        self, ranking: list[int], scores: dict[int, float], late: set[int], count: int
    ) -> list[int]:
        if 0 < count < len(ranking) and (ranking[count - 1] in late) == (ranking[count] in late):
            self.compare("commit", scores[ranking[count - 1]], scores[ranking[count]])
        return ranking[:count]

    def count_still(self, kl: dict[int, float]) -> None:
        """KLASS: for how many computed passes in a row the step-wise KL was small."""
        if isinstance(self.plan.policy, Klass):
            for i, divergence in kl.items():
                if i not in self.given:  # a given position is never committed
                    self.compare("still", divergence, self.plan.policy.kl)
                self.still[i] = self.still[i] + 1 if divergence < self.plan.policy.kl else 0

    # --- locking and unlocking

    def lock(self, t: int, kl: dict[int, float], u: list[float]) -> set[int]:
        """Alg. 1, lines 20-23: F_t."""
        rule = self.rule.locking  # a row that settles is not active
        candidates = set(kl) - self.masked - self.locked
        if rule is None:
            return set()
        if isinstance(rule, LockByAge):
            return {i for i in candidates if self.visible[i] >= rule.steps}
        # line 20: Z_t
        candidates = {i for i in candidates if self.visible[i] >= rule.visible_steps}
        gated = rule.percentile is not None and bool(candidates)
        # line 21
        theta = order_statistic([u[j] for j in candidates], rule.percentile) if gated else math.inf
        locks = set()
        for i in candidates:  # line 23
            epsilon = rule.epsilon
            cooling = False
            if rule.unlock is not None and i in self.unlocked_at:
                epsilon = rule.unlock.rho * epsilon
                cooling = t <= self.unlocked_at[i] + rule.unlock.cooldown
            self.compare("epsilon", kl[i], epsilon)
            self.compare("theta", u[i], theta)
            if self.network.shifted and i < 2 and {0, 1} <= candidates and u[i] == theta:
                # the first hidden state predicts both: which is less uncertain is rounding
                self.trace.twins = True
            if u[i] <= theta and kl[i] <= epsilon and not cooling:
                locks.add(i)
        return locks

    def unlock(
        self, t: int, probed: set[int], computed: set[int], log_p: Tensor, u: list[float]
    ) -> set[int]:
        """Eq. (unlock): u~ > theta_t, KL(p~ || p at the lock) > epsilon_unlock, t - t_lock > D_interval."""
        freed = set()
        rule = self.rule.locking
        active = computed - self.locked
        gated = bool(probed) and rule.percentile is not None and bool(active)
        theta = order_statistic([u[j] for j in active], rule.percentile) if gated else -math.inf
        for i in probed:
            drift = kl_divergence(log_p[i], self.stored[i]) if i in self.stored else math.inf
            self.compare("theta_unlock", u[i], theta)
            self.compare("epsilon_unlock", drift, rule.unlock.epsilon_unlock)
            waited = t - self.locked_at[i] > rule.unlock.min_interval
            if u[i] > theta and drift > rule.unlock.epsilon_unlock and waited:
                freed.add(i)
        return freed

    # --- a step

    def step(self, t: int, events: Iterable[Event] = ()) -> OracleStep:
        """One step, after the given events of this step; a finished run rests."""
        before = set(self.locked)
        events = sorted(events, key=lambda event: KINDS.index(event.kind))
        for event in events:
            self.apply(t, event)
        return self.compute(t, before, events)

    def compute(self, t: int, before: set[int], events: Sequence[Event]) -> OracleStep:
        """A step whose events have been applied; `before`: what was locked before them."""
        written = {event.position for event in events if event.kind == "write"}
        remasked = {event.position for event in events if event.kind == "mask"}
        locked, unlocked, back = self.locked - before, before - self.locked, self.take_back()
        if self.finished:
            rests = set(range(self.n)) if self.network.block_size else set()
            return self.record(
                t, {}, set(), set(), set(), set(), set(), set(), set(), rests, {}, []
            )
        rests, settling = self.resting()
        active = set(range(self.n)) - self.locked - rests  # Alg. 1, line 6: A_t; L_t is self.locked
        computed = self.chosen(t, active) | settling
        probed = self.probes(t)
        computed |= {i for i in range(self.n) if self.last_computed[i] < 0} - rests
        rests -= settling
        self.meet("finished blocks rest", bool(rests & self.settled))
        self.meet("a locked row settles", bool(settling & self.locked))
        if self.last_of_block():  # whatever the rule: what must be committed now is computed
            computed = computed | self.may_be_committed()
        logits = self.logits(computed)  # lines 7-14
        log_p = torch.log_softmax(logits, dim=-1)  # line 15
        for i in computed - self.masked:
            self.visible[i] += 1
        # line 19
        kl = {
            i: kl_divergence(log_p[i], self.stored[i]) if i in self.stored else math.inf
            for i in computed
        }
        self.count_still(kl)
        self.found_shares: dict[int, list[float]] = {}
        commits = self.update_mask(t, logits, log_p, computed)  # line 16
        whole = len(computed) == self.n - len(rests)
        shadow = log_p if whole and not rests else self.shadow()
        damage = self.damage(set(commits) & computed, log_p, shadow)
        regret = self.regrets(set(commits), shadow)
        if whole:  # whatever the policy took, it is by no fault of the rule
            assert not (damage["error"] > 1e-12).any(), "a row that rests is not exact"
            regret = np.where(np.isnan(regret), regret, 0.0)
        by_policy = not isinstance(self.plan.policy, Replay)
        self.meet(
            "committed before the block", by_policy and any(i < self.block_start() for i in commits)
        )
        self.doubts(not self.may_be_committed(), set(commits), computed, log_p)
        self.masked -= set(commits)
        for i, token in commits.items():
            self.tokens[i] = token
            self.written_at[i] = t
        asks = isinstance(self.rule.choosing, EntropyCache)
        self.entropies = {i: entropy(log_p[i]) for i in commits if i in computed} if asks else None
        confidence = log_p.exp().max(-1).values.tolist()
        u = [1 - c for c in confidence]  # line 18
        locks = self.lock(t, kl, u)
        freed = self.unlock(t, probed, computed, log_p, u)
        self.settled |= settling
        for i in computed:
            self.stored[i] = log_p[i]
            self.last_computed[i] = t
            self.last_kl[i] = kl[i]
            self.last_confidence[i] = confidence[i]
        self.locked |= locks  # line 24; the cache already holds what they wrote
        self.locked_at.update(dict.fromkeys(locks, t))
        self.probed_at.update(dict.fromkeys(probed, t))
        for i in freed:
            self.free(t, i)
        step = self.record(
            t, commits, remasked, back, written, locked | locks, unlocked | freed, computed, probed, rests, kl,
            confidence,
        )  # fmt: skip
        step.error = damage["error"]
        step.changed = damage["changed"]
        step.regret = regret
        step.shares = self.found_shares
        self.advance()
        self.end(step)
        return step

    def end(self, step: OracleStep) -> None:
        """A text is over once an end stands behind all that is given and nothing before it is masked: what is behind it
        becomes that end, and the steps that were left are spared, all their rows.
        """
        ends = [i for i in range(self.last_given + 1, self.n) if self.tokens[i] in self.eos_like]
        if (
            not self.plan.stop_at_end
            or self.finished
            or not ends
            or any(i < ends[0] for i in self.masked)
        ):
            return
        if isinstance(self.plan.policy, Remask | Correct) and ends[0] >= self.block_start():
            self.meet("an end may be taken back")
            return
        passes = 2 if self.plan.cfg_scale > 0 else 1
        size = self.network.block_size
        for block in range(self.block, self.blocks):
            left = self.steps_of[block] - (self.step_in_block if block == self.block else 0)
            if isinstance(self.plan.policy, EARLY):
                left = 1 if block == self.block else 0
            begin = self.spans[block].start
            rows = [i for i in range(self.n) if size is None or i // size == begin // size]
            step.spared += left
            step.baseline_flops += (
                left
                * passes
                * sum(row_flops(self.network, self.network.sees(i, self.n)) for i in rows)
            )
        for i in self.masked:
            self.tokens[i] = self.tokens[ends[0]]
            step.filled[i] = True
        self.masked = set()
        self.block = self.blocks
        step.tokens = np.array(self.tokens)
        step.masked = np.zeros(self.n, dtype=bool)
        self.meet("stopped at its end")
        self.meet("filled behind an end", bool(step.filled.any()))

    def advance(self) -> None:
        self.step_in_block += 1
        while not self.finished:
            done_early = (
                isinstance(self.plan.policy, EARLY)
                and not self.may_be_committed()
                and not self.goes_on
            )
            if not done_early and self.step_in_block < self.steps_of[self.block]:
                break
            self.meet("block ended early", self.step_in_block < self.steps_of[self.block])
            self.block = self.block + 1
            self.step_in_block = 0
            self.owed = 0
            self.checks = 0
            self.goes_on = False

    def record(
        self, t, commits, remasked, back, written, locks, freed, computed, probed, rests, kl, confidence
    ) -> OracleStep:  # fmt: skip
        def flags(positions) -> np.ndarray:
            return np.array([i in positions for i in range(self.n)])

        network = self.network
        passes = 2 if self.plan.cfg_scale > 0 else 1
        running = not self.finished
        whole = [row_flops(network, network.sees(i, self.n)) for i in range(self.n)]
        flops = sum(whole[i] for i in computed)
        flops += sum(row_flops(network, network.sees(i, self.n), probed=True) for i in probed)
        step = OracleStep(
            index=t,
            tokens=np.array(self.tokens),
            masked=flags(self.masked),
            locked=flags(self.locked),
            newly_unmasked=flags(commits),
            newly_masked=flags(remasked),
            taken_back=flags(back),
            written=flags(written),
            newly_locked=flags(locks),
            newly_unlocked=flags(freed),
            computed=flags(computed),
            probed=flags(probed),
            resting=flags(rests),
            kl=np.array([kl[i] if i in computed else math.nan for i in range(self.n)]),
            confidence=np.array(
                [confidence[i] if i in computed else math.nan for i in range(self.n)]
            ),
            flops=passes * flops,
            baseline_flops=passes * sum(whole[i] for i in range(self.n) if i not in rests)
            if running
            else 0.0,
            filled=flags(()),
        )
        self.trace.steps.append(step)
        return step


def decode(
    network: OracleNetwork, prompt: Sequence[int], plan: Plan, events: Sequence[Event] = (), *, mask_id: int,
    eos_id: int, eot_id: int | None = None,
) -> Trace:  # fmt: skip
    """Run Algorithm 1 on one prompt."""
    run = Run(network, prompt, plan, mask_id, eos_id, eot_id)
    for t in range(sum(run.steps_of)):  # Alg. 1, line 5
        if run.finished:  # only a run that may end a block early gets here before its last step
            break
        run.step(t, [event for event in events if event.step == t])
    return run.trace
