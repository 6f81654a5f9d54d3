"""The partitioner for Java: real producers choose the partitions of Python's balancer, and Maven builds its jar."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from helpers.debian import find_program
from helpers.docs_blocks import ROOT
from helpers.java_compiler import compile_java
from helpers.kafka import Source, read
from helpers.spark_archive import SHORT
from helpers.waiting import WAIT_S
from kafka_versions.__main__ import locked
from skewless.client import Balancer
from skewless.lab.local import jars
from skewless.lab.local.java import find

PROJECT = Path("services", "java-partitioner")
VECTORS = Path("tests", "vectors", "partitioner.tsv")
PROGRAM = ROOT / "deploy" / "examples" / "producers" / "SpreadHotKey.java"
OLD_CLIENT = "3.9.1"
"""Before 4.0, producers ask for the partition of a record twice if it needs a new batch."""
SMALL_BATCHES = ("batch.size=200", "linger.ms=0")
PARTITIONS = 8
KEYS = [
    "hot" if draw < 0.4 else f"key-{number}"
    for draw, number in zip(
        np.random.default_rng(3).random(3_000), np.random.default_rng(4).zipf(1.3, 3_000) % 500, strict=True
    )
]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the partitioner and the example producer."""
    folder = tmp_path_factory.mktemp("classes")
    sources = sorted((ROOT / PROJECT / "src" / "main").rglob("*.java"))
    compile_java([*sources, PROGRAM], folder, jars.kafka(), release=11)
    return folder


def produce(
    classes: Path, client: Sequence[Path], arguments: Sequence[str], lines: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run the example producer with the jars of a client and lines of input."""
    path = os.pathsep.join(map(str, [classes, *client]))
    command = [str(find().path), *SHORT.split(), "-cp", path, PROGRAM.stem, *arguments]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False, timeout=WAIT_S)


def client_jars(version: str | None) -> Sequence[Path]:
    """Return the jars of the embedded broker's version, or those of another one."""
    return jars.kafka() if version is None else jars.ensure_all(locked()[version], f"Kafka {version}")


@pytest.mark.broker
@pytest.mark.parametrize(
    ("grouping", "version"),
    [("even", None), ("partial_key", None), pytest.param("even", OLD_CLIENT, marks=pytest.mark.thorough)],
)
def test_java_producer_with_the_partitioner_chooses_the_partitions_of_python(
    broker: str, classes: Path, grouping: str, version: str | None
) -> None:
    source = Source(broker, PARTITIONS)
    arguments = [broker, source.topic, f"skewless.grouping={grouping}", *SMALL_BATCHES]
    lines = [f"{key}\t{number}" for number, key in enumerate(KEYS)]
    done = produce(classes, client_jars(version), arguments, lines)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    chosen = {int(record.value or b""): record.partition for record in read(broker, source.topic)}
    expected = Balancer(grouping, workers=PARTITIONS).assign(KEYS).tolist()
    unlike = [number for number, partition in enumerate(expected) if chosen[number] != partition]
    assert unlike[:5] == []  # pytest takes minutes to compare two lists of thousands of numbers


@pytest.mark.broker
def test_java_producer_with_an_invalid_property_ends_with_its_name(broker: str, classes: Path) -> None:
    source = Source(broker, 2)
    for properties, message in {
        "skewless.grouping=evn": "Invalid value evn for configuration skewless.grouping",
        "skewless.worker=3": "skewless.worker is unknown: the properties are",
        "skewless.workers=3": f"Invalid value 3 for configuration skewless.workers: topic {source.topic} has 2 partit",
    }.items():
        done = produce(classes, jars.kafka(), [broker, source.topic, properties], ["key\t1"])
        assert done.returncode == 1
        assert message in done.stderr


@pytest.mark.broker
def test_java_producer_record_that_is_not_delivered_ends_with_its_cause(broker: str, classes: Path) -> None:
    source = Source(broker, 2)
    arguments = [broker, source.topic, "max.request.size=200"]
    done = produce(classes, jars.kafka(), arguments, ["a\t1", f"b\t{'x' * 300}", "c\t3"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "1 records were not delivered: The message is " in done.stderr
    assert sorted(record.value or b"" for record in read(broker, source.topic)) == [b"1", b"3"]


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_maven_builds_and_tests_one_jar_of_the_partitioner(tmp_path: Path) -> None:
    maven = find_program("mvn", "maven", "openjdk-17-jdk-headless")
    shutil.copytree(ROOT / PROJECT, tmp_path / PROJECT, ignore=shutil.ignore_patterns("target"))
    (tmp_path / VECTORS).parent.mkdir(parents=True)
    shutil.copy(ROOT / VECTORS, tmp_path / VECTORS)
    command = [maven, "-B", "-f", str(tmp_path / PROJECT), "package", f"-DargLine={SHORT}"]
    environment = os.environ | {"MAVEN_OPTS": SHORT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=840)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Tests run: 0" not in done.stdout
    with zipfile.ZipFile(tmp_path / PROJECT / "target" / "skewless-partitioner.jar") as jar:
        names = {name for name in jar.namelist() if name.endswith(".class")}
    assert "skewless/SkewlessPartitioner.class" in names
    assert all(name.startswith("skewless/") for name in names)
