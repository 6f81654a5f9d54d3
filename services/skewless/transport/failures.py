"""What an error of librdkafka means for the transaction: go on, rewind, start a new producer, or stop.

Classes after librdkafka's own flags (rdkafka.h, "Transactional producer API") and KIP-98, KIP-360, KIP-447.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from skewless.algorithms.sized import RECORD_BYTES
from skewless.errors import BrokerError, ConfigurationError, FencedError, SkewlessError

TOPIC_BYTES = 2 * RECORD_BYTES
"""What a topic should take as `max.message.bytes`."""
_LACKS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "on the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IdempotentWrite on the cluster",
}
_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION}  # noqa: SLF001 - librdkafka's local error codes are named so
_MISSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
BROKER_AWAY = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
"""No broker can be reached now; it may come back."""
_TAKEN_OVER = (
    "another process has joined with this one's group instance id, so this one ends; if both are meant to run, give "
    "each its own --instance"
)
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.FENCED_INSTANCE_ID}  # noqa: SLF001


_TRANSIENT = BROKER_AWAY | {
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._WAIT_COORD,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._FAIL,  # noqa: SLF001 - communication failed
    KafkaError._DESTROY_BROKER,  # noqa: SLF001 - the connection that had the request was given up
    KafkaError._UNKNOWN_BROKER,  # noqa: SLF001
    KafkaError._NODE_UPDATE,  # noqa: SLF001
    KafkaError._WAIT_CACHE,  # noqa: SLF001
    KafkaError._RETRY,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""Errors of a broker or coordinator that restarts, moves, or cannot be reached: the same request may succeed later."""


class BrokerAwayError(Exception):
    """No broker answered this attempt. The caller keeps polling the consumer and repeats the attempt."""


class RewindError(Exception):
    """The open transaction is lost: abort it and read again from what was committed.

    `replace`: the producer cannot be used any more; its last outcome is unknown or it was fenced.
    `rejoin`: the consumer cannot be used any more; a new one has to join the group.
    """

    def __init__(self, reason: str, *, replace: bool = False, fenced: bool = False, rejoin: bool = False) -> None:
        super().__init__(reason)
        self.replace = replace
        self.fenced = fenced
        self.rejoin = rejoin


def is_transient(error: KafkaError) -> bool:
    """Return whether the same request may succeed later without any change."""
    return bool(error.retriable()) or error.code() in _TRANSIENT


def retriable(error: KafkaException) -> bool:
    """Whether the same call may be made again."""
    return bool(_kafka_error(error).retriable())


def refusal(error: KafkaError, doing: str, operation: str) -> BrokerError | None:
    """Say which right is missing, or which size is too small; None for an error of another kind.

    `doing` names the resource, `operation` is what it takes on a topic.
    """
    code = error.code()
    if code in _LOGIN:
        return BrokerError(f"this user is refused while {doing}: {error.str()}; correct kafka.sasl or kafka.tls")
    if code in _TOO_LARGE:
        return BrokerError(
            f"a record is larger than it may be while {doing}: {error.str()}; give that topic max.message.bytes="
            f"{TOPIC_BYTES} or more (`kafka-configs.sh --alter --entity-type topics --add-config ..`, and in "
            "topics.options if it is set there), and kafka.options.message.max.bytes as much, if it is set"
        )
    if code not in _LACKS:
        return None
    right = f"{operation} {_LACKS[code]}" if code == KafkaError.TOPIC_AUTHORIZATION_FAILED else _LACKS[code]
    return BrokerError(
        f"not allowed while {doing}: {error.str().rstrip('.')}; grant {right}, "
        "`skewless topics acls` prints what each stage needs"
    )


def stop_or_rewind(error: KafkaException, doing: str) -> SkewlessError | RewindError:
    """Turn an error that cannot be retried into what has to follow from it."""
    facts = _kafka_error(error)
    code = facts.code()
    if refused := refusal(facts, doing, "Write"):
        return refused
    if code in _MISSING:
        return BrokerError(f"no such topic or partition while {doing}: {facts.str()}; run `skewless topics apply`")
    if code == KafkaError.FENCED_INSTANCE_ID:
        return FencedError(f"while {doing}: {_TAKEN_OVER}")
    replace = bool(facts.fatal()) or not facts.txn_requires_abort()
    return RewindError(f"{doing}: {facts.str()}", replace=replace, fenced=code in _FENCED)


def consumer_failure(error: KafkaError, doing: str) -> SkewlessError | None:
    """Tell what a consumer's error event means; None for those that librdkafka mends by itself.

    `doing` names the topic and the group.
    """
    code = error.code()
    fatal = error.fatal() or code == KafkaError._FATAL  # noqa: SLF001 - an event's flag is not set, its code is
    if code == KafkaError.FENCED_INSTANCE_ID or (fatal and "fenced" in error.str().lower()):
        return FencedError(_TAKEN_OVER)
    if refused := refusal(error, doing, "Read"):
        return refused
    if code == KafkaError.INVALID_SESSION_TIMEOUT:
        return ConfigurationError(
            f"transport.session_timeout_s: is not within what the brokers allow, while {doing}: "
            "their group.min.session.timeout.ms is 6 s by default, and group.max.session.timeout.ms 30 min"
        )
    if code in _MISSING:
        return BrokerError(f"cannot consume: {error.str()}; run `skewless topics apply`")
    return BrokerError(f"consumer stopped: {error.str()}") if fatal else None


def _kafka_error(error: KafkaException) -> KafkaError:
    return error.args[0]
