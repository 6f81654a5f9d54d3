"""Decides which worker of pytest-xdist runs which file."""

from __future__ import annotations

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

SPARK, SPARK_AND_REGISTRY, SERVERS, SECURED, UNITS = {"gw0", "gw1"}, {"gw0"}, {"gw2"}, {"gw3"}, {"gw4"}
WORKERS = {
    "tests/spark/test_avro_kills": SPARK_AND_REGISTRY,
    "tests/spark/test_result_formats": SPARK_AND_REGISTRY,
    "tests/spark/test_stream.py": SPARK_AND_REGISTRY,
    "tests/spark/": SPARK,
    "tests/acceptance/test_rolling_upgrade": SPARK,
    "tests/acceptance/test_stream_": SPARK,
    "tests/integration/registry/": SERVERS,
    "tests/integration/sql/": SERVERS,
    "tests/integration/test_connect_page": SERVERS,
    "tests/integration/test_enricher": SERVERS,
    "tests/integration/test_bad_command_input": SECURED,
    "tests/integration/test_commands": SECURED,
    "tests/integration/test_mirror_rights": SECURED,
    "tests/integration/test_secrets": SECURED,
    "tests/integration/test_security": SECURED,
    "tests/integration/test_smoke_test": SECURED,
    "tests/unit/": UNITS,
    "tests/laws/": UNITS,
    "tests/vectors/": UNITS,
}
"""Beginnings of the paths of files, and the workers that begin with these files.

Each worker starts servers of its own, so tests that share Spark, a schema registry, databases or a secured broker keep
to few workers. The tests of the last worker need no server and never wait: they use the time of the cores while the
tests of processes wait.
"""


class ServerScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker first its own files, then those of no worker, and others only at the end."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=lambda file: rank(file, node.gateway.id)), last=False)
        super()._assign_work_unit(node)


def rank(file: str, worker: str) -> int:
    """Return 0 for a file of the worker, 1 for a file of no worker, and else 2."""
    workers = next((of_files for beginning, of_files in WORKERS.items() if file.startswith(beginning)), None)
    return 1 if workers is None else 0 if worker in workers else 2
