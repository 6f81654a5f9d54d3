"""Command line: `PYTHONPATH=services:tests python -m kafka_versions [VERSION ...]`. Prints a row of a table for each.

The embedded broker runs with the jars of the version and with its own settings: one node in KRaft mode. `--lock` adds
versions to the lock: it resolves their jars with Ivy and stores the hash of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from skewless.errors import SkewlessError
from skewless.lab.local import formatted_storage_cache, jars, java, lock_jars
from skewless.lab.local.broker import Broker
from skewless.lab.local.jars import Jar

LOCK = Path(__file__).with_name("jars.lock")
ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/integration/test_topics.py",
    "tests/integration/engine/test_contract.py",
    "tests/integration/test_reset.py",
    "tests/acceptance/test_kills.py::test_pipeline_each_stage_killed_in_an_open_transaction_gives_exact_results",
)
"""Tests that use the broker that they are given: topics, groups, transactions, and a pipeline whose stages are killed
in open transactions."""
SUMMARY = re.compile(r"(?P<count>\d+) (?P<state>passed|failed|error|errors|skipped)")


def locked() -> dict[str, list[Jar]]:
    """Return the jars of each version."""
    versions = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    return {version: [Jar(**entry) for entry in entries] for version, entries in versions.items()}


def add(versions: Sequence[str]) -> None:
    """Resolve the jars of these versions, and add them to the lock."""
    _, logging = lock_jars.KAFKA
    bridge = logging.replace("log4j-slf4j-impl", "log4j-1.2-api")  # Kafka before 4.0 uses classes of Log4j 1
    resolved = {
        version: lock_jars.resolve([f"org.apache.kafka:kafka_2.13:{version}", logging, bridge], transitive=True)
        for version in versions
    }
    bundles = locked() | resolved
    ordered = sorted(bundles, key=lambda version: [int(part) for part in version.split(".")])
    LOCK.write_text(lock_jars.render({version: bundles[version] for version in ordered}))


def run(version: str, bundle: list[Jar], options: Sequence[str]) -> str:
    """Run the tests against a version. Returns the row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        # The embedded broker takes its jars from the lock of the package.
        jars.LOCK = Path(folder) / "jars.lock"
        jars.LOCK.write_text(lock_jars.render({"kafka": bundle}))
        jars.ensure.cache_clear()
        formatted_storage_cache.template.cache_clear()
        try:
            with Broker() as broker:
                started = time.monotonic()
                passed, others, failures = _test(broker.bootstrap, options)
        except SkewlessError as error:
            return f"| {version} | does not start | | {' '.join(str(error).split())[:200]} |"
    seconds = time.monotonic() - started
    result = f"{passed} passed" + (f", {others} failed" if others else "")
    return f"| {version} | {result} | {seconds:.0f} s | {'; '.join(failures)} |"


def _test(bootstrap: str, options: Sequence[str]) -> tuple[int, int, list[str]]:
    """Run the tests against a broker. Returns the numbers of passed and of failed tests, and the failed ones."""
    command = [sys.executable, "-m", "pytest", *TESTS, "-q", "-rfE", "-p", "no:cacheprovider", *options]
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": bootstrap}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    lines = done.stdout.strip().splitlines() or [""]
    counts = {found["state"]: int(found["count"]) for found in SUMMARY.finditer(lines[-1])}
    failures = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return counts.get("passed", 0), sum(counts.get(name, 0) for name in ("failed", "error", "errors")), failures


def main() -> int:
    """Run the tests against each version, and print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="kafka_versions", description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="versions (default: all of the lock)")
    parser.add_argument("--lock", action="store_true", help="only add the versions to the lock")
    parser.add_argument("--pytest", default="-n 0", help="options of pytest (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.lock:
        add(arguments.versions)
        return 0
    bundles = locked()
    if unknown := set(arguments.versions) - bundles.keys():
        parser.error(f"not locked: {', '.join(sorted(unknown))}; add them with --lock")
    versions = arguments.versions or list(bundles)
    rows = [run(version, bundles[version], arguments.pytest.split()) for version in versions]
    header = ["| Kafka | tests | time | note |", "| --- | --- | --- | --- |"]
    sys.stdout.write("\n".join([f"\nJava {java.find().version}\n", *header, *rows, ""]))
    return int(not all("passed | " in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
