"""Names that all rooms share: frozen records, objects of JSON, and arrays of numpy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform, overload

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]  # an object of JSON: anything by its name
Fields = Mapping[str, Any]  # one that is only read
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
    """Make a class a frozen dataclass with slots, with these arguments of `dataclass`."""
    decorate = dataclass(frozen=True, slots=True, **more)
    return decorate if kind is None else decorate(kind)
