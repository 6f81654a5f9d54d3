"""All stages as processes under the supervisor: restarted after a crash, stopped with it, and none left running."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from helpers.waiting import until
from skewless.cli.commands import up
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, UnreachableError
from skewless.lab.local import child_process, published_processes
from skewless.lab.local.supervisor import Event, Supervisor

WAIT_S = 120.0
SLEEP = "import time; time.sleep(600)"
ONE_WORKER = {"splitter": 0, "router": 0, "worker": 1, "aggregator": 0, "observer": 0}
NAMES = ["splitter-0", "router-0", "worker-0", "worker-1", "aggregator-0", "observer-0"]


def settings(**replicas: int) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}, "replicas": replicas})


@contextmanager
def running(
    logs: Path, program: str, *, drain: bool = False, replicas: dict[str, int] | None = None
) -> Iterator[Supervisor]:
    """Supervise processes that run this Python program instead of a stage."""
    supervisor = Supervisor(
        None,
        settings(**(replicas or ONE_WORKER)),
        drain=drain,
        logs=logs,
        command=lambda stage, instance: [sys.executable, "-c", program, stage, str(instance)],
    )
    try:
        supervisor.start()
        yield supervisor
    finally:
        supervisor.stop()


def poll_until(supervisor: Supervisor, holds: Callable[[], object]) -> list[Event]:
    events: list[Event] = []
    until(holds, each=lambda: events.extend(supervisor.poll(time.monotonic())), limit_s=WAIT_S)
    return events


def first_event(supervisor: Supervisor) -> Event:
    events: list[Event] = []
    until(lambda: events, each=lambda: events.extend(supervisor.poll(time.monotonic())), limit_s=WAIT_S)
    return events[0]


def test_supervisor_several_replicas_runs_each_as_a_process_with_its_own_metrics_port(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv[1:], os.environ['SKEWLESS__METRICS__PORT'], flush=True); " + SLEEP
    with running(tmp_path, program, replicas={"worker": 2}) as supervisor:
        replicas = supervisor.processes
        assert list(replicas) == NAMES
        assert len({replica.pid for replica in replicas.values()} - {None}) == len(NAMES)
        assert len({replica.metrics_port for replica in replicas.values()}) == len(NAMES)
        worker = replicas["worker-1"]
        until(lambda: worker.log.read_text() == f"['worker', '1'] {worker.metrics_port}\n", limit_s=WAIT_S)


def test_supervisor_metrics_port_in_use_restarts_the_process_with_another_port(tmp_path: Path) -> None:
    program = (
        "import os, socket, sys, time\n"
        "try: socket.create_server(('', int(os.environ['SKEWLESS__METRICS__PORT'])))\n"
        "except OSError: sys.exit(2)\n" + SLEEP
    )
    supervisor = Supervisor(
        None,
        settings(**ONE_WORKER),
        drain=False,
        logs=tmp_path,
        command=lambda _stage, _instance: [sys.executable, "-c", program],
    )
    worker = supervisor.processes["worker-0"]
    lost = worker.metrics_port
    try:
        with socket.create_server(("", lost)):
            supervisor.start()
            events = poll_until(supervisor, lambda: worker.metrics_port != lost)
            assert worker.pid
        assert [(event.kind, event.detail) for event in events] == [
            ("ended", f"found its metrics port {lost} in use, restarts with another port"),
            ("started", f"metrics on port {worker.metrics_port}"),
        ]
    finally:
        supervisor.stop()


def test_supervisor_stage_command_is_skewless_run(tmp_path: Path) -> None:
    supervisor = Supervisor(Path("p.yaml"), settings(), drain=True, logs=tmp_path)
    expected = "run worker --instance 0 --file p.yaml --drain"
    assert list(supervisor.processes["worker-0"].command) == expected.split()


def test_supervisor_killed_process_restarts_it_on_the_same_port(tmp_path: Path) -> None:
    with running(tmp_path, SLEEP) as supervisor:
        worker = supervisor.processes["worker-0"]
        before, port = worker.pid, worker.metrics_port
        supervisor.kill("worker-0")
        assert worker.pid is None
        events = poll_until(supervisor, lambda: worker.pid)
        assert [event.kind for event in events] == ["ended", "started"]
        assert events[0].detail == "was killed by signal 9, restarts at once"
        assert worker.pid != before
        assert worker.metrics_port == port


def test_supervisor_killed_process_without_room_for_its_restart_reports_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "")

    with running(tmp_path, SLEEP) as supervisor:
        supervisor.kill("worker-0")
        monkeypatch.setattr(child_process, "start", refuse)
        details = [event.detail for event in supervisor.poll(time.monotonic())]
    assert details[0] == "was killed by signal 9, restarts at once"
    assert details[1].startswith("could not be started, because this machine has no memory or no process id left")
    assert len(details) == 2


def test_supervisor_crashed_process_reports_the_end_of_its_log(tmp_path: Path) -> None:
    with running(tmp_path, "raise SystemExit('out of luck')") as supervisor:
        event = first_event(supervisor)
        assert event.detail.startswith("ended with exit code 1, restarts at once")
        assert event.detail.endswith("ends with\n  out of luck")


@pytest.mark.parametrize(("code", "kind"), [(2, ConfigurationError), (3, UnreachableError)])
def test_supervisor_error_that_restarts_would_repeat_stops_every_process(
    tmp_path: Path, code: int, kind: type[Exception]
) -> None:
    program = f"import sys; print('error: wrong'); sys.exit({code}) if sys.argv[1] == 'router' else None; {SLEEP}"
    with running(tmp_path, program, replicas={"worker": 2}) as supervisor:
        pids = [replica.pid for replica in supervisor.processes.values()]
        with pytest.raises(kind, match=rf"router-0 ended with exit code {code}; its log .*\n  error: wrong"):
            poll_until(supervisor, lambda: False)
        assert not any(psutil.pid_exists(pid) for pid in pids if pid)


PUBLISHER = """
import sys
from types import SimpleNamespace
from skewless.config.pipeline_settings import PipelineSettings
from skewless.lab.local import published_processes

published_processes.Admin = lambda _kafka: SimpleNamespace(cluster_id=lambda: "any")
settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "mine"}})
with published_processes.published(settings, {"router-0": 0}):
    print("ready", flush=True)
    sys.stdin.read()
"""
"""Publishes a process as another `skewless up` does, of a cluster with the id `any`."""


@pytest.mark.parametrize("is_replaced", [False, True])
def test_supervisor_process_of_another_command_is_not_restarted_after_a_long_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    program = f"import sys; sys.exit(3) if sys.argv[1] == 'router' else None; {SLEEP}"
    with subprocess.Popen(
        [sys.executable, "-c", PUBLISHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "ready\n"
        if not is_replaced:
            other.kill()
            other.wait(WAIT_S)
        monkeypatch.setattr(published_processes, "Admin", lambda _kafka: SimpleNamespace(cluster_id=lambda: "any"))
        with (
            published_processes.published(settings(), {}),
            running(tmp_path, program, replicas={"worker": 1}) as supervisor,
        ):
            router = supervisor.processes["router-0"]
            until(lambda: router.pid is None, limit_s=WAIT_S)
            after_a_minute = time.monotonic() + 61
            if is_replaced:
                with pytest.raises(UnreachableError, match="router-0 ended with exit code 3"):
                    supervisor.poll(after_a_minute)
            else:
                assert [event.kind for event in supervisor.poll(after_a_minute)] == ["ended", "started"]
        other.kill()


def test_supervisor_drain_ends_when_every_process_has_ended_cleanly(tmp_path: Path) -> None:
    crash_once = (
        f"import pathlib, sys; flag = pathlib.Path({str(tmp_path)!r}, '-'.join(sys.argv[1:]));"
        "first = not flag.exists(); flag.touch(); sys.exit(first)"
    )
    with running(tmp_path / "logs", crash_once, drain=True, replicas={"worker": 2}) as supervisor:
        events = poll_until(supervisor, lambda: supervisor.done)
        assert sorted(event.name for event in events if event.kind == "finished") == sorted(NAMES)
        assert sorted(event.name for event in events if event.kind == "ended") == sorted(NAMES)


def test_supervisor_drained_stage_of_a_rerun_rechecks_its_input(tmp_path: Path) -> None:
    assert looked_again(tmp_path, rerun=False) == set()
    assert looked_again(tmp_path, rerun=True) == {"router-0", "worker-0", "aggregator-0", "observer-0"}


def test_supervisor_drained_stage_of_a_pipeline_that_reads_its_own_join_rechecks_its_input(tmp_path: Path) -> None:
    side = {"id": {"field": "id"}, "time": {"field": "t"}}
    join = {"left": {"topic": "l", **side}, "right": {"topic": "r", **side}, "apart_s": 1}
    document = {"name": "p", "source": {"topic": "p.joined"}, "join": join, "event_time": {"allowed_lateness_s": 1}}
    own = PipelineSettings.model_validate(document)
    again = looked_again(tmp_path, rerun=False, pipeline=own)
    assert again == {"splitter-0", "router-0", "worker-0", "aggregator-0", "observer-0"}


@pytest.mark.parametrize("topic", ["aggregates", "partials"])
def test_supervisor_drained_sink_and_mirror_recheck_their_input_in_the_first_run(tmp_path: Path, topic: str) -> None:
    """They do not know whether the last records were written before their end."""
    mirror = {"kafka": {"bootstrap_servers": "other:9092"}, "topic": topic}
    document = {"name": "p", "source": {"topic": "s"}, "sink": {"url": "sqlite:///x.db"}, "mirror": mirror}
    pipeline = PipelineSettings.model_validate(document)
    assert looked_again(tmp_path, rerun=False, pipeline=pipeline) == {"sink-0", "mirror-0"}


def looked_again(logs: Path, *, rerun: bool, pipeline: PipelineSettings | None = None) -> set[str]:
    """Return the restarted processes when all processes have ended before the supervisor checks them."""
    command = [sys.executable, "-c", ""]
    supervisor = Supervisor(
        None,
        pipeline or settings(),
        drain=True,
        logs=logs,
        command=lambda _stage, _instance: command,
        rerun=rerun,
    )
    supervisor.start()
    until(lambda: all(each.pid is None for each in supervisor.processes.values()), limit_s=WAIT_S)
    started = {name: replica.started_at for name, replica in supervisor.processes.items()}
    events = poll_until(supervisor, lambda: supervisor.done)
    assert {event.kind for event in events} == {"finished"}
    return {name for name, replica in supervisor.processes.items() if replica.started_at != started[name]}


def test_supervisor_drained_stage_that_ends_while_its_input_runs_rechecks_it_only_if_it_may_be_incomplete(
    tmp_path: Path,
) -> None:
    """The worker ends at once, and the router a little later: it has reported the end, and then stops."""
    program = (
        f"import pathlib, sys, time; end = pathlib.Path({str(tmp_path)!r}, 'end')\n"
        "while sys.argv[1] == 'router' and not end.exists(): time.sleep(0.01)"
    )

    def restarted(pipeline: PipelineSettings, *, rerun: bool) -> bool:
        (tmp_path / "end").unlink(missing_ok=True)
        supervisor = Supervisor(
            None,
            pipeline,
            drain=True,
            logs=tmp_path,
            command=lambda stage, instance: [sys.executable, "-c", program, stage, str(instance)],
            rerun=rerun,
        )
        try:
            supervisor.start()
            worker = supervisor.processes["worker-0"]
            until(lambda: worker.pid is None, limit_s=WAIT_S)
            supervisor.poll(time.monotonic())
            has_finished = worker.finished_at > 0
            (tmp_path / "end").touch()
            poll_until(supervisor, lambda: supervisor.done)
        finally:
            supervisor.stop()
        return not has_finished

    several = PipelineSettings.model_validate({"name": "p", "source": {"topics": ["a", "b"]}})
    assert not restarted(settings(), rerun=False)
    assert restarted(settings(), rerun=True)
    assert restarted(several, rerun=False)


def test_supervisor_clean_end_without_drain_restarts_the_process(tmp_path: Path) -> None:
    with running(tmp_path, "") as supervisor:
        assert first_event(supervisor).detail == "ended with exit code 0, restarts at once"
        assert not supervisor.done


def test_supervisor_process_that_ignores_sigterm_kills_it_after_the_grace_period(tmp_path: Path) -> None:
    program = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); " + SLEEP
    with running(tmp_path, program) as supervisor:
        worker = supervisor.processes["worker-0"]
        pid = worker.pid
        assert pid
        until(lambda: "deaf" in worker.log.read_text(), limit_s=WAIT_S)
        supervisor.stop(grace_s=0.2)
        assert not psutil.pid_exists(pid)


PROGRAM = f"""
import sys
from pathlib import Path
from skewless.cli.commands.up import supervise
from skewless.lab.local.supervisor import Supervisor
from skewless.config.pipeline_settings import PipelineSettings

settings = PipelineSettings.model_validate({{"name": "p", "source": {{"topic": "mine"}}}})
command = lambda stage, instance: [sys.executable, "-c", {SLEEP!r}]
supervisor = Supervisor(None, settings, drain=False, logs=Path(sys.argv[1]), command=command)
sys.exit(supervise(supervisor, print, lambda: None, on_sigterm=143))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_supervisor_parent_ends_in_any_way_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment()
    ) as parent:
        assert parent.stdout
        pids = [int(parent.stdout.readline().split()[2].rstrip(",")) for _ in range(5)]
        assert all(psutil.pid_exists(pid) for pid in pids)
        parent.send_signal(number)
        assert parent.wait(WAIT_S) == code
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids), limit_s=WAIT_S)


def environment(**more: str) -> dict[str, str]:
    """Environment in which a Python child process finds the package of this process."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | more


def test_up_command_verbose_follows_the_logs_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, SLEEP) as supervisor:
        follow = up._Follower(supervisor, verbose=True)
        log = supervisor.processes["worker-0"].log
        shown = ""
        for written in ("one\ntw", "o\n", "", "three\n"):
            with log.open("a") as file:
                file.write(written)
            follow()
            shown += capsys.readouterr().out
    assert shown == "worker-0 | one\nworker-0 | two\nworker-0 | three\n"


def skewless_up(tmp_path: Path, bootstrap: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: up\nsource: {topic: nowhere}\n"
        f"kafka: {{bootstrap_servers: '{bootstrap}', connect_timeout_s: {timeout_s}}}\n"
    )
    command = [sys.executable, "-m", "skewless", "up", "-f", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S, env=environment())


def test_up_command_missing_source_topic_ends_before_anything_starts(tmp_path: Path, broker: str) -> None:
    done = skewless_up(tmp_path, broker, 15)
    assert (done.returncode, done.stdout) == (3, "")
    *_, last = done.stderr.splitlines()  # a busy broker may have been waited for
    assert last.startswith(f"error: topic nowhere does not exist at {broker}")


def test_up_command_unreachable_broker_ends_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    done = skewless_up(tmp_path, address, 0.6)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert address in done.stderr
