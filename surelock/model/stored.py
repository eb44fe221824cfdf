"""Tensors in a checkpoint's files, which are read a few rows at a time. This module does not need torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surelock.values import Floats

AT_ONCE = 2**24  # largest number of a tensor's values that are read at once
KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


class Stored(NamedTuple):
    """The place of a tensor: `nbytes` bytes from `offset` in a file."""

    file: Path
    dtype: str  # its name in safetensors, such as "BF16"
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    factor: Floats | None = (
        None  # by row, a factor that readers must apply, float64; None: no factors
    )

    def resolved(self) -> Stored:
        """Return the same place with links in the file's path resolved."""
        return self._replace(file=self.file.resolve())

    def rows(self, start: int, stop: int) -> Stored:
        """Return the place of the rows from `start` to `stop`."""
        row_bytes = self.nbytes // self.shape[0]
        return self._replace(
            shape=(stop - start, *self.shape[1:]),
            offset=self.offset + start * row_bytes,
            nbytes=(stop - start) * row_bytes,
        )

    def read(self) -> Iterator[NDArray]:
        """Yield the rows in order, a few at a time, in their stored dtype. bfloat16 is yielded as uint16.

        The file is not memory-mapped. Overwriting a mapped file would change the network, and shortening it would end
        the process.
        """
        rows, *columns = self.shape
        rows_at_once = max(1, AT_ONCE // math.prod(columns))
        with self.file.open("rb") as file:
            file.seek(self.offset)
            for start in range(0, rows, rows_at_once):
                shape = (min(rows_at_once, rows - start), *columns)
                yield np.fromfile(file, KINDS[self.dtype], math.prod(shape)).reshape(shape)

    def wide(self, dtype: type[np.floating]) -> NDArray:
        """Return the tensor in a wider dtype. It is read in parts, so that no second copy needs memory."""
        wide = np.empty(self.shape, dtype)
        at = 0
        for part in self.read():
            if self.dtype == "BF16":  # bfloat16 is the upper half of a float32
                part = (part.astype(np.uint32) << 16).view(np.float32)
            wide[at : at + len(part)] = part
            at += len(part)
        return wide


#: By parameter of the network, the (name, tensor) pairs that are stacked into it, in order. A tensor is a place in a
#: file, or an array that was computed from several tensors.
Tensors = Mapping[str, tuple[tuple[str, Stored | Floats], ...]]
