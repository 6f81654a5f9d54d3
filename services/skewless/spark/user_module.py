"""Sends the module of `splitter.python` to the executors of Spark."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path

from pyspark.sql import SparkSession

from skewless.parsing.python_function import require_function
from skewless.parsing.settings import ParsingSettings


def send(spark: SparkSession, splitter: ParsingSettings) -> None:
    """Add the module, or the package that contains it, and those that it imports from its folder to the executors.

    An installed package is not sent: the executors have it as they have Skewless. Raises ConfigurationError if the
    function does not exist.
    """
    if splitter.python is None:
        return
    require_function(splitter.python)
    for name in modules_with(splitter.python.partition(":")[0].partition(".")[0]):
        spark.sparkContext.addPyFile(str(file_of(name, spark.sparkContext.applicationId)))


def modules_with(name: str) -> list[str]:
    """Return the imported modules and packages in the folder of an imported one; none if it is installed."""
    specs = {each: getattr(module, "__spec__", None) for each, module in [*sys.modules.items()] if "." not in each}
    places = {each: place for each, spec in specs.items() if spec and (place := _place(spec))}
    return [each for each, place in places.items() if name in places and place.parent == places[name].parent]


@functools.cache  # an application of Spark refuses a second archive of the same name
def file_of(name: str, application: str) -> Path | None:
    """Return the file of a module or, for a package, a ZIP archive, which exists until this process ends.

    Each application has its own archive, because the code may have changed. Returns None for an installed package.
    """
    spec = importlib.util.find_spec(name)
    first = None if spec is None else _place(spec)
    if first is None or not first.is_dir():
        return first
    folder = tempfile.mkdtemp(prefix=f"skewless-{application}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / f"{name}.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(first.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                target.write(path, path.relative_to(first.parent))
    return archive


def _place(spec: ModuleSpec) -> Path | None:
    """Return the file of a module, or the folder of a package; None for an installed one, and for Python's own."""
    places = [Path(place) for place in (*(spec.submodule_search_locations or ()), spec.origin) if place]
    if not places or not {"site-packages", "dist-packages"}.isdisjoint(places[0].parts):
        return None
    return None if places[0].is_relative_to(sysconfig.get_path("stdlib")) else places[0]
