"""Archive of the Python packages that the executors of a cluster need, in the versions of this process.

An executor unpacks the archive into its working directory, and runs its own Python with these packages. So executors
need a Python of the same minor version, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from io import BytesIO
from pathlib import Path

import click

from skewless.errors import ConfigurationError
from skewless.lab.local.folders import cache_folder, file_lock
from skewless.lab.progress import report_progress

OWN_FOLDER = Path(__file__).parents[1]
"""Folder of this package."""
FOLDER = "skewless"
"""Folder of the unpacked archive in the working directory of an executor."""
PYTHON = f"./{FOLDER}/bin/python"
"""Python of the executors."""
OWN_PYTHON = "SKEWLESS_PYTHON"
"""Environment variable of the executors with their own Python, which runs with the packages."""
PACKAGES = (
    "confluent-kafka",
    "faust-streaming",
    "mmh3",
    "msgspec",
    "numba",
    "numpy",
    "prometheus-client",
    "psutil",
    "pyarrow",
    "pydantic",
    "python-json-logger",
    "pyyaml",
    "tzdata",
)
"""Packages that tasks import. What these need is added."""
EXTRAS = (
    "aws-msk-iam-sasl-signer-python",
    "fastavro",
    "googleapis-common-protos",
    "grpcio-tools",
    "protobuf",
    "psycopg",
    "pymysql",
)
"""Packages that some tasks import: of a schema registry, a database, or Amazon MSK. They are added if installed."""
EXTRA_OF = {"confluent-kafka": "schemaregistry", "psycopg": "binary", "pymysql": "rsa"}
"""Package -> its extra that tasks need."""
GROUPS = ("skewless.aggregates", "skewless.formats")
"""Groups of the entry points of other packages that tasks call."""
PRESENT = {"skewless", "pyspark", "py4j"}
"""Packages that are not looked up: the own one, and those that Spark brings."""
KEPT = 3
"""Archives that stay in the cache: those that were used last. Jobs that run may still send them to executors."""
_LAUNCHER = f"""#!/bin/sh
packages=$(cd "$(dirname "$0")/../packages" && pwd)
PYTHONPATH="$packages${{PYTHONPATH:+:$PYTHONPATH}}" exec "${{{OWN_PYTHON}:-python3}}" "$@"
"""


def own_python() -> str:
    """Return the default of OWN_PYTHON: the Python of this minor version in the executor's PATH."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def ensure() -> Path:
    """Return the archive. Builds it if none has the same content. Safe with several processes at once.

    Raises ConfigurationError if the files of a package are unknown.
    """
    packages = sorted(_distributions(), key=lambda found: found.name)
    folder = cache_folder() / "executors"
    archive = folder / f"skewless-{_content_hash(packages)}.tar.gz"
    with file_lock(folder / ".lock"):
        if not archive.is_file():
            _build(archive, dict(_files(packages)))
        archive.touch()
        for unused in sorted(folder.glob("skewless-*.tar.gz"), key=lambda path: path.stat().st_mtime)[:-KEPT]:
            unused.unlink()
    return archive


def _distributions() -> Iterator[Distribution]:
    """Yield the installed packages that tasks need."""
    added = [entry.dist.name for group in GROUPS for entry in entry_points(group=group) if entry.dist]
    pending, known = [*PACKAGES, *EXTRAS, *added], set(PRESENT)
    while pending:
        name = _normalised(pending.pop())
        if name in known:
            continue
        known.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # not installed, or a requirement of another platform or Python
        yield found
        pending.extend(_required(found))


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(found: Distribution) -> Iterator[str]:
    """Yield the names of the packages that a package needs, with those of `EXTRA_OF`."""
    for requirement in found.requires or ():
        extra = re.search(r"\bextra\s*==\s*['\"](\w+)", requirement)
        is_needed = extra is None or extra[1] == EXTRA_OF.get(_normalised(found.name))
        if is_needed and (name := re.match(r"[\w.-]+", requirement)):
            yield name[0]


def _files(packages: Sequence[Distribution]) -> Iterator[tuple[str, Path]]:
    """Yield the files of the archive by their paths in its folder `packages`."""
    for found in packages:
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        if found.files is None or origin.get("dir_info", {}).get("editable"):
            raise ConfigurationError(
                f"--ship: the files of package {found.name} are unknown, because it is not installed from a wheel: "
                "install it with `pip install`, not in editable mode"
            )
        for path in found.files:
            if ".." not in path.parts and "__pycache__" not in path.parts:
                yield path.as_posix(), Path(str(found.locate_file(path)))
    yield from _own_files()


def _own_files() -> Iterator[tuple[str, Path]]:
    for path in sorted(OWN_FOLDER.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(OWN_FOLDER.parent).as_posix(), path


def _content_hash(packages: Sequence[Distribution]) -> str:
    """Return a hash of the contents. The lists of files of installed packages contain hashes of the files."""
    digest = hashlib.sha256(f"{own_python()} {platform.machine()}\n{_LAUNCHER}".encode())
    for found in packages:
        digest.update(f"{found.name} {found.version}\n{found.read_text('RECORD')}".encode())
    for name, path in _own_files():
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(archive: Path, files: Mapping[str, Path]) -> None:
    """Write the archive, and give it its name only when it is complete."""
    click.echo(f"packing the Python packages of the executors into {archive} ...", err=True)
    incomplete = archive.with_name("incomplete.tar.gz")
    # Executors unpack it once, so that a fast compression saves more time than a good one.
    with (
        report_progress("packing", len(files), time.monotonic(), unit="files") as progress,
        tarfile.open(incomplete, "w:gz", compresslevel=1) as tar,
    ):
        launcher = tarfile.TarInfo("bin/python")
        launcher.mode, launcher.size = 0o755, len(_LAUNCHER)
        tar.addfile(launcher, BytesIO(_LAUNCHER.encode()))
        for number, (name, path) in enumerate(files.items(), 1):
            tar.add(path, f"packages/{name}", filter=_without_owner)
            progress(time.monotonic(), number)
    incomplete.replace(archive)


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
