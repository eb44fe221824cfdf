"""`python -m surelock train` trains a small masked diffusion model in the LLaDA layout, from scratch or further.

The model predicts masked tokens. Of the N tokens of a window k are masked, with k uniform on 1..N, and the loss is
weighted by N / k (LLaDA, Eq. 6). The objective is Eq. 3 with the masking rate integrated out: it has the same
expectation and less variance. The k of a batch are stratified over 1..N. A window may begin with a prompt that is never
masked (LLaDA's fine-tuning, Eq. 5).
"""

import argparse
import json
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.nn.functional as F
from huggingface_hub import save_torch_state_dict
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast

from surelock.bench.random_weights import llada_config
from surelock.config import NetworkConfig
from surelock.errors import first_line
from surelock.loading import find_device, load
from surelock.model.bound import conditional_bound
from surelock.model.checkpoint import row_counts
from surelock.model.families import LLADA
from surelock.model.machine import set_threads
from surelock.model.network import Network
from surelock.model.tokenizer import read_tokenizer
from surelock.research.corpus import (
    EOS,
    EOS_ID,
    MASK,
    MASK_ID,
    Corpus,
    Ids,
    draw_masks,
    encode,
    generator_of,
    make_batch,
    prompt_lengths,
    read_stories,
    stratified_counts,
    train_tokenizer,
    training_stories,
)
from surelock.research.muon import Muon, direct
from surelock.values import Json

MODEL = "model"
STATE = "state.pt"
LOG = "log.jsonl"
MAX_LENGTH = 1024
_LOG_EVERY = 20  # steps between two lines of the log
_MOST_PARAMETERS = 10**9
_SHARD = 9 * 2**20  # the most bytes of a file of weights
_WINDOW = 256  # the most tokens of a window in a validation
_DECAY = 0.05  # decoupled weight decay of the matrices, per unit of learning rate
_MOST = 10**6 - 1  # the greatest value of most flags

#: The name, default, least and greatest value, and meaning of the flags.
_FLAGS = (
    ("steps", 2000, 1, _MOST, "length of the schedule"),
    (
        "seconds",
        0.0,
        0,
        10**7,
        "length of the schedule by the clock, in place of --steps; 0 is none",
    ),
    ("window", 256, 1, MAX_LENGTH, "tokens of a training window"),
    ("batch-tokens", 12288, 1, _MOST, "tokens per step"),
    ("pieces", 4096, 1, _MOST, "entries of a new tokenizer"),
    ("d-model", 256, 1, _MOST, "width of a new network"),
    ("layers", 6, 1, _MOST, "blocks of a new network"),
    ("heads", 4, 1, _MOST, "attention heads of a new network"),
    ("ffn", 704, 1, _MOST, "feed-forward width of a new network"),
    (
        "renamed",
        0,
        0,
        100,
        "copies of the stories of --data, with other names for their characters",
    ),
    ("share", 0.3, 0, 0.99, "share of the windows that are from --also"),
    ("until", 0.55, 0, 1, "share of the schedule in which some are"),
    ("evaluate-every", 500, 1, _MOST, "steps between validations"),
    ("evaluate-draws", 8, 2, _MOST, "masks per window in a validation, an even number"),
    ("seed", 0, 0, 2**63 - 1, "of weights, names, order and masks"),
    (
        "prompted",
        0.0,
        0,
        1,
        "share of windows with a beginning, of random length, that is never masked",
    ),
    ("muon-rate", 0.015, 0, 10, "peak learning rate of the matrices"),
    ("adam-rate", 3e-3, 0, 10, "peak learning rate of embedding and norms"),
    ("warm-up", 0.02, 0, 1, "share of the schedule in which the learning rate rises"),
    ("flat", 0.4, 0, 1, "share of the schedule after which it falls, to zero"),
)

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def batch_loss(
    network: Network, noisy: Tensor, index: Tensor, target: Tensor, weight: Tensor
) -> Tensor:
    """Return the objective in nats per token. The head computes the masked positions alone.

    noisy, index, target, weight: see `corpus.make_batch`.
    """
    logits = network.logits(network.hidden(noisy).flatten(0, 1)[index])
    return (F.cross_entropy(logits.float(), target, reduction="none") * weight).sum()


def evaluate(
    network: Network, stories: Sequence[Ids], characters: int, *, draws: int = 16, seed: int = 0
) -> dict[str, float]:
    """Return the bound on stories with their EOS, in nats per token and bits per character, with standard errors.

    A window is one story. A story of more than _WINDOW tokens is split into equal windows.

    stories: the token ids without EOS. characters: the number of characters of all stories.
    draws: the number of masks per window, two per stratum. The difference of the two gives the standard errors
        `_error`. They are errors of the masks, not of the choice of stories.
    seed: the seed of the masks.
    """
    windows = []
    for story in stories:
        tokens = np.array([*story, EOS_ID], dtype=np.int64)
        windows += np.array_split(tokens, -(-len(tokens) // _WINDOW))
    total = 0.0
    variance = 0.0
    for number, tokens in enumerate(windows):
        rng = np.random.default_rng([seed, number])
        bounds = conditional_bound(
            network, tokens, 0, draws=draws, rng=rng, mask_id=MASK_ID
        ).reshape(2, -1)
        total += float(bounds.mean())
        variance += float(((bounds[0] - bounds[1]) ** 2).sum()) / bounds.size**2
    figures: dict[str, float] = {
        "stories": len(stories),
        "tokens": sum(map(len, windows)),
        "draws": draws,
    }
    for name, unit in (
        ("nats_per_token", figures["tokens"]),
        ("bits_per_character", math.log(2) * characters),
    ):
        figures |= {name: total / unit, f"{name}_error": math.sqrt(variance) / unit}
    return figures


def save_checkpoint(network: Network, tokenizer: Tokenizer, directory: Path, extra: Json) -> None:
    """Write weights and tokenizer in the LLaDA layout. The weights are bfloat16, in files of at most _SHARD bytes.

    extra: further fields of config.json.
    """
    config = network.config
    tensors = {}
    for name, parameter in network.named_parameters():
        sources = LLADA.tensor_names(name)
        parts = parameter.detach().split(row_counts(config, name, len(parameter)))
        tensors |= {
            source: part.to("cpu", torch.bfloat16, copy=True)
            for source, part in zip(sources, parts, strict=True)
        }
    ids = {
        "mask_token_id": MASK_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": EOS_ID,
        "torch_dtype": "bfloat16",
    }
    directory.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(tensors, directory, max_shard_size=_SHARD)
    (directory / "config.json").write_text(
        json.dumps(llada_config(config) | ids | extra, indent=1) + "\n", "utf-8"
    )
    special: Json = {
        "eos_token": EOS,
        "pad_token": EOS,
        "mask_token": MASK,
        "tokenizer_object": tokenizer,
    }
    special |= {"model_max_length": config.max_length, "clean_up_tokenization_spaces": False}
    PreTrainedTokenizerFast(**special).save_pretrained(directory)


def learning_rate(progress: float, warm_up: float, flat: float) -> float:
    """Return the learning rate as a share of its peak, 0 to 1.

    progress: the share of the schedule that is done. The rate rises until `warm_up`, and falls from `flat` on to zero.
    """
    rise = progress / max(warm_up, 1e-9)
    fall = (1 - progress) / max(1 - max(flat, warm_up), 1e-9)
    return max(0.0, min(1.0, rise, fall))


def build_network(config: NetworkConfig, seed: int) -> Network:
    """Return a new network. Its weights are normal with variance 1 / fan-in; maps into the residual stream are zero."""
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


def read_own_tokenizer(directory: Path) -> Tokenizer:
    """Return the tokenizer of a checkpoint. Raises ValueError if its EOS and mask token have other ids than here."""
    tokenizer = read_tokenizer(directory)
    if [tokenizer.token_to_id(EOS), tokenizer.token_to_id(MASK)] != [EOS_ID, MASK_ID]:
        raise ValueError(
            f"the tokenizer of {directory} must have {EOS} as {EOS_ID} and {MASK} as {MASK_ID}"
        )
    return tokenizer


class Trainer:
    """A training run.

    Tokens, windows, masks and loss are on the device. On a GPU the loss and Muon's directions are compiled.

    options: the flags of `train`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = find_device(options.device)
        set_threads(options.threads)
        options.out.mkdir(parents=True, exist_ok=True)
        self.valid_text = read_stories(options.valid)
        stories = training_stories(options.data, self.valid_text, options.renamed, options.seed)
        also = training_stories(options.also, self.valid_text)
        self.tokenizer, network = self._model(stories + also)
        self.valid = encode(self.tokenizer, self.valid_text)
        self.corpora = [self._corpus(texts) for texts in (stories, also) if texts]
        self.rows = max(1, options.batch_tokens // options.window)
        self.network = network.to(self.device).requires_grad_(True)
        self.loss: Callable[..., Tensor] = self._compiled(batch_loss)
        self.optimizers = self._optimizers()
        self.step = 0
        self.losses: list[Tensor] = []
        self.best = math.inf
        self.used = 0.0  # seconds of training before this process resumed the run
        self.since = math.inf  # when the first step of this process ended, in monotonic seconds
        if options.resume:
            self._restore()

    def _model(self, stories: Sequence[str]) -> tuple[Tokenizer, Network]:
        """Return tokenizer and network: those of the resumed run or of --init, or new ones."""
        options = self.options
        kept = options.out / MODEL
        former = kept.with_suffix(".old")
        if options.resume and former.exists() and not kept.exists():
            former.rename(kept)  # the run was interrupted while it replaced the best model
        if source := kept if options.resume else options.init:
            return read_own_tokenizer(source), load(source, device="cpu", engine="torch").network
        if options.tokenizer:
            tokenizer = read_own_tokenizer(options.tokenizer)
        else:
            tokenizer = train_tokenizer(stories, options.pieces)
        shape = {
            "d_model": options.d_model,
            "n_layers": options.layers,
            "d_ff": options.ffn,
            "tied": True,
        }
        shape |= {
            "n_heads": options.heads,
            "n_kv_heads": options.heads,
            "head_size": options.d_model // options.heads,
        }
        shape |= {"vocab_size": tokenizer.get_vocab_size(), "max_length": MAX_LENGTH}
        return tokenizer, build_network(
            NetworkConfig(rope_theta=10000.0, norm_eps=1e-5, **shape), options.seed
        )

    def _corpus(self, stories: Sequence[str]) -> Corpus:
        return Corpus(
            encode(self.tokenizer, stories), self.options.seed, self.options.window, self.device
        )

    def _compiled(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        backend = self.options.compile or ("inductor" if self.device.type == "cuda" else "none")
        if backend == "none":
            return function
        return torch.compile(function, fullgraph=True, dynamic=False, backend=backend)

    def _optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Return the optimizers: Muon for matrices in the blocks, AdamW for the embedding, the head and the norms."""
        stacks = []
        rest = []
        for name, parameter in self.network.named_parameters():
            if name.startswith("blocks.") and parameter.dim() == 2:
                stacks.append((parameter, row_counts(self.network.config, name, len(parameter))))
            else:
                rest.append(parameter)
        return {
            "muon_rate": Muon(stacks, self.options.muon_rate, _DECAY, self._compiled(direct)),
            "adam_rate": torch.optim.AdamW(
                rest, lr=self.options.adam_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
            ),
        }

    @property
    def seconds(self) -> float:
        """The seconds of training. The first step of a process, which compiles, does not count."""
        return self.used + max(0.0, time.monotonic() - self.since)

    @property
    def progress(self) -> float:
        """The share of the schedule that is done, by the clock or by steps."""
        if self.options.seconds:
            return self.seconds / self.options.seconds
        return self.step / self.options.steps

    def run(self) -> Json:
        """Train to the end of the schedule, and write the log, the state and the best model. Return the summary."""
        options = self.options
        total = None if options.seconds else options.steps
        with warnings.catch_warnings(), tqdm(initial=self.step, total=total, unit="step") as bar:
            # Dynamo warns of the cached rotary table, which is a constant
            warnings.filterwarnings("ignore", "Dynamo detected a call")
            while self.progress < 1:
                self._train_step()
                bar.update()
                ended = self.progress >= 1
                if ended or self.step % _LOG_EVERY == 0:
                    loss = float(torch.stack(self.losses).mean())
                    self.losses.clear()
                    bar.set_description(f"{min(1.0, self.progress):.0%}, loss {loss:.3f}")
                    self._log(loss=loss)
                if ended or self.step % options.evaluate_every == 0:
                    self._validate()
                    self._save()
        tokens = self.step * self.rows * options.window
        return {
            "steps": self.step,
            "tokens": tokens,
            "seconds": self.seconds,
            "bits_per_character": self.best,
        }

    def _train_step(self) -> None:
        share = learning_rate(self.progress, self.options.warm_up, self.options.flat)
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = self.loss(self.network, *self._batch())
        loss.backward()
        for peak, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = share * getattr(self.options, peak)
            optimizer.step()
        self.network.zero_grad(set_to_none=True)
        self.losses.append(loss.detach())
        self.step += 1
        self.since = min(self.since, time.monotonic())

    def _batch(self) -> Batch:
        """Return the masked windows of the step. They depend on the seed, the step and the windows drawn before."""
        rows = self.rows
        length = self.options.window
        mixed = len(self.corpora) > 1 and self.progress < self.options.until
        others = int(self.options.share * rows) if mixed else 0  # windows from --also
        parts = zip(self.corpora, (rows - others, others), strict=False)
        windows = torch.cat([corpus.batch(count) for corpus, count in parts])
        generator = generator_of(self.device, self.options.seed, self.step)
        prompts = prompt_lengths(generator, rows, length, self.options.prompted)
        counts = stratified_counts(generator, length - prompts)
        return make_batch(windows, draw_masks(generator, counts, length, prompts))

    def _log(self, **values: float) -> None:
        line = {"step": self.step, "seconds": round(self.seconds, 1), **values}
        with (self.options.out / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _validate(self) -> None:
        """Log the bound on the held-out stories, and keep the model if it is the best so far.

        At any moment one complete best model is on the disk, as `model` or, while it is replaced, as `model.old`.
        """
        characters = sum(map(len, self.valid_text))
        with torch.autocast(self.device.type, torch.bfloat16):
            bound = evaluate(
                self.network, self.valid, characters, draws=self.options.evaluate_draws
            )
        self._log(
            **{f"valid_{name}": bound[name] for name in ("nats_per_token", "bits_per_character")}
        )
        if bound["bits_per_character"] < self.best:
            self.best = bound["bits_per_character"]
            kept = self.options.out / MODEL
            fresh = kept.with_suffix(".new")
            former = kept.with_suffix(".old")
            save_checkpoint(self.network, self.tokenizer, fresh, {"held_out": bound})
            shutil.rmtree(former, ignore_errors=True)
            if kept.exists():
                kept.rename(former)
            fresh.rename(kept)
            shutil.rmtree(former, ignore_errors=True)

    def _save(self) -> None:
        state = {
            "network": self.network.state_dict(),
            "step": self.step,
            "best": self.best,
            "seconds": self.seconds,
        }
        state["optimizers"] = [optimizer.state_dict() for optimizer in self.optimizers.values()]
        state["drawn"] = [corpus.drawn for corpus in self.corpora]
        fresh = self.options.out / f"{STATE}.new"
        torch.save(state, fresh)
        os.replace(fresh, self.options.out / STATE)

    def _restore(self) -> None:
        """Load the state in --out. Raises ValueError if it is missing, damaged, or the state of another run."""
        file = self.options.out / STATE
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            self.network.load_state_dict(state["network"])
            for optimizer, kept in zip(self.optimizers.values(), state["optimizers"], strict=True):
                optimizer.load_state_dict(kept)
            for corpus, drawn in zip(self.corpora, state["drawn"], strict=True):
                corpus.drawn = int(drawn)
            self.step = int(state["step"])
            self.best = float(state["best"])
            self.used = float(state["seconds"])
        except (
            OSError,
            EOFError,
            RuntimeError,
            ValueError,
            LookupError,
            TypeError,
            UnpicklingError,
        ) as error:
            raise ValueError(
                f"resume: {file} is no state of this run: {first_line(error)}"
            ) from error


def add_train_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock train`."""
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        help="text files of stories, each closed by <|endoftext|>; .xz",
    )
    add(
        "--also",
        type=Path,
        nargs="+",
        default=[],
        help="more of them, mixed in for a first part of the schedule",
    )
    add(
        "--valid", type=Path, required=True, help="held-out stories: validated on, never trained on"
    )
    add(
        "--out",
        type=Path,
        required=True,
        help="directory for the run's state, its log and the best model so far",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--init", type=Path, help="start from this checkpoint: its weights, shape and tokenizer"
    )
    source.add_argument(
        "--tokenizer",
        type=Path,
        help="start with the tokenizer of this checkpoint, and new weights",
    )
    add("--resume", action="store_true", help="continue the interrupted run in --out")
    add("--device", help="cpu or cuda (default: CUDA if there is one)")
    add("--threads", type=int, help="CPU threads (default: torch's)")
    add(
        "--compile",
        choices=("inductor", "eager", "none"),
        help="by torch (default: inductor on a GPU, else none)",
    )
    for name, default, _, _, what in _FLAGS:
        add(f"--{name}", type=type(default), default=default, help=f"{what} (default: %(default)s)")
    parser.set_defaults(run=train)


def train(arguments: argparse.Namespace) -> Json:
    """Train a model, and return the summary. Raises ValueError for flags that cannot be followed."""
    for name, _, least, most, _ in _FLAGS:
        value = getattr(arguments, name.replace("-", "_"))
        if not least <= value <= most:
            raise ValueError(f"--{name} must be from {least:,} to {most:,}, not {value}")
    if arguments.evaluate_draws % 2:
        raise ValueError(f"--evaluate-draws must be an even number, not {arguments.evaluate_draws}")
    width = arguments.d_model
    heads = arguments.heads
    if width % heads:
        raise ValueError(f"--heads must divide --d-model ({width}), {heads} does not")
    parameters_of_layer = width * (4 * width + 3 * arguments.ffn)
    size = width * arguments.pieces + arguments.layers * parameters_of_layer
    if size > _MOST_PARAMETERS:
        raise ValueError(
            f"--d-model makes a network of {size:.1e} parameters with these layers, ffn and pieces"
        )
    if arguments.out.exists() and any(arguments.out.iterdir()) and not arguments.resume:
        raise ValueError(f"--out: {arguments.out} is not empty (--resume continues the run in it)")
    return Trainer(arguments).run()
