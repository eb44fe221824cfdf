"""ONNX Runtime's engine against torch's, both in float32: the same steps, up to a tie."""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import test_oracle
import torch
from checkpoints import write_lfm2, write_llada, write_mdlm
from hypothesis import HealthCheck, given, settings
from test_oracle import (
    ADDED,
    BLOCKS,
    FLAGS,
    MODELS,
    PROBING,
    Case,
    Model,
    cases,
    fixed_case,
    run_library,
    run_oracle,
)

import surelock
from surelock import loading
from surelock.engines import onnx
from surelock.engines.onnx import OnnxEngine
from surelock.engines.torch import TorchEngine
from surelock.errors import CheckpointError
from surelock.model import stored
from surelock.model.checkpoint import find_tensors
from surelock.model.families import LLADA
from tests.waiting import HANGS

STEADY = (0.01, 1e-6)
NEAR = {
    **dict.fromkeys(("epsilon", "epsilon_unlock", "still", "selection"), STEADY),
    **dict.fromkeys(("theta", "theta_unlock"), (0, 1e-5)),
}
ENGINES = ("torch", "onnx")
SCORES = (0, 1e-4)  # all other comparisons
# block-causal, or of other layers
OTHER = {kind: ADDED[kind] for kind in (*BLOCKS, "mdlm", "lfm2")}


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Model, Model, Model]]:
    """Of each kind the oracle's model, and the same weights in float32 with both engines."""
    made = {}
    for kind in MODELS | OTHER:
        path = tmp_path_factory.mktemp(kind)
        exact = test_oracle.make_model(path, kind)
        ids = {"mask_id": exact.lm.mask_id, "ends": exact.lm.ends}
        both = [surelock.load(path, device="cpu", engine=name, tokenizer="") for name in ENGINES]
        made[kind] = exact, *(replace(exact, lm=replace(lm, **ids)) for lm in both)
    return made


def steps_of(model: Model, case: Case, events: list[Any]) -> tuple[list[Any], str]:
    """The steps, and what the run was refused with."""
    steps: list[Any] = []
    try:
        run_library(model, case, events, steps)
    except ValueError as error:
        return steps, str(error)
    return steps, ""


def first_difference(first: list[Any], second: list[Any]) -> int | None:
    """The step in which tokens or flags differ, None if there is none. Before it all numbers are the same but for
    rounding.
    """
    for a, b in zip(first, second, strict=False):
        if not all(
            np.array_equal(getattr(a, name), getattr(b, name)) for name in ("tokens", *FLAGS)
        ):
            return int(a.index)
        np.testing.assert_allclose(a.kl, b.kl, rtol=0.01, atol=1e-6)
        np.testing.assert_allclose(a.confidence, b.confidence, rtol=0.01, atol=1e-5)
        logits = [np.nan_to_num(step.commit_logits) for step in (a, b)]
        np.testing.assert_allclose(*logits, rtol=0, atol=1e-4)
    return None


def is_tie(model: Model, case: Case, step: int, patch: pytest.MonkeyPatch) -> bool:
    """Whether the oracle compares values in a step that float32 cannot tell apart."""
    ties = []
    compare = oracle.Run.compare

    def note(run: oracle.Run, kind: str, a: float, b: float) -> None:
        relative, absolute = NEAR.get(kind, SCORES)
        if len(run.trace.steps) == step and abs(a - b) <= absolute + relative * max(abs(a), abs(b)):
            ties.append(kind)
        compare(run, kind, a, b)

    with patch.context() as patched:
        patched.setattr(oracle.Run, "compare", note)
        run_oracle(model, case)
    return bool(ties)


@pytest.mark.parametrize(
    ("examples", "kinds"),
    [(60, MODELS), (40, OTHER), pytest.param(1000, MODELS | OTHER, marks=pytest.mark.long)],
    ids=["60", "other", "1000"],
)
def test_engines_agree_over_random_cases(
    engines, monkeypatch: pytest.MonkeyPatch, examples: int, kinds
) -> None:
    """At most 2 % of runs part, each at a tie; before that all values are the same but for rounding. Every second case
    is read five rows at a time in ONNX Runtime.
    """
    seen = parted = 0

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(kinds))
    def check(case: Case) -> None:
        nonlocal seen, parted
        exact, *both = engines[case.model]
        told = run_oracle(exact, case)
        with monkeypatch.context() as patched:
            if sum(map(len, case.prompts)) % 2:
                patched.setattr(both[1].lm.engine, "_rows", 5)
            (first, refused), (second, also) = (
                steps_of(model, case, told.events) for model in both
            )
        seen += 1
        parts_at = first_difference(first, second)
        if parts_at is None:
            assert (len(first), refused) == (len(second), also)
            return
        assert is_tie(exact, case, parts_at, monkeypatch), (
            f"they part in step {parts_at} without a tie"
        )
        parted += 1

    check()
    print(f"engines: {seen} runs, {parted} part at a tie")
    assert parted <= 0.02 * seen


@pytest.mark.parametrize("length", [12, 18, 24])
def test_a_probe_of_a_shifted_network_changes_no_hidden_state(engines, length: int) -> None:
    """The state of a locked row predicts the position after it, as it was when the row locked."""
    case = fixed_case("dream", [PROBING], gen_length=length, steps=length)
    first, second = (run_library(model, case) for model in engines["dream"][1:])
    assert any(step.probed.any() for step in first)
    assert first_difference(first, second) is None


@pytest.mark.parametrize("unlock", [None, surelock.UnlockRule(period=2, budget=3)])
@pytest.mark.parametrize("kind", ["llada", "lfm2", "dream"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_rule_sees_the_likeliest_token_of_what_it_watches(
    engines,
    monkeypatch: pytest.MonkeyPatch,
    which: int,
    kind: str,
    unlock: surelock.UnlockRule | None,
) -> None:
    """That of the largest of the likely tokens which an observed run reports, also of probed rows, and in an engine
    that reads few rows at once.
    """
    seen: list[Any] = []
    probes = 0
    unwatched = 0

    @dataclass(frozen=True)
    class Watching(surelock.LockRule):
        def watches(self, state: Any, slots: Any) -> Any:
            found = surelock.LockRule.watches(self, state, slots)
            seen.append(found[0])
            return found

        def after(self, state: Any, reading: Any) -> surelock.Changes:
            nonlocal probes, unwatched
            watched = seen.pop()
            seen.append(reading.likeliest)
            assert (reading.likeliest[~watched] == -1).all()
            unwatched += int((~watched).sum())
            if reading.top_ids.size:
                assert np.array_equal(reading.likeliest[watched], reading.top_ids[watched, 0])
                probes += int(reading.probed.sum())
            return surelock.LockRule.after(self, state, reading)

    lm = engines[kind][which].lm
    if kind == "lfm2":
        monkeypatch.setattr(lm.engine, "_rows", 5, raising=False)
    settings = surelock.DecodeSettings(gen_length=12, block_length=4)
    rule = Watching(epsilon=0.5, percentile=None, unlock=unlock)
    for top_k in (2, 0):
        list(surelock.decode(lm, [[5, 6, 5], [9]], settings, compute=rule, top_k=top_k))
    assert all(map(np.array_equal, seen[:12], seen[12:]))
    assert (bool(probes), bool(unwatched)) == ((False, True) if unlock is None else (True, False))


PROMPTS = [[5, 9, 3], [7]]
CHOSEN = surelock.DecodeSettings(gen_length=8)


def logits_of(lm: surelock.LanguageModel) -> np.ndarray:
    steps = surelock.decode(lm, PROMPTS, CHOSEN, keep_logits=True)
    return np.concatenate([step.commit_logits for step in steps])


@pytest.mark.parametrize(
    ("dtype", "shards"),
    [(torch.float32, 3), (torch.float64, 1), (torch.float16, 1), (torch.bfloat16, 3)],
)
def test_weights_of_any_dtype_in_any_files_are_those_of_torch(
    tmp_path: Path, dtype: torch.dtype, shards: int
) -> None:
    """Also where every file is a link, as in the cache of the hub. The torch network is not made for it."""
    write_llada(tmp_path / "blobs", dtype=dtype, shards=shards)
    (tmp_path / "snapshot").mkdir()
    for number, file in enumerate((tmp_path / "blobs").iterdir()):
        file.rename(tmp_path / f"{number}")
        (tmp_path / "snapshot" / file.name).symlink_to(f"../{number}")
    lm = surelock.load(tmp_path / "snapshot", device="cpu")
    other = surelock.load(tmp_path / "snapshot", device="cpu", engine="torch")
    assert isinstance(lm.engine, OnnxEngine)
    np.testing.assert_allclose(logits_of(lm), logits_of(other), rtol=0, atol=1e-4)
    assert lm.engine._network is None
    assert lm.dtype == "float32"
    assert torch.equal(lm.network.embed.weight, other.network.embed.weight)
    assert lm.network is lm.network


def test_a_loaded_engine_needs_its_files_no_more(llada: Path) -> None:
    """But the torch network does, and says what became of them."""
    lm = surelock.load(llada, device="cpu", engine="onnx")
    expected = logits_of(lm)
    file = llada / "model.safetensors"
    file.write_bytes(os.urandom(file.stat().st_size))
    np.testing.assert_array_equal(logits_of(lm), expected)
    with pytest.raises(CheckpointError, match="safetensors"):
        lm.network  # noqa: B018


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"engine": "magic"}, "engine must be one of auto, torch, onnx, not 'magic'"),
        ({"engine": "onnx", "dtype": torch.bfloat16}, "float32 on one CPU"),
        ({"engine": "onnx", "device_map": "auto"}, "float32 on one CPU"),
    ],
)
def test_an_engine_that_cannot_be_had_is_refused(
    llada: Path, asked: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        surelock.load(llada, **asked)


def test_without_its_packages_there_is_torch(llada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loading, "find_spec", lambda package: None if package == "onnxruntime" else object()
    )
    assert isinstance(surelock.load(llada, device="cpu").engine, TorchEngine)
    with pytest.raises(
        ValueError, match="engine 'onnx' needs onnxruntime: `pip install onnxruntime`"
    ):
        surelock.load(llada, engine="onnx")


def test_links_into_several_folders_are_torchs_to_read(tmp_path: Path) -> None:
    write_llada(tmp_path / "snapshot", shards=2)
    for number, file in enumerate(sorted((tmp_path / "snapshot").iterdir())):
        folder = tmp_path / f"blobs-{number % 2}"
        folder.mkdir(exist_ok=True)
        file.symlink_to(file.rename(folder / f"{number}"))
    assert isinstance(surelock.load(tmp_path / "snapshot", device="cpu").engine, TorchEngine)
    with pytest.raises(ValueError, match="its files lie in several folders"):
        surelock.load(tmp_path / "snapshot", engine="onnx")


WITHOUT_TORCH = """
import pickle, sys
for name in ("torch", "transformers", "safetensors"):
    sys.modules[name] = None
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.algorithm import Run
from surelock.decoding.settings import DecodeSettings
from surelock.engines import onnx
from surelock.engines.onnx import OnnxEngine
shape, tensors = pickle.load(open(sys.argv[1], "rb"))
engine = OnnxEngine(shape.network, tensors, 1, None)
run = Run(shape, [[5, 9, 3], [7]], Decoder(settings=DecodeSettings(gen_length=8), compute=LockRule()))
memory = engine.memory(run.layout)
while (plan := run.plan()) is not None:
    step = run.take(engine.read(memory, plan))
print(step.tokens.tolist())
"""


def test_a_whole_run_needs_no_torch(llada: Path) -> None:
    lm = surelock.load(llada, device="cpu")
    tensors = find_tensors(lm.network, LLADA, llada)
    (llada / "pickled").write_bytes(pickle.dumps((lm.shape, tensors)))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(llada / "pickled")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANGS, cwd=Path(__file__).parents[1]
    )
    *_, last = surelock.decode(lm, PROMPTS, CHOSEN, compute=surelock.LockRule())
    assert done.stdout == f"{last.tokens.tolist()}\n", done.stderr


SMALL = {"layers": 3, "heads": 4}
WRITERS = {
    "tied": partial(write_llada, tied=True), "not tied": partial(write_llada),
    "mdlm": partial(write_mdlm, d_model=32), "lfm2": write_lfm2,
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_network_is_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    """Layer by layer, and with a head that is an input: the same logits, and the embedding's memory once."""
    WRITERS[kind](tmp_path, **SMALL, dtype=dtype)
    whole = logits_of(surelock.load(tmp_path, engine="onnx", tokenizer=""))
    monkeypatch.setattr(onnx, "_PART_BYTES", 2**12)
    monkeypatch.setattr(stored, "AT_ONCE", 100)
    lm = surelock.load(tmp_path, engine="onnx", tokenizer="")
    head = "embed.weight" if lm.config.tied else "head.weight"
    assert len(lm.engine._parts) == 3
    assert list(lm.engine._shared_inputs) == [head]
    np.testing.assert_allclose(logits_of(lm), whole, rtol=0, atol=1e-5)
    by_torch = logits_of(surelock.load(tmp_path, engine="torch", tokenizer=""))
    np.testing.assert_allclose(by_torch, whole, rtol=0, atol=1e-4)
