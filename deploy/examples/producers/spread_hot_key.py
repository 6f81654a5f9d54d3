"""Spread a hot key over the partitions of a topic: python spread_hot_key.py BOOTSTRAP TOPIC < lines.

Each line is a key, a tab, and a value. Needs skewless, which brings confluent-kafka.
"""

import itertools
import sys
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from skewless.client import Balancer


def main(bootstrap: str, topic: str) -> None:
    """Produce each line to the partition that the balancer chooses for its key."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "allow.auto.create.topics": False})
    balancer = Balancer("even", workers=partition_count(producer, bootstrap, topic))
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    problems: list[str] = []
    pairs = keys_and_values(sys.stdin, problems)
    try:
        while batch := list(itertools.islice(pairs, 1_000)):
            partitions = balancer.assign([key for key, _ in batch])
            for (key, value), partition in zip(batch, partitions.tolist(), strict=True):
                while True:
                    try:
                        producer.produce(topic, value, key, partition, on_delivery=delivered)
                        break
                    except BufferError:  # the brokers are slower than the input
                        producer.poll(1)
            producer.poll(0)
    finally:  # also after Ctrl-C
        undelivered = producer.flush(30)
    if undelivered:
        problems.append("not all records were delivered within 30 s: check that the brokers run")
    if failures:
        problems.append(f"{len(failures):,} records were not delivered: {failures[0]}")
    if problems:
        sys.exit("\n".join(problems))


def partition_count(producer: Producer, bootstrap: str, topic: str) -> int:
    """Return the number of partitions of a topic, which must exist."""
    metadata = producer.list_topics(topic, timeout=10).topics[topic]
    if metadata.error:
        sys.exit(f"topic {topic} at {bootstrap}: {metadata.error.str()}")
    return len(metadata.partitions)


def keys_and_values(lines: Iterable[str], problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each line. A line without a tab is a problem, and the end."""
    for number, line in enumerate(lines, 1):
        key, tab, value = line.rstrip("\n").partition("\t")
        if not tab:
            problems.append(f"line {number} has no tab after a key, so only the lines before it are records: {key!r}")
            return
        yield key, value


if __name__ == "__main__":
    main(*sys.argv[1:])
