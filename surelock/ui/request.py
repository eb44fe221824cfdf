"""What a visitor asks for, checked: from the form's values, a branch or an API call to token ids and lanes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from surelock.decoding.algorithm import Run
from surelock.decoding.rules import TYPED
from surelock.decoding.settings import DecodeSettings, described, from_plain, to_plain
from surelock.decoding.word_lists import from_plain_lists, is_settled
from surelock.errors import shown
from surelock.trace.lanes import MOST, Lane, check_field
from surelock.trace.pieces import Pieces
from surelock.values import Fields, Json, frozen

if TYPE_CHECKING:
    from surelock.model.language_model import LanguageModel
    from surelock.ui.models import Models

MOST_CHARACTERS = 20_000
MOST_WORD = 1000  # characters of a text that may be one token
MOST_EVENTS = 100
ENCODING_SECONDS = 10.0
Encoded = TypeVar("Encoded")


class Origin(NamedTuple):
    """The run whose snapshots a branch may begin from.

    run: its id. lane: the lane of that run. steps: by lane of the branch, how many steps the page has.
    """

    run: str
    lane: str
    steps: tuple[int, ...]


@frozen
class Job:
    """A checked request for a race.

    prompt: its text, None if unknown.
    chat: whether the prompt is in the model's chat template; None if it has none or this is unknown.
    key: of the request that it was read from: jobs of the same key have the same result.
    origin: None for a run that begins at its first step.
    """

    label: str
    prompt: str | None
    tokens: list[int]
    lanes: tuple[Lane, ...]
    chat: bool | None = None
    key: str = ""
    origin: Origin | None = None

    @property
    def gen_length(self) -> int:
        return self.lanes[0].decoder.settings.gen_length


def read_request(models: Models, asked: Any, most: int) -> Job:
    """Return the job of a request of Run, or of a branch.

    asked: the values of the form's fields by name; or, with `prompt_tokens`, a branch, see `read_branch`.

    Raises ValueError, one sentence.
    """
    if not isinstance(asked, Mapping):
        raise ValueError("A run is asked for by an object of the form's values.")
    lm = models.get(label := asked.get("model", ""))
    longest = min(most, lm.config.max_length)
    if "prompt_tokens" in asked:
        job = read_branch(lm, label, asked, longest)
    else:
        shared = read_shared({name: asked.get(name) for name, _ in described(DecodeSettings)})
        lanes = read_lanes(lanes_in(asked.get("lanes")), shared)
        job = read_job(
            lm, label, asked.get("prompt"), bool(asked.get("chat", True)), lanes, longest
        )
    return replace(job, key=sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest())


def lanes_in(value: Any) -> Any:
    """Return the lanes in the value of their component, or in its JSON text; None if it has none."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (json.JSONDecodeError, RecursionError):
        return None
    return value.get("lanes") if isinstance(value, Mapping) else value


def read_shared(values: Fields) -> DecodeSettings:
    """Return the settings that all lanes share.

    values: the values of the form's fields; whole numbers may be floats or digits.

    Raises ValueError, one sentence that begins with the field's name.
    """
    return from_plain(DecodeSettings, {name: digits(value) for name, value in values.items()})


def digits(value: Any) -> Any:
    """Return a text of digits as a number, and any other value unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def read_lanes(lanes: Any, shared: DecodeSettings | None) -> list[Lane]:
    """Read the lanes of a request.

    lanes: a list of objects with id, name, compute, unmask, and optionally settings, events and parent.
    shared: settings that replace those of every lane; None keeps them.

    Raises ValueError, one sentence.
    """
    if not isinstance(lanes, list) or not 1 <= len(lanes) <= MOST:
        count = len(lanes) if isinstance(lanes, list) else "something else"
        raise ValueError(f"lanes: one to four can race, not {count}.")
    names = {"id", "name", "compute", "unmask", "settings", "events", "parent"}
    field = []
    for lane in lanes:
        if not isinstance(lane, Mapping):
            raise ValueError(f"lanes must be objects, not {shown(lane)}.")
        plain = {name: value for name, value in lane.items() if name in names}
        if shared is not None:
            plain["settings"] = to_plain(shared)
        field.append(Lane.from_plain(plain))
        decoder = field[-1].decoder
        rules = [decoder.compute, *(event.compute for event in decoder.events if event.compute)]
        if any(not TYPED.keys().isdisjoint(rule.kinds.split("+")) for rule in rules):
            raise ValueError(
                f"lanes: {field[-1].name!r} has a rule of its own, which only a visitor's browser runs."
            )
        if len(field[-1].decoder.events) > MOST_EVENTS:
            raise ValueError(f"lanes: {field[-1].name!r} has more than {MOST_EVENTS} events.")
    check_field(field)
    return field


def read_job(
    lm: LanguageModel,
    label: str,
    prompt: Any,
    chat: bool,
    lanes: Sequence[Lane],
    most: int,
    blanks: bool = True,
) -> Job:
    """Return the job of a new run.

    chat: whether it goes into the chat template, if the model has one.
    blanks: see `LanguageModel.encode`.

    Raises ValueError, one sentence.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt is empty: write a few words for the model to continue.")
    check_characters(prompt)
    tokens = prompt_tokens(lm, prompt, chat, blanks)
    job = Job(label, prompt, tokens, tuple(lanes), chat=chat if has_chat(lm) else None)
    check_job(lm, job, most)
    return job


def check_characters(prompt: str) -> None:
    """Raise ValueError for a prompt of more than MOST_CHARACTERS."""
    if len(prompt) > MOST_CHARACTERS:
        raise ValueError(
            f"prompt is too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here."
        )


def read_branch(lm: LanguageModel, label: str, asked: Fields, most: int) -> Job:
    """Return the job of a branch, which continues a run from one of its steps.

    asked: prompt_tokens, prompt, chat, lanes, and optionally `from`. Each lane has its own settings. Those of the steps
    that the page already has which are computed again are sent again, and the page compares them.

    Raises ValueError, one sentence.
    """
    tokens = asked.get("prompt_tokens")
    prompt = asked.get("prompt")
    if (
        not isinstance(tokens, list)
        or not tokens
        or not all(type(token) is int and token >= 0 for token in tokens)
    ):
        raise ValueError("prompt_tokens must be a list of token ids.")
    if any(token >= lm.config.vocab_size for token in tokens):
        raise ValueError(f"prompt_tokens do not belong to the model {label}: it has fewer tokens.")
    tokens = from_plain_lists(tokens, asked.get("lists"), lm.mask_id)
    prompt = prompt if isinstance(prompt, str) else None
    check_characters(prompt or "")
    chat = asked["chat"] if isinstance(asked.get("chat"), bool) else None
    lanes = tuple(read_lanes(asked.get("lanes"), None))
    job = Job(label, prompt, tokens, lanes, chat, origin=read_origin(asked.get("from"), len(lanes)))
    check_job(lm, job, most)
    return job


def read_origin(plain: Any, lanes: int) -> Origin | None:
    """Return the `from` of a branch with so many lanes. Raises ValueError, one sentence."""
    if plain is None:
        return None
    match plain:
        case {"run": str(run), "lane": str(lane), "steps": [*steps]} if len(steps) == lanes:
            if all(type(count) is int and count >= 0 for count in steps):
                return Origin(run, lane, tuple(steps))
    raise ValueError("from must name a run, a lane of it, and a number of steps for each lane.")


def prompt_tokens(lm: LanguageModel, prompt: str, chat: bool, blanks: bool = True) -> list[int]:
    """Return the token ids of a prompt; without a tokenizer it is a list of decimal ids.

    blanks: see `LanguageModel.encode`.
    """
    if lm.tokenizer is not None:
        return _in_time(lm, lambda: lm.encode(prompt, chat=chat and has_chat(lm), blanks=blanks))
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise ValueError("prompt must be token ids, such as 17 4 256: this model has no tokenizer.")
    return [int(word) for word in words]


def _in_time(lm: LanguageModel, encode: Callable[[], Encoded]) -> Encoded:
    """Return what `encode` returns. Raises ValueError after some seconds; what does not end goes on in its thread."""
    future: Future[Encoded] = Future()

    def run() -> None:
        try:
            future.set_result(encode())
        except Exception as error:  # raised by `result`
            future.set_exception(error)

    Thread(target=run, name=f"encode for {lm.name}", daemon=True).start()
    try:
        return future.result(ENCODING_SECONDS)
    except TimeoutError:
        raise ValueError(
            f"prompt takes the tokenizer more than {ENCODING_SECONDS:g} s; try another one."
        ) from None


def check_job(lm: LanguageModel, job: Job, most: int) -> None:
    """Raise ValueError for more than `most` positions, for a prompt that leaves nothing to write, and for settings and
    events that no run can have.
    """
    total = len(job.tokens) + job.gen_length
    if total > most:
        sizes = f"{len(job.tokens)} tokens and {job.gen_length} to generate make {total}"
        raise ValueError(f"prompt is too long: {sizes}; at most {most} positions fit here.")
    if not job.gen_length and lm.mask_id not in job.tokens:
        raise ValueError(
            "prompt has no blank and gen_length is 0: leave a blank (__), or set a length."
        )
    for lane in job.lanes:
        Run(lm.shape, [job.tokens if is_settled(job.tokens) else list(job.tokens)], lane.decoder)


def has_chat(lm: LanguageModel) -> bool:
    return bool(getattr(lm.tokenizer, "chat_template", None))


def one_token(lm: LanguageModel, text: Any) -> Json:
    """Return {"id", "piece"} of the single token of a text, with a leading space if the vocabulary has such a token.

    Raises ValueError, one sentence, for a text that is no single token.
    """
    if not isinstance(text, str) or not text:
        raise ValueError("Write a word first.")
    if len(text) > MOST_WORD:
        raise ValueError(f"A token is shorter than {len(text):,} characters; try a common word.")
    if lm.tokenizer is None:
        ids = [[int(text)]] if text.strip().isdecimal() and len(text) < 10 else []
    else:
        forms = [form for form in (text, f" {text}") if form.isprintable()]
        ids = _in_time(lm, lambda: [lm.encoder.encode(form, special=False) for form in forms])
    usable = [tokens[0] for tokens in ids if len(tokens) == 1 and tokens[0] != lm.mask_id]
    if not usable or usable[-1] >= lm.config.vocab_size:
        raise ValueError(
            f"{shown(text)} is not one token of this model; try a shorter or a more common word."
        )
    return {
        "id": usable[-1],
        "piece": Pieces(lm.tokenizer).look_up([usable[-1]]).get(str(usable[-1])),
    }


def tokens_of(lm: LanguageModel, text: Any) -> list[list[Any]]:
    """Return [[id, piece], ...] of the tokens of a text inside a sentence; none if it cannot be written by them."""
    if (
        lm.tokenizer is None
        or not isinstance(text, str)
        or not text.strip()
        or len(text) > MOST_WORD
    ):
        return []
    ids = _in_time(lm, lambda: lm.encode(f" {text.strip()}"))
    if lm.mask_id in ids or max(ids, default=0) >= lm.config.vocab_size:
        return []
    texts = Pieces(lm.tokenizer).look_up(ids)
    return [[token, texts.get(str(token))] for token in ids]
