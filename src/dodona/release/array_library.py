"""Which library holds large arrays: NumPy unless another is handed over.

Numerical code here calls only what the Python array API standard and the older libraries share (``full``, ``asarray``,
``reshape``, ``sum``), so PyTorch and CuPy serve as NumPy does. What they do not share is where an array lies and how it
comes back; a ``Library`` says both.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dodona.errors import Unsupported
from dodona.synopses.basis import Floats


@dataclass(frozen=True)
class Library:
    """``namespace``: the module. ``device``: where arrays are made, None for the library's own choice.

    ``fetch``: an array of the library as one of NumPy.
    """

    namespace: Any
    device: Any = None
    fetch: Callable[[Any], Any] = np.asarray

    @staticmethod
    def named(name: str, device: str | None = None) -> Library:
        """numpy, torch or cupy, where installed; ``device`` as that library writes it ("cuda")."""
        if name not in _FETCH:
            raise Unsupported(
                f"array libraries known by name are {', '.join(_FETCH)}. Got {name!r}: for another one hand over "
                "Library(namespace, device, fetch)."
            )
        return Library(importlib.import_module(name), device, _FETCH[name])

    def full(self, shape: Sequence[int], value: float) -> Any:
        """An array of doubles, all ``value``."""
        return self.namespace.full(tuple(shape), value, dtype=self.namespace.float64, **self._place())

    def array(self, values: Floats) -> Any:
        """A copy of these doubles."""
        return self.namespace.asarray(values, dtype=self.namespace.float64, **self._place())

    def numpy(self, array: Any) -> Floats:
        """As an array of NumPy."""
        return np.asarray(self.fetch(array), dtype=np.float64)

    def _place(self) -> dict[str, Any]:
        return {} if self.device is None else {"device": self.device}


_FETCH: dict[str, Callable[[Any], Any]] = {
    "numpy": np.asarray,
    "torch": lambda tensor: tensor.cpu().numpy(),
    "cupy": lambda array: array.get(),
}

NUMPY = Library(np)
