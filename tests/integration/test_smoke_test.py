"""The ACLs of the smoke test are sufficient, on a broker that allows nothing else."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AdminClient

from helpers.kafka import create_topics, create_with
from helpers.waiting import WAIT_S
from integration.secured import Secured
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, CheckFailedError
from skewless.kafka.consumer.idle_member import IdleMember
from skewless.smoke_test import check
from skewless.smoke_test.acls import rights

pytestmark = pytest.mark.broker

WORD = "of-the-checker"
SHORT_S = 5.0


def test_smoke_test_without_stages_reports_them_before_its_timeout(
    broker: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    create_topics(broker, {f"{name}-raw": 1, f"{name}.aggregates": 1})
    settings = PipelineSettings.model_validate(
        {
            "name": name,
            "source": {"topic": f"{name}-raw"},
            "aggregator": {"emit": "final"},
            "kafka": {"bootstrap_servers": broker, "connect_timeout_s": WAIT_S},
        }
    )
    monkeypatch.setattr(check, "NO_PROCESS_S", 0.1)
    message = (
        "no process of splitter, router, worker, aggregator runs: start what is missing, for example with `skewless up`"
    )
    with pytest.raises(CheckFailedError, match=message):
        check.run(settings, 10, "checked", SHORT_S)
    assert [record.message for record in caplog.records if "no process" in record.message] == [
        f"{message}; waits until 5 s are over"
    ]
    for stage, process, found in (
        ("router", f"{name}-router-0", "no process of splitter, worker, aggregator runs"),
        ("splitter", f"{name}-{topology.QUERY}", r"(?s)not correct:\n  window.*newer records arrive"),  # Spark runs all
    ):
        member = IdleMember(settings.kafka, settings.transport, settings.group(stage), process, [f"{name}-raw"])
        with member:
            member.wait_until_joined()
            with pytest.raises(CheckFailedError, match=found):
                check.run(settings, 10, "checked", 1.0)


@pytest.mark.thorough
def test_smoke_test_acls_are_sufficient_and_necessary(secured_server: Secured) -> None:
    create_with(AdminClient(secured_server.admin_options()), {"smoke": 2, "checked.aggregates": 1})
    secured_server.add_users({"checker": WORD})
    settings = PipelineSettings.model_validate(
        {"name": "checked", "source": {"topic": "smoke"}, "kafka": secured_server.kafka("checker", WORD)}
    )
    with pytest.raises(BrokerError, match=r"topic smoke .*Describe"):
        check.run(settings, 10, "checked", SHORT_S)
    secured_server.allow({"checker": rights(settings)})
    with pytest.raises(CheckFailedError, match=r"no process of splitter, .* or allow this user to"):
        check.run(settings, 10, "checked", SHORT_S)
    _, results, _ = rights(settings)
    secured_server.withdraw("checker", results)
    with pytest.raises(BrokerError, match=r"topic checked\.aggregates .*Describe"):
        check.run(settings, 10, "checked", SHORT_S)
