"""Classification of librdkafka's errors."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, Node, TopicCollection, TopicPartitionInfo, Uuid
from confluent_kafka.admin import TopicDescription

from skewless.errors import (
    BrokerError,
    ConfigurationError,
    FencedError,
    RecoverableError,
    TransactionAbortedError,
    UnavailableError,
    UnreachableError,
)
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.unreadable_records import is_unreadable
from skewless.kafka.errors import (
    ERRORS,
    REPEATABLE,
    UNREADABLE,
    ErrorClass,
    classify_consumer_error,
    classify_transaction_error,
    is_transient,
)
from skewless.kafka.settings import KafkaSettings


@pytest.mark.parametrize(
    ("reason", "operation"),
    [
        (
            "Failed to commit offsets to transaction on broker b:9092/1: p.in[0](Broker: Topic authorization failed)",
            "Read",
        ),
        ("Failed to add partition(s) to transaction on broker b:9092/1: Topic authorization failed", "Write"),
    ],
)
def test_transaction_error_refused_topic_names_read_for_offsets_and_write_for_records(
    reason: str, operation: str
) -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, reason))
    assert f"grant {operation} on the topic" in str(classify_transaction_error(refused, "committing"))


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_transaction_error_record_too_large_names_topic_option_and_setting(code: int) -> None:
    found = classify_transaction_error(KafkaException(KafkaError(code)), "writing to topic p.aggregator-changelog")
    assert isinstance(found, BrokerError)
    assert not isinstance(found, UnreachableError)
    assert found.exit_code == 3
    for part in (
        "p.aggregator-changelog",
        "max.message.bytes=8388608",
        "topics.options",
        "kafka.options.message.max.bytes",
    ):
        assert part in str(found)


def test_transaction_error_metadata_of_an_offset_too_large_ends_with_the_option_of_the_brokers() -> None:
    error = KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))
    found = classify_transaction_error(error, "sending offsets")
    assert isinstance(found, BrokerError)
    assert "offset.metadata.max.bytes=4096" in str(found)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._DESTROY_BROKER,
        KafkaError._FAIL,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._PARTIAL,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    ],
)
def test_kafka_error_of_a_restarting_broker_is_transient(code: int) -> None:
    """Errors seen in runs that kill the broker. A stage that ends with one of them would be restarted in vain."""
    assert is_transient(KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_AUTHORIZATION_FAILED],
)
def test_kafka_error_that_only_a_configuration_change_resolves_is_not_transient(code: int) -> None:
    assert not is_transient(KafkaError(code))


ENDS: dict[ErrorClass, type[Exception]] = {
    ErrorClass.REPLACED: FencedError,
    ErrorClass.UNAUTHENTICATED: BrokerError,
    ErrorClass.UNAUTHORIZED: BrokerError,
    ErrorClass.UNKNOWN_TOPIC: BrokerError,
    ErrorClass.TOO_LARGE: BrokerError,
    ErrorClass.METADATA_TOO_LARGE: BrokerError,
}
"""The error with which the process ends, for a consumer and a producer."""


@pytest.mark.parametrize("code", ERRORS, ids=lambda code: KafkaError(code).name())
def test_error_code_of_the_table_has_the_remedy_of_its_class(code: int) -> None:
    error_class, error = ERRORS[code], KafkaError(code)
    of_consumer = classify_consumer_error(error, "reading topic t")
    of_transaction = classify_transaction_error(KafkaException(error), "writing to topic t")
    assert is_transient(error) == (error_class in REPEATABLE)
    assert is_unreadable(error) == (error_class in UNREADABLE)
    if error_class in ENDS:
        assert type(of_consumer) is type(of_transaction) is ENDS[error_class]
    elif error_class is ErrorClass.SESSION_TIMEOUT:
        assert isinstance(of_consumer, ConfigurationError)
    else:
        assert of_consumer is None
        assert isinstance(of_transaction, TransactionAbortedError)
        assert of_transaction.replace_output


def test_every_class_of_errors_has_codes() -> None:
    assert set(ERRORS.values()) == set(ErrorClass)


def test_every_permission_that_can_be_missing_is_named() -> None:
    for code in [code for code, error_class in ERRORS.items() if error_class is ErrorClass.UNAUTHORIZED]:
        assert "; grant " in str(classify_transaction_error(KafkaException(KafkaError(code)), "writing to topic t"))


def test_timed_out_commit_is_recoverable() -> None:
    assert isinstance(
        classify_transaction_error(KafkaException(KafkaError(KafkaError._TIMED_OUT)), "committing"), RecoverableError
    )


@pytest.mark.parametrize("kind", [UnavailableError, TransactionAbortedError])
def test_error_that_is_retried_is_neither_final_kind(kind: type[Exception]) -> None:
    assert not issubclass(kind, UnreachableError | BrokerError)


class Refusing:
    """An admin client whose request for a topic fails, until it has listed all topics `lists` times."""

    def __init__(self, code: int, lists: int = 1_000_000) -> None:
        self._code, self.lists = code, lists

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[TopicDescription]]:
        answer = Future[TopicDescription]()
        if self.lists:
            answer.set_exception(KafkaException(KafkaError(self._code)))
        else:
            partitions = [TopicPartitionInfo(number, Node(1, "b", 9092), [], []) for number in (1, 0)]
            answer.set_result(TopicDescription("events", Uuid(1, 1), False, partitions))
        return {"events": answer}

    def list_topics(self, *, timeout: float) -> None:
        self.lists -= 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [(KafkaError._TIMED_OUT, UnreachableError), (KafkaError.CLUSTER_AUTHORIZATION_FAILED, BrokerError)],
)
def test_offset_request_that_times_out_is_unreachable_and_one_that_is_refused_is_not(
    code: int, kind: type[Exception]
) -> None:
    reader = object.__new__(OffsetReader)
    reader.kafka, reader._client = KafkaSettings(connect_timeout_s=0.1), Refusing(code)
    with pytest.raises(kind, match="looking for topic events"):
        reader.end("events")


def test_offset_request_after_its_controller_has_failed_learns_the_next_one() -> None:
    """The client sends the request to the controller of its last list of topics, and would wait without end."""
    reader = object.__new__(OffsetReader)
    reader.kafka, reader._client = KafkaSettings(connect_timeout_s=60), Refusing(KafkaError._TIMED_OUT, lists=2)
    assert reader._existing_partitions("events") == [0, 1]
    assert reader._client.lists == 0


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_topic_that_is_not_visible_has_no_partitions(code: int) -> None:
    reader = object.__new__(OffsetReader)
    reader.kafka, reader._client = KafkaSettings(), Refusing(code)
    assert reader._existing_partitions("events") == []
