"""Errors of the clients of another cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from skewless.errors import BrokerError, ConfigurationError, TransactionAbortedError
from skewless.kafka.errors import classify_transaction_error
from skewless.kafka.other_cluster import errors_of_other_cluster, of_other_cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka.tls.ca: /x: cannot be read", "mirror.kafka.tls.ca: /x: cannot be read"),
        ("correct kafka.sasl or kafka.tls", "correct mirror.kafka.sasl or mirror.kafka.tls"),
        ("mirror.kafka.tls: /x/kafka.tls.pem", "mirror.kafka.tls: /x/kafka.tls.pem"),
        ("no answer at kafka.us.example.com:9092", "no answer at kafka.us.example.com:9092"),
        ("`kafka-configs.sh` my-kafka.tls", "`kafka-configs.sh` my-kafka.tls"),
    ],
)
def test_error_of_another_cluster_names_its_settings_and_keeps_other_texts(text: str, expected: str) -> None:
    assert of_other_cluster(text) == expected
    assert of_other_cluster(expected) == expected


def test_error_of_another_cluster_names_all_problems() -> None:
    with pytest.raises(ConfigurationError, match=r"mirror\.kafka\.tls\.ca") as raised, errors_of_other_cluster():
        raise ConfigurationError("kafka.tls.ca: a", "kafka.tls.key: b")
    assert raised.value.problems == ("mirror.kafka.tls.ca: a", "mirror.kafka.tls.key: b")


def test_error_of_another_cluster_keeps_what_the_engine_decides_by() -> None:
    with pytest.raises(TransactionAbortedError, match="fenced") as raised, errors_of_other_cluster():
        raise TransactionAbortedError("fenced", replace_output=True)
    assert raised.value.replace_output


def test_error_of_another_cluster_about_a_right_names_the_page_that_lists_them() -> None:
    refused = classify_transaction_error(
        KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)), "committing"
    )
    remedy = r"Read on the group, docs/how-to/copy-to-another-cluster\.md lists"
    with pytest.raises(BrokerError, match=remedy), errors_of_other_cluster():
        raise refused
