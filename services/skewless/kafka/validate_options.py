"""Validates `kafka.options` and the files of `kafka.tls` and `kafka.sasl` without a broker."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from skewless.errors import ConfigurationError
from skewless.kafka.clients import create_client
from skewless.kafka.consumer.options import consumer_options
from skewless.kafka.producer.at_least_once import AtLeastOnceProducer
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.kafka.settings import KafkaSettings, TransportSettings

FILES = ("ssl.", "plugin.")
"""Prefixes of options that name files on the stages' machine, which may be another machine than this one."""
SILENT = {"log_level": 0, "error_cb": lambda _error: None}


def check_files(kafka: KafkaSettings) -> None:
    """Read the files of `kafka` as a client does. Raises ConfigurationError with each unusable file."""
    if kafka.sasl is not None:
        kafka.sasl.client_options()
    if kafka.tls is not None:
        create_client(Producer, {"security.protocol": "SSL", **kafka.tls.client_options(), **SILENT})


def validate_client_options(kafka: KafkaSettings, transport: TransportSettings) -> None:
    """Create the clients of a stage, without an address. Raises ConfigurationError with the problems of each client."""
    options_without_files = {name: value for name, value in kafka.options.items() if not name.startswith(FILES)}
    plain = KafkaSettings.model_validate({"options": options_without_files})
    producer = (
        TransactionalProducer(plain, transport, str, "check")
        if transport.guarantee == "exactly_once"
        else AtLeastOnceProducer(plain, transport, str)
    )
    problems: dict[str, None] = {}
    for client_type, options in (
        (Consumer, consumer_options(plain, transport, "check", "check", end_of_partition=False)),
        (Producer, producer.options()),
    ):
        without_address = {name: value for name, value in options.items() if name != "bootstrap.servers"} | SILENT
        try:
            client = create_client(client_type, without_address)
        except ConfigurationError as error:
            problems |= dict.fromkeys(error.problems)
        else:
            if isinstance(client, Consumer):
                client.close()
    if problems:
        raise ConfigurationError(*problems)
