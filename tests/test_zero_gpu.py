"""A ZeroGPU Space, simulated: runs in a forked worker, what they ask for, and what is said when they get no time."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import write_llada
from starlette.datastructures import Headers
from starlette.requests import Request

import surelock
from surelock.trace.lanes import Lane
from surelock.trace.recorder import Recorder, make_header
from surelock.ui import launch, shared_race
from surelock.ui.endpoint import Calls
from surelock.ui.limits import Limits
from surelock.ui.models import Models
from surelock.ui.queue import Queue
from surelock.ui.request import Job
from surelock.ui.runs import Runs
from surelock.ui.shared_race import SharedRace
from surelock.ui.zero_gpu import MOST_SECONDS, gpu_seconds
from tests.loops import finished
from tests.test_runs import read
from tests.zero_gpu import Spaces

Use = Callable[[Spaces], Models]


@pytest.fixture
def use(stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Put a stand-in in the package's place."""

    def put(spaces: Spaces) -> Models:
        monkeypatch.setitem(sys.modules, "spaces", spaces)
        monkeypatch.setattr(shared_race, "on_zero_gpu", lambda: True)
        models = Models(["stories"])
        models._loaded["stories"] = stories
        return models

    return put


def job(length: int = 8, lanes: int = 1, **more: Any) -> Job:
    settings = surelock.DecodeSettings(gen_length=length)
    decoder = surelock.Decoder(settings=settings, compute=surelock.LockRule(), **more)
    lanes = tuple(Lane(id=name, name=name, decoder=decoder) for name in "abcd"[:lanes])
    return Job("stories", "Tom", [300, 301, 302], lanes)


def test_words_of_several_numbers_of_tokens_are_refused(
    use: Use, stories: surelock.LanguageModel
) -> None:
    """The process that reads a request has no device."""
    models = use(Spaces())
    one, several = (
        stories.encode(f"A __{{{words}}}", blanks=True) for words in ("red|big", "red|light green")
    )
    assert shared_race.settled_job(models, replace(job(), tokens=one)).tokens == one
    with pytest.raises(
        ValueError,
        match="on this server the words of a blank's list must have one number of tokens",
    ):
        shared_race.settled_job(models, replace(job(), tokens=several))


def raced(models: Models, asked: Job) -> list[dict[str, Any]]:
    """All messages of a run on the page."""
    lm = models.get("stories")
    runner = shared_race.make_runner(models)

    async def messages() -> list[dict[str, Any]]:
        recorder = Recorder(make_header(lm, asked.prompt, asked.tokens, asked.lanes), lm.tokenizer)
        rounds = runner(asked, True, True, Headers())
        runs = Runs(shared=False)
        race = SharedRace(asked, recorder, rounds, runs.limits, pausable=False)
        run = runs.open("a visitor", "a", asked.key, lambda: race)
        return [message async for batch in run.messages(-1) for _, message in read(batch)]

    return finished(messages())


def called(models: Models, **given: Any) -> list[dict[str, Any]]:
    """What /decode answers."""
    calls = Calls(models, shared_race.make_runner(models), Queue(4), Limits(), 512)

    async def answers() -> list[dict[str, Any]]:
        return [
            answer
            async for answer in calls.answers(given, Request({"type": "http", "headers": []}))
        ]

    return finished(answers())


def test_a_run_in_a_worker_is_the_run_here(use: Use, stories: surelock.LanguageModel) -> None:
    spaces = Spaces()
    models = use(spaces)
    (first, *_, last) = raced(models, job(lanes=2))
    asked = job(lanes=2)
    assert first["pausable"] is False and last == {**last, "end": "finished", "problem": None}
    assert (
        spaces.asked == [gpu_seconds(stories, asked, True)] and spaces.left == 120 - spaces.asked[0]
    )
    *_, answer = called(models, prompt="Tom had a ball", gen_length=6)
    decoder = surelock.Decoder(settings=surelock.DecodeSettings(gen_length=6))
    assert answer["texts"] == surelock.generate(stories, ["Tom had a ball"], **decoder.keywords())


def test_every_model_is_loaded_before_the_page_opens(
    use: Use, stories: surelock.LanguageModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not in a thread afterwards: ZeroGPU packs what lies on the GPU when the page opens."""
    use(Spaces())
    write_llada(
        tmp_path, layers=1, d_model=8, heads=1, kv_heads=1, d_ff=8, vocab=17, tied=True, seed=1
    )

    def opened(models: Models, **_: Any) -> Any:
        raise SystemExit(str([models.state(label) for label in models.labels]))

    monkeypatch.setattr(launch, "on_zero_gpu", lambda: True)
    monkeypatch.setattr(launch, "make_runner", opened)
    with pytest.raises(SystemExit, match=r"\['ready', 'ready'\]"):
        launch.main(["--model", "stories", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        launch.main(["--weights", "int8"])


def test_what_takes_longer_than_it_asked_for_ends_in_a_sentence(use: Use) -> None:
    end = raced(use(Spaces(clock=1e-6)), job(length=200))[-1]
    said = "The run stopped: its time on the GPU was over before it ended; try a shorter run, or fewer lanes."
    assert (end["end"], end["problem"]) == ("failed", said)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("event: position 3 is masked"), "event: position 3 is masked"),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2 GiB\nat"),
            "the device ran out of memory; try a shorter run",
        ),
        (MemoryError(), "the device ran out of memory; try a shorter run"),
    ],
)
def test_what_goes_wrong_in_a_worker_is_said_here(
    use: Use, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    """Of another error than Gradio's only the name would come back."""

    def fail(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr("surelock.trace.race.race", fail)
    assert raced(use(Spaces()), job())[-1]["problem"] == f"The run stopped: {said}."


def test_what_is_asked_for_grows_with_the_work(stories: surelock.LanguageModel) -> None:
    """Length, steps, lanes, guidance, commit errors, the model; and never more than a visitor has."""

    def seconds(asked: Job, errors: bool = False) -> int:
        return gpu_seconds(stories, asked, errors)

    short = seconds(job(128))
    assert short < seconds(job(128, lanes=4)) < seconds(job(512, lanes=4)) and short < seconds(
        job(128), errors=True
    )
    assert seconds(job(512), errors=True) == seconds(job(512, lanes=2)), (
        "the shadow computes each step once more"
    )
    assert 10 * short < MOST_SECONDS, "ten runs of the page's length a day"
    assert seconds(job(100_000, lanes=4), errors=True) == MOST_SECONDS
    blanks = replace(job(0), tokens=[300, *[stories.mask_id] * 512, 301])
    assert seconds(blanks) >= seconds(job(512)) > short, (
        "blanks take steps as what follows them does"
    )
    assert seconds(job(512, unmask=surelock.Remask())) > seconds(job(512)), (
        "a policy may need twice the steps"
    )
