"""A standalone cluster of Spark on this machine, and a Python without packages for its executors."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from helpers import spark_archive
from helpers.spark_archive import HOME
from helpers.waiting import until
from skewless.lab.local import child_process
from skewless.lab.local.ports import find_free_ports

WORKERS = 2
START_S = 300.0


class Cluster(NamedTuple):
    """Address of the master, and the folder with a folder for each worker."""

    master: str
    folder: Path


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """Run a master and WORKERS workers, each with a core for an application that stays, and one for the others."""
    port, web_port = find_free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    deploy = [str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy"]
    own = ["--host", "127.0.0.1", "--webui-port"]
    commands = [[deploy[0], f"{deploy[1]}.master.Master", "--port", str(port), *own, str(web_port)]]
    for number in range(WORKERS):
        limits = ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / f"worker-{number}")]
        commands.append([deploy[0], f"{deploy[1]}.worker.Worker", *own, "0", *limits, master])
    environment = os.environ | {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = spark_archive.options()
    environment.pop("PYTHONPATH", None)  # executors inherit it
    with contextlib.ExitStack() as stack:
        for command in commands:
            stack.callback(child_process.stop, child_process.start(command, environment, log=folder / "cluster.log"))
        until(lambda: _alive_workers(web_port) == WORKERS, limit_s=START_S)
        yield Cluster(master, folder)


def _alive_workers(web_port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{web_port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, ValueError):  # the page comes before its JSON
        return 0


def bare_python(folder: Path) -> Path:
    """Return the Python of a new environment without any package, not even pip."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def home_of_its_own(folder: Path) -> Path:
    """Return a home of Spark whose executors on `local-cluster` write into this folder, and not into PySpark's."""
    folder.mkdir()
    for name in ("bin", "jars", "python"):
        (folder / name).symlink_to(HOME / name)
    return folder
