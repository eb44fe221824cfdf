"""Memories that an engine lends to runs. A memory that a run gives back serves the next run of its size."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, Protocol, TypeVar

#: Bytes of idle memories on a CPU: other programs need its memory, too.
CPU_BYTES = 2**27


class Lendable(Protocol):
    """A memory that is lent."""

    @property
    def key(self) -> Hashable:
        """The properties that a run needs. Memories of equal keys serve the same runs."""
        ...

    @property
    def nbytes(self) -> int: ...

    def reset(self) -> None:
        """Make the memory as good as new: nothing of a former run may reach the next."""
        ...


M = TypeVar("M", bound=Lendable)


def at_most_on_a_cpu(taken: int) -> int:
    """Return the bytes that idle memories may take on a CPU. taken: the bytes that they take now."""
    return CPU_BYTES


class Lender(Generic[M]):
    """Keeps the memories that no run uses, within a limit of bytes. Threads may share a lender.

    most: called with the bytes that idle memories take, returns how many they may take.
    trim: called after memories were dropped.
    """

    def __init__(
        self, most: Callable[[int], int] = at_most_on_a_cpu, trim: Callable[[], None] = lambda: None
    ) -> None:
        self._most = most
        self._trim = trim
        self._idle: dict[Hashable, list[M]] = {}  # by key, the least recently used first
        self._lock = Lock()

    def lend(self, key: Hashable, nbytes: int, make: Callable[[], M]) -> M:
        """Return an idle memory of a key, reset, or a new one.

        nbytes: the bytes of a new one. Idle memories of other keys make room for it.
        """
        with self._lock:
            memories = self._idle.pop(key, [])
            memory = memories.pop() if memories else None
            if memories:
                self._idle[key] = memories  # at the end: used last
            if memory is None:
                self._make_room(nbytes)
        if memory is None:
            return make()
        memory.reset()
        return memory

    def take_back(self, memory: M) -> None:
        """Keep a memory for a later run. Drop those used least recently until the rest is within the limit."""
        with self._lock:
            others = self._idle.pop(memory.key, [])
            self._idle[memory.key] = [*others, memory]
            self._make_room(0)

    @property
    def nbytes(self) -> int:
        """The bytes that idle memories take."""
        return sum(memory.nbytes for memories in self._idle.values() for memory in memories)

    def _make_room(self, coming: int) -> None:
        """Drop the memories of the keys used least recently, until `coming` more bytes fit the limit."""
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
