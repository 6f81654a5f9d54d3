"""Shared by the benchmarks of Spark jobs: topics to read, and the resources of a command and all its processes."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

import psutil

from skewless.errors import SkewlessError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.settings import KafkaSettings

LOOK_S = 0.2


def measured(arguments: Sequence[str]) -> dict[str, float]:
    """Run Python with these arguments; returns CPU time and peak memory of its processes by language.

    Memory that Python processes share is counted for each of them.
    """
    started, peak = time.monotonic(), {"java": 0, "python": 0}
    spent: dict[tuple[int, float], tuple[str, float]] = {}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryFile() as errors:
        child = psutil.Popen([sys.executable, *arguments], env=environment, stdout=errors, stderr=errors)
        while child.poll() is None:
            now = {"java": 0, "python": 0}
            for process in _tree(child):
                with contextlib.suppress(psutil.Error):
                    times = process.cpu_times()
                    name = "java" if process.name() == "java" else "python"
                    spent[process.pid, process.create_time()] = name, times.user + times.system
                    now[name] += process.memory_info().rss
            peak = {name: max(size, now[name]) for name, size in peak.items()}
            time.sleep(LOOK_S)
        if child.returncode:
            errors.seek(0)
            raise SystemExit(f"{' '.join(arguments)} failed:\n{errors.read().decode(errors='replace')[-3000:]}")
    by_kind = {kind: sum(cpu for name, cpu in spent.values() if name == kind) for kind in ("java", "python")}
    return {
        "cpu_s": round(sum(by_kind.values()), 2),
        "cpu_java_s": round(by_kind["java"], 2),
        "cpu_python_s": round(by_kind["python"], 2),
        "seconds": round(time.monotonic() - started, 1),
        "peak_java_mb": round(peak["java"] / 1e6),
        "peak_python_mb": round(peak["python"] / 1e6),
    }


def _tree(process: psutil.Process) -> Iterator[psutil.Process]:
    yield process
    with contextlib.suppress(psutil.Error):
        yield from process.children(recursive=True)


def _held(bootstrap: str, topic: str) -> int:
    try:
        return sum(OffsetReader(KafkaSettings(bootstrap_servers=bootstrap)).end(topic).values())
    except SkewlessError:
        return 0


def produced(bootstrap: str, topic: str, records: int) -> None:
    """Create a topic with this many JSON records, Zipf 1.1 over 50,000 keys, in 4 partitions, unless it exists."""
    if _held(bootstrap, topic) < records:
        produce = ("-m", "skewless", "produce", "zipf", "--topic", topic, "--bootstrap-servers", bootstrap)
        measured([*produce, "--records", str(records), "--partitions", "4", "--resume"])
