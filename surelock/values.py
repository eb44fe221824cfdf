"""Names of types that all packages share: frozen dataclasses, JSON objects, and numpy arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, overload

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]  # a JSON object
Fields = Mapping[str, Any]  # a JSON object that is only read
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

T = TypeVar("T")


@overload
def frozen(kind: type[T], /) -> type[T]: ...
@overload
def frozen(*, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(kind: Any = None, /, **more: Any) -> Any:
    """A decorator: make a class a frozen dataclass with slots. more: further arguments of `dataclass`."""
    decorate = dataclass(frozen=True, slots=True, **more)
    return decorate if kind is None else decorate(kind)
