"""Adds fault points to a stage's process. Python imports this module first if its folder is on PYTHONPATH.

It changes nothing without $SKEWLESS_TEST_FAULTS. `confluent_kafka` is still imported only by the first module that
needs it, and then gets a producer and a consumer with fault points.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

HERE = str(Path(__file__).parent)
ARMED = "SKEWLESS_TEST_FAULTS" in os.environ


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, then adds the fault points."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        importlib.import_module("fault_points").install(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `confluent_kafka` once."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "confluent_kafka":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _run_shadowed() -> None:
    """Run the environment's own module of this name, which this one hides."""
    elsewhere = [path for path in sys.path if path != HERE]
    spec = PathFinder.find_spec(__name__, elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


_run_shadowed()
if ARMED:
    sys.meta_path.insert(0, _Finder())
