"""Classifies errors of librdkafka: retry the request, abort the transaction, replace the producer, or end the process.

`ERRORS` is the one table of error codes. An error whose code is not in the table is judged by librdkafka's flags
(rdkafka.h, "Transactional producer API"; KIP-98, KIP-360 and KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from confluent_kafka import KafkaError, KafkaException

from skewless.algorithms.record_size import RECORD_BYTES
from skewless.errors import BrokerError, ConfigurationError, FencedError, SkewlessError, TransactionAbortedError
from skewless.wire.offset_metadata import MAX_CHARACTERS

TOPIC_BYTES = 2 * RECORD_BYTES
"""Required `max.message.bytes` of a topic."""


class ErrorClass(Enum):
    """The cause of an error. All but `REPEATABLE`, `UNREADABLE` and `FENCED` end the process."""

    UNREACHABLE = "no broker can be reached now"
    TRANSIENT = "a broker or coordinator restarts, moves, or does not answer"
    OUT_OF_RANGE = "the records at an offset do not exist"
    UNDECODABLE = "a record batch is damaged, or compressed in an unknown way"
    FENCED = "a newer producer epoch fenced this producer, or the broker timed its transaction out"
    REPLACED = "another member with the same group instance id fenced this one"
    UNAUTHENTICATED = "the broker refuses the credentials"
    UNAUTHORIZED = "a permission is missing"
    UNKNOWN_TOPIC = "a topic or partition does not exist"
    TOO_LARGE = "a record exceeds a size limit of the topic"
    METADATA_TOO_LARGE = "the metadata of an offset exceeds a limit of the brokers"
    SESSION_TIMEOUT = "the brokers refuse the session timeout"


_C = ErrorClass
REPEATABLE = {_C.UNREACHABLE, _C.TRANSIENT}
"""The same request may succeed later without any change."""
UNREADABLE = {_C.OUT_OF_RANGE, _C.UNDECODABLE}
"""Records cannot be read: one reset to the committed offsets; the second time, the end of the process."""
ERRORS: Mapping[int, ErrorClass] = {
    # librdkafka's local error codes have names of private members.
    KafkaError._TRANSPORT: _C.UNREACHABLE,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN: _C.UNREACHABLE,  # noqa: SLF001
    KafkaError._TIMED_OUT: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._WAIT_COORD: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._RESOLVE: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._FAIL: _C.TRANSIENT,  # noqa: SLF001 - communication failed
    KafkaError._DESTROY_BROKER: _C.TRANSIENT,  # noqa: SLF001 - the connection of the request was closed
    KafkaError._UNKNOWN_BROKER: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._NODE_UPDATE: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._WAIT_CACHE: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._PARTIAL: _C.TRANSIENT,  # noqa: SLF001 - not all brokers have answered
    KafkaError._RETRY: _C.TRANSIENT,  # noqa: SLF001
    KafkaError._NOENT: _C.TRANSIENT,  # noqa: SLF001 - no partition of the request has a leader now
    KafkaError._MSG_TIMED_OUT: _C.TRANSIENT,  # noqa: SLF001
    KafkaError.REPLICA_NOT_AVAILABLE: _C.TRANSIENT,
    KafkaError.OFFSET_NOT_AVAILABLE: _C.TRANSIENT,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: _C.TRANSIENT,
    KafkaError.COORDINATOR_NOT_AVAILABLE: _C.TRANSIENT,
    KafkaError.NOT_COORDINATOR: _C.TRANSIENT,
    KafkaError.REQUEST_TIMED_OUT: _C.TRANSIENT,
    KafkaError.NETWORK_EXCEPTION: _C.TRANSIENT,
    KafkaError.BROKER_NOT_AVAILABLE: _C.TRANSIENT,
    KafkaError.LEADER_NOT_AVAILABLE: _C.TRANSIENT,
    KafkaError.NOT_LEADER_FOR_PARTITION: _C.TRANSIENT,
    KafkaError.UNKNOWN_LEADER_EPOCH: _C.TRANSIENT,
    KafkaError.FENCED_LEADER_EPOCH: _C.TRANSIENT,
    KafkaError.UNSTABLE_OFFSET_COMMIT: _C.TRANSIENT,
    KafkaError.KAFKA_STORAGE_ERROR: _C.TRANSIENT,
    KafkaError._AUTO_OFFSET_RESET: _C.OUT_OF_RANGE,  # noqa: SLF001
    KafkaError._LOG_TRUNCATION: _C.OUT_OF_RANGE,  # noqa: SLF001
    KafkaError.OFFSET_OUT_OF_RANGE: _C.OUT_OF_RANGE,
    KafkaError._BAD_MSG: _C.UNDECODABLE,  # noqa: SLF001
    KafkaError._BAD_COMPRESSION: _C.UNDECODABLE,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED: _C.UNDECODABLE,  # noqa: SLF001
    KafkaError._UNDERFLOW: _C.UNDECODABLE,  # noqa: SLF001
    KafkaError.INVALID_MSG: _C.UNDECODABLE,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: _C.UNDECODABLE,
    KafkaError._FENCED: _C.FENCED,  # noqa: SLF001
    KafkaError.INVALID_PRODUCER_EPOCH: _C.FENCED,
    KafkaError.FENCED_INSTANCE_ID: _C.REPLACED,
    KafkaError.SASL_AUTHENTICATION_FAILED: _C.UNAUTHENTICATED,
    KafkaError._AUTHENTICATION: _C.UNAUTHENTICATED,  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _C.UNAUTHORIZED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _C.UNAUTHORIZED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _C.UNAUTHORIZED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _C.UNAUTHORIZED,
    KafkaError.UNKNOWN_TOPIC_OR_PART: _C.UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _C.UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION: _C.UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError.MSG_SIZE_TOO_LARGE: _C.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _C.TOO_LARGE,
    KafkaError.OFFSET_METADATA_TOO_LARGE: _C.METADATA_TOO_LARGE,
    KafkaError.INVALID_SESSION_TIMEOUT: _C.SESSION_TIMEOUT,
}
"""The class of each error code that means the same wherever it occurs."""

_MISSING_PERMISSIONS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
}
_OFFSETS_REFUSED = "Failed to commit offsets to transaction"
"""Beginning of librdkafka's error if the offsets of a transaction are refused. To commit them, Kafka requires Read on
their topics."""
WHERE_RIGHTS_ARE = "`skewless topics acls` prints what each stage needs"
_REPLACED_MESSAGE = (
    "another process has joined with this one's group instance id, so this one ends; if both are meant to run, give "
    "each its own --instance"
)


def class_of(error: KafkaError) -> ErrorClass | None:
    """Return the class of an error; None if its code alone does not decide."""
    return ERRORS.get(error.code())


def is_transient(error: KafkaError) -> bool:
    """Return whether the same request may succeed later without any change."""
    return bool(error.retriable()) or class_of(error) in REPEATABLE


def is_refused_login(error: KafkaError, options: Mapping[str, object]) -> bool:
    """Return whether a broker refuses the credentials of a client with these options, and will refuse them again.

    Not if they are tokens: one may expire within a login, and a broker refuses two logins of a connection within one
    second. The next login, with the next token, is accepted.
    """
    return class_of(error) is ErrorClass.UNAUTHENTICATED and options.get("sasl.mechanism") != "OAUTHBEARER"


def authorization_error(error: KafkaError, operation: str, acl_operation: str) -> BrokerError | None:
    """Return an error that names the missing permission or the size limit to increase; None for another kind of error.

    `operation` describes the failed operation and its resource. `acl_operation` is the ACL operation on the topic that
    the failed operation requires, or `Delete` or `Describe` for a group.
    """
    code, error_class = error.code(), class_of(error)
    if error_class is ErrorClass.UNAUTHENTICATED:
        return BrokerError(f"authentication failed while {operation}: {error.str()}; correct kafka.sasl or kafka.tls")
    if error_class is ErrorClass.TOO_LARGE:
        return BrokerError(
            f"a record is too large while {operation}: {error.str()}; set that topic's max.message.bytes="
            f"{TOPIC_BYTES} or more (`kafka-configs.sh --alter --entity-type topics --add-config ..`, and in "
            "topics.options if it is set there), and kafka.options.message.max.bytes as much, if it is set"
        )
    if error_class is ErrorClass.METADATA_TOO_LARGE:
        return BrokerError(
            f"a checkpoint is too large while {operation}: {error.str()}; set offset.metadata.max.bytes="
            f"{MAX_CHARACTERS} or more at the brokers ({MAX_CHARACTERS} is Kafka's default)"
        )
    if error_class is not ErrorClass.UNAUTHORIZED:
        return None
    permission = (
        f"{acl_operation} {_MISSING_PERMISSIONS[code]}"
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED
        else f"{acl_operation} on the group"
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED and acl_operation in {"Delete", "Describe"}
        else _MISSING_PERMISSIONS[code]
    )
    return BrokerError(
        f"not allowed while {operation}: {error.str().rstrip('.')}; grant {permission}, {WHERE_RIGHTS_ARE}"
    )


def classify_transaction_error(error: KafkaException, operation: str) -> SkewlessError:
    """Return the error to raise for a transaction error that cannot be retried."""
    kafka_error: KafkaError = error.args[0]
    error_class = class_of(kafka_error)
    acl_operation = "Read" if kafka_error.str().startswith(_OFFSETS_REFUSED) else "Write"
    if refused := authorization_error(kafka_error, operation, acl_operation):
        return refused
    if error_class is ErrorClass.UNKNOWN_TOPIC:
        return BrokerError(
            f"no such topic or partition while {operation}: {kafka_error.str()}; run `skewless topics apply`"
        )
    if error_class is ErrorClass.REPLACED:
        return FencedError(f"while {operation}: {_REPLACED_MESSAGE}")
    replace_output = bool(kafka_error.fatal()) or not kafka_error.txn_requires_abort()
    return TransactionAbortedError(f"{operation}: {kafka_error.str()}", replace_output=replace_output)


def classify_consumer_error(error: KafkaError, operation: str) -> SkewlessError | None:
    """Return the error to raise for an error event of a consumer; None if librdkafka recovers by itself.

    `operation` names the topic and the group.
    """
    error_class = class_of(error)
    fatal = error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - an event's flag is not set, its code is
    if error_class is ErrorClass.REPLACED or (fatal and "fenced" in error.str().lower()):
        return FencedError(_REPLACED_MESSAGE)
    if refused := authorization_error(error, operation, "Read"):
        return refused
    if error_class is ErrorClass.SESSION_TIMEOUT:
        return ConfigurationError(
            f"transport.session_timeout_s: is outside the range that the brokers allow, while {operation}: "
            "their group.min.session.timeout.ms is 6 s by default, and group.max.session.timeout.ms 30 min"
        )
    if error_class is ErrorClass.UNKNOWN_TOPIC:
        return BrokerError(f"cannot consume: {error.str()}; run `skewless topics apply`")
    return BrokerError(f"consumer stopped: {error.str()}") if fatal else None
