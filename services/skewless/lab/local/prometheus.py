"""A real Prometheus on this machine, from PATH.

It scrapes processes on loopback ports, stores its data in a given folder, and ends with this process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import yaml

from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import child_process, loopback
from skewless.lab.local.ports import find_free_ports

READY_TIMEOUT_S = 30.0
MISSING = (
    "Prometheus is not on PATH: install it from https://prometheus.io/download, or on Debian and Ubuntu with "
    "apt-get install prometheus"
)


def find() -> str:
    """Return the path of the program. Raises ConfigurationError if it is not on PATH."""
    if program := shutil.which("prometheus"):
        return program
    raise ConfigurationError(MISSING)


class Prometheus:
    """A Prometheus server as a child process, with its data in `folder`.

    `rules` are files of recording and alerting rules. On Linux, the kernel kills the server when the thread that called
    `start` ends. So call `start` from a thread that lives as long as the server should.
    """

    def __init__(self, folder: Path, *, scrape_s: float = 1.0, rules: Sequence[Path] = ()) -> None:
        self._folder = folder.absolute()
        self._scrape_s = scrape_s
        self._rules = [str(path.absolute()) for path in rules]
        self._port = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of the web pages and of the API."""
        return f"http://127.0.0.1:{self._port}"

    def page(self, expr: str) -> str:
        """Return the address that shows an expression as a graph."""
        return f"{self.url}/graph?g0.expr={urllib.parse.quote(expr)}&g0.tab=0&g0.range_input=5m"

    def watch(self, ports: Mapping[str, int]) -> None:
        """Scrape exactly these processes: instance -> loopback port. Takes effect within 5 s."""
        self._folder.mkdir(parents=True, exist_ok=True)
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance}} for instance, port in ports.items()
        ]
        draft = self._folder / "targets.draft"
        draft.write_text(json.dumps(targets))
        draft.replace(self._folder / "targets.json")

    def start(self) -> Self:
        """Start the server and wait until it answers. Raises UnreachableError, with the end of its log, on failure."""
        program = find()
        if not (self._folder / "targets.json").exists():
            self.watch({})
        configuration = self._folder / "prometheus.yml"
        configuration.write_text(yaml.safe_dump(self._configuration()))
        (self._port,) = find_free_ports(1)
        log = self._folder / "prometheus.log"
        self._child = child_process.start(
            [
                *(program, f"--config.file={configuration}", f"--storage.tsdb.path={self._folder / 'data'}"),
                *(f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"),
            ],
            log=log,
        )
        if not _wait_until_ready(f"{self.url}/-/ready", self._child):
            self.stop()
            raise UnreachableError(f"Prometheus did not start; its log {log} ends with\n{log.read_text()[-1500:]}")
        return self

    __enter__ = start

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Shut the server down. Its data remain."""
        if self._child:
            child_process.stop(self._child)

    def _configuration(self) -> dict[str, object]:
        interval = f"{round(self._scrape_s * 1000)}ms"
        targets = {"files": [str(self._folder / "targets.json")], "refresh_interval": "1s"}
        return {
            "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
            "rule_files": self._rules,
            "scrape_configs": [{"job_name": "skewless", "file_sd_configs": [targets]}],
        }


def _wait_until_ready(url: str, child: subprocess.Popen[bytes]) -> bool:
    """Return True when the server answers, or False if it ends or does not answer within READY_TIMEOUT_S."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while child.poll() is None and time.monotonic() < deadline:
        try:
            loopback.read(url)
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False
