"""Shared fixtures: tiny checkpoints and the models read from them. No test uses the network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before huggingface_hub reads it

from pathlib import Path

import pytest
import torch
from checkpoints import write_llada

import surelock

TINY = {"layers": 2, "d_model": 32, "heads": 4, "kv_heads": 2, "d_ff": 48, "vocab": 41, "tied": False, "seed": 7}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The networks here are far too small for a second one."""
    torch.set_num_threads(1)


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
