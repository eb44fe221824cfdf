"""The model `surelock` for lm-evaluation-harness.

It generates texts by any decoder, and scores texts by the Monte Carlo bound on their likelihood.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import lm_eval.models  # noqa: F401  # pyright: ignore[reportMissingImports]  # lm-eval's models must register first
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
    """A masked diffusion language model with a decoder, as a model of lm-eval.

    pretrained: "stories", a hub id, a directory, or a LanguageModel.
    device: as in `surelock.load`. On a machine without CUDA, a CUDA device means the CPU: lm-eval asks for cuda:0 by
        default.
    dtype: the name of a dtype, such as "bfloat16".
    device_map, engine, weights, tokenizer: as in `surelock.load`.
    batch_size: the number of prompts that are decoded together.
    max_batch_size: ignored.
    draws: the number of random masks per likelihood, an even number.
    mask_batch: the number of masks in one forward pass.
    mask_seed: the seed of the masks.
    check_greedy: whether `loglikelihood` also decodes every continuation greedily, to find out whether the model would
        write it. If False, the answer is always no.
    settings: settings of the decoder by their short names: `compute` (default: lock), `unmask` (default:
        low_confidence), `gen_length`, `epsilon` and all others. They override the settings of the task, which override
        the settings that the model recommends.

    Raises ValueError, which names the argument, and ValueError for a model without a tokenizer.
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
        recommended(
            lm.generation, self._overrides
        )  # raises ValueError for settings that do not fit
        self.lm = lm
        self.tokenizer = lm.tokenizer
        self._device = lm.device
        self._warned = False  # whether the log has the warning of `tok_encode`
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
        """The id of the token that ends a text; the padding token if there is none."""
        return self.lm.pad_id if self.lm.eos_id is None else self.lm.eos_id

    @property
    def max_length(self) -> int:
        """The most positions of a sequence, prompt and generated tokens together."""
        return self.lm.config.max_length

    @property
    def tokenizer_name(self) -> str:
        """The name under which lm-eval caches templated requests."""
        return self.lm.name.replace("/", "__")

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """Return the token ids of a text.

        Only `apply_chat_template` writes special tokens. If a task spells one, the spelling is read as text.

        add_special_tokens: whether the tokenizer's special tokens come before the text. None adds them unless the text
            is a rendering that begins with BOS.
        """
        if add_special_tokens is None:
            bos = ("", self.tokenizer.bos_token_id)
            begun = isinstance(string, Rendering) and string.parts[:2] == bos
            add_special_tokens = not begun
        is_plain = type(string) is str
        specials = self.tokenizer.all_special_tokens
        if is_plain and not self._warned and any(special in string for special in specials):
            self._warned = True
            _log.warning(
                "a text spells special tokens: they are read as text, since no chat template has written them"
            )
        return self.lm.encoder.encode(string, special=add_special_tokens)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Return the token ids of a context and of its continuation. Joined, they are the token ids of the whole text.

        Spaces at the end of the context, and a token that crosses the border, belong to the continuation.
        """
        head = context.rstrip()
        alone = self.tok_encode(head)
        whole = self.tok_encode(head + (context[len(head) :] + continuation))
        shared = shared_length(alone, whole)
        return whole[:shared], whole[shared:]

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the `Rendering` of a conversation by the chat template.

        add_generation_prompt: whether the text ends where the model's next turn begins. If not, the last turn of the
            conversation stays open.

        Raises ValueError for a model without a usable chat template.
        """
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
        """Return the generated text of every request. A text stops before its first stop string in `until`.

        A text does not depend on the other prompts of its batch, except by rounding. A repeated request uses the next
        seed. A prompt that is too long loses its beginning.

        Raises ValueError, before any text is generated, for a request that cannot be decoded, such as a prompt without
        tokens.
        """
        pairs: list[Any] = [request.args for request in requests]  # (context, generation_kwargs)
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
        """Return the decoder for a request. Raises ValueError, which names the setting.

        wanted: the generation_kwargs of the request.
        """
        return recommended(self.lm.generation, read_request(wanted) | self._overrides)

    def get_model_info(self) -> Json:
        """Return the cost of all texts so far, for the `config` of lm-eval's results.

        The fields of "surelock" are texts, steps, seconds, flops, baseline_flops and flops_ratio.
        """
        work = self._work
        ratio = work["flops"] / work["baseline_flops"] if work["steps"] else None
        return {"surelock": work | {"flops_ratio": ratio}}

    def _decode(
        self, prompts: list[list[int]], decoder: Decoder, again: Sequence[int]
    ) -> list[str]:
        """Return the generated texts of a batch. again: for every prompt, how often its request came before."""
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
        """Return the last token ids of a context that fit beside gen_length positions. Raises ValueError."""
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
        """Return (log-likelihood in nats, whether greedy decoding writes the continuation) for every request.

        The log-likelihood is minus the bound of LLaDA's Eq. 6, estimated by Monte Carlo with every row computed. It is
        0 for an empty continuation. Requests of one length get the same masks, so that the texts alone make their
        figures differ.

        Raises ValueError, which names the pair, before any figure is computed: for a continuation that is not empty and
        has no tokens, and for a continuation that is too long. Raises NonFiniteLogits.
        """
        pairs = []
        for request in requests:
            pairs.append((request.args, *self._encode_pair(*request.args)))
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
        """Return the log-likelihood of every text, minus the bound in nats.

        A text that exceeds `max_length` is scored in parts; a part is conditioned on the tokens before it. The special
        tokens that the tokenizer puts before a text are conditions, too. An empty text has 0.

        Raises ValueError for a text that is not empty and has no tokens. Raises NonFiniteLogits.
        """
        texts = [request.args[0] for request in requests]
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
        """Return minus the mean bound of a continuation in nats, 0 for a continuation without tokens."""
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
        """Return whether LLaDA's sampler at temperature 0, with one token a step, writes the continuation."""
        if not (self.check_greedy and continuation):
            return False
        canvas = [*context, *[self.lm.mask_id] * len(continuation)]
        greedy = Decoder(settings=DecodeSettings(gen_length=0), compute=Everything())
        (final,) = deque(decode(self.lm, [canvas], **greedy.keywords()), maxlen=1)
        return final.tokens[0, len(context) :].tolist() == continuation


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Return a context that puts the name of the scored text before the message of a NonFiniteLogits."""
    try:
        yield
    except NonFiniteLogits as error:
        raise NonFiniteLogits(f"{what} cannot be scored: {error}") from error


def _stops(until: str | Sequence[str] | None) -> Sequence[str]:
    """Return the stop strings of a request."""
    return [until] if isinstance(until, str) else until or ()


def _kinds(pairs: Sequence[tuple[str, Fields]]) -> list[list[tuple[int, int]]]:
    """Group requests by their generation_kwargs. Return for every group its requests, the shortest context first.

    pairs: (context, generation_kwargs) of every request.

    A request is (its number in `pairs`, how often the same request came before).
    """
    by_kind: dict[str, list[tuple[int, int]]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for number, (context, wanted) in enumerate(pairs):
        kind = repr(sorted(wanted.items(), key=str))
        by_kind.setdefault(kind, []).append((number, times[kind, context]))
        times[kind, context] += 1

    def context_length(request: tuple[int, int]) -> int:
        number, _ = request
        context, _ = pairs[number]
        return len(context)

    return [sorted(requests, key=context_length) for requests in by_kind.values()]
