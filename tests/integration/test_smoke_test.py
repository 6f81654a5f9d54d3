"""The ACLs of the smoke test are sufficient, on a broker that allows nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration.secured import secured_broker
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BrokerError, CheckFailedError
from skewless.smoke_test import check
from skewless.smoke_test.acls import rights

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

WORD = "of-the-checker"
SHORT_S = 5.0


def test_smoke_test_acls_are_sufficient_and_necessary(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as secured:
        admin = AdminClient(secured.admin_options())
        for future in admin.create_topics([NewTopic("raw", 2, 1), NewTopic("p.aggregates", 1, 1)]).values():
            future.result(30)
        secured.add_users({"checker": WORD})
        settings = PipelineSettings.model_validate(
            {"name": "p", "source": {"topic": "raw"}, "kafka": secured.kafka("checker", WORD)}
        )
        with pytest.raises(BrokerError, match=r"topic raw .*Describe"):
            check.run(settings, 10, "checked", SHORT_S)
        secured.allow({"checker": rights(settings)})
        with pytest.raises(CheckFailedError, match="counts are not correct"):  # no stages run, so nothing is counted
            check.run(settings, 10, "checked", SHORT_S)
        _, results = rights(settings)
        secured.withdraw("checker", results)
        with pytest.raises(BrokerError, match=r"topic p\.aggregates .*Describe"):
            check.run(settings, 10, "checked", SHORT_S)
