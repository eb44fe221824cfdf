"""Random runs as vectors: each plan, a made-up reading and the step that comes of it, for the JavaScript to repeat.

Arrays come as base64 of their bytes: nothing is rounded.
"""

from base64 import b64encode
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from made_up import made_up
from test_oracle import (
    EOS,
    EOT,
    MODELS,
    RULES,
    TOGETHER,
    Case,
    Wish,
    budget_set_again,
    cases,
    library_rule,
    make,
    masks_of,
    prompts_of,
)

import surelock
from surelock.config import NetworkConfig, Shape
from surelock.decoding.algorithm import Run
from surelock.decoding.decoder import Decoder, plain_event
from surelock.decoding.noise import Draws
from surelock.decoding.step import Ended, Plan, Reading, Shares, Step

# Browsers decode one prompt at a time, and no block-causal network, whose rows alone rest.
STEP = [each.name for each in fields(Step) if each.name not in ("commit_logits", "resting")]
_KINDS = {"b": "u1", "i": "<i4", "f": "<f8"}


def packed(value: Any) -> Any:
    """Anything that a plan, a reading or a step holds, as JSON; flat arrays, and pairs of them."""
    if isinstance(value, np.ndarray):
        kind = _KINDS[value.dtype.kind]
        return {"kind": kind[-2:], "bytes": b64encode(value.astype(kind).tobytes()).decode()}
    if isinstance(value, Draws):
        numbers = {
            "scores": value.scores() if value.scored else None,
            "gumbel": value.gumbel(np.arange(len(value.row)), 5),
        }
        # a seed may be more than JavaScript's numbers hold
        keys = [[str(part) for part in key] for key in value.keys]
        return (
            packed_fields(value)
            | {"keys": keys}
            | {name: packed(each) for name, each in numbers.items()}
        )
    if isinstance(value, Ended):
        return {"filled": packed(value.filled), "steps": value.steps.item()}
    if isinstance(value, list) and any(isinstance(each, Shares) for each in value):
        # rounded: the exponential functions of two languages differ in their last bits
        return [
            {"position": each.position, "shares": packed(np.round(each.shares, 9))}
            for each in value
        ]
    return (
        {name: packed(each) for name, each in value.items()} if isinstance(value, dict) else value
    )


def _ranks(count: int) -> np.ndarray:
    """Scores of candidates, with ties."""
    return (np.arange(count) * 5 % 7).astype(float)


def packed_fields(value: Any, *names: str) -> dict[str, Any]:
    return {
        name: packed(getattr(value, name))
        for name in names or [each.name for each in fields(value)]
    }


def packed_plan(plan: Plan) -> dict[str, Any]:
    """The plan with its choice, flat, as the JavaScript has it."""
    choice = plan.choice
    best = packed(choice.best(_ranks(int(choice.rows.sum())), plan.counts))
    names = [each.name for each in fields(plan) if each.name not in ("choice", "forgotten")]
    chosen = packed_fields(choice, "scores", "measures", "quotas", "banned", "temperature", "draws")
    barred = [packed(each) for each in choice.barred]
    rows = {"chooses": packed(choice.rows), "barred": barred, "best": best}
    return packed_fields(plan, *names, "read", "outdated") | chosen | rows


def alone(case: Case) -> list[Case]:
    """Each sequence of a case's batch, by a policy that browsers have."""
    seed = case.settings.get("seed", 0)
    seeds = seed if isinstance(seed, list) else [seed + b for b in range(len(case.prompts))]
    unmask = case.unmask
    if unmask and (unmask[0] == "Replay" or getattr(surelock, unmask[0]).server_only):
        unmask = None
    wishes = [
        [replace(wish, sequence=0) for wish in case.wishes if wish.sequence == b]
        for b in range(len(seeds))
    ]
    lists = [[own] for own in case.lists] or [[] for _ in seeds]
    parts = zip(case.prompts, seeds, wishes, lists, strict=True)
    chosen = [
        {
            "prompts": [prompt],
            "settings": case.settings | {"seed": s},
            "wishes": own,
            "lists": words,
        }
        for prompt, s, own, words in parts
    ]
    return [replace(case, unmask=unmask, **each) for each in chosen]


def shape_of(case: Case) -> Shape:
    vocab = MODELS[case.model].keywords["vocab"]
    config = NetworkConfig(vocab, 24, 3, 4, 2, 8, 40, 64, 1e4, 1e-5, True)
    ends = (EOS, EOT[case.model]) if case.model in EOT else (EOS,)
    return Shape(config, mask_id=1, pad_id=0, ends=ends)


def decoder_of(case: Case, events: list[surelock.Event]) -> Decoder:
    chosen = surelock.DecodeSettings(**case.settings)
    compute = library_rule(case.compute) or surelock.LockRule()
    unmask = make(surelock, *case.unmask) if case.unmask else surelock.LowConfidence()
    return Decoder(settings=chosen, compute=compute, unmask=unmask, events=tuple(events))


def event_of(wish: Wish, run: Run) -> surelock.Event | None:
    """A wish as the event that comes of it where a run has come to, None where nothing fits it. One that names its
    position may be none that the run can have.
    """
    if wish.kind == "rule":
        return surelock.Event(
            wish.step, "rule", compute=library_rule(wish.compute or []) or surelock.Everything()
        )
    own = run.canvas.parts[wish.sequence]
    state = run.state
    masked = state.masked[own]
    locked = state.locked[own]
    generated = ~run.canvas.is_prompt[own]
    computed = state.computed_at[own] >= 0
    if wish.kind == "unlock" and not locked.any():
        wish = replace(wish, kind="lock")
    fits = {
        "lock": computed & ~masked & ~locked,
        "unlock": locked,
        "mask": generated & ~masked,
        "write": generated,
    }
    position = wish.position
    among = np.flatnonzero(fits[wish.kind])
    if position is None:
        if not len(among) or not run.schedule.running[wish.sequence] or run.policy.scores is None:
            return None
        position = int(among[int(wish.pick * len(among))])
    return surelock.Event(
        wish.step, wish.kind, position % len(masked), wish.token, sequence=wish.sequence
    )


def reading_of(plan: Plan, seed: int, vocab: int) -> Reading:
    """Made up for this plan alone, so that a run that is begun anew finds the same; small numbers come often, so that
    there are ties.
    """
    rng = np.random.default_rng((seed, plan.step))
    reading = made_up(plan, rng, vocab)
    if rng.random() < 0.3:
        reading.confidence = np.round(reading.confidence, 1)
        reading.score = np.round(reading.score, 1)
    if plan.choice.scores == "entropy":
        reading.score = -3 * reading.score
    if rng.random() < 0.3:
        reading.measures = {name: np.round(values, 1) for name, values in reading.measures.items()}
    if len(plan.listed):
        reading.listed = np.round(-3 * rng.random((len(plan.listed), vocab)), rng.integers(1, 9))
    return reading


def events_of(case: Case, seed: int) -> list[surelock.Event]:
    """The wishes of a case, each fitted to the run that the ones before it made, up to one that is refused."""
    shape = shape_of(case)
    events = []
    for wish in sorted(case.wishes, key=lambda wish: wish.step):
        try:
            run = Run(
                shape,
                prompts_of(case),
                decoder_of(case, [event for event in events if event.step < wish.step]),
            )
            while (plan := run.plan()) is not None and plan.step < wish.step:
                run.take(reading_of(plan, seed, shape.network.vocab_size))
        except ValueError:
            break
        event = None if plan is None else event_of(wish, run)
        if event is not None and (wish.position is not None or not opposed(event, events)):
            events.append(event)
    return events


def impossible(case: Case) -> list[list[surelock.Event]]:
    """Events that no run of a case can have."""
    event = surelock.Event
    last = len(case.prompts[0]) + case.settings["gen_length"] - 1
    masks = masks_of(case.prompts[0], case.settings)
    vocab = MODELS[case.model].keywords["vocab"]
    steps = case.settings["steps"] or len(masks)
    given = next((i for i in range(last, -1, -1) if i not in masks), 0)
    alone = [
        event(steps, "lock", 0),
        event(0, "lock", last + 1),
        event(0, "write", given, 5),
        event(0, "write", last, vocab),
        event(0, "write", last, 1),
        event(0, "lock", 0),
        event(0, "unlock", 0),
    ]
    place = [event(0, "write", last, 5), event(0, "mask", last)]
    locks = [event(1, "unlock", 0), event(1, "lock", 0)]
    masked = [event(1, "lock", last), event(1, "mask", last)]
    return [*([each] for each in alone), place, locks, masked, place[:1] * 2]


def opposed(event: surelock.Event, events: list[surelock.Event]) -> bool:
    """Whether another event of its step and place excludes it."""
    place = (event.step, event.sequence, event.position)
    others = [each.kind for each in events if (each.step, each.sequence, each.position) == place]
    return any((other, event.kind) not in TOGETHER for other in others)


def vector(case: Case, seed: int) -> dict[str, Any]:
    """One run, to its end or to the sentence with which it refuses an event or its settings."""
    if seed % 20 == 8:  # most of these are refused
        wrong = [
            {"steps": 99},
            {"steps": 1, "block_length": 1},
            {"gen_length": 0},
            {"block_length": 5},
        ]
        case = replace(case, settings=case.settings | wrong[seed // 20 % len(wrong)])
    shape = shape_of(case)
    events = events_of(case, seed)
    if seed % 10 == 9:
        events += impossible(case)[seed // 10 % len(impossible(case))]
    decoder = decoder_of(case, events)
    top_k = 2 * (seed % 5 == 0)
    plain = decoder.to_plain() | {"events": [plain_event(event) for event in events]}
    told: dict[str, Any] = {
        "shape": asdict(shape),
        "prompt": case.prompts[0],
        "lists": [
            {"at": start, "words": words} for start, words in (case.lists[0] if case.lists else [])
        ],
        "decoder": plain,
        "observe": case.observe,
        "top_k": top_k,
        "turns": [],
        "refused": None,
    }
    try:
        run = Run(shape, prompts_of(case), decoder, observe=case.observe, top_k=top_k)
        while (plan := run.plan()) is not None:
            plain_plan = packed_plan(plan)
            reading = reading_of(plan, seed, shape.network.vocab_size)
            step = packed_fields(run.take(reading), *STEP)
            turn = {"plan": plain_plan, "reading": packed_fields(reading), "step": step}
            told["turns"].append(turn)
    except ValueError as error:
        told["refused"] = str(error)
    return told


def vectors(count: int) -> list[dict[str, Any]]:
    """Random cases, half of them canvases, each of their sequences alone: equally many under each pair of rules."""
    found: list[dict[str, Any]] = []

    def collect(case: Case) -> None:
        found.extend(vector(each, len(found) + i) for i, each in enumerate(alone(case)))

    for number, pair in enumerate(RULES):
        drawn = settings(
            max_examples=-(-count // len(RULES) // 2),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        for canvases in (False, True):
            seed(number)(drawn(given(cases(pair=pair, canvases=canvases))(collect)))()
    collect(budget_set_again())
    return found
