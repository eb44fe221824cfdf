"""`python -m surelock train`: a small masked diffusion model in the LLaDA layout, from scratch or further.

The objective: predict the masked tokens, their number k uniform on 1..N, the loss weighted N / k (LLaDA, Eq. 6). That
is Eq. 3 with the masking rate integrated out, which has the same expectation and less variance. The k of a batch are
stratified over 1..N. A window may begin with a prompt that is never masked (LLaDA's fine-tuning, Eq. 5).
"""

import argparse
import json
import math
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from huggingface_hub import save_torch_state_dict
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from surelock.bench.random_weights import llada_config
from surelock.config import NetworkConfig
from surelock.errors import first_line
from surelock.loading import find_device, load
from surelock.model.bound import conditional_bound, draw_masks, stratified_counts
from surelock.model.checkpoint import row_counts
from surelock.model.families import LLADA
from surelock.model.machine import set_threads
from surelock.model.network import Network
from surelock.model.tokenizer import read_tokenizer

EOS, MASK = "<|endoftext|>", "<|mask|>"
EOS_ID, MASK_ID = 0, 1
MODEL, STATE, LOG = "model", "state.pt", "log.jsonl"
MAX_LENGTH = 1024
_LOG_EVERY, _MOST_PARAMETERS = 20, 10**9
_SHARD, _WINDOW = 9 * 2**20, 256  # bytes of a file, tokens of a validation
_DECAY = 0.02  # decoupled, of the matrices, per unit of learning rate


def read_stories(path: str | Path) -> list[str]:
    """The stories of a UTF-8 text file, each closed by `<|endoftext|>`. Raises ValueError when there are none."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as text: {error}") from error
    if not (stories := [story.strip() for story in text.split(EOS) if story.strip()]):
        raise ValueError(f"{path} holds no story")
    return stories


class Corpus:
    """Stories as a stream of tokens, shuffled anew in each epoch; a batch is a pure function of (seed, step)."""

    def __init__(self, stories: Iterable[Sequence[int]], seed: int, length: int, rows: int) -> None:
        """stories: token ids without EOS. length: of a window. rows: windows in a batch."""
        self.stories = [np.array([*story, EOS_ID], dtype=np.int32) for story in stories]
        self.seed, self.length, self.rows, self.tokens = seed, length, rows, sum(map(len, self.stories))
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(self, epoch: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All tokens of an epoch in shuffled order of the stories, and where each story starts."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.stories))
        lengths = np.array([len(self.stories[i]) for i in order])
        return np.concatenate([self.stories[i] for i in order]), np.cumsum(lengths) - lengths

    def batch(self, step: int) -> NDArray[np.int64]:
        """[rows, length]: every other window starts where a story starts, the others tile the stream.

        A model that is to continue openings must know them at position 0, and tiling alone hardly ever shows one there.
        """
        windows = []
        for index in range(step * self.rows, (step + 1) * self.rows):
            if index % 2:
                epoch, begin = divmod(index // 2 * self.length, self.tokens)
            else:
                epoch, story = divmod(index // 2, len(self.stories))
                begin = int(self._shuffled(epoch)[1][story])
            windows.append(self._shuffled(epoch)[0].take(range(begin, begin + self.length), mode="wrap"))
        return np.stack(windows).astype(np.int64)


def prompt_lengths(rng: np.random.Generator, rows: int, length: int, share: float) -> NDArray[np.int64]:
    """[rows]: uniform on 0..length - 1 in a random `share` of the rows, 0 in the others."""
    return np.where(rng.random(rows) < share, rng.integers(0, length, rows), 0)


def make_batch(windows: NDArray[np.int64], masks: NDArray[np.bool_], mask_id: int) -> tuple[Tensor, ...]:
    """The masked windows [B, N]; of each of the K masks its place among the B * N, its token and its weight.

    sum(weight * nats) estimates the bound in nats a token: (1/N) (N/k) sum over the k masked, the mean over windows.
    """
    weights = np.broadcast_to(1 / (masks.sum(axis=1, keepdims=True) * len(windows)), masks.shape)
    made = np.where(masks, mask_id, windows), np.flatnonzero(masks), windows[masks], weights[masks].astype(np.float32)
    return tuple(map(torch.from_numpy, made))


def batch_loss(network: Network, noisy: Tensor, index: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """The objective, in nats per token; the head runs on the masked positions alone."""
    logits = network.logits(network.hidden(noisy).flatten(0, 1)[index])
    return (F.cross_entropy(logits.float(), target, reduction="none") * weight).sum()


def evaluate(
    network: Network, stories: Sequence[Sequence[int]], characters: int, *, draws: int = 16, seed: int = 0
) -> dict[str, float]:
    """Bound the nats of each story and its EOS; windows hold one story, or an equal part of one longer than 256 tokens.

    stories: token ids without EOS, of so many characters. draws: masks per window, two in each of draws / 2 strata,
    whose difference gives the standard errors `_error`: of the masks, not of the choice of text.
    """
    whole = [np.array([*story, EOS_ID], dtype=np.int64) for story in stories]
    windows = [part for tokens in whole for part in np.array_split(tokens, -(-len(tokens) // _WINDOW))]
    total, variance = 0.0, 0.0
    for number, tokens in enumerate(windows):
        rng = np.random.default_rng([seed, number])
        bounds = conditional_bound(network, tokens, 0, draws=draws, rng=rng, mask_id=MASK_ID).reshape(2, -1)
        total += float(bounds.mean())
        variance += float(((bounds[0] - bounds[1]) ** 2).sum()) / bounds.size**2
    found: dict[str, float] = {"stories": len(stories), "tokens": sum(map(len, windows)), "draws": draws}
    for name, unit in (("nats_per_token", found["tokens"]), ("bits_per_character", math.log(2) * characters)):
        found |= {name: total / unit, f"{name}_error": math.sqrt(variance) / unit}
    return found


def save_checkpoint(network: Network, tokenizer: Tokenizer, directory: Path, extra: dict[str, Any]) -> None:
    """Write weights and tokenizer in the LLaDA layout, in bfloat16 shards of at most 9 MiB. extra: for config.json."""
    config, tensors = network.config, {}
    for name, parameter in network.named_parameters():
        sources = LLADA.tensor_names(name)
        parts = parameter.detach().split(row_counts(config, name, len(parameter)))
        tensors |= {each: part.to("cpu", torch.bfloat16, copy=True) for each, part in zip(sources, parts, strict=True)}
    ids = {"mask_token_id": MASK_ID, "eos_token_id": EOS_ID, "pad_token_id": EOS_ID, "torch_dtype": "bfloat16"}
    directory.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(tensors, directory, max_shard_size=_SHARD)
    (directory / "config.json").write_text(json.dumps(llada_config(config) | ids | extra, indent=1) + "\n", "utf-8")
    special: dict[str, Any] = {"eos_token": EOS, "pad_token": EOS, "mask_token": MASK, "tokenizer_object": tokenizer}
    special |= {"model_max_length": config.max_length, "clean_up_tokenization_spaces": False}
    PreTrainedTokenizerFast(**special).save_pretrained(directory)


def train_tokenizer(stories: Iterable[str], pieces: int = 4096) -> Tokenizer:
    """Byte-level BPE of `pieces` entries: EOS (also the pad) is 0, the mask token 1, then 256 bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {"special_tokens": [EOS, MASK], "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(stories, trainers.BpeTrainer(vocab_size=pieces, **special))
    return tokenizer


def learning_rate(progress: float, warm_up: float) -> float:
    """The share of the peak rate at `progress` in 0..1: a linear rise over `warm_up`, then a linear fall to zero."""
    return max(0.0, min(progress / max(warm_up, 1e-9), (1 - progress) / max(1 - warm_up, 1e-9)))


def build_network(config: NetworkConfig, seed: int) -> Network:
    """A fresh network: normal weights of variance 1 / fan-in, the maps back into the residual stream at zero."""
    network, generator = Network(config), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith(("attn_out.weight", "ff_out.weight")):
                parameter.zero_()
            elif parameter.dim() == 2:
                std = 0.05 if name.startswith("embed") else parameter.shape[1] ** -0.5
                parameter.normal_(0.0, std, generator=generator)
    return network


def optimizers_of(network: Network, muon_rate: float, adam_rate: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for the embedding, the head and the norms, at these peak rates."""
    matrices = [p for p in network.blocks.parameters() if p.dim() == 2]
    rest = [p for p in network.parameters() if all(p is not each for each in matrices)]
    return [
        torch.optim.Muon(matrices, lr=muon_rate, weight_decay=_DECAY),
        torch.optim.AdamW(rest, lr=adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


class Trainer:
    """A training run. options: the flags of `train`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, find_device(options.device)
        set_threads(options.threads)
        stories = [story for path in options.data for story in read_stories(path)]
        self.tokenizer, network = self._model(stories)
        self.network = network.to(self.device).requires_grad_(True)
        rows = max(1, options.batch_tokens // options.window)
        self.valid_text = read_stories(options.valid)
        tokens, self.valid = ([each.ids for each in self.tokenizer.encode_batch(t)] for t in (stories, self.valid_text))
        self.corpus = Corpus(tokens, options.seed, options.window, rows)
        self.optimizers = optimizers_of(self.network, options.muon_rate, options.adam_rate)
        self.schedules = [
            torch.optim.lr_scheduler.LambdaLR(each, lambda step: learning_rate(step / options.steps, options.warm_up))
            for each in self.optimizers
        ]
        self.step, self.losses, self.best = 0, [], math.inf
        if options.resume:
            self._restore()

    def _model(self, stories: Sequence[str]) -> tuple[Tokenizer, Network]:
        options = self.options
        if source := options.out / MODEL if options.resume else options.init:
            return read_tokenizer(source), load(source, device="cpu", engine="torch").network
        tokenizer = train_tokenizer(stories, options.pieces)
        shape = {"d_model": options.d_model, "n_layers": options.layers, "d_ff": options.ffn, "tied": True}
        shape |= {"n_heads": options.heads, "n_kv_heads": options.heads, "head_size": options.d_model // options.heads}
        shape |= {"vocab_size": tokenizer.get_vocab_size(), "max_length": MAX_LENGTH}
        return tokenizer, build_network(NetworkConfig(rope_theta=10000.0, norm_eps=1e-5, **shape), options.seed)

    def run(self) -> dict[str, Any]:
        """Train to the end of the schedule; writes log, state and the best model."""
        started, steps = time.monotonic(), self.options.steps
        with tqdm(initial=self.step, total=steps, unit="step") as bar:
            while self.step < steps:
                self._train_step()
                bar.update()
                if self.step % _LOG_EVERY == 0 or self.step == steps:
                    loss = sum(self.losses) / len(self.losses)
                    self.losses.clear()
                    bar.set_description(f"loss {loss:.3f}")
                    self._log(loss=loss)
                if self.step % self.options.evaluate_every == 0 or self.step == steps:
                    self._validate()
                    self._save()
        return {"steps": self.step, "seconds": time.monotonic() - started, "bits_per_character": self.best}

    def _train_step(self) -> None:
        self.network.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = batch_loss(self.network, *self._batch())
        loss.backward()
        for each in (*self.optimizers, *self.schedules):
            each.step()
        self.losses.append(float(loss.detach()))
        self.step += 1

    def _batch(self) -> tuple[Tensor, ...]:
        """The windows of the step, masked: a pure function of (seed, step)."""
        rng, windows = np.random.default_rng([self.options.seed, self.step]), self.corpus.batch(self.step)
        rows, length = windows.shape
        prompts = prompt_lengths(rng, rows, length, self.options.prompted)
        masks = draw_masks(rng, stratified_counts(rng, np.arange(rows), rows, length - prompts), length, prompts)
        order = rng.permutation(rows)  # else windows that start stories would always have the same masking rates
        return tuple(part.to(self.device) for part in make_batch(windows[order], masks, MASK_ID))

    def _log(self, **values: float) -> None:
        self.options.out.mkdir(parents=True, exist_ok=True)
        with (self.options.out / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": self.step, **values}) + "\n")

    def _validate(self) -> None:
        """Bound the held-out stories. The best model is kept; what is there stays until all of the new is written."""
        characters = sum(map(len, self.valid_text))
        with torch.autocast(self.device.type, torch.bfloat16):
            bound = evaluate(self.network, self.valid, characters, draws=self.options.evaluate_draws)
        self._log(**{f"valid_{name}": bound[name] for name in ("nats_per_token", "bits_per_character")})
        if bound["bits_per_character"] < self.best:
            self.best = bound["bits_per_character"]
            kept, fresh = self.options.out / MODEL, self.options.out / f"{MODEL}.new"
            save_checkpoint(self.network, self.tokenizer, fresh, {"held_out": bound})
            shutil.rmtree(kept, ignore_errors=True)
            fresh.rename(kept)

    def _save(self) -> None:
        state = {"network": self.network.state_dict(), "step": self.step, "best": self.best}
        state |= {name: [each.state_dict() for each in getattr(self, name)] for name in ("optimizers", "schedules")}
        fresh = self.options.out / f"{STATE}.new"
        torch.save(state, fresh)
        os.replace(fresh, self.options.out / STATE)

    def _restore(self) -> None:
        """Go on from the state in --out. Raises ValueError when there is none, a damaged one, or one of another run."""
        file = self.options.out / STATE
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            self.network.load_state_dict(state["network"])
            for name in ("optimizers", "schedules"):
                for each, kept in zip(getattr(self, name), state[name], strict=True):
                    each.load_state_dict(kept)
            self.step, self.best = int(state["step"]), float(state["best"])
        except (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, UnpicklingError) as error:
            raise ValueError(f"resume: {file} is no state of this run: {first_line(error)}") from error


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    add, shown = parser.add_argument, " (default: %(default)s)"
    add("--data", type=Path, nargs="+", required=True, help="text files of stories, each closed by <|endoftext|>")
    add("--valid", type=Path, required=True, help="held-out stories: validated on, never trained on")
    add("--out", type=Path, required=True, help="directory for the run's state, its log and the best model so far")
    add("--init", type=Path, help="start from this checkpoint: its weights, shape and tokenizer")
    add("--resume", action="store_true", help="continue the interrupted run in --out")
    add("--device", help="cpu or cuda (default: CUDA if there is one)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    for name, kind, default, what in (
        ("steps", int, 2000, "of the schedule"),
        ("window", int, 256, "tokens of a training window"),
        ("batch-tokens", int, 12288, "tokens per step"),
        ("pieces", int, 4096, "entries of a new tokenizer"),
        ("d-model", int, 256, "width of a new network"),
        ("layers", int, 6, "blocks of a new network"),
        ("heads", int, 4, "attention heads of a new network"),
        ("ffn", int, 704, "feed-forward width of a new network"),
        ("evaluate-every", int, 500, "steps between validations"),
        ("evaluate-draws", int, 8, "masks per window in a validation"),
        ("seed", int, 0, "of weights, order and masks"),
        ("prompted", float, 0.0, "share of windows with a beginning, of random length, that is never masked"),
        ("muon-rate", float, 0.02, "peak learning rate of the matrices"),
        ("adam-rate", float, 3e-3, "peak learning rate of embedding and norms"),
        ("warm-up", float, 0.02, "share of the schedule in which the learning rate rises"),
    ):
        add(f"--{name}", type=kind, default=default, help=what + shown)
    parser.set_defaults(run=train)


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the summary. Raises ValueError for flags that cannot be."""
    for name, value in vars(arguments).items():
        if type(value) is int and name != "seed" and not 0 < value < 10**6:
            raise ValueError(f"--{name.replace('_', '-')} must be from 1 to 999,999, not {value}")
    width, heads = arguments.d_model, arguments.heads
    if width % heads:
        raise ValueError(f"--heads must divide --d-model ({width}), {heads} does not")
    if (size := width * (arguments.pieces + arguments.layers * (4 * width + 3 * arguments.ffn))) > _MOST_PARAMETERS:
        raise ValueError(f"--d-model makes a network of {size:.1e} parameters with these layers, ffn and pieces")
    if arguments.window > MAX_LENGTH:
        raise ValueError(f"--window must be at most {MAX_LENGTH}, not {arguments.window}")
    if arguments.out.exists() and any(arguments.out.iterdir()) and not arguments.resume:
        raise ValueError(f"--out: {arguments.out} is not empty (--resume continues the run in it)")
    return Trainer(arguments).run()
