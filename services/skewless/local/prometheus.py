"""A real Prometheus on this machine: the one on PATH, else Debian's package, fetched once into the cache folder.

It scrapes processes on loopback ports, keeps its data in a folder that is given, and dies with us however we end.
"""

from __future__ import annotations

import functools
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import click
import yaml

from skewless.errors import ConfigurationError, UnreachableError
from skewless.local import process
from skewless.local.folders import cache_folder, exclusive

READY_S = 30.0
PACKAGE = "prometheus"
MISSING = (
    "Prometheus is neither on PATH nor can it be fetched here ({reason}): install it from "
    "https://prometheus.io/download, or on Debian and Ubuntu with apt-get install prometheus"
)
Program = Literal["prometheus", "promtool"]


@functools.cache
def find(program: Program) -> Path:
    """Return the program of PATH, else of the cache, fetching it first if need be.

    Raises ConfigurationError where it can neither be found nor fetched.
    """
    if installed := shutil.which(program):
        return Path(installed)
    folder = cache_folder() / PACKAGE
    cached = folder / "usr" / "bin" / program
    if not cached.is_file():
        with exclusive(folder.with_suffix(".lock")):
            if not cached.is_file():
                _fetch(folder)
    return cached


def _fetch(folder: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ConfigurationError(MISSING.format(reason=f"there is no {tool}"))
    click.echo(f"fetching Debian's package of Prometheus, 20 MB, into {folder} ...", err=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
        at = Path(temporary)
        try:
            _run(at, "apt-get", "download", "-qq", PACKAGE)
        except ConfigurationError:  # no package lists: a slim container has none, and only root may update the system's
            for part in ("lists", "archives"):
                (at / part / "partial").mkdir(parents=True)
            own = ("-o", f"Dir::State::lists={at / 'lists'}", "-o", f"Dir::Cache={at}")
            _run(at, "apt-get", *own, "update", "-qq")
            _run(at, "apt-get", *own, "download", "-qq", PACKAGE)
        _run(at, "dpkg-deb", "-x", next(at.glob("*.deb")).name, "unpacked")
        (at / "unpacked").replace(folder)


def _run(folder: Path, *command: str) -> None:
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    if answer.returncode:
        reason = (answer.stderr.strip() or "no reason given").splitlines()[-1]
        raise ConfigurationError(MISSING.format(reason=f"{command[0]} failed: {reason}"))


class Prometheus:
    """A Prometheus server as a child process, with its data in `folder`.

    `rules` are files of recording and alerting rules. Start it from a thread that lives as long as it should.
    """

    def __init__(self, folder: Path, *, scrape_s: float = 1.0, rules: Sequence[Path] = ()) -> None:
        self._folder = folder.absolute()
        self._scrape_s = scrape_s
        self._rules = [str(path.absolute()) for path in rules]
        self._port = 0
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address of its web pages and of its API."""
        return f"http://127.0.0.1:{self._port}"

    def page(self, expr: str) -> str:
        """Address that shows an expression: as a graph, or as numbers where Debian's package was only unpacked."""
        quoted = urllib.parse.quote(expr)
        if shutil.which("prometheus"):
            return f"{self.url}/graph?g0.expr={quoted}&g0.tab=0&g0.range_input=5m"
        return f"{self.url}/api/v1/query?query={quoted}"

    def watch(self, ports: Mapping[str, int]) -> None:
        """Scrape these processes, instance -> loopback port, and no others; takes effect within 5 s."""
        self._folder.mkdir(parents=True, exist_ok=True)
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance}} for instance, port in ports.items()
        ]
        draft = self._folder / "targets.draft"
        draft.write_text(json.dumps(targets))
        draft.replace(self._folder / "targets.json")

    def start(self) -> Self:
        """Start it and return once it answers; raises UnreachableError with the log's end when it does not."""
        program = find("prometheus")
        if not (self._folder / "targets.json").exists():
            self.watch({})
        configuration = self._folder / "prometheus.yml"
        configuration.write_text(yaml.safe_dump(self._configuration()))
        self._port = _free_port()
        log = self._folder / "prometheus.log"
        self._child = process.start(
            [
                *(str(program), f"--config.file={configuration}", f"--storage.tsdb.path={self._folder / 'data'}"),
                *(f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"),
            ],
            log=log,
        )
        if not _answers(f"{self.url}/-/ready", self._child):
            self.stop()
            raise UnreachableError(f"Prometheus did not start; its log {log} ends with\n{log.read_text()[-1500:]}")
        return self

    def stop(self) -> None:
        """Stop it in good order; its data stay."""
        if self._child:
            process.stop(self._child)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _configuration(self) -> dict[str, object]:
        every = f"{round(self._scrape_s * 1000)}ms"
        found = {"files": [str(self._folder / "targets.json")], "refresh_interval": "1s"}
        return {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": self._rules,
            "scrape_configs": [{"job_name": "skewless", "file_sd_configs": [found]}],
        }


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def _answers(url: str, child: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + READY_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while child.poll() is None and time.monotonic() < deadline:
        try:
            with opener.open(url, timeout=1.0):
                return True
        except OSError:
            time.sleep(0.05)
    return False
