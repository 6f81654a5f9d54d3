"""Daemon of the machine's shared broker: runs the broker and writes its address to a state file.

`skewless broker start` runs this module as a detached process. `--foreground` calls `run_daemon` in its own process. In
both cases the broker is a child of that process, so any end of the process ends the broker and removes temporary data.
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

from skewless.errors import BrokerError, ConfigurationError, SkewlessError, UnreachableError
from skewless.lab.local.broker import STOP_TIMEOUT_S, Broker
from skewless.lab.local.folders import file_lock, open_writable, state_folder
from skewless.lab.local.kafka_process import READY_TIMEOUT_S

TICK_S = 0.05
"""Times of two starts that differ by less are equal: the kernel counts hundredths of a second."""


class State(NamedTuple):
    """A running broker: address, process id and start time (s since the epoch) of its daemon, and data folder."""

    address: str
    pid: int
    started: float
    folder: str
    after_boot: float = -1.0
    """Time from the start of the machine to that of the daemon, in s."""


def running() -> State | None:
    """Return the running broker, or None. The state file is valid only while the daemon that wrote it runs."""
    try:
        state = State(**json.loads(_state_file().read_text()))
    except FileNotFoundError:
        return None
    return state if _process(state) else None


def _state_file() -> Path:
    return state_folder() / "broker.json"


def _process(state: State) -> psutil.Process | None:
    """Return the daemon, or None if it has ended. The start time detects a process id that was reused."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(state.pid)
        # The start of a process is computed from the start of the machine, which changes when the clock is set.
        is_same = process.create_time() == state.started or abs(_after_boot(process) - state.after_boot) < TICK_S
        if is_same and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _after_boot(process: psutil.Process) -> float:
    return float(process.create_time() - psutil.boot_time())


def run_daemon(folder: Path | None, port: int | None, on_ready: Callable[[State], None]) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Calls `on_ready` when the broker answers and the state file is written."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Broker(folder, port=port) as broker:
        own = psutil.Process()
        state = State(broker.bootstrap, own.pid, own.create_time(), str(broker.folder), _after_boot(own))
        _write_state(state)
        try:
            on_ready(state)
            code = broker.wait()
            raise BrokerError(f"the embedded broker exited unexpectedly with exit code {code}: see {broker.log}")
        finally:
            _state_file().unlink(missing_ok=True)


def _write_state(state: State) -> None:
    file = _state_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(state._asdict()) + "\n")
    draft.replace(file)


def start_daemon(folder: Path | None, port: int | None) -> State:
    """Start a daemon that outlives this process, and wait until its broker answers."""
    log = state_folder() / "keeper.log"
    arguments = json.dumps({"folder": str(folder) if folder else None, "port": port})
    with open_writable(log, "w") as output:
        daemon = subprocess.Popen(  # noqa: S603 - no shell
            [sys.executable, "-m", __spec__.name, arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return _wait_until_ready(daemon, log)
    except BaseException:
        daemon.terminate()
        daemon.wait()
        raise


def _wait_until_ready(daemon: subprocess.Popen[bytes], log: Path) -> State:
    deadline = time.monotonic() + READY_TIMEOUT_S + STOP_TIMEOUT_S
    while daemon.poll() is None and time.monotonic() < deadline:
        if (state := running()) and state.pid == daemon.pid:
            return state
        time.sleep(0.05)
    error_type = ConfigurationError if daemon.returncode == ConfigurationError.exit_code else UnreachableError
    raise error_type(
        log.read_text(errors="replace").strip() or f"the broker did not answer within {READY_TIMEOUT_S:.0f} s"
    )


def stop() -> State | None:
    """Stop the running broker. Returns its state, or None if no broker ran."""
    with file_lock(start_lock()):
        state = running()
        if state and (process := _process(state)):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S * 2)
            except psutil.TimeoutExpired:
                process.kill()
        return state


def start_lock() -> Path:
    """Return the lock file for starting and stopping the broker, so that two commands cannot do both at once."""
    return state_folder() / "broker.starting"


def main() -> None:
    """Run a broker with the options of the JSON argument until SIGTERM."""
    arguments = json.loads(sys.argv[1])
    folder = Path(arguments["folder"]) if arguments["folder"] else None
    try:
        run_daemon(folder, arguments["port"], lambda _: None)
    except KeyboardInterrupt:
        return
    except SkewlessError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
