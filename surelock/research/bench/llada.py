"""`bench llada` times LLaDA's loop beside this package's sampler: unlocked, locked, and with a fixed budget of rows.

All of them take turns. LLaDA's loop is written here after LLaDA's public generate.py. Every step runs the dense network
on the whole canvas, computes the logits of all positions, and takes confidences from their float64 softmax. It uses
low-confidence remasking, semi-autoregressive blocks and temperature 0, without guidance. The network is Llama of
transformers; with `--engine torch` it shares the memory of the weights. The unlocked sampler must write the same tokens
as LLaDA's loop. The benchmark reports whether it does.

With `--shape llada-8b` the weights are random, and made on a GPU in bfloat16. Random weights do not show when a row
converges. So the locked sampler commits and locks as in a recorded run of the embedded model, stretched to the size.
"""

import argparse
import json
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from surelock.bench.counts import PROMPT
from surelock.bench.random_weights import random_model
from surelock.bench.subject import add_subject_flags, prompts_for, setup_of, subject
from surelock.bench.timing import Figures, load_of_cores, summary, timed
from surelock.decoding.compute import BudgetRule, Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode
from surelock.decoding.settings import DecodeSettings
from surelock.loading import find_device, read_dtype
from surelock.model.checkpoint import row_counts
from surelock.model.families import QWEN_KEYS, family_of
from surelock.model.language_model import LanguageModel
from surelock.model.network import Network
from surelock.research.bench.gpu import size_of
from surelock.research.bench.schedule import stretch
from surelock.research.lab import weights_of

LARGE = "llada-8b"  # the shape that needs a GPU
SIZES = ((256, 1), (256, 4), (1024, 4))  # (generated, batch)
STEPS = 256
_GEN_LENGTH = 128
_BATCH = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench llada`."""
    add_subject_flags(parser)
    add = parser.add_argument
    add(
        "--gen-length",
        type=int,
        default=_GEN_LENGTH,
        help="positions to generate (default: %(default)s)",
    )
    add("--steps", type=int, help="denoising steps (default: gen-length)")
    add(
        "--epsilon",
        type=float,
        default=5e-4,
        help="KL in nats at which a position locks (default: %(default)s)",
    )
    add("--block-length", type=int, help="semi-autoregressive blocks (default: one block)")
    what = f"with --shape {LARGE}: GENERATEDxBATCH, repeatable (default: 256x1, 256x4, 1024x4, of 256 steps)"
    add("--size", action="append", type=size_of, metavar="SIZE", help=what)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Figures:
    """Run the benchmark and return its JSON object. Raises ValueError for flags that cannot be followed."""
    if arguments.shape == LARGE:
        return run_on_gpu(arguments)
    if arguments.size:
        raise ValueError(f"--size is for --shape {LARGE}: give --gen-length and --batch instead")
    load_at_start = load_of_cores()
    lm, _ = subject(arguments)
    sizes = {name: getattr(arguments, name) for name in ("gen_length", "steps", "block_length")}
    settings = DecodeSettings(**sizes)
    prompts = prompts_for(lm, arguments.batch, arguments.prompt_length)
    shortest = min(map(len, prompts))  # LLaDA's loop takes prompts of one length
    decode(lm, prompts, settings)  # raises ValueError before anything is measured
    rules = {
        "unlocked": Everything(),
        "locked": LockRule(epsilon=arguments.epsilon),
        "budget": BudgetRule(),
    }
    decoders = {name: Decoder(settings=settings, compute=rule) for name, rule in rules.items()}
    bench = LladaBench(lm, [ids[:shortest] for ids in prompts], settings, decoders)
    for _ in tqdm(range(arguments.repeats), desc="repeats", disable=None):
        bench.repeat()
    head = {"load": load_at_start, **setup_of(lm), **weights_of(lm)}
    head |= {"gen_length": settings.gen_length, "steps": settings.total_steps}
    head |= {name: getattr(arguments, name) for name in ("batch", "epsilon", "repeats")}
    return {"benchmark": "llada", **head, **bench.result()}


def run_on_gpu(arguments: argparse.Namespace) -> Figures:
    """Return the JSON object of the shape LARGE, with the figures of all sizes. Raises ValueError without a GPU."""
    device = find_device(arguments.device)
    if device.type != "cuda":
        raise ValueError(
            f"bench llada --shape {LARGE} needs a CUDA GPU with 40 GB or more: leave --shape out here"
        )
    if (arguments.gen_length, arguments.batch) != (_GEN_LENGTH, _BATCH):
        raise ValueError(
            f"--shape {LARGE} is measured at sizes: --size 256x4, in place of --gen-length and --batch"
        )
    lm = random_model(LARGE, device, read_dtype(arguments.dtype) or torch.bfloat16)
    sizes = []
    for gen_length, batch in arguments.size or SIZES:
        steps = arguments.steps or STEPS
        sizes.append(measure_size(lm, gen_length, batch, steps, arguments.repeats))
        print(json.dumps(sizes[-1]), file=sys.stderr, flush=True)
    return {"benchmark": "llada", "random_weights": True, **setup_of(lm), "sizes": sizes}


def measure_size(
    lm: LanguageModel, gen_length: int, batch: int, steps: int, repeats: int
) -> Figures:
    """Return the figures of a size, of LLaDA's loop and of this package's sampler, unlocked and locked as recorded."""
    settings = DecodeSettings(gen_length=gen_length, steps=min(steps, gen_length))
    prompts = prompts_for(lm, batch, PROMPT)
    everything = Decoder(settings=settings, compute=Everything())
    locked = stretch(replace(everything, compute=LockRule()), prompts, lm.config.vocab_size)
    bench = LladaBench(lm, prompts, settings, {"unlocked": everything, "locked": locked})
    for _ in tqdm(range(repeats), desc=f"{gen_length}x{batch}", disable=None):
        bench.repeat()
    figures = bench.result()
    for name in bench.seconds:
        figures[f"{name}_step_ms"] = 1e3 * figures[f"{name}_seconds"] / settings.total_steps
    return {
        "gen_length": gen_length,
        "batch": batch,
        "steps": settings.total_steps,
        "repeats": repeats,
        **figures,
    }


class LladaBench:
    """Times LLaDA's loop and the decoders of this package. They take turns in going first.

    decoders: the decoders of this package by name, "unlocked" and "locked" among them.
    """

    def __init__(
        self,
        lm: LanguageModel,
        prompts: list[list[int]],
        settings: DecodeSettings,
        decoders: Mapping[str, Decoder],
    ) -> None:
        network = plain_llama(lm.network)
        canvas = torch.tensor(prompts, device=lm.device)

        def ours(decoder: Decoder) -> Tensor:
            (last,) = deque(decode(lm, prompts, **decoder.keywords()), maxlen=1)
            return torch.from_numpy(last.tokens)

        for (
            decoder
        ) in decoders.values():  # the first call allocates and compiles, so it is not timed
            next(decode(lm, prompts, **decoder.keywords()))
        with torch.no_grad():
            network(canvas)
        self._device = lm.device
        self._calls = {"llada": lambda: llada_generate(network, canvas, settings, lm.mask_id).cpu()}
        self._calls |= {name: partial(ours, decoder) for name, decoder in decoders.items()}
        self.seconds: dict[str, list[float]] = {name: [] for name in self._calls}
        self.tokens: dict[str, Tensor] = {}

    def repeat(self) -> None:
        """Run LLaDA's loop and all decoders once, and record their seconds and tokens."""
        names = list(self._calls)
        done = len(self.seconds["llada"])
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seconds, self.tokens[name] = timed(self._device, self._calls[name])
            self.seconds[name].append(seconds)

    def result(self) -> Figures:
        """Return the figures of all repeats so far.

        NAME_over_llada: the seconds of LLaDA's loop divided by the seconds of the decoder NAME.
        speedup: the seconds of the unlocked decoder divided by the seconds of the locked one.
        tokens_equal: whether the unlocked decoder wrote the same tokens as LLaDA's loop.
        """
        ours = [name for name in self.seconds if name != "llada"]
        ratios = [*(f"{name}_over_llada" for name in ours), "speedup"]

        def measure(repeats: Sequence[int]) -> Figures:
            medians = {
                name: float(np.median([values[r] for r in repeats]))
                for name, values in self.seconds.items()
            }
            return {f"{name}_seconds": value for name, value in medians.items()} | {
                **{f"{name}_over_llada": medians["llada"] / medians[name] for name in ours},
                "speedup": medians["unlocked"] / medians["locked"],
            }

        equal = bool((self.tokens["llada"] == self.tokens["unlocked"]).all())
        return {**summary(measure, len(self.seconds["llada"]), ratios), "tokens_equal": equal}


# --- LLaDA's loop -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def llada_generate(
    network: Callable[[Tensor], Any], prompts: Tensor, settings: DecodeSettings, mask_id: int
) -> Tensor:
    """Return prompts with generated tokens, [B, L + gen_length] int64.

    network: a model of transformers. prompts: [B, L] int64.
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
    """Return the number of positions that every step of a block commits, [B, steps].

    masked: [B], the number of masked positions of the block. The shares are even; the first steps commit the remainder.
    """
    share = masked // steps
    rest = masked % steps
    return share[:, None] + (torch.arange(steps, device=masked.device) < rest[:, None])


# --- LLaDA's network --------------------------------------------------------------------------------------------------


def plain_llama(network: Network) -> LlamaForCausalLM:
    """Return Llama of transformers with the weights of a network, in the same memory.

    Raises ValueError for a network with another layout than LLaDA's.
    """
    config = network.config
    if config.qk_norm or config.shifted:
        raise ValueError(
            "bench llada needs a checkpoint in the LLaDA layout: its sampler knows no other"
        )
    shape: dict[str, Any] = {
        key: getattr(config, name) for name, key in QWEN_KEYS.items() if name != "tied"
    }
    shape |= {
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps,
    }
    shape |= {"attention_bias": config.qkv_bias, "is_causal": False, "use_cache": False}
    rope = {"rope_type": "default", "rope_theta": config.rope_theta}
    described = LlamaConfig(**shape, rope_parameters=rope)
    with torch.device("meta"):
        model = LlamaForCausalLM(described).eval()
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        attention.is_causal = False
        attention.o_proj.bias = None
    # the names of Llama's tensors, biases included
    llama = family_of({"architectures": ["A2DQwen2LMHeadModel"]})
    weights = {"lm_head.weight": network.head_weight}
    for name, parameter in network.named_parameters():
        sources = llama.tensor_names(name)
        weights |= zip(
            sources, parameter.split(row_counts(config, name, len(parameter))), strict=True
        )
    model.load_state_dict(weights, assign=True)
    model.model.rotary_emb = LlamaRotaryEmbedding(described).to(network.embed.weight.device)
    return model.requires_grad_(False)
