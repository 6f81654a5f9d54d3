"""Keeps pandas out of processes that do not use it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pyarrow as pa


class _PandasHidden:
    """An import hook that makes pandas look as if it is not installed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for pandas. Other modules are left to the next hook."""
        del path, target
        if name == "pandas":
            raise ModuleNotFoundError("pandas is hidden while pyarrow looks for it", name=name)
        return None


def keep_pandas_out() -> None:
    """Make pyarrow believe that pandas is not installed. Call this before the first conversion of an array.

    pyarrow imports pandas, where it is installed, at its first conversion of a NumPy array and at its first conversion
    to one, to recognize objects of pandas. That is 0.3 s of CPU time and 35 MB in each process. pyarrow looks only
    once, so other code of the process, for example the aggregate of a package, can still import pandas.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _PandasHidden)
    try:
        pa.chunked_array([pa.array(np.zeros(1))]).to_numpy()
    finally:
        sys.meta_path.remove(_PandasHidden)
