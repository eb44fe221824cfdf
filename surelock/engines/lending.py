"""Memories that an engine lends to runs. A memory that a run has returned is reused by a later run of the same size."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar

#: Limit in bytes for idle memories on a CPU, since other programs need memory too.
CPU_BYTES = 2**27


class Lendable(Protocol):
    """A memory that is lent."""

    @property
    def key(self) -> Hashable:
        """The properties that a run requires. Memories with equal keys are interchangeable."""
        ...

    @property
    def nbytes(self) -> int: ...

    def reset(self) -> None:
        """Remove everything of an earlier run, so that the memory is like a new one."""
        ...


M = TypeVar("M", bound=Lendable)


def at_most_on_a_cpu(taken: int) -> int:
    """Return the bytes that idle memories may take on a CPU. taken: the bytes that they take now, which is ignored."""
    return CPU_BYTES


class Lender(Generic[M]):
    """Keeps the memories that no run uses, within a limit in bytes. Threads may share a lender.

    most: a function from the bytes that idle memories take to the bytes that they may take.
    trim: a function that is called after memories were dropped.
    """

    def __init__(
        self, most: Callable[[int], int] = at_most_on_a_cpu, trim: Callable[[], None] = lambda: None
    ) -> None:
        self._most = most
        self._trim = trim
        self._idle: dict[Hashable, list[M]] = {}  # by key, the least recently used first
        self._lock = Lock()

    def lend(self, key: Hashable, nbytes: int, make: Callable[[], M]) -> M:
        """Return an idle memory with this key, reset, or a new memory.

        nbytes: the size of a new memory in bytes. Idle memories are dropped to make room for it.
        make: a function that returns a new memory.
        """
        with self._lock:
            memories = self._idle.pop(key, [])
            memory = memories.pop() if memories else None
            if memories:
                self._idle[key] = memories  # at the end, as the key that was used last
            if memory is None:
                self._make_room(nbytes)
        if memory is None:
            return make()
        memory.reset()
        return memory

    def take_back(self, memory: M) -> None:
        """Keep a memory for a later run. If the limit requires it, the least recently used memories are dropped."""
        with self._lock:
            others = self._idle.pop(memory.key, [])
            self._idle[memory.key] = [*others, memory]
            self._make_room(0)

    @property
    def nbytes(self) -> int:
        """The bytes that idle memories take."""
        return sum(memory.nbytes for memories in self._idle.values() for memory in memories)

    def _make_room(self, coming: int) -> None:
        """Drop memories of the least recently used keys, until `coming` more bytes fit into the limit."""
        taken = self.nbytes
        over = taken + coming - self._most(taken)
        dropped = False
        while over > 0 and self._idle:
            oldest = next(iter(self._idle))
            over -= self._idle[oldest].pop(0).nbytes
            if not self._idle[oldest]:
                del self._idle[oldest]
            dropped = True
        if dropped:
            self._trim()
