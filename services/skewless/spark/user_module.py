"""Sends the module of `splitter.python` to the executors of Spark."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import shutil
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

from skewless.parsing.python_function import require_function
from skewless.parsing.settings import ParsingSettings


def send(spark: SparkSession, splitter: ParsingSettings) -> None:
    """Add the module, or the package that contains it, to what the executors import.

    An installed package is not sent: the executors have it as they have Skewless. Raises ConfigurationError if the
    function does not exist.
    """
    if splitter.python is None:
        return
    require_function(splitter.python)
    found = file_of(splitter.python.partition(":")[0].partition(".")[0])
    if found is not None:
        spark.sparkContext.addPyFile(str(found))


@functools.cache  # Spark refuses a second archive of the same name
def file_of(name: str) -> Path | None:
    """Return the file of a module or, for a package, a ZIP archive, which exists until this process ends.

    Returns None for an installed package.
    """
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *filter(None, [spec.origin])]
    if not places or any(part in {"site-packages", "dist-packages"} for part in Path(places[0]).parts):
        return None
    first = Path(places[0])
    if not first.is_dir():
        return first
    folder = tempfile.mkdtemp(prefix="skewless-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder) / f"{name}.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(first.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                target.write(path, path.relative_to(first.parent))
    return archive
