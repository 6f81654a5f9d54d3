"""Decides which worker of pytest-xdist runs which file."""

from __future__ import annotations

from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import WorkerController

WORKERS = {
    "tests/spark/": {"gw0", "gw1"},
    "tests/integration/registry/": {"gw2"},
    "tests/integration/sql/": {"gw2"},
}
"""Folders whose tests share a server, and their workers, because each worker starts a server of its own."""


class ServerScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives each worker first the files that need its servers, then those without, and others only at the end."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=lambda file: rank(file, node.gateway.id)), last=False)
        super()._assign_work_unit(node)


def rank(file: str, worker: str) -> int:
    """Return 0 for a file whose server the worker has, 1 for a file without a server, and else 2."""
    workers = next((of_folder for folder, of_folder in WORKERS.items() if file.startswith(folder)), None)
    return 1 if workers is None else 0 if worker in workers else 2
