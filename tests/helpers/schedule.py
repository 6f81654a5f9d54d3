"""Decides which worker of pytest-xdist runs which file."""

from __future__ import annotations

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

WORKERS = {
    "tests/spark/": {"gw0", "gw1"},
    "tests/integration/registry/": {"gw2"},
    "tests/integration/sql/": {"gw2"},
    "tests/unit/": {"gw4"},
    "tests/laws/": {"gw4"},
    "tests/vectors/": {"gw4"},
}
"""Folders and the workers that begin with them.

Each worker starts servers of its own, so tests that share a server keep to few workers. The tests of the last worker
need no server and never wait: they use the time of the cores while the tests of processes wait.
"""


class ServerScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker first the files of its folders, then those of no worker, and others only at the end."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=lambda file: rank(file, node.gateway.id)), last=False)
        super()._assign_work_unit(node)


def rank(file: str, worker: str) -> int:
    """Return 0 for a file of a folder of the worker, 1 for a file of no worker, and else 2."""
    workers = next((of_folder for folder, of_folder in WORKERS.items() if file.startswith(folder)), None)
    return 1 if workers is None else 0 if worker in workers else 2
