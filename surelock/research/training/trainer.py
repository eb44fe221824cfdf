"""The training run: schedule, steps, validation, state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from surelock.model.bound import draw_masks, stratified_counts
from surelock.model.config import NetworkConfig
from surelock.model.errors import first_line
from surelock.model.flags import set_threads
from surelock.model.loading import find_device, load
from surelock.model.network import Network
from surelock.model.tokenizer import read_tokenizer
from surelock.research.training.checkpoint import save_checkpoint
from surelock.research.training.data import (
    EOS_ID,
    MASK_ID,
    Corpus,
    Names,
    is_whole,
    read_stories,
    save_tokenizer,
    train_tokenizer,
)
from surelock.research.training.group import sum_in_place
from surelock.research.training.objective import Bound, batch_loss, evaluate, make_batch, prompt_lengths
from surelock.research.training.optim import Optimizer
from surelock.research.training.options import TrainOptions
from surelock.research.training.state import KEPT, log, read_state, save_state, truncate_log

MODEL = "model"
_LOG_EVERY = 20


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


class Trainer:
    """One process of a training run; rank 0 keeps the clock, the log, the validation and the files."""

    def __init__(self, options: TrainOptions, rank: int = 0, world: int = 1) -> None:
        self.options, self.rank, self.world = options, rank, world
        self.device = find_device(options.device if world == 1 else "cpu")
        set_threads(options.threads)
        stories = [story for path in options.data for story in read_stories(path) if is_whole(story)]
        self.tokenizer, self.network = self._model(stories)
        self.corpus = Corpus(
            self._encode([*stories, *self._retold(stories)]),
            EOS_ID,
            options.seed,
            lengths=options.windows,
            batch_tokens=options.batch_tokens,
        )
        self.valid_text = read_stories(options.valid)
        self.valid = self._encode(self.valid_text)
        self.optimizer = Optimizer(
            self.network, options.muon_rate, options.adam_rate, options.weight_decay, rank=rank, world=world
        )
        self.loss = torch.compile(batch_loss, dynamic=False) if options.compile else batch_loss
        self.step, self.tokens, self.elapsed, self.progress = 0, 0, 0.0, 0.0
        self.best: dict[str, Any] = {}
        self.losses: list[float] = []
        if options.resume:
            self._restore(read_state(options.out))

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
                max_length=options.max_length,
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

    def run(self) -> dict[str, Any]:
        """Train to the end of the schedule; returns the summary (rank 0 writes log, state and the best model)."""
        self._mark_start()
        if self.rank == 0 and not self.options.resume:
            self._validate()
        with tqdm(total=100, disable=self.rank > 0, bar_format="{percentage:3.0f}%|{bar:20}| {elapsed} {desc}") as bar:
            while self.progress < 1:
                self._train_step()
                if self.rank == 0:
                    self._look_after(bar)
        if self.rank == 0:
            self._validate()
        return self._summary()

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
        self.optimizer.step(rate, sum_in_place if self.world > 1 else None)

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
        capacity = (rows + 2) * length // 2
        return make_batch(windows[order], masks, MASK_ID, capacity).to(self.device)

    def _share(self, loss: Tensor) -> None:
        """Average gradients and loss over the processes, and learn from rank 0's clock how far the run is."""
        clock = torch.tensor([self._clock() if self.rank == 0 else 0.0], device=self.device)
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        if self.world > 1:
            flat = torch.cat([*(g.flatten() for g in gradients), loss.view(1), clock * self.world])
            sum_in_place(flat)
            flat /= self.world
            *shares, loss, clock = flat.split([*(g.numel() for g in gradients), 1, 1])
            for gradient, share in zip(gradients, shares, strict=True):
                gradient.copy_(share.view_as(gradient))
        self.progress = float(clock)
        self.losses.append(float(loss))

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.dtype == "bfloat16")

    # The clock

    def _mark_start(self) -> None:
        now = time.monotonic()
        self.started = now - self.elapsed
        self.saved = self.validated = self.elapsed
        self.tokens_at_start, self.elapsed_at_start = self.tokens, self.elapsed

    def _clock(self) -> float:
        """The share of the schedule that is done: of the steps or of the minutes, the larger."""
        self.elapsed = time.monotonic() - self.started
        by_steps = self.step / self.options.steps if self.options.steps else 0.0
        by_time = self.elapsed / (60 * self.options.minutes) if self.options.minutes else 0.0
        return max(by_steps, by_time)

    # Rank 0 only

    def _look_after(self, bar: tqdm) -> None:
        if self.step % _LOG_EVERY == 0:
            rate = (self.tokens - self.tokens_at_start) / (self.elapsed - self.elapsed_at_start)
            left = self.elapsed * (1 / self.progress - 1) / 60
            loss = sum(self.losses) / len(self.losses)
            self.losses.clear()
            self._log(loss=loss, rate=learning_rate(self.progress, self.options.warm_up))
            bar.n = min(100.0, 100 * self.progress)
            bar.set_description_str(f"step {self.step}, loss {loss:.3f}, {rate:,.0f} tokens/s, {left:.1f} min left")
        if self.elapsed - self.validated > 60 * self.options.evaluate_minutes:
            self._validate()
        if self.elapsed - self.saved > 60 * self.options.save_minutes:
            self._save()

    def _log(self, **values: float) -> None:
        log(self.options.out, {"step": self.step, "tokens": self.tokens, "seconds": round(self.elapsed, 1), **values})

    def _validate(self) -> None:
        with self._autocast():
            bound = evaluate(
                self.network,
                self.valid,
                sum(map(len, self.valid_text)),
                mask_id=MASK_ID,
                eos_id=EOS_ID,
                draws=self.options.evaluate_draws,
            )
        self.elapsed = self.validated = time.monotonic() - self.started
        self._log(valid_nats_per_token=bound.nats_per_token, valid_bits_per_character=bound.bits_per_character)
        if bound.bits_per_character < self.best.get("bits_per_character", float("inf")):
            self.best = {"step": self.step, **asdict(bound)}
            self._keep_model(bound)

    def _keep_model(self, bound: Bound) -> None:
        directory = self.options.out / MODEL
        extra = {"held_out": asdict(bound)}
        save_checkpoint(self.network, directory, mask_id=MASK_ID, eos_id=EOS_ID, pad_id=EOS_ID, extra=extra)
        save_tokenizer(self.tokenizer, directory, self.network.config.max_length)

    def _save(self) -> None:
        self.elapsed = self.saved = time.monotonic() - self.started
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            **{name: getattr(self, name) for name in KEPT},
        }
        save_state(self.options.out, state)

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"resume: the state in {self.options.out} is of another run: {first_line(error)}"
            ) from error
        for name in KEPT:
            setattr(self, name, state[name])
        if self.rank == 0:
            truncate_log(self.options.out, self.step)

    def _summary(self) -> dict[str, Any]:
        return {
            "steps": self.step,
            "tokens": self.tokens,
            "minutes": round(self.elapsed / 60, 2),
            "tokens_per_second": round(self.tokens / max(self.elapsed, 1e-9)),
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "best": self.best,
        }
