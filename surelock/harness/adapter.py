"""A decoder with the interface of a model: other samplers call it, and it computes the rows that a rule chooses."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from surelock.decoding.algorithm import Run
from surelock.decoding.compute import ComputeRule
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.loop import decode, encode_prompts
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Plan, Reading
from surelock.decoding.unmasking import Candidates, LowConfidence, UnmaskPolicy
from surelock.errors import shown
from surelock.values import Json, Whole

if TYPE_CHECKING:
    from torch import Tensor

    from surelock.model.language_model import LanguageModel

_LAST = 1e-3  # what logits of a row that a step left out are multiplied by: nearly even, the likeliest token the same
_NAMED = 30.0  # the logit of a written token at its position, where all others are 0


class _Host(UnmaskPolicy):
    """Commits what the host sampler has written. tokens [slots]: the host's canvas, one call later."""

    kind = "host"
    scores = None
    early = True
    tokens: Whole

    def commits(self, candidates: Candidates) -> tuple[Whole, Whole]:
        state, part = candidates.state, candidates.state.canvas.parts[candidates.b]
        slots = (
            np.flatnonzero(state.masked[part] & (self.tokens[part] != state.canvas.mask_id))
            + part.start
        )
        return slots, self.tokens[slots]


class Adapter:
    """The callable that `surelock.adapter` returns. run: the current run, None before the first call."""

    def __init__(
        self, lm: LanguageModel, rule: ComputeRule, settings: DecodeSettings | None
    ) -> None:
        if not isinstance(rule, ComputeRule):
            raise ValueError(f"rule must be a ComputeRule such as LockRule(), not {shown(rule)}")
        if settings is not None and settings.cfg_scale:
            raise ValueError("settings ask for guidance, which is the host's: leave cfg_scale out")
        self.lm, self.rule, self.settings, self.device = lm, rule, settings, lm.device
        self.run: Run | None = None
        self._read: tuple[Plan, Reading] | None = None
        self._memory: Any = None

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Compute the next step of the canvas input_ids [B, N] int64.

        Returns an object whose `.logits` [B, N, vocab_size] hold the logits of the masked positions that may be
        written; at a written position they name its token. The next call overwrites them. Raises ValueError for a
        canvas of another shape, for masks of attention that hide what the network sees, and for position_ids that do
        not count from 0. Of further arguments None and False are taken.
        """
        for name, value in more.items():
            if value is not None and value is not False:
                why = f"not {shown(value)}: the whole canvas is given each time"
                raise ValueError(f"{name} must be None or False, {why}")
        attention_mask, position_ids = (
            None if argument is False else argument for argument in (attention_mask, position_ids)
        )
        for name, value in (("attention_mask", attention_mask), ("position_ids", position_ids)):
            if value is not None and not hasattr(value, "ndim"):
                raise ValueError(f"{name} must be a tensor or None, not {shown(value)}")
        if input_ids.ndim != 2:
            raise ValueError(f"x must be of shape [batch, length], not {list(input_ids.shape)}")
        self._check(input_ids.shape[1], attention_mask, position_ids)
        tokens = input_ids.numpy(force=True).astype(np.int64)
        plan = self._go_on(tokens)
        if plan is None and not self._is_written(tokens):
            plan = self._begin(tokens)
        if plan is not None:
            self._read = plan, self.lm.engine.read(self._memory, plan)
        return SimpleNamespace(logits=self._logits(plan).view(*input_ids.shape, -1))

    def _check(
        self, length: int, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> None:
        """Raise ValueError for a mask of attention that is not the network's, and for other positions."""
        import torch  # not before a host wants it

        if attention_mask is not None and not self._sees_all(length, attention_mask.to("cpu")):
            remedy = "give prompts of one length, without padding, and a length that fills the host's blocks"
            raise ValueError(f"attention_mask hides positions that this network sees: {remedy}")
        counted = None if position_ids is None else position_ids.to("cpu")
        if counted is not None and not (
            counted.shape[-1] == length and bool((counted == torch.arange(length)).all())
        ):
            raise ValueError(f"position_ids must count from 0 to {length - 1}")

    def _sees_all(self, length: int, mask: Tensor) -> bool:
        """Whether a mask is the network's: 1 at [B, N] positions, or [B, 1, N, N] where one is seen, or 0 and -inf."""
        import torch

        from surelock.model.network import sight

        if mask.ndim != 4:
            return mask.shape[-1] == length and bool((mask == 1).all())
        added = mask.is_floating_point() and bool((mask <= 0).all())
        seen = sight(self.lm.config, torch.arange(length), length)
        expected = torch.ones(length, length, dtype=torch.bool) if seen is None else seen
        return mask.shape[-2:] == expected.shape and bool(
            ((mask == (0 if added else 1)) == expected).all()
        )

    def _logits(self, plan: Plan | None) -> Tensor:
        """The logits [slots, V] after a step. plan: its plan; None if all is written and nothing was computed."""
        import torch

        assert self.run is not None
        logits = torch.as_tensor(self._memory.logits)
        canvas = self.run.canvas
        written = np.flatnonzero(self._masked & ~canvas.masked)  # since the last call
        logits[written] = 0
        logits[written, canvas.tokens[written]] = _NAMED
        self._masked[written] = False
        if plan is not None:
            left = self.run.state.open.copy()
            read = plan.slots[plan.choice.rows]
            left[read] = False
            self._faded[read] = False
            fading = np.flatnonzero(left & ~self._faded)
            logits[fading] *= _LAST
            self._faded[fading] = True
        return logits

    def _go_on(self, tokens: Whole) -> Plan | None:
        """The plan of the next step; None if more than masks changed since the last call, and if the run is over."""
        if self.run is None or self._read is None or tokens.shape != self._shape:
            return None
        canvas = self.run.canvas
        flat = tokens.ravel()
        if (flat != canvas.tokens)[~canvas.masked].any():
            return None
        self._host.tokens = flat
        self.run.take(self._read[1])
        self._read = None
        return self.run.plan()

    def _is_written(self, tokens: Whole) -> bool:
        """Whether these are the tokens that the current run ended with, of which none is masked."""
        if self.run is None or tokens.shape != self._shape:
            return False
        canvas = self.run.canvas
        return bool(not canvas.masked.any() and (tokens.ravel() == canvas.tokens).all())

    def _begin(self, tokens: Whole) -> Plan:
        """The plan of the first step of a new run, on a canvas that may be partly written."""
        lm, masked = self.lm, tokens == self.lm.mask_id
        if not masked.any(axis=1).all():
            raise ValueError(
                f"x holds a sequence without a mask (id {lm.mask_id}): nothing of it can be decoded"
            )
        starts = masked.argmax(axis=1)
        if not starts.min():
            why = "as if a prompt were empty: guidance of the host's own is not possible"
            raise ValueError(f"x begins with a mask, {why}")
        settings = self.settings or DecodeSettings(gen_length=int(tokens.shape[1] - starts.min()))
        start = tokens.shape[1] - settings.gen_length
        if self.settings is None and len(set(starts.tolist())) > 1:
            raise ValueError(
                "x holds prompts of several lengths: give a batch of one length, or one after the other"
            )
        if starts.min() < start:
            raise ValueError(
                f"x is masked from position {starts.min()} on, settings.gen_length from {start} on"
            )
        prompts = encode_prompts(lm, tokens[:, :start].tolist(), settings)
        host = _Host()
        run = Run(lm.shape, prompts, Decoder(settings=settings, compute=self.rule, unmask=host))
        self.run = run
        self._host = host
        self._shape = tokens.shape
        self._read = None
        written = np.flatnonzero(~masked.ravel() & run.canvas.masked)
        run.canvas.tokens[written] = tokens.ravel()[written]
        run.canvas.masked[written] = False
        for b in range(len(tokens)):
            while not run.canvas.masked[run.canvas.parts[b].start : run.schedule.stops[b]].any():
                run.schedule.advance(b, 0)
        self._faded, self._masked = np.zeros((2, tokens.size), dtype=bool)
        self._masked |= run.canvas.masked
        if self._memory is not None:  # before another one is allocated
            memory = self._memory
            self._memory = None
            lm.engine.release(memory)
        self._memory = lm.engine.memory(run.layout, keep_logits=True)
        plan = run.plan()
        assert plan is not None
        return plan


def adapter(
    lm: LanguageModel, rule: ComputeRule, settings: DecodeSettings | None = None
) -> Adapter:
    """Return a callable for samplers that call `model(x).logits` on one canvas again and again.

    rule: which rows a call computes. The other rows keep their keys, values and logits.
    settings: gen_length, steps and block_length of the host sampler. Rules that depend on blocks need them, and only
    the open block is then read. None is one block of all masked positions.

    The callable is `model(input_ids, attention_mask=None, position_ids=None)`, with x = input_ids [B, N] int64: one
    sequence, or several whose prompts have the same length. It compares x with the canvas of the last call. If masks
    were written and nothing else changed, it computes the next step; otherwise it starts a new run and computes every
    row. If all is written, it computes nothing.

    `.logits` are defined at masked positions of the open block, and at positions that were written since the run began:
    these name their tokens, so that no host changes them. A masked position that the call left out keeps its last
    logits, scaled to be nearly uniform, so that the host prefers computed positions. A host may set logits to -inf in
    place, but not scale them. In a shifted network they are already where they belong. Raises ValueError for a rule
    that is none, and for guidance, which is the host's.
    """
    return Adapter(lm, rule, settings)


def custom_generate(
    lm: LanguageModel,
    compute: ComputeRule | None = None,
    unmask: UnmaskPolicy | None = None,
    settings: DecodeSettings | None = None,
) -> Callable[..., Tensor]:
    """Return a callable for `model.generate(..., custom_generate=...)` of transformers' GenerationMixin.

    lm: the model that computes. The weights of the model whose `generate` is called are not used.
    compute: which rows a step computes (default: `LockRule()`).
    unmask: which masked positions a step commits (default: `LowConfidence()`).
    settings: None takes the length (`max_new_tokens`, else `max_length`) and with `do_sample` the temperature from the
    arguments of `generate`. Each of `num_return_sequences` rows has another seed.

    The callable returns prompts and generated tokens [B, N] int64, on the device of the prompts. It raises what
    `decode` raises.
    """

    def generate(model: Any, input_ids: Tensor, *args: Any, **named: Any) -> Any:
        import torch

        chosen = settings or _settings_of(named.get("generation_config"), input_ids.shape[1])
        # named in the signature, transformers would give it twice
        seen = named.get("attention_mask")
        seen = torch.ones_like(input_ids) if seen is None else seen
        prompts = [ids[kept == 1].tolist() for ids, kept in zip(input_ids, seen, strict=True)]
        decoder = Decoder(
            settings=chosen, compute=compute or LockRule(), unmask=unmask or LowConfidence()
        )
        (final,) = deque(decode(lm, prompts, **decoder.keywords()), maxlen=1)
        written = torch.from_numpy(final.tokens[:, -chosen.gen_length :]).to(input_ids.device)
        return torch.cat((input_ids, written), dim=1)

    return generate


def _settings_of(config: Any, prompt: int) -> DecodeSettings:
    """The settings of a generation_config of transformers. prompt: the length of the prompts."""
    length, most = (getattr(config, name, None) for name in ("max_new_tokens", "max_length"))
    if length is None and most is not None:
        length = most - prompt
    settings: Json = {} if length is None else {"gen_length": length}
    if getattr(config, "do_sample", None):
        temperature = getattr(config, "temperature", None)
        settings["temperature"] = 1.0 if temperature is None else temperature
    return DecodeSettings(**settings)
