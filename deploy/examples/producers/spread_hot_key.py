"""Spread a hot key over the partitions of a topic: python spread_hot_key.py BOOTSTRAP TOPIC < lines.

Each line is a key, a tab, and a value. Needs skewless, which brings confluent-kafka.
"""

import itertools
import sys

from confluent_kafka import KafkaError, Message, Producer

from skewless.client import Balancer


def main(bootstrap: str, topic: str) -> None:
    """Produce each line to the partition that the balancer chooses for its key."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    metadata = producer.list_topics(topic, timeout=10).topics[topic]
    if metadata.error:
        sys.exit(f"topic {topic} at {bootstrap}: {metadata.error.str()}")
    balancer = Balancer("even", workers=len(metadata.partitions))
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    while batch := [line.rstrip("\n").split("\t", 1) for line in itertools.islice(sys.stdin, 1_000)]:
        partitions = balancer.assign([key for key, _ in batch])
        for (key, value), partition in zip(batch, partitions.tolist(), strict=True):
            while True:
                try:
                    producer.produce(topic, value, key, partition, on_delivery=delivered)
                    break
                except BufferError:  # the brokers are slower than the input
                    producer.poll(1)
        producer.poll(0)
    if producer.flush(30):
        sys.exit("not all records were delivered within 30 s: check that the brokers run")
    if failures:
        sys.exit(f"{len(failures):,} records were not delivered: {failures[0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
