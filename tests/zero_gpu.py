"""A stand-in for the package `spaces` on ZeroGPU hardware: it forks, pickles what crosses, and counts the time.

Like the real one it asks for a duration before it starts, refuses what a visitor has no time left for, ends a worker
that takes longer than it asked for, and brings back only the name of an error that is not Gradio's own.
"""

import multiprocessing
import pickle
import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import gradio as gr

_FORK: Any = multiprocessing.get_context("fork")


class Spaces:
    """left: seconds that the visitor has. clock: how long a second of the GPU's takes here. asked: durations, as asked
    for.
    """

    def __init__(self, left: float = 120.0, clock: float = 1.0) -> None:
        self.left = left
        self.clock = clock
        self.asked: list[int] = []

    def GPU(self, *, duration: Callable[..., int]) -> Callable[[Any], Any]:
        def decorate(task: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            def run(*arguments: Any) -> Iterator[Any]:
                seconds = duration(*arguments)
                self.asked.append(seconds)
                if seconds > self.left:
                    message = f"You have exceeded your ZeroGPU quota ({seconds}s requested vs. {self.left:.0f}s left). "
                    message += "Try again in 3:20:00. [Create a free account](https://x.example/join) to get more."
                    raise gr.Error(message, title="ZeroGPU quota exceeded", print_exception=False)
                self.left -= seconds
                yield from self._work(task, arguments, time.monotonic() + seconds * self.clock)

            return run

        return decorate

    def _work(
        self, task: Callable[..., Iterator[Any]], arguments: Any, until: float
    ) -> Iterator[Any]:
        results = _FORK.Queue()
        worker = _FORK.Process(
            target=_work, args=(task, pickle.dumps(arguments), results), daemon=True
        )
        worker.start()
        try:
            while True:
                try:
                    kind, content = results.get(timeout=max(0.0, until - time.monotonic()))
                except Empty:
                    raise gr.Error(
                        "GPU task aborted", title="ZeroGPU worker error", print_exception=False
                    ) from None
                value = pickle.loads(content)
                if kind == "value":
                    yield value
                elif kind == "error":
                    raise value
                else:
                    return
        finally:
            worker.kill()
            worker.join()


def _work(task: Callable[..., Iterator[Any]], arguments: bytes, results: Any) -> None:
    try:
        for value in task(*pickle.loads(arguments)):
            results.put(("value", pickle.dumps(value)))
        results.put(("end", pickle.dumps(None)))
    except gr.Error as error:
        results.put(("error", pickle.dumps(error)))
    except Exception as error:
        told = gr.Error(type(error).__name__, title="ZeroGPU worker error", print_exception=False)
        results.put(("error", pickle.dumps(told)))
