"""Shared fixtures: tiny checkpoints and the models read from them. No test uses the network."""

import logging
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub reads it
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from checkpoints import write_llada
from hypothesis import settings

import surelock

if TYPE_CHECKING:
    from tests.browser.server import App

TINY = {
    "layers": 2,
    "d_model": 32,
    "heads": 4,
    "kv_heads": 2,
    "d_ff": 48,
    "vocab": 41,
    "tied": False,
    "seed": 7,
}


settings.register_profile("unhurried", deadline=None)  # a busy machine is no fault
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also the tests that are marked as long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "long: what takes long and finds little that the others miss; only with --all"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    # the longest files first: workers end together
    items.sort(key=lambda item: "browser" not in item.path.parts)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The networks here are far too small for a second one."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def as_logged_before() -> Iterator[None]:
    """A server that a test starts in this process filters every logger: the next test has them as they were."""
    before = logging.getLoggerClass()
    yield
    if logging.getLoggerClass() is not before:
        logging.setLoggerClass(before)
        logging.captureWarnings(False)
        for each in (logging.getLogger(), *logging.Logger.manager.loggerDict.values()):
            if isinstance(each, logging.Logger):
                each.filters = [held for held in each.filters if type(held).__name__ != "Calm"]


@pytest.fixture
def llada(tmp_path: Path) -> Path:
    """A directory with a tiny checkpoint, free to be damaged."""
    write_llada(tmp_path / "tiny", **TINY)
    return tmp_path / "tiny"


@pytest.fixture(scope="session")
def lm(tmp_path_factory: pytest.TempPathFactory) -> surelock.LanguageModel:
    """A tiny float64 model: mask 1, EOS 0, 41 tokens, no tokenizer."""
    path = tmp_path_factory.mktemp("lm")
    write_llada(path, **TINY)
    return surelock.load(path, device="cpu", dtype=torch.float64)


@pytest.fixture(scope="session")
def stories() -> surelock.LanguageModel:
    """The embedded checkpoint."""
    return surelock.load("stories", device="cpu")


@pytest.fixture
def models(stories: surelock.LanguageModel) -> Any:
    """The models of a page that has loaded the embedded one."""
    from surelock.ui.models import Models

    made = Models(["stories"])
    made._loaded["stories"] = stories
    return made


@pytest.fixture(scope="module")
def form() -> Any:
    """The page's form, whose model has not been loaded."""
    import gradio as gr

    from surelock.ui.form import Form
    from surelock.ui.models import Models

    with gr.Blocks():
        return Form(Models(["stories"]), 512)


@pytest.fixture(scope="session")
def stories_in_torch() -> surelock.LanguageModel:
    """The embedded checkpoint under the engine that what is recorded was computed by."""
    return surelock.load("stories", device="cpu", engine="torch")


@pytest.fixture(scope="session")
def small_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a judge of random weights."""
    from judges import write_judge  # transformers' models take a while to import

    path = tmp_path_factory.mktemp("judges") / "random-1.5B"
    write_judge(path)
    return path


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[App]":
    """The page as it is served, for all that only ask it."""
    # the tests of a GPU run where Playwright is not installed
    from tests.browser.server import serve, wait_for_model

    with serve(log=tmp_path_factory.mktemp("log") / "server.log") as served:
        wait_for_model(served)
        yield served
