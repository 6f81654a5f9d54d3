"""Logs of a stage: JSON lines, plain lines, and no secrets."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.monitoring import logs
from skewless.monitoring.settings import LogSettings

WHO = {"pipeline": "p", "stage": "router", "instance": 3}


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for name in ("skewless", *logs.CHATTY):
        logging.getLogger(name).setLevel(logging.NOTSET)
    for name in logs.ABOUT_BROKERS:
        logging.getLogger(name).filters.clear()


def logging_to(stream: io.StringIO, **settings: Any) -> None:
    logs.set_up(LogSettings.model_validate(settings), WHO, stream)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_log_line_is_an_object_with_time_level_logger_and_message() -> None:
    stream = io.StringIO()
    logging_to(stream)
    logging.getLogger("skewless.engine.executor").info(
        "partition %d: %s", 7, 'loads "found"\nhere', extra={"partition": 7, "offset": 42}
    )
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    assert line == {
        "level": "info",
        "logger": "skewless.engine.executor",
        "message": 'partition 7: loads "found"\nhere',
        "pipeline": "p",
        "stage": "router",
        "instance": 3,
        "partition": 7,
        "offset": 42,
    }
    assert list(json.loads(stream.getvalue()))[:4] == ["time", "level", "logger", "message"]


def test_json_log_exception_is_part_of_its_line() -> None:
    stream = io.StringIO()
    logging_to(stream)
    try:
        raise ZeroDivisionError("no\nway")  # noqa: TRY301 - what is logged must have been raised
    except ZeroDivisionError:
        logging.getLogger("skewless.x").exception("failed")
    (line,) = lines(stream)
    assert "ZeroDivisionError: no" in line["exception"]


def test_log_filter_broker_outage_is_logged_once_for_all_loggers() -> None:
    stream = io.StringIO()
    logging_to(stream)
    refused = "127.0.0.1:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused"
    for number in range(100):
        prefix = f"[p-router-0#consumer-{number}] [thrd:127.0.0.1:9092/bootstrap]: "
        logging.getLogger("skewless.librdkafka").error(
            "FAIL %s%s (after %dms in state CONNECT)", prefix, refused, number
        )
        logging.getLogger("skewless.engine.consumer_loop").warning("consumer: %s", refused)
    logging.getLogger("skewless.engine.consumer_loop").info("works on %d partitions", 4)
    assert [line["level"] for line in lines(stream)] == ["error", "info"]


def test_log_warnings_of_python_are_logged_as_records() -> None:
    stream = io.StringIO()
    logging_to(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    logging.captureWarnings(capture=False)
    assert [line["logger"] for line in lines(stream)] == ["py.warnings"]


@pytest.mark.parametrize(
    ("level", "own", "others"),
    [("debug", 4, 4), ("info", 3, 2), ("warning", 2, 2), ("error", 1, 1)],
)
def test_log_level_applies_to_skewless_and_is_raised_for_libraries(level: str, own: int, others: int) -> None:
    stream = io.StringIO()
    logging_to(stream, level=level)
    for name in ("skewless.service", "faust.app", logs.CHATTY[0]):
        for grade in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger(name).log(grade, "said")
    output = [line["logger"] for line in lines(stream)]
    assert [output.count(name) for name in ("skewless.service", "faust.app", logs.CHATTY[0])] == [own, others, others]


def test_text_log_record_is_a_readable_line() -> None:
    stream = io.StringIO()
    logging_to(stream, format="text")
    logging.getLogger("skewless.service").warning("look", extra={"partition": 7})
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING skewless\.service: look\n", stream.getvalue())


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_of_several_stages_names_the_stage_of_each_line(form: str) -> None:
    stream = io.StringIO()
    logs.set_up(LogSettings.model_validate({"format": form}), {**WHO, "stage": "all"}, stream)
    logger = logging.getLogger("skewless.service")
    with logs.log_lines_of("router"):
        logger.info("look")
    logger.info("look")
    if form == "text":
        assert [line.split()[3] for line in stream.getvalue().splitlines()] == ["router", "all"]
    else:
        assert [line["stage"] for line in lines(stream)] == ["router", "all"]


def test_auto_log_format_is_text_on_a_terminal_and_json_elsewhere() -> None:
    stream = io.StringIO()
    logging_to(stream)
    logging.getLogger("skewless").warning("look")
    assert lines(stream)
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader, "rb", buffering=0) as screen:
        logs.set_up(LogSettings.model_validate({}), WHO, terminal)
        logging.getLogger("skewless").warning("look")
        terminal.flush()
        assert b"WARNING skewless: look" in screen.read(1000)
        logging.getLogger().handlers.clear()


def test_log_settings_with_a_secret_are_masked() -> None:
    stream = io.StringIO()
    logging_to(stream)
    settings = PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "s"},
            "kafka": {"security_protocol": "SASL_SSL", "sasl": {"username": "ann", "password": "canary7f3a"}},
        }
    )
    logging.getLogger("skewless").error("%s", settings.kafka.sasl, extra={"settings": settings})
    assert "canary7f3a" not in stream.getvalue()


def test_run_command_log_settings_apply_and_the_final_error_is_plain_text() -> None:
    """In a separate process: librdkafka's log uses the same format, and a user's error is one plain line."""
    environment = os.environ | {
        "SKEWLESS__NAME": "p",
        "SKEWLESS__SOURCE__TOPIC": "s",
        "SKEWLESS__KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9",
        "SKEWLESS__KAFKA__CONNECT_TIMEOUT_S": "1",
        "SKEWLESS__LOG__LEVEL": "debug",
    }
    done = subprocess.run(
        [sys.executable, "-m", "skewless", "run", "router", "--instance", "2"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
    *logged, last = done.stderr.splitlines()
    assert last.startswith("error: ")
    assert {(line["stage"], line["instance"]) for line in map(json.loads, logged)} <= {("router", 2)}
