"""lm-evaluation-harness's model `surelock`: any decoder's texts, and likelihoods by the Monte Carlo bound."""

import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import lm_eval.models  # noqa: F401  # pyright: ignore[reportMissingImports]  # it looks for its own before it knows one
import numpy as np
import torch
from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]
from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
from tqdm import tqdm

from surelock.decoding.algorithm import NonFiniteLogits
from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.ends import before_stops, shared_length, text_of
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.settings import DecodeSettings
from surelock.errors import shown
from surelock.harness.arguments import read_arguments, read_request
from surelock.loading import load
from surelock.model.bound import conditional_bound
from surelock.model.encoding import Rendering
from surelock.model.language_model import LanguageModel
from surelock.values import Fields, Json

_log = logging.getLogger(__name__)


@register_model("surelock")
class SureLockLM(TemplateLM):
    """lm-eval's model `surelock`: a masked diffusion language model with a decoder.

    pretrained: "stories", a hub id, a directory, or a LanguageModel.
    device: as in `surelock.load`. Without CUDA, a CUDA device is the CPU, since the harness asks for cuda:0 by default.
    dtype: by name, such as "bfloat16".
    device_map, engine, weights, tokenizer: as in `surelock.load`.
    batch_size: the number of prompts decoded together.
    max_batch_size: ignored.
    draws: the number of masks per likelihood, even.
    mask_batch: the number of masks in one forward pass.
    mask_seed: the seed of the masks.
    check_greedy: whether `loglikelihood` also decodes continuations greedily, to say whether the model would write
    it. False answers no.
    settings: settings of the decoder in the flat form: `compute` (default: lock), `unmask` (default: low_confidence),
    `gen_length`, `epsilon` and all others. They override the settings of the task, and these the model's.

    Raises ValueError, which names the argument, and for a model without a tokenizer.
    """

    def __init__(
        self,
        pretrained: str | LanguageModel = "stories",
        *,
        device: str | None = None,
        dtype: str | None = None,
        device_map: str | None = None,
        engine: str = "auto",
        weights: str | None = None,
        tokenizer: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        draws: int = 128,
        mask_batch: int = 32,
        mask_seed: int = 0,
        check_greedy: bool = True,
        **settings: Any,
    ) -> None:
        if not str(batch_size).isdecimal() or int(batch_size) < 1:
            raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
        for name, value, step, kind in (
            ("draws", draws, 2, "an even"),
            ("mask_batch", mask_batch, 1, "a whole"),
        ):
            if type(value) is not int or value < step or value % step:
                raise ValueError(f"{name} must be {kind} number above 0, not {value!r}")
        super().__init__()
        self._overrides = read_arguments(settings)
        lm = pretrained
        if not isinstance(lm, LanguageModel):
            if device_map or (str(device).startswith("cuda") and not torch.cuda.is_available()):
                device = None
            how = {
                "device_map": device_map,
                "engine": engine,
                "weights": weights,
                "tokenizer": tokenizer,
            }
            lm = load(lm, device=device, dtype=dtype, **how)
        if lm.tokenizer is None:
            raise ValueError(f"{lm.name} has no tokenizer, which lm-eval needs")
        recommended(lm.generation, self._overrides)  # what cannot be is refused before the work
        self.lm, self.tokenizer, self._device = lm, lm.tokenizer, lm.device
        self._warned = False  # whether the log says that spelled special tokens are text
        self.batch_size = int(batch_size)
        self.draws = draws
        self.mask_batch = mask_batch
        self.mask_seed = mask_seed
        self.check_greedy = check_greedy
        self._work: dict[str, float] = dict.fromkeys(
            ("texts", "steps", "seconds", "flops", "baseline_flops"), 0
        )

    # --- tokens -----------------------------------------------------------------------------------------------------

    @property
    def eot_token_id(self) -> int:
        return self.lm.pad_id if self.lm.eos_id is None else self.lm.eos_id

    @property
    def max_length(self) -> int:
        """The number of positions, prompt and generated part together."""
        return self.lm.config.max_length

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches templated requests."""
        return self.lm.name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return token ids. Special tokens are those of `apply_chat_template` alone: what a task spells is text.

        add_special_tokens: whether the tokenizer's special tokens come before the text. None: unless a rendering begins
        with BOS.
        """
        begun = isinstance(string, Rendering) and string.parts[:2] == (
            "",
            self.tokenizer.bos_token_id,
        )
        plain = type(string) is str
        if (
            plain
            and not self._warned
            and any(special in string for special in self.tokenizer.all_special_tokens)
        ):
            self._warned = True
            _log.warning(
                "a text spells special tokens: they are read as text, since no chat template has written them"
            )
        return self.lm.encoder.encode(
            string, special=not begun if add_special_tokens is None else add_special_tokens
        )

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the token ids of both, which together are those of the whole text.

        Spaces at the end of the context belong to the continuation, and so does a token in which the two meet.
        """
        head = context.rstrip()
        alone = self.tok_encode(head)
        whole = self.tok_encode(head + (context[len(head) :] + continuation))
        shared = shared_length(alone, whole)
        return whole[:shared], whole[shared:]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the `Rendering` of a conversation. Raises ValueError for a model without a usable chat template."""
        if not self.tokenizer.chat_template:
            raise ValueError(
                f"{self.lm.name} has no chat template: leave --apply_chat_template out"
            )
        return self.lm.encoder.render(
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
            enable_thinking=False,
        )

    # --- texts --------------------------------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the generated texts of the prompts, up to their ends or to the first stop of `until`.

        A text does not depend on the rest of its batch, except by rounding. A repeated request has the next seed. A
        prompt that is too long loses its beginning. Raises ValueError for what cannot be decoded, a prompt without
        tokens among it, before the first one is.
        """
        pairs: list[Any] = [request.args for request in requests]
        texts = [""] * len(pairs)
        kinds = _kinds(pairs)
        decoders = [self.decoder_for(pairs[kind[0][0]][1]) for kind in kinds]
        prompts: dict[int, list[int]] = {}
        for kind, decoder in zip(kinds, decoders, strict=True):
            for number, _ in kind:
                prompts[number] = self._fitting(pairs[number][0], decoder.settings.gen_length)
        with tqdm(total=len(pairs), desc="Decoding", disable=disable_tqdm) as progress:
            for kind, decoder in zip(kinds, decoders, strict=True):
                for at in range(0, len(kind), self.batch_size):
                    batch = kind[at : at + self.batch_size]
                    written = self._decode(
                        [prompts[number] for number, _ in batch],
                        decoder,
                        [again for _, again in batch],
                    )
                    for (number, _), text in zip(batch, written, strict=True):
                        context, wanted = pairs[number]
                        texts[number] = before_stops(text, _stops(wanted.get("until")))
                        self.cache_hook.add_partial(
                            "generate_until", (context, wanted), texts[number]
                        )
                    progress.update(len(batch))
        return texts

    def decoder_for(self, wanted: Fields) -> Decoder:
        """Return the decoder of a request's generation_kwargs. Raises ValueError, which names the setting."""
        return recommended(self.lm.generation, read_request(wanted) | self._overrides)

    def get_model_info(self) -> Json:
        """Return the cost of the texts so far, for the `config` of lm-eval's results."""
        work = self._work
        return {
            "surelock": work
            | {"flops_ratio": work["flops"] / work["baseline_flops"] if work["steps"] else None}
        }

    def _decode(
        self, prompts: list[list[int]], decoder: Decoder, again: Sequence[int]
    ) -> list[str]:
        length = decoder.settings.gen_length
        seeds = tuple(decoder.settings.seed_of(0) + repeat for repeat in again)
        seeded = replace(decoder, settings=replace(decoder.settings, seed=seeds))
        final = None
        work = self._work
        for final in decode(self.lm, prompts, **seeded.keywords()):
            work["steps"] += 1
            work["seconds"] += final.seconds
            work["flops"] += float(final.flops.sum())
            work["baseline_flops"] += float(final.baseline_flops.sum())
        assert final is not None
        work["texts"] += len(prompts)
        rows = zip(prompts, final.tokens.tolist(), strict=True)
        return [text_of(self.lm, ids[-length:], prompt) for prompt, ids in rows]

    def _fitting(self, context: str, gen_length: int) -> list[int]:
        ids = self.tok_encode(context)
        most = self.max_length - gen_length
        if most < 1:
            raise ValueError(
                f"gen_length ({gen_length}) leaves no room for a prompt in {self.max_length} positions"
            )
        if not ids:
            raise ValueError(
                f"the context {shown(context)} has no tokens: a text is generated behind one token at least"
            )
        if len(ids) > most:
            _log.warning(
                "a prompt of %d tokens loses its first %d to fit", len(ids), len(ids) - most
            )
        return ids[-most:]

    # --- likelihoods --------------------------------------------------------------------------------------------------

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Return (minus the bound in nats, whether greedy decoding writes it) by continuation.

        The bound is LLaDA's Monte Carlo estimate (Eq. 6) and computes every row. Requests of one length have the same
        masks, so figures differ by the texts alone. An empty continuation has 0.

        Raises ValueError, which names the pair, for another continuation without tokens and for one that does not fit,
        before the work, and NonFiniteLogits.
        """
        pairs = [
            (texts, *self._encode_pair(*texts)) for texts in (request.args for request in requests)
        ]
        return self._loglikelihood_tokens(pairs, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        for (context, text), _, continuation in requests:
            pair = f"the continuation {shown(text)} of {shown(context)}"
            if text and not continuation:
                raise ValueError(
                    f"{pair} has no tokens of its own: the tokenizer of {self.lm.name} leaves it out"
                )
            if len(continuation) > self.max_length:
                raise ValueError(f"{pair} has {len(continuation)} tokens: {self.max_length} fit")
        answers = []
        for texts, context, continuation in tqdm(requests, desc="Bounds", disable=disable_tqdm):
            room = self.max_length - len(continuation)
            if len(context) > room:
                _log.warning(
                    "a context of %d tokens loses its first %d to fit",
                    len(context),
                    len(context) - room,
                )
            kept = context[max(0, len(context) - room) :]
            with _naming(f"the continuation {shown(texts[1])} of {shown(texts[0])}"):
                answer = (
                    self._log_probability(kept, continuation),
                    self._is_greedy(kept, continuation),
                )
            answers.append(answer)
            self.cache_hook.add_partial("loglikelihood", texts, answer)
        return answers

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return minus the bounds of the whole texts in nats; parts of a long one are conditioned on the tokens before.

        The special tokens that the tokenizer puts before a text condition it, too. An empty text has 0. Raises
        ValueError for another text without tokens, and NonFiniteLogits.
        """
        texts = [text for (text,) in (request.args for request in requests)]
        pairs = [self._encode_pair("", text) for text in texts]
        for text, (_, ids) in zip(texts, pairs, strict=True):
            if text and not ids:
                raise ValueError(
                    f"the text {shown(text)} has no tokens: the tokenizer of {self.lm.name} leaves it out"
                )
        bounds = []
        most = self.max_length
        for text, (front, ids) in tqdm(
            zip(texts, pairs, strict=True), total=len(texts), desc="Bounds", disable=disable_tqdm
        ):
            whole = [*front, *ids]
            edges = [len(front), *range(most, len(whole), most), len(whole)]
            with _naming(f"the text {shown(text)}"):
                parts = [
                    self._log_probability(whole[max(0, stop - most) : start], whole[start:stop])
                    for start, stop in pairwise(edges)
                ]
            bounds.append(sum(parts))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), bounds[-1])
        return bounds

    def _log_probability(self, context: list[int], continuation: list[int]) -> float:
        """Minus the bound in nats; 0 without a token."""
        if not continuation:
            return 0.0
        bounds = conditional_bound(
            self.lm.network,
            np.array([*context, *continuation], dtype=np.int64),
            len(context),
            draws=self.draws,
            rng=np.random.default_rng(self.mask_seed),
            mask_id=self.lm.mask_id,
            batch=self.mask_batch,
        )
        return -float(bounds.mean())

    def _is_greedy(self, context: list[int], continuation: list[int]) -> bool:
        """Whether LLaDA's sampler at temperature 0, with one token a step, writes these tokens."""
        if not (self.check_greedy and continuation):
            return False
        canvas = [*context, *[self.lm.mask_id] * len(continuation)]
        greedy = Decoder(settings=DecodeSettings(gen_length=0), compute=Everything())
        (final,) = deque(decode(self.lm, [canvas], **greedy.keywords()), maxlen=1)
        return final.tokens[0, len(context) :].tolist() == continuation


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """A context in which NonFiniteLogits name what was scored."""
    try:
        yield
    except NonFiniteLogits as error:
        raise NonFiniteLogits(f"{what} cannot be scored: {error}") from error


def _stops(until: str | Sequence[str] | None) -> Sequence[str]:
    """The stops of a request, which may be one."""
    return [until] if isinstance(until, str) else until or ()


def _kinds(pairs: Sequence[tuple[str, Fields]]) -> list[list[tuple[int, int]]]:
    """The requests by decoder, the shortest first: (number, how often the same request came before)."""
    by_kind: dict[str, list[tuple[int, int]]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for number, (context, wanted) in enumerate(pairs):
        kind = repr(sorted(wanted.items(), key=str))
        by_kind.setdefault(kind, []).append((number, times[kind, context]))
        times[kind, context] += 1
    return [
        sorted(requests, key=lambda one: len(pairs[one[0]][0])) for requests in by_kind.values()
    ]
