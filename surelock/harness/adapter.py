"""Lets a sampler of another library, the host, use a compute rule of this package.

The host calls a model on its canvas again and again. `adapter` returns a callable with the interface of such a model.
It computes only the rows that the rule chooses. `custom_generate` replaces a whole `generate` of transformers.
"""

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

#: The factor for the logits of rows that a step leaves out: they become nearly uniform, with the same likeliest token.
_LAST = 1e-3
#: The logit of a written token at its position. The logits of all other tokens there are 0.
_NAMED = 30.0


class _Host(UnmaskPolicy):
    """An unmasking policy that commits the tokens that the host has written."""

    kind = "host"
    scores = None
    early = True
    tokens: Whole  # [slots], the host's canvas at the call after the step

    def commits(self, candidates: Candidates) -> tuple[Whole, Whole]:
        state = candidates.state
        part = state.canvas.parts[candidates.b]
        is_written = state.masked[part] & (self.tokens[part] != state.canvas.mask_id)
        slots = np.flatnonzero(is_written) + part.start
        return slots, self.tokens[slots]


class Adapter:
    """The callable that `surelock.adapter` returns, with the interface of a model.

    lm, rule, settings: see `adapter`. Raises ValueError for a rule that is no ComputeRule, and for settings with
    guidance.
    """

    def __init__(
        self, lm: LanguageModel, rule: ComputeRule, settings: DecodeSettings | None
    ) -> None:
        if not isinstance(rule, ComputeRule):
            raise ValueError(f"rule must be a ComputeRule such as LockRule(), not {shown(rule)}")
        if settings is not None and settings.cfg_scale:
            raise ValueError("settings ask for guidance, which is the host's: leave cfg_scale out")
        self.lm = lm
        self.rule = rule
        self.settings = settings
        self.device = lm.device
        self.run: Run | None = None  # the current run, None before the first call
        # the plan and the reading of the last step: the run takes the reading once the host has written its tokens
        self._read: tuple[Plan, Reading] | None = None
        self._memory: Any = None  # the engine's memory of the current run

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **more: Any,
    ) -> Any:
        """Compute the next step of a canvas, and return an object with the attribute `logits`.

        input_ids: the canvas, [B, N] int64. Tokens equal to the mask id are masked.
        attention_mask: [B, N] or [B, 1, N, N]; it must show exactly the positions that the network sees.
        position_ids: [B, N] or [N]; they must count from 0.
        more: further arguments of a model's call. They must be None or False.

        `logits` [B, N, vocab_size] has the logits of the masked positions that may be written. At a written position
        the largest logit is that of the written token. The next call overwrites the tensor.

        Raises ValueError for arguments that do not fit.
        """
        for name, value in more.items():
            if value is not None and value is not False:
                why = f"not {shown(value)}: the whole canvas is given each time"
                raise ValueError(f"{name} must be None or False, {why}")
        if attention_mask is False:
            attention_mask = None
        if position_ids is False:
            position_ids = None
        for name, value in (("attention_mask", attention_mask), ("position_ids", position_ids)):
            if value is not None and not hasattr(value, "ndim"):
                raise ValueError(f"{name} must be a tensor or None, not {shown(value)}")
        if input_ids.ndim != 2:
            raise ValueError(
                f"input_ids must be of shape [batch, length], not {list(input_ids.shape)}"
            )
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
        """Raise ValueError for an attention mask that is not the network's, and for positions that do not count from 0.

        length: the number of positions of a sequence.
        """
        import torch  # importing torch takes seconds: not before the first call

        if attention_mask is not None and not self._sees_all(length, attention_mask.to("cpu")):
            remedy = "give prompts of one length, without padding, and a length that fills the host's blocks"
            raise ValueError(
                f"attention_mask does not show exactly what this network sees: {remedy}"
            )
        counted = None if position_ids is None else position_ids.to("cpu")
        if counted is not None and not (
            counted.shape[-1] == length and bool((counted == torch.arange(length)).all())
        ):
            raise ValueError(f"position_ids must count from 0 to {length - 1}")

    def _sees_all(self, length: int, mask: Tensor) -> bool:
        """Return whether an attention mask shows exactly what the network sees.

        mask: [B, N], where all must be 1; or [B, 1, N, N], with 1 (or True) where a position is seen, or, in an
            additive mask, 0 where a position is seen and -inf elsewhere.
        """
        import torch

        from surelock.model.network import sight

        if mask.ndim != 4:
            return mask.shape[-1] == length and bool((mask == 1).all())
        added = mask.is_floating_point() and bool((mask <= 0).all())
        seen = sight(self.lm.config, torch.arange(length), length)
        if seen is None:
            seen = torch.ones(length, length, dtype=torch.bool)
        shows = mask == (0 if added else 1)
        return mask.shape[-2:] == seen.shape and bool((shows == seen).all())

    def _logits(self, plan: Plan | None) -> Tensor:
        """Return the logits after a step, [slots, vocab_size].

        plan: the plan of the step, None if every position was written and no step was computed.
        """
        import torch

        assert self.run is not None
        logits = torch.as_tensor(self._memory.logits)
        canvas = self.run.canvas
        written = np.flatnonzero(self._masked & ~canvas.masked)  # slots written since the last call
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
        """Take the tokens that the host has written, and return the plan of the next step.

        Returns None if this canvas does not go on from that of the last call: another position than a masked one
        changed, or the shape did. Also returns None where no run has begun, and after the last step of a run.
        """
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
        """Return whether a canvas is that of the current run, and no position of it is masked."""
        if self.run is None or tokens.shape != self._shape:
            return False
        canvas = self.run.canvas
        return bool(not canvas.masked.any() and (tokens.ravel() == canvas.tokens).all())

    def _begin(self, tokens: Whole) -> Plan:
        """Begin a new run on a canvas that may be partly written, and return the plan of its first step.

        Raises ValueError for a canvas that no run can have.
        """
        lm = self.lm
        masked = tokens == lm.mask_id
        if not masked.any(axis=1).all():
            raise ValueError(
                f"input_ids holds a sequence without a mask (id {lm.mask_id}): nothing of it can be decoded"
            )
        starts = masked.argmax(axis=1)
        if not starts.min():
            why = "where a prompt must be; a host that masks the prompt for its own guidance cannot be served"
            raise ValueError(f"input_ids begins with a mask, {why}")
        settings = self.settings or DecodeSettings(gen_length=int(tokens.shape[1] - starts.min()))
        start = tokens.shape[1] - settings.gen_length
        if self.settings is None and len(set(starts.tolist())) > 1:
            raise ValueError(
                "input_ids holds prompts of several lengths: give a batch of one length, or one after the other"
            )
        if starts.min() < start:
            raise ValueError(
                f"input_ids is masked from position {starts.min()} on, but settings.gen_length "
                f"({settings.gen_length}) generates from position {start} on"
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
        self._faded = np.zeros(
            tokens.size, dtype=bool
        )  # slots whose logits were multiplied by _LAST
        self._masked = run.canvas.masked.copy()  # slots that were masked at the last call
        if self._memory is not None:  # released before the next memory is allocated
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
    """Return a callable for a host, a sampler that calls `model(x).logits` on one canvas again and again.

    rule: chooses the rows that a call computes. All other rows keep their keys and values.
    settings: gen_length, steps and block_length of the host. Rules that depend on blocks need them. With settings, only
        the logits of the open block are read. With settings=None all masked positions are one block.

    The callable is `model(input_ids, attention_mask=None, position_ids=None)`. input_ids is the canvas, [B, N] int64.
    All prompts of a batch must have the same length. The callable compares the canvas with the canvas of the last call.
    If nothing but masked positions changed, it computes the next step. If no position is masked any more, it computes
    nothing. Otherwise it begins a new run, and computes every row that the network needs at a first step.

    `.logits` [B, N, vocab_size] are defined at the masked positions of the open block, and at the positions that were
    written since the run began. At a written position the logits name the written token, so that the host does not
    change it. A masked position that the call did not compute keeps its last logits, scaled to be nearly uniform, so
    that the host prefers computed positions. A host may set logits to -inf in place, but must not scale them. The
    logits of a shifted network are moved to the positions that they predict.

    Raises ValueError for a rule that is no ComputeRule, and for guidance, which the host must compute itself.
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
    compute: chooses the rows that a step computes (default: `LockRule()`).
    unmask: chooses the masked positions that a step commits (default: `LowConfidence()`).
    settings: None takes the length (`max_new_tokens`, or else `max_length`) and, with `do_sample`, the temperature from
        the arguments of `generate`. The sequences of `num_return_sequences` have different seeds.

    The callable returns prompts and generated tokens, [B, N] int64, on the device of the prompts. It raises the errors
    of `decode`.
    """

    def generate(model: Any, input_ids: Tensor, *args: Any, **named: Any) -> Any:
        import torch

        chosen = settings or _settings_of(named.get("generation_config"), input_ids.shape[1])
        # not in the signature: for a parameter of this name transformers would pass attention_mask twice
        seen = named.get("attention_mask")
        if seen is None:
            seen = torch.ones_like(input_ids)
        prompts = [ids[kept == 1].tolist() for ids, kept in zip(input_ids, seen, strict=True)]
        decoder = Decoder(
            settings=chosen, compute=compute or LockRule(), unmask=unmask or LowConfidence()
        )
        (final,) = deque(decode(lm, prompts, **decoder.keywords()), maxlen=1)
        written = torch.from_numpy(final.tokens[:, -chosen.gen_length :]).to(input_ids.device)
        return torch.cat((input_ids, written), dim=1)

    return generate


def _settings_of(config: Any, prompt: int) -> DecodeSettings:
    """Return the settings in a generation_config of transformers. prompt: the length of the prompts in tokens."""
    length = getattr(config, "max_new_tokens", None)
    most = getattr(config, "max_length", None)
    if length is None and most is not None:
        length = most - prompt
    settings: Json = {} if length is None else {"gen_length": length}
    if getattr(config, "do_sample", None):
        temperature = getattr(config, "temperature", None)
        settings["temperature"] = 1.0 if temperature is None else temperature
    return DecodeSettings(**settings)
