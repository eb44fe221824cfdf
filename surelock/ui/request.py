"""Checks a request for a run. The form's values, a branch or an API call become token ids and lanes."""

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
MOST_WORD = 1000  # the most characters of a text that is looked up as one token
MOST_EVENTS = 100
ENCODING_SECONDS = 10.0
Encoded = TypeVar("Encoded")


class Origin(NamedTuple):
    """The run with the snapshots from which a branch may begin.

    run: the id of the run.
    lane: the id of the lane in that run.
    steps: for every lane of the branch, the number of steps that the page already has.
    """

    run: str
    lane: str
    steps: tuple[int, ...]


@frozen
class Job:
    """A checked request for a race.

    label: the label of the model.
    prompt: the text of the prompt, None if it is unknown.
    tokens: the token ids of the prompt. Blanks are mask tokens.
    chat: whether the prompt is in the model's chat template; None if the model has no template or if this is unknown.
    key: the hash of the request. Jobs with the same key have the same result.
    origin: the run that a branch continues; None for a run that begins at its first step.
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


def read_request(models: Models, request: Any, most: int) -> Job:
    """Return the job of a request, which the button Run or a branch has sent.

    request: the values of the form's fields by name; with a field `prompt_tokens` it is a branch, see `read_branch`.
    most: the most positions of a run.

    Raises ValueError, one sentence; Loading or NotReady if the model cannot be used.
    """
    if not isinstance(request, Mapping):
        raise ValueError("A run is asked for by an object of the form's values.")
    label = request.get("model", "")
    lm = models.get(label)
    longest = min(most, lm.config.max_length)
    if "prompt_tokens" in request:
        job = read_branch(lm, label, request, longest)
    else:
        shared = read_shared({name: request.get(name) for name, _ in described(DecodeSettings)})
        lanes = read_lanes(lanes_in(request.get("lanes")), shared)
        chat = bool(request.get("chat", True))
        job = read_job(lm, label, request.get("prompt"), chat, lanes, longest)
    text = json.dumps(request, sort_keys=True)
    return replace(job, key=sha256(text.encode()).hexdigest())


def lanes_in(value: Any) -> Any:
    """Return the lanes in the value of the lanes' component. value: the value, or the value as JSON text.

    Returns None if the value contains no lanes. The lanes are not checked here.
    """
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (json.JSONDecodeError, RecursionError):
        return None
    return value.get("lanes") if isinstance(value, Mapping) else value


def read_shared(values: Fields) -> DecodeSettings:
    """Return the settings that all lanes share.

    values: the values of the form's fields, by name. A whole number may be a float or a text of digits.

    Raises ValueError, one sentence that begins with the field's name.
    """
    return from_plain(DecodeSettings, {name: digits(value) for name, value in values.items()})


def digits(value: Any) -> Any:
    """Return a text of digits as a number, and any other value unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def read_lanes(lanes: Any, shared: DecodeSettings | None) -> list[Lane]:
    """Read the lanes of a request.

    lanes: a list of objects with id, name, compute, unmask, and optionally settings, events and parent.
    shared: the settings of all lanes; None if every lane has settings of its own.

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

    chat: whether the prompt goes into the model's chat template, if the model has a template.
    most: the most positions of a run.
    blanks: whether underscores in the prompt are blanks, see `LanguageModel.encode`.

    Raises ValueError, one sentence.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt is empty: write a few words for the model to continue.")
    check_characters(prompt)
    tokens = prompt_tokens(lm, prompt, chat, blanks)
    job = Job(label, prompt, tokens, tuple(lanes), chat if has_chat(lm) else None)
    check_job(lm, job, most)
    return job


def check_characters(prompt: str) -> None:
    """Raise ValueError for a prompt of more than MOST_CHARACTERS."""
    if len(prompt) > MOST_CHARACTERS:
        raise ValueError(
            f"prompt is too long: {len(prompt):,} characters; at most {MOST_CHARACTERS:,} are taken here."
        )


def read_branch(lm: LanguageModel, label: str, request: Fields, most: int) -> Job:
    """Return the job of a branch: a run that continues another run from one of its steps.

    request: an object with the fields prompt_tokens, prompt, chat and lanes, and optionally `from` (see `read_origin`).
        Every lane has its settings.
    most: the most positions of a run.

    Steps that the page already has may be computed again. They are sent again, and the page compares them.

    Raises ValueError, one sentence.
    """
    tokens = request.get("prompt_tokens")
    prompt = request.get("prompt")
    if (
        not isinstance(tokens, list)
        or not tokens
        or not all(type(token) is int and token >= 0 for token in tokens)
    ):
        raise ValueError("prompt_tokens must be a list of token ids.")
    if any(token >= lm.config.vocab_size for token in tokens):
        raise ValueError(f"prompt_tokens do not belong to the model {label}: it has fewer tokens.")
    tokens = from_plain_lists(tokens, request.get("lists"), lm.mask_id)
    prompt = prompt if isinstance(prompt, str) else None
    check_characters(prompt or "")
    chat = request.get("chat")
    if not isinstance(chat, bool):
        chat = None
    lanes = tuple(read_lanes(request.get("lanes"), None))
    origin = read_origin(request.get("from"), len(lanes))
    job = Job(label, prompt, tokens, lanes, chat, origin=origin)
    check_job(lm, job, most)
    return job


def read_origin(plain: Any, lanes: int) -> Origin | None:
    """Return the origin of a branch, None if the request names none.

    plain: the value of the field `from`, {"run", "lane", "steps"}.
    lanes: the number of lanes of the branch.

    Raises ValueError, one sentence.
    """
    if plain is None:
        return None
    match plain:
        case {"run": str(run), "lane": str(lane), "steps": [*steps]} if len(steps) == lanes:
            if all(type(count) is int and count >= 0 for count in steps):
                return Origin(run, lane, tuple(steps))
    raise ValueError("from must name a run, a lane of it, and a number of steps for each lane.")


def prompt_tokens(lm: LanguageModel, prompt: str, chat: bool, blanks: bool = True) -> list[int]:
    """Return the token ids of a prompt. For a model without a tokenizer the prompt is a list of decimal ids.

    chat: whether the prompt goes into the model's chat template, if the model has a template.
    blanks: whether underscores are blanks, see `LanguageModel.encode`.

    Raises ValueError, one sentence, for a prompt that cannot be encoded.
    """
    if lm.tokenizer is not None:
        return _in_time(lm, lambda: lm.encode(prompt, chat=chat and has_chat(lm), blanks=blanks))
    words = prompt.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise ValueError("prompt must be token ids, such as 17 4 256: this model has no tokenizer.")
    return [int(word) for word in words]


def _in_time(lm: LanguageModel, encode: Callable[[], Encoded]) -> Encoded:
    """Return `encode()`. Raises ValueError if it takes longer than ENCODING_SECONDS.

    A call that takes too long cannot be stopped: it continues in its thread.
    """
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
    """Raise ValueError for a job that cannot run.

    The reasons are: more than `most` positions, no position to write, and settings or events that do not fit the
    prompt.
    """
    total = len(job.tokens) + job.gen_length
    if total > most:
        sizes = f"{len(job.tokens)} tokens and {job.gen_length} to generate make {total}"
        raise ValueError(f"prompt is too long: {sizes}; at most {most} positions fit here.")
    if not job.gen_length and lm.mask_id not in job.tokens:
        raise ValueError(
            "prompt has no blank and gen_length is 0: leave a blank (__), or set a length."
        )
    # blanks from word lists get their lengths when the run begins: here their masks are checked without the words
    tokens = job.tokens if is_settled(job.tokens) else list(job.tokens)
    for lane in job.lanes:
        Run(lm.shape, [tokens], lane.decoder)  # raises ValueError


def has_chat(lm: LanguageModel) -> bool:
    """Return whether a model has a chat template."""
    return bool(getattr(lm.tokenizer, "chat_template", None))


def one_token(lm: LanguageModel, text: Any) -> Json:
    """Return {"id", "piece"} of the token that is a whole text. A token of the text after a space is preferred.

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
    """Return [[id, piece], ...] of the tokens of a text after a space; [] if the model's tokens cannot write it."""
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
