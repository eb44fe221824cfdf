"""One or several processes that train one model: on a CPU, a process per core beats a thread per core.

The processes meet twice per step (gradients, updates), not in every operation, so a busy machine costs little.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn


def run(work: Callable[[int, int, Any], None], world: int, argument: Any) -> None:
    """Call work(rank, world, argument) in `world` processes on this machine's CPU; with one, in this process.

    They end with this process, however it ends: left alone they would go on writing into a directory that may have
    become another run's.
    """
    if world == 1:
        work(0, 1, argument)
        return
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        spawn(_join, (work, world, meeting, argument), nprocs=world)


def _join(rank: int, work: Callable[[int, int, Any], None], world: int, meeting: str, argument: Any) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    try:
        work(rank, world, argument)
    finally:
        dist.destroy_process_group()


def _end_with_parent() -> None:
    """Exit once the parent is gone. torch asks for SIGINT then, but a run started in the background ignores that."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def sum_in_place(tensor: Tensor) -> None:
    """Sum a tensor over the processes; nothing to do for a single one."""
    if dist.is_initialized():
        dist.all_reduce(tensor)
