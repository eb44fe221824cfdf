"""The training run: optimizers, schedule, steps, validation, and the state from which it goes on."""

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from tqdm import tqdm

from surelock.model.bound import draw_masks, stratified_counts
from surelock.model.checkpoint import row_counts
from surelock.model.config import NetworkConfig
from surelock.model.errors import first_line
from surelock.model.families import LLADA
from surelock.model.flags import set_threads
from surelock.model.loading import find_device, load
from surelock.model.network import Network
from surelock.model.tokenizer import read_tokenizer
from surelock.research.training.checkpoint import EOS_ID, MASK_ID, save_checkpoint, save_tokenizer, train_tokenizer
from surelock.research.training.data import Corpus, Names, is_whole, read_stories
from surelock.research.training.objective import batch_loss, evaluate, make_batch, prompt_lengths

MODEL, STATE, LOG = "model", "state.pt", "log.jsonl"
_LOG_EVERY = 20  # steps
_SAVE_EVERY = 300  # seconds
_DECAY = 0.02  # decoupled, of the matrices, per unit of learning rate
MAX_LENGTH = 1024
#: What a state holds beside network and optimizer.
_KEPT: dict[str, type] = {"step": int, "tokens": int, "elapsed": float, "best": dict}


def learning_rate(progress: float, warm_up: float) -> float:
    """The share of the peak rate at `progress` in 0..1: a linear rise over `warm_up`, then a linear fall to zero."""
    if progress < warm_up:
        return progress / warm_up
    return max(0.0, (1 - progress) / (1 - warm_up))


def build_network(config: NetworkConfig, seed: int) -> Network:
    """A fresh network: normal weights of variance 1 / fan-in, the maps back into the residual stream at zero."""
    network = Network(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith(("attn_out.weight", "ff_out.weight")):
                parameter.zero_()
            elif parameter.dim() == 2:
                std = 0.05 if name.startswith("embed") else parameter.shape[1] ** -0.5
                parameter.normal_(0.0, std, generator=generator)
    return network


class Optimizer:
    """Muon for the matrices inside the blocks, AdamW for the embedding, the head and the norms.

    A fused matrix is several maps (q, k and v; gate and up), which Muon orthogonalises apart: its parameters are views
    of their rows.
    """

    def __init__(self, network: Network, muon_rate: float, adam_rate: float) -> None:
        """muon_rate, adam_rate: the peak learning rates."""
        named = dict(network.named_parameters())
        matrices = {name: p for name, p in named.items() if name.startswith("blocks.") and p.dim() == 2}
        self.maps: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
        for name, weight in matrices.items():
            heights = row_counts(network.config, LLADA.tensor_names(name), len(weight))
            self.maps.append((weight, [nn.Parameter(part) for part in weight.detach().split(heights)]))
        self.peaks = {"muon": muon_rate, "adam": adam_rate}
        rest = [p for name, p in named.items() if name not in matrices]
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "muon": torch.optim.Muon([part for _, parts in self.maps for part in parts], weight_decay=_DECAY),
            "adam": torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0),
        }

    def step(self, rate: float) -> None:
        """One update from the gradients. rate: the share of the peak learning rates, 0..1."""
        for weight, parts in self.maps:
            assert weight.grad is not None
            for part, gradient in zip(parts, weight.grad.split([len(part) for part in parts]), strict=True):
                part.grad = gradient
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.peaks[name] * rate
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


class Trainer:
    """One process of a training run; rank 0 keeps the clock, the log, the validation and the files.

    options: the flags of `train`. rank, world: of the processes that share each batch.
    """

    def __init__(self, options: argparse.Namespace, rank: int = 0, world: int = 1) -> None:
        self.options, self.rank, self.world = options, rank, world
        self.device = find_device(options.device)
        set_threads(options.threads)
        stories = [story for path in options.data for story in read_stories(path) if is_whole(story)]
        self.tokenizer, self.network = self._model(stories)
        tokens = self._encode([*stories, *self._retold(stories)])
        self.corpus = Corpus(tokens, EOS_ID, options.seed, options.windows, options.batch_tokens)
        self.valid_text = read_stories(options.valid)
        self.valid = self._encode(self.valid_text)
        self.optimizer = Optimizer(self.network, options.muon_rate, options.adam_rate)
        self.loss = torch.compile(batch_loss) if options.compile else batch_loss
        self.step, self.tokens, self.elapsed = 0, 0, 0.0
        self.best: dict[str, Any] = {}
        self.losses: list[float] = []
        if options.resume:
            self._restore()

    def _model(self, stories: Sequence[str]) -> tuple[Tokenizer, Network]:
        options = self.options
        source = options.out / MODEL if options.resume else options.init
        if source is not None:
            tokenizer, network = read_tokenizer(source), load(source, device="cpu", engine="torch").network
        else:
            tokenizer = train_tokenizer(stories, options.pieces)
            config = NetworkConfig(
                vocab_size=tokenizer.get_vocab_size(),
                d_model=options.d_model,
                n_layers=options.layers,
                n_heads=options.heads,
                n_kv_heads=options.heads,
                head_size=options.d_model // options.heads,
                d_ff=options.ffn,
                max_length=MAX_LENGTH,
                rope_theta=10000.0,
                norm_eps=1e-5,
                tied=True,
            )
            network = build_network(config, options.seed)
        return tokenizer, network.to(self.device).requires_grad_(True)

    def _retold(self, stories: Sequence[str]) -> list[str]:
        """The stories again, as often as asked for, about others; the tokenizer is never trained on these."""
        if not self.options.renamed:
            return []
        names, rng = Names(stories), np.random.default_rng([self.options.seed, len(stories)])
        return [names.rename(story, rng) for _ in range(self.options.renamed) for story in stories]

    def _encode(self, stories: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch(list(stories))]

    @property
    def progress(self) -> float:
        """The share of the schedule that is done: of the steps or of the minutes, the larger."""
        by_steps = self.step / self.options.steps if self.options.steps else 0.0
        return max(by_steps, self.elapsed / (60 * self.options.minutes) if self.options.minutes else 0.0)

    def run(self) -> dict[str, Any]:
        """Train to the end of the schedule; returns the summary (rank 0 writes log, state and the best model)."""
        self.started = time.monotonic() - self.elapsed
        self.saved = self.validated = self.elapsed
        self.before = self.tokens, self.elapsed
        if self.rank == 0 and not self.options.resume:
            self._validate()
        with tqdm(total=100, disable=self.rank > 0, bar_format="{percentage:3.0f}%|{bar:20}| {elapsed} {desc}") as bar:
            while self.progress < 1:
                self._train_step()
                if self.rank == 0:
                    self._look_after(bar)
        if self.rank == 0:
            self._validate()
        return {
            "steps": self.step,
            "tokens": self.tokens,
            "minutes": round(self.elapsed / 60, 2),
            "tokens_per_second": round(self.tokens / max(self.elapsed, 1e-9)),
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "best": self.best,
        }

    def _train_step(self) -> None:
        rate = learning_rate(self.progress, self.options.warm_up)
        noisy, *rest = self._batch()
        self.network.zero_grad(set_to_none=True)
        with self._autocast():
            loss = self.loss(self.network, noisy, *rest)
        loss.backward()
        self.step += 1
        self.tokens += noisy.numel() * self.world
        self._share(loss.detach())
        self.optimizer.step(rate)

    def _batch(self) -> tuple[Tensor, ...]:
        """This process's share of the step's windows: a pure function of (seed, step, rank, world)."""
        rng = np.random.default_rng([self.options.seed, self.step])
        windows = self.corpus.batch(self.step)
        rows, length = len(windows) // self.world, windows.shape[1]
        total = rows * self.world
        order = rng.permutation(total)[self.rank * rows : (self.rank + 1) * rows]
        prompts = prompt_lengths(rng, total, length, self.options.prompted)
        counts = stratified_counts(rng, np.arange(total), total, length - prompts)
        masks = draw_masks(rng, counts, length, prompts)[self.rank :: self.world]  # masking rates of all sizes for each
        return tuple(part.to(self.device) for part in make_batch(windows[order], masks, MASK_ID))

    def _share(self, loss: Tensor) -> None:
        """Average gradients and loss over the processes, which all go by rank 0's clock."""
        self.elapsed = time.monotonic() - self.started
        told = torch.tensor([float(loss), self.elapsed * self.world if self.rank == 0 else 0.0], device=self.device)
        if self.world > 1:
            shared = [*(p.grad for p in self.network.parameters() if p.grad is not None), told]
            flat = parameters_to_vector(shared)
            dist.all_reduce(flat)
            vector_to_parameters(flat / self.world, shared)
        loss_of_all, self.elapsed = told.tolist()
        self.losses.append(loss_of_all)

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16)

    # Rank 0 only

    def _look_after(self, bar: tqdm) -> None:
        if self.step % _LOG_EVERY == 0:
            tokens, elapsed = self.before
            rate = (self.tokens - tokens) / (self.elapsed - elapsed)
            left = self.elapsed * (1 / self.progress - 1) / 60
            loss = sum(self.losses) / len(self.losses)
            self.losses.clear()
            self._log(loss=loss, rate=learning_rate(self.progress, self.options.warm_up))
            bar.n = min(100.0, 100 * self.progress)
            bar.set_description_str(f"step {self.step}, loss {loss:.3f}, {rate:,.0f} tokens/s, {left:.1f} min left")
        if self.elapsed - self.validated > 60 * self.options.evaluate_minutes:
            self._validate()
        if self.elapsed - self.saved > _SAVE_EVERY:
            self._save()

    def _log(self, **values: float) -> None:
        """Append a line to the log. A resumed run says again what it said after its last saved state."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        with (self.options.out / LOG).open("a", encoding="utf-8") as file:
            told = {"step": self.step, "tokens": self.tokens, "seconds": round(self.elapsed, 1), **values}
            file.write(json.dumps(told) + "\n")

    def _validate(self) -> None:
        characters, draws = sum(map(len, self.valid_text)), self.options.evaluate_draws
        with self._autocast():
            bound = evaluate(self.network, self.valid, characters, mask_id=MASK_ID, eos_id=EOS_ID, draws=draws)
        self.elapsed = self.validated = time.monotonic() - self.started
        self._log(valid_nats_per_token=bound.nats_per_token, valid_bits_per_character=bound.bits_per_character)
        if bound.bits_per_character < self.best.get("bits_per_character", math.inf):
            self.best = {"step": self.step, **asdict(bound)}
            self._keep_model({"held_out": asdict(bound)})

    def _keep_model(self, extra: dict[str, Any]) -> None:
        """What is there stays until all of the new is written."""
        kept, fresh = self.options.out / MODEL, self.options.out / f"{MODEL}.new"
        save_checkpoint(self.network, fresh, mask_id=MASK_ID, eos_id=EOS_ID, pad_id=EOS_ID, extra=extra)
        save_tokenizer(self.tokenizer, fresh, self.network.config.max_length)
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)

    def _save(self) -> None:
        """Write the state beside the old one, then put it in its place in one step."""
        self.elapsed = self.saved = time.monotonic() - self.started
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        state |= {name: getattr(self, name) for name in _KEPT}
        fresh = self.options.out / f"{STATE}.new"
        torch.save(state, fresh)
        os.replace(fresh, self.options.out / STATE)

    def _restore(self) -> None:
        state = read_state(self.options.out / STATE)
        try:
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            told = f"resume: the state in {self.options.out} is of another run: {first_line(error)}"
            raise ValueError(told) from error
        for name in _KEPT:
            setattr(self, name, state[name])


def read_state(file: Path) -> dict[str, Any]:
    """The state of an interrupted run. Raises ValueError when there is none, or a damaged one."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, UnpicklingError) as error:
        raise ValueError(f"resume: {file} cannot be read: {first_line(error)}") from error
    for name, kind in _KEPT.items():
        value: Any = state.get(name) if isinstance(state, dict) else None
        if type(value) is not kind or (kind is not dict and not 0 <= value < math.inf):
            raise ValueError(f"resume: {file} is damaged: its {name} cannot be {value!r:.40}")
    return state
