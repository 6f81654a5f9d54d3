"""Logins to a broker: tokens of an identity provider, and client certificates alone."""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from helpers.identity_provider import IdentityProvider
from helpers.kafka import START_MS, create_with
from helpers.stage_hosts import share_host, stage_host
from helpers.waiting import until
from integration.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    AUDIENCE,
    Keys,
    Secured,
    certificate_broker,
    make_keys,
    refusal,
    token_broker,
)
from skewless.cli.main import main
from skewless.config import acls, topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

CLIENT = "pipelines"
SECRET = "canary7f3a91c2"  # noqa: S105 - of a provider that lives as long as these tests
SCOPE = "kafka.read kafka.write"
LIFETIME_S = 20
"""Lifetime of a token. librdkafka gets the next one after 80 % of it."""
RUN_S = 200.0
KEYS = 3
RECORDS = 30
SMALL: dict[str, Any] = {
    "name": "p",
    "source": {"topic": "raw"},
    "splitter": {"format": "json", "key": {"field": "key"}, "time": {"field": "time"}},
    "worker_input": {"max_workers": 2},
    "router": {"workers": 2},
    "topics": {"aggregator_partitions": 1},
    "event_time": {"idle_timeout_s": None},
    "transport": {"commit_interval_s": 0.3, "session_timeout_s": 5},
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def provider(keys: Keys) -> Iterator[IdentityProvider]:
    provider = IdentityProvider({CLIENT: SECRET, ADMIN: ADMIN_PASSWORD}, AUDIENCE, LIFETIME_S)
    with provider.running(keys.server):
        yield provider


@pytest.fixture(scope="module")
def by_token(keys: Keys, provider: IdentityProvider) -> Iterator[Secured]:
    with token_broker(keys, provider) as running:
        prepare(running, CLIENT)
        yield running


@pytest.fixture(scope="module")
def by_certificate(keys: Keys) -> Iterator[Secured]:
    with certificate_broker(keys) as running:
        prepare(running, "CN=client")
        yield running


def allow(secured: Secured, principal: str, name: str = "p") -> None:
    """Allow the principal what the pipeline needs."""
    settings = PipelineSettings.model_validate({**SMALL, "name": name})
    secured.allow(acls.acls_by_principal(settings, dict.fromkeys(acls.ROLES, principal)))


def prepare(secured: Secured, principal: str) -> None:
    """Create the source topic with records, and allow the principal what the pipeline needs."""
    allow(secured, principal)
    create_with(AdminClient(secured.admin_options()), {"raw": 1})
    producer = Producer(secured.admin_options())
    for number in range(RECORDS):
        entry = {"key": f"k{number % KEYS}", "time": START_MS + number * 1000}
        producer.produce("raw", json.dumps(entry).encode(), partition=0)
    assert producer.flush(RUN_S) == 0


def token_login(secured: Secured, keys: Keys, provider: IdentityProvider) -> dict[str, Any]:
    """Return the section `kafka` of a client that logs in with tokens. The secret is in the environment."""
    oauthbearer = {
        "token_endpoint_url": provider.token_url,
        "client_id": CLIENT,
        "client_secret": SECRET,
        "scope": SCOPE,
        "ca": str(keys.ca),
    }
    return {
        "bootstrap_servers": secured.bootstrap,
        "connect_timeout_s": 120,
        "security_protocol": "SASL_SSL",
        "sasl": {"mechanism": "OAUTHBEARER", "oauthbearer": oauthbearer},
        "tls": {"ca": str(keys.ca)},
    }


def run_pipeline(folder: Path, kafka: dict[str, Any], name: str = "p") -> str:
    """Create the topics and run all stages to the end of the source. Returns what the commands and stages print."""
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps({**SMALL, "name": name, "kafka": kafka}))
    output = ""
    for command in (["topics", "apply"], ["up", "--drain", "--verbose"]):
        ended = CliRunner().invoke(main, [*command, "--file", str(file)])
        output += ended.output
        assert ended.exit_code == 0, output
    return output


def counts(secured: Secured, topic: str = "p.aggregates") -> dict[str, int]:
    """Return the count of each key, as the administrator reads them."""
    group = {"group.id": "test", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({**secured.admin_options(), **group, "isolation.level": "read_committed"})
    found: dict[str, int] = {}
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(RUN_S)
            assert message is not None
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            entry = json.loads(message.value() or b"")
            found[entry["key"]] = entry["count"]
    finally:
        consumer.close()


def test_pipeline_with_tokens_counts_exactly_and_renews_its_tokens(
    by_token: Secured, keys: Keys, provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_host(monkeypatch)
    output = run_pipeline(tmp_path, token_login(by_token, keys, provider))
    assert counts(by_token) == dict.fromkeys((f"k{number}" for number in range(KEYS)), RECORDS // KEYS)
    assert (CLIENT, SCOPE) in provider.issued
    assert SECRET not in output


SIGNER = """
import base64, json, ssl, time, urllib.request


class MSKAuthTokenProvider:
    @staticmethod
    def generate_auth_token(region):
        login = base64.b64encode({login!r}.encode()).decode()
        request = urllib.request.Request(
            {url!r}, b"grant_type=client_credentials&scope=" + region.encode(), {{"Authorization": "Basic " + login}}
        )
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile={ca!r})) as answer:
            content = json.load(answer)
        return content["access_token"], (time.time() + content["expires_in"]) * 1000
"""
"""The signer of AWS, with the tokens of the provider: AWS signs tokens that only its own brokers accept."""


def test_pipeline_with_msk_iam_logs_in_with_the_tokens_of_the_signer(
    by_token: Secured, keys: Keys, provider: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = SIGNER.format(login=f"{CLIENT}:{SECRET}", url=provider.token_url, ca=str(keys.ca))
    (tmp_path / "aws_msk_iam_sasl_signer.py").write_text(signer)
    # Tests before this one may have imported the signer of AWS, and those after it need that signer. Because of the
    # first call, the end of this test removes its own signer also if none was imported before.
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    monkeypatch.delitem(sys.modules, "aws_msk_iam_sasl_signer")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    allow(by_token, CLIENT, "m")
    sasl = {"mechanism": "OAUTHBEARER", "msk_iam": {"region": "eu-west-1"}}
    run_pipeline(tmp_path, {**token_login(by_token, keys, provider), "sasl": sasl}, name="m")
    assert counts(by_token, "m.aggregates") == dict.fromkeys((f"k{number}" for number in range(KEYS)), RECORDS // KEYS)
    assert (CLIENT, "eu-west-1") in provider.issued


def test_stage_with_tokens_survives_an_outage_of_the_provider(
    by_token: Secured, keys: Keys, provider: IdentityProvider, tmp_path: Path
) -> None:
    """The tokens expire during the outage, so the broker closes the connections until there are new ones."""
    kafka = token_login(by_token, keys, provider)
    topic_plan.apply(PipelineSettings.model_validate({**SMALL, "kafka": kafka}))
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({**SMALL, "kafka": kafka}))
    offsets = OffsetReader(PipelineSettings.model_validate({**SMALL, "kafka": kafka}).kafka)
    producer = Producer(by_token.admin_options())

    def send() -> int:
        """Write a record to the source, and return the offset up to which the splitter then has to commit."""
        delivered: list[int] = []
        producer.produce(
            "raw",
            json.dumps({"key": "k0", "time": START_MS + 60_000}).encode(),
            partition=0,
            on_delivery=lambda _, message: delivered.append(message.offset() + 1),
        )
        assert producer.flush(RUN_S) == 0
        return delivered[0]

    def has_committed(offset: int) -> bool:
        committed = offsets.committed("p-splitter", "raw").get(0)
        return committed is not None and committed.offset >= offset

    arguments = ["run", "splitter", "--file", str(file)]
    child = stage_host().start("splitter", arguments, os.environ, log=tmp_path / "log")
    try:
        until(partial(has_committed, send()))
        provider.available, began = False, time.monotonic()
        until(lambda: provider.refused >= 3 and time.monotonic() > began + LIFETIME_S)
        assert child.poll() is None
        provider.available = True
        until(partial(has_committed, send()))
        assert child.poll() is None
    finally:
        provider.available = True
        child.send_signal(signal.SIGTERM)
        child.wait(RUN_S)
    assert child.returncode == 0
    assert SECRET not in (tmp_path / "log").read_text()


def test_client_with_a_wrong_secret_is_reported_with_the_answer_of_the_provider(
    by_token: Secured, keys: Keys, provider: IdentityProvider
) -> None:
    kafka = token_login(by_token, keys, provider)
    kafka["sasl"]["oauthbearer"]["client_secret"] = f"{SECRET}-wrong"
    error = refusal(kafka)
    assert "invalid_client" in str(error)
    assert str(error).startswith(f"no token for Kafka at {by_token.bootstrap}: ")
    assert "kafka.sasl.oauthbearer" in str(error)
    assert SECRET not in str(error)


def test_client_with_an_unknown_authority_of_the_provider_is_reported(
    by_token: Secured, keys: Keys, provider: IdentityProvider
) -> None:
    kafka = token_login(by_token, keys, provider)
    del kafka["sasl"]["oauthbearer"]["ca"]
    assert "certificate" in str(refusal(kafka))


def test_client_with_a_token_for_another_audience_is_refused_by_the_broker(by_token: Secured, keys: Keys) -> None:
    stranger = IdentityProvider({CLIENT: SECRET}, "another", LIFETIME_S)
    with stranger.running(keys.server):
        error = refusal(token_login(by_token, keys, stranger))
    assert "refuses this client" in str(error)


def test_pipeline_with_certificates_alone_counts_exactly(
    by_certificate: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_host(monkeypatch)
    assert by_certificate.client is not None
    kafka = {
        "bootstrap_servers": by_certificate.bootstrap,
        "security_protocol": "SSL",
        "tls": {"ca": str(by_certificate.ca), **by_certificate.client.settings()},
    }
    run_pipeline(tmp_path, kafka)
    assert counts(by_certificate) == dict.fromkeys((f"k{number}" for number in range(KEYS)), RECORDS // KEYS)

    without = copy.deepcopy(kafka)
    without["tls"] = {"ca": str(by_certificate.ca)}
    # The broker closes the connection after the TLS handshake. librdkafka does not always receive the reason.
    assert "security" in str(refusal(without, may_be_silent=True))
