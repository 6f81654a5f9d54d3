"""Keeps the machine's one shared broker: runs it, notes where it is, and takes it along when it ends.

`skewless broker start` runs this module detached, `--foreground` calls `keep` itself. Either way one process holds the
broker, so that ending that process, in whatever way, ends the broker and removes its temporary data.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import psutil

from skewless.errors import BrokerError, SkewlessError, UnreachableError
from skewless.local.broker import READY_S, STOP_S, Broker
from skewless.local.folders import exclusive, state_folder


class State(NamedTuple):
    """A running broker: its address, the keeper's process id and start time (s since epoch), the data folder."""

    address: str
    pid: int
    started: float
    folder: str


def running() -> State | None:
    """Return the broker that runs, or None: what the file says counts only while that very process lives."""
    try:
        state = State(**json.loads(_state_file().read_text()))
    except FileNotFoundError:
        return None
    return state if _process(state) else None


def _state_file() -> Path:
    return state_folder() / "broker.json"


def _process(state: State) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(state.pid)
        if process.create_time() == state.started and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def keep(folder: Path | None, port: int | None, ready: Callable[[State], None]) -> None:
    """Run a broker until SIGTERM or Ctrl-C; `ready` is called once it answers and is noted as running."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Broker(folder, port=port) as broker:
        started = psutil.Process().create_time()
        state = State(broker.bootstrap, psutil.Process().pid, started, str(broker.folder))
        _note(state)
        try:
            ready(state)
            code = broker.wait()
            raise BrokerError(f"the embedded broker ended by itself with exit code {code}: see {broker.log}")
        finally:
            _state_file().unlink(missing_ok=True)


def _note(state: State) -> None:
    file = _state_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(state._asdict()) + "\n")
    draft.replace(file)


def detach(folder: Path | None, port: int | None) -> State:
    """Start a keeper that outlives us, and return once its broker answers."""
    state_folder().mkdir(parents=True, exist_ok=True)
    log = state_folder() / "keeper.log"
    arguments = json.dumps({"folder": str(folder) if folder else None, "port": port})
    with log.open("wb") as output:
        keeper = subprocess.Popen(  # noqa: S603 - no shell
            [sys.executable, "-m", __spec__.name, arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return _await(keeper, log)
    except BaseException:
        keeper.terminate()
        keeper.wait()
        raise


def _await(keeper: subprocess.Popen[bytes], log: Path) -> State:
    deadline = time.monotonic() + READY_S
    while keeper.poll() is None and time.monotonic() < deadline:
        if (state := running()) and state.pid == keeper.pid:
            return state
        time.sleep(0.05)
    raise UnreachableError(
        log.read_text(errors="replace").strip() or f"the broker did not answer within {READY_S:.0f} s"
    )


def stop() -> State | None:
    """Stop the running broker and return what ran, or None."""
    with exclusive(start_lock()):
        state = running()
        if state and (process := _process(state)):
            process.terminate()
            try:
                process.wait(STOP_S * 2)
            except psutil.TimeoutExpired:
                process.kill()
        return state


def start_lock() -> Path:
    """Return the file to lock while a broker is being started or stopped, so that two commands do not do both."""
    return state_folder() / "broker.starting"


def main() -> None:
    """Keep a broker as the JSON argument says, until told to end."""
    arguments = json.loads(sys.argv[1])
    folder = Path(arguments["folder"]) if arguments["folder"] else None
    try:
        keep(folder, arguments["port"], lambda _: None)
    except KeyboardInterrupt:
        return
    except SkewlessError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
