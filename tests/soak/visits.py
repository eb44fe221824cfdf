"""What visitors do: watch a run, pause and resume it, step, stop, close the tab in the middle, misbehave."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from tests.browser.visitor import Visitor
from tests.soak.abuse import ABUSES, bad_call
from tests.soak.tally import Tally

WORDS = ("fox", "boat", "sun", "hill", "bear", "girl", "rain", "moon", "dog", "tree")


class Visit:
    """One tab, from opening to closing."""

    def __init__(self, url: str, rng: random.Random, tally: Tally, deadline: float) -> None:
        self.rng, self.tally, self.deadline = rng, tally, deadline
        self.left, begun = False, time.monotonic()
        self.visitor = Visitor(url)
        tally.took("open", time.monotonic() - begun)
        tally.count("visits")

    def act(self) -> None:
        """A few acts, then close the tab."""
        acts: tuple[Callable[[], None], ...] = (self.watch, self.pause, self.leave, self.stop, self.misbehave)
        try:
            for _ in range(self.rng.randint(1, 3)):
                if time.monotonic() > self.deadline:
                    break
                self.rng.choices(acts, weights=(3, 2, 2, 1, 4))[0]()
                if self.left:
                    break
        finally:
            self.visitor.close()

    def begin(self) -> Iterator[dict[str, Any]]:
        """Press Run, and check that what comes back is this visitor's own run."""
        length = self.rng.choice((16, 32, 48))
        prompt = f"The {self.rng.choice(WORDS)} and the {self.rng.choice(WORDS)} {self.rng.randint(0, 10**9)} saw"
        begun, last, seq = time.monotonic(), 0.0, -1
        for message in self.visitor.run(Prompt=prompt, Generated_length=length, Steps=length, Block_length=length):
            now = time.monotonic()
            if "refused" in message:
                self.tally.problem("a good run was refused", message["refused"])
                return
            if "open" in message:
                self.tally.took("run to first message", now - begun)
                self.tally.saw_run(message["run"])
                if message["open"]["header"]["prompt"] != prompt:
                    self.tally.problem("another visitor's run", prompt)
            else:
                self.tally.took("between steps", now - last)
            if message["seq"] != seq + 1:
                self.tally.problem("a message was lost", f"{seq} then {message['seq']}")
            last, seq = now, message["seq"]
            if message.get("end") == "failed":
                self.tally.problem("a run failed", str(message["problem"]))
            yield message

    def watch(self) -> None:
        if (messages := self.gather()) is None:
            return
        self.tally.count("runs watched to the end")
        if messages and messages[-1].get("end") != "finished":
            self.tally.problem("a run did not finish", str(messages[-1])[:100])

    def gather(self, most: int | None = None) -> list[dict[str, Any]] | None:
        """Follow a new run to its end, or for some messages, pausing then; None where the queue is full."""
        found: list[dict[str, Any]] = []
        try:
            for message in self.begin():
                found.append(message)
                if most is not None and len(found) == most:
                    self.visitor.call("pause", message["run"])
        except httpx.HTTPStatusError as error:
            self.refused(error)
            return None
        return found

    def refused(self, error: httpx.HTTPStatusError) -> None:
        text = error.response.text
        if error.response.status_code == 503 and "full" in text.lower():
            self.tally.count("told that the queue is full")
            time.sleep(self.rng.uniform(0.5, 2))
        else:
            self.tally.problem("a good run was refused", f"{error.response.status_code} {text[:100]}")

    def pause(self) -> None:
        """Pause after some steps, ask for likely tokens, take one step, resume to the end."""
        messages = self.gather(self.rng.randint(3, 10))
        if not messages or "end" in messages[-1]:
            return
        run, after = messages[-1]["run"], messages[-1]["seq"]
        begun = time.monotonic()
        self.visitor.call("top", run, self.rng.randrange(16), 0)
        self.tally.took("likely tokens", time.monotonic() - begun)
        time.sleep(self.rng.uniform(0, 1))
        try:
            stepped = list(self.visitor.ask("follow", run, after, 1))
            rest = list(self.visitor.ask("follow", run, stepped[-1]["seq"] if stepped else after, None))
        except httpx.HTTPStatusError as error:
            return self.refused(error)
        self.tally.count("runs paused and resumed")
        if not (rest or stepped) or (rest or stepped)[-1].get("end") != "finished":
            self.tally.problem("a resumed run did not finish", str((rest or stepped)[-1:])[:100])
        if self.visitor.call("export", run) is None:
            self.tally.problem("an own run could not be exported", run)

    def leave(self) -> None:
        """Close the tab in the middle of a run."""
        stream, steps = self.begin(), self.rng.randint(1, 8)
        try:
            for _, _ in zip(stream, range(steps), strict=False):
                pass
        except httpx.HTTPStatusError as error:
            return self.refused(error)
        stream.close()  # type: ignore[attr-defined]
        self.tally.count("tabs closed in the middle of a run")
        self.left = True

    def stop(self) -> None:
        try:
            for number, message in enumerate(self.begin()):
                if number == 4:
                    self.visitor.call("stop", message["run"])
        except httpx.HTTPStatusError as error:
            return self.refused(error)
        self.tally.count("runs stopped")

    def misbehave(self) -> None:
        """A handful of bad requests; every one must be answered, with a reason."""
        stage = self.visitor.part("sl-stage-host")
        url = self.visitor.url
        for _ in range(self.rng.randint(2, 6)):
            abuse = self.rng.choice((*ABUSES, None))
            begun = time.monotonic()
            try:
                if abuse is None:
                    outcome = bad_call(self.visitor.http, url, self.rng, stage)
                else:
                    outcome = abuse(self.visitor.http, url, self.rng)
            except (httpx.HTTPError, OSError, json.JSONDecodeError) as error:
                self.tally.problem(f"no answer to {abuse.__name__ if abuse else 'bad_call'}", repr(error))
                continue
            self.tally.took("bad request", time.monotonic() - begun)
            if outcome.problem:
                self.tally.problem("bad request", f"{outcome.name} {outcome.problem}")
            self.tally.count("bad requests")
