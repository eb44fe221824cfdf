"""`bench llada`: LLaDA's own loop on plain modelling code beside our sampler: unlocked, locked, with the fixed budget.

They run in turn.

The loop is written anew after its public generate.py: every step runs the dense network on the whole canvas, makes the
logits of all its positions, draws float64 Gumbel noise for all of them (none at temperature 0), and takes confidences
from a float64 softmax over all of them. Low-confidence remasking, semi-autoregressive blocks, no guidance. The network
is as public modelling code writes it: separate q, k, v, gate and up projections, RMS norm and rotary embedding in
float32 whatever the weights are; with `--engine torch` the weights are the same memory. At temperature 0 the unlocked
tokens must be LLaDA's own, and the benchmark says whether they were.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from surelock.bench import (
    Figures,
    add_subject_flags,
    asked_of,
    load_of_cores,
    prompts_for,
    setup_of,
    subject,
    timed,
    told,
)
from surelock.decoding.compute import BudgetRule, ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.engines.flags import add_engine_flag
from surelock.model.config import NetworkConfig
from surelock.model.language_model import LanguageModel
from surelock.model.network import Block, Network
from surelock.research.lab import weights_of

#: How many times as fast ours are as LLaDA's, and as "speedup" the locked one as the unlocked one.
OURS = ("unlocked", "locked", "budget")
RATIOS = (*(f"{name}_over_llada" for name in OURS), "speedup")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `bench llada`; sets the parser's `run`."""
    add_subject_flags(parser, gen_length=128)
    add_engine_flag(parser)
    add = parser.add_argument
    add("--block-length", type=int, help="semi-autoregressive blocks (default: one block)")
    add("--temperature", type=float, default=0.0, help="above 0 tokens cannot be compared (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    load_at_start = load_of_cores()
    lm = subject(arguments, arguments.engine)
    settings = DecodeSettings(
        gen_length=arguments.gen_length,
        steps=arguments.steps,
        block_length=arguments.block_length,
        temperature=arguments.temperature,
    )
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    shortest = min(map(len, prompts))  # LLaDA's loop takes prompts of one length
    bench = LladaBench(lm, [ids[:shortest] for ids in prompts], settings, LockRule(epsilon=arguments.epsilon))
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm), **asked_of(arguments, settings)}
    return {"benchmark": "llada", **head, "temperature": settings.temperature, **bench.result()}


class LladaBench:
    """Four subjects that take turns, each repeat beginning with the next of them."""

    def __init__(
        self, lm: LanguageModel, prompts: list[list[int]], settings: DecodeSettings, locked: ComputeRule
    ) -> None:
        self.temperature = settings.temperature
        network, canvas = PlainLlada(lm.network), torch.tensor(prompts, device=lm.device)
        rules = dict(zip(OURS, (Everything(), locked, BudgetRule()), strict=True))

        def ours(rule: ComputeRule) -> Callable[[], Tensor]:
            def decoded() -> Tensor:
                (last,) = deque(decode(lm, prompts, settings, compute=rule), maxlen=1)
                return torch.from_numpy(last.tokens)

            return decoded

        for rule in rules.values():  # what a first call costs is not throughput
            next(decode(lm, prompts, settings, compute=rule))
        with torch.no_grad():
            network(canvas)
        self._device = lm.device
        self._calls = {"llada": lambda: llada_generate(network, canvas, settings, lm.mask_id).cpu()}
        self._calls |= {name: ours(rule) for name, rule in rules.items()}
        self.seconds: dict[str, list[float]] = {name: [] for name in self._calls}
        self.tokens: dict[str, Tensor] = {}

    def repeat(self) -> None:
        """One run of each."""
        names, done = list(self._calls), len(self.seconds["llada"])
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seconds, self.tokens[name] = timed(self._device, self._calls[name])
            self.seconds[name].append(seconds)

    def result(self) -> Figures:
        """Of all repeats so far. tokens_equal: ours, unlocked, are LLaDA's; None where noise was drawn."""

        def measure(repeats: Sequence[int]) -> Figures:
            medians = {name: float(np.median([values[r] for r in repeats])) for name, values in self.seconds.items()}
            return {f"{name}_seconds": value for name, value in medians.items()} | {
                **{f"{name}_over_llada": medians["llada"] / medians[name] for name in OURS},
                "speedup": medians["unlocked"] / medians["locked"],
            }

        equal = bool((self.tokens["llada"] == self.tokens["unlocked"]).all()) if self.temperature == 0 else None
        return {**told(measure, len(self.seconds["llada"]), RATIOS), "tokens_equal": equal}


# --- LLaDA's loop -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def llada_generate(
    network: Callable[[Tensor], Tensor], prompts: Tensor, settings: DecodeSettings, mask_id: int
) -> Tensor:
    """prompts [B, L] int64 of one length -> [B, L + gen_length] int64.

    network: tokens [B, N] -> logits [B, N, V]. Of the settings gen_length, steps, block_length and temperature count.
    """
    batch, start = prompts.shape
    canvas = torch.full((batch, start + settings.gen_length), mask_id, device=prompts.device)
    canvas[:, :start] = prompts
    length = settings.block_length or settings.gen_length
    blocks = settings.gen_length // length
    steps = settings.total_steps // blocks
    for block in range(blocks):
        end = start + (block + 1) * length
        counts = transfers((canvas[:, end - length : end] == mask_id).sum(dim=1), steps)
        for step in range(steps):
            masked = canvas == mask_id
            logits = network(canvas)
            chosen = with_noise(logits, settings.temperature).argmax(dim=-1)
            posterior = logits.to(torch.float64).softmax(dim=-1)
            confidence = posterior.gather(-1, chosen[..., None])[..., 0]
            confidence[:, end:] = -torch.inf
            confidence = torch.where(masked, confidence, -torch.inf)
            chosen = torch.where(masked, chosen, canvas)
            for b in range(batch):
                best = confidence[b].topk(int(counts[b, step])).indices
                canvas[b, best] = chosen[b, best]
    return canvas


def with_noise(logits: Tensor, temperature: float) -> Tensor:
    """What the argmax is taken of: exp(logit) / (-log uniform)^temperature in float64, the logits at temperature 0."""
    if temperature == 0:
        return logits
    wide = logits.to(torch.float64)
    return wide.exp() / (-torch.rand_like(wide).log()) ** temperature


def transfers(masked: Tensor, steps: int) -> Tensor:
    """How many positions each step of a block commits, [B, steps]: even shares of masked [B], the rest first."""
    share, rest = masked // steps, masked % steps
    return share[:, None] + (torch.arange(steps, device=masked.device) < rest[:, None])


# --- LLaDA's network --------------------------------------------------------------------------------------------------


class PlainNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) in float32, cast down, times its weight."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = _frozen(weight)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class PlainBlock(nn.Module):
    """One block of `PlainLlada`, its weights views of the packed ones."""

    def __init__(self, block: Block, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        widths = [heads * config.head_size for heads in block.heads]
        biases = block.qkv.bias.split(widths) if config.qkv_bias else (None,) * 3
        parts = zip(block.qkv.weight.split(widths), biases, strict=True)
        self.q_proj, self.k_proj, self.v_proj = (_linear(weight, bias) for weight, bias in parts)
        self.gate_proj, self.up_proj = (_linear(weight) for weight in block.gate_up.weight.chunk(2))
        self.attn_out, self.ff_out = _linear(block.attn_out.weight), _linear(block.ff_out.weight)
        self.attn_norm = PlainNorm(block.attn_norm.weight, config.norm_eps)
        self.ff_norm = PlainNorm(block.ff_norm.weight, config.norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        h = self.attn_norm(x)
        q, k, v = (self._heads(projection(h)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (_rotated(part, cos, sin) for part in (q, k))
        groups = self.config.n_heads // self.config.n_kv_heads
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.attn_out(attended.transpose(1, 2).flatten(-2))
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.gate_proj(h)) * self.up_proj(h))

    def _heads(self, x: Tensor) -> Tensor:
        """[B, N, heads * head_size] -> [B, heads, N, head_size]."""
        return x.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)


class PlainLlada(nn.Module):
    """A network in the LLaDA layout with the weights of ours, in the same memory.

    Raises ValueError for a network that is not in that layout (q and k norms, shifted logits).
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        config = network.config
        if config.qk_norm or config.shifted:
            raise ValueError("bench llada needs a checkpoint in the LLaDA layout: its sampler knows no other")
        self.config = config
        self.embed = _frozen(network.embed.weight)
        self.head = _frozen(network.head_weight)
        self.blocks = nn.ModuleList(PlainBlock(block, config) for block in cast("Iterable[Block]", network.blocks))
        self.norm = PlainNorm(network.norm.weight, config.norm_eps)
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens [B, N] int64 -> logits [B, N, vocab_size] in the weights' dtype."""
        x = F.embedding(tokens, self.embed)
        cos, sin = self._rotary(tokens.shape[1])
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.head)

    def _rotary(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [length, head_size] in float32, made once for a length."""
        if length not in self._tables:
            steps = torch.arange(0, self.config.head_size, 2, dtype=torch.float32, device=self.embed.device)
            frequencies = 1.0 / self.config.rope_theta ** (steps / self.config.head_size)
            angles = torch.outer(torch.arange(length, dtype=torch.float32, device=self.embed.device), frequencies)
            angles = torch.cat((angles, angles), dim=-1)
            self._tables[length] = angles.cos(), angles.sin()
        return self._tables[length]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = _frozen(weight)
    if bias is not None:
        layer.bias = _frozen(bias)
    return layer


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
