"""Kafka Connect in a process of its own, with sinks. Ivy downloads their jars once."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers.spark_archive import SHORT
from helpers.versions import VERSIONS
from skewless.lab.local import child_process, ivy, java
from skewless.lab.local.folders import cache_folder, file_lock
from skewless.lab.local.jars import sha256

WORKER = (
    f"org.apache.kafka:connect-runtime:{VERSIONS['kafka']}",
    f"org.apache.kafka:connect-json:{VERSIONS['kafka']}",
    "org.slf4j:slf4j-simple:1.7.36",
)
ICEBERG = (
    f"org.apache.iceberg:iceberg-kafka-connect:{VERSIONS['iceberg']}",
    f"org.apache.iceberg:iceberg-parquet:{VERSIONS['iceberg']}",
)
JDBC = (f"io.debezium:debezium-connector-jdbc:{VERSIONS['debezium']}",)
CONVERTER = (f"io.apicurio:apicurio-registry-utils-converter:{VERSIONS['apicurio_converter']}",)
SHA256 = {
    WORKER: "ab40c0fcedc9d0110bc4b7f55190fb5e27d1f69b09260bcbf7e0acc0b8669b1a",
    ICEBERG: "270c84d0b82de31c19953cf806c326dd838d4a286b05c0c924943786e34a6b9e",
    JDBC: "16ff22d69ebdc6b677e29fa7286fa84382d08d81b7f551152669af4fcc615c49",
    CONVERTER: "bcff377b950b83e39dd3278f2fbba667a2544d9eec315ac8dfb86e46042aa3b3",
}
"""SHA-256 of the names and sums of all jars that Ivy downloads for these coordinates."""

MANIFEST = (
    "META-INF/services/org.apache.kafka.connect.storage.Converter",
    "io.apicurio.registry.utils.converter.AvroConverter",
)
"""File of a jar that names the converter. Its own jars have none, so that Kafka Connect searches all their classes."""
DISCOVERY = "plugin.discovery=service_load\n"
"""Property of a worker that finds plugins by such files only, which takes a tenth of the CPU time of the search."""
OF_WORKER = ("jackson-", "slf4j-", "kafka-clients-", "connect-")
"""Beginnings of the names of jars that Kafka Connect has itself. A plugin with other versions of them fails."""


def jars_of(coordinates: Sequence[str]) -> list[Path]:
    """Return jars with their dependencies. Downloads them at the first call. Safe with several processes at once."""
    name = coordinates[0].replace(":", "-")
    folder = cache_folder() / name
    with file_lock(cache_folder() / f"{name}.lock"):
        if not folder.exists():
            parts = folder.with_suffix(".parts")
            downloaded = ivy.download(coordinates, parts, transitive=True)
            lines = sorted(f"{path.name} {sha256(path)}\n" for path in downloaded if path.suffix == ".jar")
            found = hashlib.sha256("".join(lines).encode()).hexdigest()
            assert found == SHA256[tuple(coordinates)], f"jars of {name} have the sum {found}:\n{''.join(lines)}"
            flat = parts / "flat"
            flat.mkdir()
            for path in downloaded:
                path.rename(flat / path.name)
            flat.rename(folder)
            shutil.rmtree(parts)
    return sorted(folder.glob("*.jar"))


def install_iceberg(plugins: Path) -> None:
    """Put the sink into a folder of plugins, with Hadoop's client, which PySpark includes."""
    folder = plugins / "iceberg"
    folder.mkdir(parents=True)
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    hadoop = sorted(Path(spark.origin).parent.glob("jars/hadoop-client-*.jar"))
    for path in [*jars_of(ICEBERG), *hadoop, *Path(spark.origin).parent.glob("jars/jcl-over-slf4j-*.jar")]:
        (folder / path.name).symlink_to(path)


def install_jdbc(plugins: Path) -> None:
    """Put the sink for databases and the converter of Avro into folders of plugins."""
    for name, coordinates in {"jdbc": JDBC, "avro": CONVERTER}.items():
        folder = plugins / name
        folder.mkdir(parents=True)
        for path in jars_of(coordinates):
            if not path.name.startswith(OF_WORKER):
                (folder / path.name).symlink_to(path)
    with zipfile.ZipFile(plugins / "avro" / "manifest.jar", "w") as jar:  # as connect-plugin-path.sh writes it
        jar.writestr(*MANIFEST)


@contextlib.contextmanager
def running_worker(folder: Path, *files: str) -> Iterator[Path]:
    """Run a worker of one process with files of the folder until the block ends. Yields its log."""
    log = folder / "connect.log"
    jars = ":".join(map(str, jars_of(WORKER)))
    command = [str(java.find().path), "-Xmx512m", *SHORT.split(), "-cp", jars]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", *(str(folder / file) for file in files)]
    child = child_process.start(command, log=log)
    try:
        yield log
    finally:
        child_process.kill(child)
