"""`bench llada`: LLaDA's own loop on plain modelling code beside our sampler: unlocked, locked, with the fixed budget.

They run in turn.

The loop is written anew after its public generate.py: every step runs the dense network on the whole canvas, makes the
logits of all its positions, and takes confidences from a float64 softmax over all of them. Low-confidence remasking,
semi-autoregressive blocks, temperature 0, no guidance. The network is transformers' Llama; with `--engine torch` the
weights are the same memory. The unlocked tokens must be LLaDA's own, and the benchmark says whether they were.
"""

import argparse
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from surelock.bench.subject import add_subject_flags, check, prompts_for, settings_of, setup_of, subject
from surelock.bench.timing import Figures, load_of_cores, summary, timed
from surelock.decoding.choices import Decoder
from surelock.decoding.compute import BudgetRule, ComputeRule, Everything
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.model.checkpoint import row_counts
from surelock.model.families import QWEN_KEYS, family_of
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.research.lab import weights_of

#: How many times as fast ours are as LLaDA's, and as "speedup" the locked one as the unlocked one.
OURS = ("unlocked", "locked", "budget")
RATIOS = (*(f"{name}_over_llada" for name in OURS), "speedup")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, gen_length=128)
    add = parser.add_argument
    add("--block-length", type=int, help="semi-autoregressive blocks (default: one block)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """The benchmark's one JSON object. Raises ValueError for flags that ask for the impossible."""
    load_at_start = load_of_cores()
    lm, _ = subject(arguments)
    sizes = {name: getattr(arguments, name) for name in ("gen_length", "steps", "block_length")}
    settings = DecodeSettings(**sizes)
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    shortest = min(map(len, prompts))  # LLaDA's loop takes prompts of one length
    check(lm, prompts, Decoder(settings=settings))
    bench = LladaBench(lm, [ids[:shortest] for ids in prompts], settings, LockRule(epsilon=arguments.epsilon))
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm), **settings_of(arguments, settings)}
    return {"benchmark": "llada", **head, **bench.result()}


class LladaBench:
    """Four subjects that take turns, each repeat beginning with the next of them."""

    def __init__(
        self, lm: LanguageModel, prompts: list[list[int]], settings: DecodeSettings, locked: ComputeRule
    ) -> None:
        network, canvas = plain_llama(lm.network), torch.tensor(prompts, device=lm.device)
        rules = dict(zip(OURS, (Everything(), locked, BudgetRule()), strict=True))

        def ours(rule: ComputeRule) -> Tensor:
            (last,) = deque(decode(lm, prompts, settings, compute=rule), maxlen=1)
            return torch.from_numpy(last.tokens)

        for rule in rules.values():  # what a first call costs is not throughput
            next(decode(lm, prompts, settings, compute=rule))
        with torch.no_grad():
            network(canvas)
        self._device = lm.device
        self._calls = {"llada": lambda: llada_generate(network, canvas, settings, lm.mask_id).cpu()}
        self._calls |= {name: partial(ours, rule) for name, rule in rules.items()}
        self.seconds: dict[str, list[float]] = {name: [] for name in self._calls}
        self.tokens: dict[str, Tensor] = {}

    def repeat(self) -> None:
        names, done = list(self._calls), len(self.seconds["llada"])
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seconds, self.tokens[name] = timed(self._device, self._calls[name])
            self.seconds[name].append(seconds)

    def result(self) -> Figures:
        """Of all repeats so far. tokens_equal: ours, unlocked, are LLaDA's."""

        def measure(repeats: Sequence[int]) -> Figures:
            medians = {name: float(np.median([values[r] for r in repeats])) for name, values in self.seconds.items()}
            return {f"{name}_seconds": value for name, value in medians.items()} | {
                **{f"{name}_over_llada": medians["llada"] / medians[name] for name in OURS},
                "speedup": medians["unlocked"] / medians["locked"],
            }

        equal = bool((self.tokens["llada"] == self.tokens["unlocked"]).all())
        return {**summary(measure, len(self.seconds["llada"]), RATIOS), "tokens_equal": equal}


# --- LLaDA's loop -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def llada_generate(network: Callable[[Tensor], Any], prompts: Tensor, settings: DecodeSettings, mask_id: int) -> Tensor:
    """prompts [B, L] int64 of one length -> [B, L + gen_length] int64. network: a model of transformers."""
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
            logits = network(canvas).logits
            chosen = logits.argmax(dim=-1)
            posterior = logits.to(torch.float64).softmax(dim=-1)
            confidence = posterior.gather(-1, chosen[..., None])[..., 0]
            confidence[:, end:] = -torch.inf
            confidence = torch.where(masked, confidence, -torch.inf)
            chosen = torch.where(masked, chosen, canvas)
            for b in range(batch):
                best = confidence[b].topk(int(counts[b, step])).indices
                canvas[b, best] = chosen[b, best]
    return canvas


def transfers(masked: Tensor, steps: int) -> Tensor:
    """How many positions each step of a block commits, [B, steps]: even shares of masked [B], the rest first."""
    share, rest = masked // steps, masked % steps
    return share[:, None] + (torch.arange(steps, device=masked.device) < rest[:, None])


# --- LLaDA's network --------------------------------------------------------------------------------------------------


def plain_llama(network: Network) -> LlamaForCausalLM:
    """transformers' Llama with our weights in the same memory. Raises ValueError for another layout than LLaDA's."""
    config = network.config
    if config.qk_norm or config.shifted:
        raise ValueError("bench llada needs a checkpoint in the LLaDA layout: its sampler knows no other")
    shape: dict[str, Any] = {key: getattr(config, name) for name, key in QWEN_KEYS.items() if name != "tied"}
    shape |= {"num_key_value_heads": config.n_kv_heads, "head_dim": config.head_size, "rms_norm_eps": config.norm_eps}
    shape |= {"attention_bias": config.qkv_bias, "is_causal": False, "use_cache": False}
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    described = LlamaConfig(**shape, rope_parameters=rope)
    with torch.device("meta"):
        model = LlamaForCausalLM(described).eval()
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        attention.is_causal, attention.o_proj.bias = False, None
    llama = family_of({"architectures": ["A2DQwen2LMHeadModel"]})  # its names of tensors, with those of biases
    weights = {"lm_head.weight": network.head_weight}
    for name, parameter in network.named_parameters():
        sources = llama.tensor_names(name)
        weights |= zip(sources, parameter.split(row_counts(config, name, len(parameter))), strict=True)
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = LlamaRotaryEmbedding(described).to(network.embed.weight.device)
    return model.requires_grad_(False)
