"""Peak memory of a run: beyond weights and cache, one [rows, V] table in the network's dtype and bounded chunks."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import surelock
from surelock import ComputeRule, DecodeSettings, Entropy, Everything, LanguageModel, LockRule
from surelock.engines.torch import TorchEngine
from surelock.model.config import NetworkConfig
from surelock.model.network import Network

VOCAB, LENGTH = 50_000, 800
TABLE = LENGTH * VOCAB * 2  # bytes, in bfloat16: 76 MiB, against which a few chunks are small


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of all storages made inside that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._seen:
            self._seen.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


@pytest.fixture(scope="module")
def wide() -> LanguageModel:
    """A tiny bf16 network with a wide vocabulary."""
    config = NetworkConfig(VOCAB, 16, 1, 2, 1, 8, 16, LENGTH, 1e4, 1e-5, True)
    network = Network(config).to(torch.bfloat16).requires_grad_(False)
    return LanguageModel("wide", TorchEngine(network), None, mask_id=1, eos_id=0, eot_id=None, pad_id=0)


def peak(lm: LanguageModel, rule: ComputeRule, unmask: Entropy | None = None, **changes) -> int:
    settings = DecodeSettings(gen_length=LENGTH - 8, steps=2, **changes)
    with LiveStorages() as live:
        steps = list(surelock.decode(lm, [list(range(2, 10))], settings, compute=rule, unmask=unmask))
    assert len(steps) == 2
    return live.peak


def test_the_meter_sees_what_is_alive() -> None:
    with LiveStorages() as live:
        a = torch.zeros(1000)
        for _ in range(3):
            b = a + 1
            del b
        a.view(10, 100)
    assert 8000 <= live.peak < 12000


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ({"cfg_scale": 1.0}, {"temperature": 0.7, "unmask": Entropy()})
        ),
    ],
)
def test_a_locked_run_keeps_one_table_in_the_networks_dtype(wide: LanguageModel, changes: dict) -> None:
    assert TABLE <= peak(wide, LockRule(), **changes) < 1.75 * TABLE


def test_a_baseline_keeps_no_table(wide: LanguageModel) -> None:
    assert peak(wide, Everything()) < 0.75 * TABLE
