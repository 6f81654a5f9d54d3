"""Whether librdkafka takes `kafka.options`, found without a broker."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from skewless.errors import ConfigurationError
from skewless.transport.clients import made
from skewless.transport.consumer_options import consumer_options
from skewless.transport.flushing_outbox import FlushingOutbox
from skewless.transport.settings import KafkaSettings, TransportSettings
from skewless.transport.transactional_outbox import TransactionalOutbox

FILES = ("ssl.", "plugin.")
"""Options that begin so name files of the machine that the stages run on, which this need not be."""
SILENT = {"log_level": 0, "error_cb": lambda _error: None}


def check_files(kafka: KafkaSettings) -> None:
    """Read the files of `kafka.tls` as a client does; ConfigurationError names each that cannot be used here."""
    if kafka.tls is not None:
        made(Producer, {"security.protocol": "SSL", **kafka.tls.client_options(), **SILENT})


def check_options(kafka: KafkaSettings, transport: TransportSettings) -> None:
    """Make the clients that a stage makes, without an address; ConfigurationError with what is wrong with each."""
    own = {name: value for name, value in kafka.options.items() if not name.startswith(FILES)}
    plain = KafkaSettings.model_validate({"options": own})
    outbox = (
        TransactionalOutbox(plain, transport, str, "check")
        if transport.guarantee == "exactly_once"
        else FlushingOutbox(plain, transport, str)
    )
    problems: dict[str, None] = {}
    for kind, options in (
        (Consumer, consumer_options(plain, transport, "check", "check", end_of_partition=False)),
        (Producer, outbox.options()),
    ):
        nowhere = {name: value for name, value in options.items() if name != "bootstrap.servers"} | SILENT
        try:
            client = made(kind, nowhere)
        except ConfigurationError as error:
            problems |= dict.fromkeys(error.problems)
        else:
            if isinstance(client, Consumer):
                client.close()
    if problems:
        raise ConfigurationError(*problems)
