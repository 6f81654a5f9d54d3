"""librdkafka's log lines of a real broker outage of 37 seconds: the filter passes those with news."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from skewless.monitoring import outage_filter
from skewless.monitoring.outage_filter import QUIET_S, OutageFilter, Outages

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
CONSUMER = "[p-worker-0#consumer-6]"
REFUSED = (
    f"FAIL {CONSUMER} [thrd:127.0.0.1:33225/bootstrap]: 127.0.0.1:33225/bootstrap: Connect to "
    "ipv4#127.0.0.1:33225 failed: Connection refused (after 0ms in state CONNECT)"
)
PRODUCER_REFUSED = (
    "FAIL [rdkafka#producer-5] [thrd:127.0.0.1:33225/bootstrap]: 127.0.0.1:33225/bootstrap: Connect to "
    "ipv4#127.0.0.1:33225 failed: Connection refused (after 0ms in state CONNECT, 27 identical error(s) suppressed)"
)
RESET = (
    f"FAIL {CONSUMER} [thrd:127.0.0.1:33225/1]: 127.0.0.1:33225/1: Connect to ipv4#127.0.0.1:33225 failed: "
    "Connection reset by peer (after 1ms in state CONNECT)"
)
COORDINATOR_GONE = "FAIL [rdkafka#producer-5] [thrd:TxnCoordinator]: TxnCoordinator: Disconnected: reset (after 0ms)"
GETPID = (
    "GETPID [rdkafka#producer-{}] [thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: "
    "Broker: Producer attempted to update a transaction while another concurrent operation was ongoing: retrying"
)
TXNERR = (
    "TXNERR [rdkafka#producer-5] [thrd:127.0.0.1:33225/1]: Current transaction failed in state InTransaction: "
    "1 message(s) timed out on broker (_TIMED_OUT)"
)
SESSTMOUT = (
    f"SESSTMOUT {CONSUMER} [thrd:main]: Consumer group session timed out (in join-state steady) after 10009 ms "
    "without a successful response from the group coordinator"
)


def lost(up_ms: int, where: str = "127.0.0.1:33225/1") -> str:
    return (
        f"FAIL {CONSUMER} [thrd:{where}]: {where}: Disconnected: connection closed by peer: receive 0 after POLLIN "
        f"(after {up_ms}ms in state UP)"
    )


def news(outages: Outages, *lines: tuple[float, int, str]) -> list[int]:
    """Indexes of the lines that the filter passes. Each line is (seconds, level, text)."""
    return [at for at, (now, level, line) in enumerate(lines) if outages.is_news(line, level, 1000 + now)]


def test_outages_of_one_broker_are_logged_once_for_all_clients_and_connections() -> None:
    repeated = [(0.05 * number, ERROR, (REFUSED, PRODUCER_REFUSED)[number % 2]) for number in range(1, 600)]
    outages_seen = news(
        Outages(), (0, ERROR, RESET), *repeated, (31, ERROR, lost(36_000, "GroupCoordinator: 127.0.0.1:33225"))
    )
    assert outages_seen == [0]


def test_outages_disconnect_and_failed_reconnect_are_logged_once_each() -> None:
    lines = [(0.0, INFO, lost(36_937)), (0.1, INFO, lost(36_960)), (0.2, ERROR, REFUSED), (0.3, ERROR, REFUSED)]
    assert news(Outages(), *lines, (0.4, INFO, lost(37_000))) == [0, 2]


def test_outages_broker_up_again_and_lost_again_is_logged_again() -> None:
    lines = [(0, ERROR, REFUSED), (1, ERROR, REFUSED), (5, INFO, lost(3_000)), (5.1, ERROR, REFUSED)]
    assert news(Outages(), *lines, (5.2, ERROR, REFUSED)) == [0, 2, 3]


def test_outages_of_several_brokers_are_logged_separately() -> None:
    other = REFUSED.replace("127.0.0.1:33225", "[::1]:9093")
    secured = REFUSED.replace("127.0.0.1:33225/", "sasl_ssl://kafka-2.example:9094/")
    lines = [(0, ERROR, REFUSED), (1, ERROR, other), (2, ERROR, secured), (3, ERROR, other), (4, ERROR, secured)]
    assert news(Outages(), *lines) == [0, 1, 2]


def test_outages_coordinator_without_an_address_counts_as_a_broker() -> None:
    assert news(Outages(), (0, INFO, COORDINATOR_GONE), (1, INFO, COORDINATOR_GONE), (2, ERROR, REFUSED)) == [0, 2]


@pytest.mark.parametrize("line", [GETPID.format(9), TXNERR, SESSTMOUT])
def test_outages_line_of_another_facility_is_logged_once_until_quiet(line: str) -> None:
    again = line.replace("10009", "10012").replace("producer-9", "producer-10")
    lines = [(0, WARNING, line), (1, WARNING, again), (2, WARNING, again), (3, ERROR, REFUSED)]
    assert news(Outages(), *lines, (3 + QUIET_S, WARNING, again)) == [0, 3, 4]


def test_outages_different_reasons_of_a_facility_are_logged_each() -> None:
    other = TXNERR.replace("timed out on broker (_TIMED_OUT)", "were fenced (_FENCED)")
    assert news(Outages(), (0, WARNING, TXNERR), (1, WARNING, other), (2, WARNING, TXNERR)) == [0, 1]


@pytest.mark.parametrize("line", ["works on 4 partitions", "rewinding to what was committed: x", "", "ERROR"])
def test_outages_lines_not_from_librdkafka_always_pass(line: str) -> None:
    assert news(Outages(), (0, INFO, line), (0, INFO, line)) == [0, 1]


def test_outages_end_is_logged_with_duration_and_number_of_suppressed_lines() -> None:
    outages_seen = Outages()
    news(outages_seen, (0, INFO, lost(5000)), *((number, ERROR, REFUSED) for number in range(1, 38)))
    news(outages_seen, (37, ERROR, PRODUCER_REFUSED), (37, WARNING, GETPID.format(1)))
    assert list(outages_seen.reports(1037 + QUIET_S)) == [], "the last failure is not a minute after the first"
    assert list(outages_seen.reports(1037.1 + QUIET_S)) == [
        (INFO, "connections to 127.0.0.1:33225 no longer fail: no failure for 40 s, after 66 failures in 37 s")
    ]
    assert not outages_seen.has_active


def test_outages_long_one_is_logged_once_per_minute() -> None:
    outages_seen, logged = Outages(), []
    for second in range(150):
        outages_seen.is_news(REFUSED, ERROR, 1000 + second)
        logged += [(second, *report) for report in outages_seen.reports(1000 + second)]
    still = "connections to 127.0.0.1:33225 still fail"
    assert logged == [
        (60, WARNING, f"{still}: 61 failures in 60 s"),
        (120, WARNING, f"{still}: 121 failures in 120 s"),
    ]


def test_outages_lines_of_every_30_seconds_are_one_outage() -> None:
    """In a real outage of two minutes, librdkafka logged the same error every 30 s after the first 15 s."""
    outages_seen, passed, reported = Outages(), [], []
    for second in range(160):
        if second in (*range(16), 41, 71, 101) and outages_seen.is_news(REFUSED, ERROR, 1000 + second):
            passed.append(second)
        reported += [(second, level) for level, _ in outages_seen.reports(1000 + second)]
    assert (passed, reported) == ([0], [(71, WARNING), (142, INFO)])


def test_outages_idle_connection_closed_has_no_end_line() -> None:
    outages_seen = Outages()
    assert news(outages_seen, (0, INFO, lost(600_000))) == [0]
    assert list(outages_seen.reports(2000)) == []
    assert not outages_seen.has_active


def test_outage_filter_clock_that_goes_back_does_not_change_the_duration(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("skewless.test_outages")
    caplog.set_level(INFO, log.name)
    outages = OutageFilter(log)
    for created in (7200.0, 3600.0):
        record = log.makeRecord(log.name, ERROR, "", 0, REFUSED, (), None)
        record.created = created
        outages.filter(record)
    outages.log_reports(time.monotonic() + 2 * QUIET_S)
    assert "after 2 failures in 0 s" in caplog.text


def test_outage_filter_after_an_outage_logs_its_end_by_itself(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_filter, "CHECK_S", 0.01)
    log = logging.getLogger("skewless.test_outages")
    caplog.set_level(INFO, log.name)
    ended = threading.Event()

    def note(record: logging.LogRecord) -> bool:
        if "no longer fail" in record.getMessage():
            ended.set()
        return True

    caplog.handler.addFilter(note)
    monkeypatch.setattr(log, "filters", [OutageFilter(log)])
    for _ in range(3):
        log.error(REFUSED)
    monkeypatch.setattr(outage_filter, "QUIET_S", 0.0)  # from now on, it is over
    assert ended.wait(60)
    caplog.handler.removeFilter(note)
    refused, over = (record.getMessage() for record in caplog.records)
    assert refused == REFUSED
    assert over.startswith("connections to 127.0.0.1:33225 no longer fail")
