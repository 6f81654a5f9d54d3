"""Tests the chart on a real Kubernetes on this machine: `make test-kubernetes`. One line of JSON per figure."""
# ruff: noqa: T201 - it is a command, and prints what it found

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.kafka import Feed, Sent, Source, zipf_records
from kubernetes.answer import Deployed
from kubernetes.cluster import HOST, Cluster
from kubernetes.kafka import broker
from kubernetes.node import remove_cgroups
from kubernetes.release import Release
from kubernetes.tools import seconds_until

NAME, TRIAL = "check", "trial"
"""Release that is disturbed, and release with a Kafka of its own."""
PARTITIONS = 4
SEED = 1
FOLLOWED_S = 150.0
"""The kubelet checks a ConfigMap once a minute."""
FIRST = 2_000
"""Number of records in the source when the chart is installed."""
SMALL = {"requests": {"cpu": "50m"}}
"""Resource requests with which all pods fit on two cores."""


def main() -> int:
    """Run all checks on a new cluster; returns 1 if one of them failed."""
    options = _options()
    folder = Path(options.folder)
    cluster = Cluster(folder / "cluster", options.programs, options.images)
    try:
        started = time.monotonic()
        cluster.start()
        report("cluster ready", seconds=time.monotonic() - started)
        (folder / "kafka").mkdir()
        with broker(folder / "kafka", HOST) as bootstrap:
            return 1 if check(cluster, bootstrap, options) else 0
    finally:
        cluster.stop()
        remove_cgroups()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=Path, required=True, help="folder with Kubernetes' programs and helm")
    parser.add_argument("--images", type=Path, required=True, help="folder with archives of images")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where cluster and broker keep their data")
    parser.add_argument("--records", type=int, default=300_000, help="how many are sent while pods are killed")
    parser.add_argument("--rate", type=float, default=1_000, help="records per second")
    return parser.parse_args()


def report(what: str, **entries: object) -> None:
    """Print a figure."""
    rounded = {name: round(value, 2) if isinstance(value, float) else value for name, value in entries.items()}
    print(json.dumps({"check": what, **rounded}), flush=True)


def check(cluster: Cluster, bootstrap: str, options: argparse.Namespace) -> list[str]:
    """Install, inject faults, upgrade, test and uninstall; returns the errors."""
    source = Source(bootstrap, PARTITIONS)
    records = zipf_records(options.records, PARTITIONS, SEED)
    values = _values(bootstrap, source.topic)
    release = Release(cluster, options.programs / "helm", Path(options.folder), NAME, values)
    deployed = Deployed(bootstrap, {**values["pipeline"], "name": NAME, "source": {"topic": source.topic}})
    failures: list[str] = []

    def compare(after: str) -> None:
        problems, tuples = deployed.failures()
        report(f"exact after {after}", exact=not problems, tuples=tuples)
        failures.extend(f"after {after}: {problem}" for problem in problems)
        print(*problems, sep="\n", file=sys.stderr)

    report("objects that the API server takes strictly", of_files=release.validate())
    source.send(next(records) for _ in range(FIRST))
    _install(release, deployed)
    with Feed(source, records, options.rate) as feed:
        _disturb(release, feed, "2 workers")
        with _timed("from 2 to 4 workers"):
            release.upgrade("stages.worker.replicas=4")
        _disturb(release, feed, "4 workers")
        _change_w(release)
        with _timed("from stages to one process"):
            release.replace_values({**values, "mode": "single", "stages": {}})
        _disturb(release, feed, "one process")
        with _timed("from one process to stages"):
            release.replace_values(values)
    compare("kills, a scale, changes of W and of the mode")
    report("memory", mb={pod: round(size / 1e6) for pod, size in release.memory().items()})
    ends = deployed.source_ends()
    with _timed("helm test, which only reads"):
        release.helm("test", NAME)
    if deployed.source_ends() != ends:
        failures.append("helm test has written to the source")
    release.upgrade("tests.sendRecords=true")
    with _timed("helm test with records"):
        release.helm("test", NAME)
    compare("helm test")
    cluster.load("spark")
    _run_job(release, "audit")
    _run_job(release, "batch")
    failures += _uninstall(release)
    failures += _try(cluster, options)
    return failures


def _try(cluster: Cluster, options: argparse.Namespace) -> list[str]:
    """Install one process with a Kafka of its own, and send records with `helm test`; returns the errors."""
    cluster.load("kafka")
    values = {**_values("", "clicks"), "embeddedKafka": {"enabled": True}, "mode": "single", "stages": {}}
    release = Release(cluster, options.programs / "helm", Path(options.folder), TRIAL, values)
    with _timed("install with an embedded Kafka, to all pods ready"):
        release.install()
        release.settled()
    with _timed("helm test with an embedded Kafka"):
        release.helm("test", TRIAL)
    _run_job(release, "audit")
    return _uninstall(release)


def _values(bootstrap: str, topic: str) -> dict[str, Any]:
    fields = {name: {"field": name} for name in ("key", "value", "time")}
    return {
        "global": {"imageRegistry": "localhost"},
        "source": {"topic": topic, "partitions": PARTITIONS},
        "kafka": {"bootstrapServers": bootstrap},
        "pipeline": {
            "splitter": {"format": "json", **fields},
            "router": {"workers": 4},
            "worker_input": {"max_workers": 8},
            "event_time": {"allowed_lateness_s": 20},
        },
        "stageDefaults": {"resources": SMALL},
        "stages": {"worker": {"replicas": 2}},
        "spark": {"resources": SMALL},
    }


def _install(release: Release, deployed: Deployed) -> None:
    started = time.monotonic()
    release.install()
    report("helm install", seconds=time.monotonic() - started)
    seconds_until(lambda: deployed.count("aggregates") > 0, "a first result", 240.0)
    report("install to first result", seconds=time.monotonic() - started)
    release.settled()
    report("install to all pods ready", seconds=time.monotonic() - started, ready=release.replicas())


def _disturb(release: Release, feed: Feed[Sent], when: str) -> None:
    for pod, action, seconds in release.disturb(SEED):
        report(f"{action} with {when}", pod=pod, ready_again_s=seconds, sent=feed.sent)


def _change_w(release: Release) -> None:
    before = release.running()
    with _timed("upgrade to W 8, followed by all routers"):
        release.upgrade("pipeline.router.workers=8")
        seconds_until(lambda: release.workers_of_routers() == {8}, "W 8", FOLLOWED_S)
    with _timed("rollback to W 4, followed by all routers"):
        release.helm("rollback", release.name)
        seconds_until(lambda: release.workers_of_routers() == {4}, "W 4", FOLLOWED_S)
    report("pods that a change of W restarted", count=len(set(release.running().items()) - set(before.items())))


def _run_job(release: Release, command: str) -> None:
    with _timed(f"{command} by Spark as a job"):
        release.upgrade(f"spark.jobs.{command}.enabled=true")
        report(command, says=release.finished_job(command).splitlines())


def _uninstall(release: Release) -> list[str]:
    with _timed("uninstall"):
        release.helm("uninstall", release.name, "--wait")
        with contextlib.suppress(AssertionError):
            seconds_until(lambda: not release.left(), "an empty namespace", 60.0)
    left = release.left()
    report("left after uninstall", objects=left)
    return [f"left after uninstall: {each}" for each in left]


@contextlib.contextmanager
def _timed(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    report(what, seconds=time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
