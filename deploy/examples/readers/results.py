"""Print the results of a pipeline: python results.py BOOTSTRAP PIPELINE (needs confluent-kafka)."""

import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition


def main(bootstrap: str, pipeline: str) -> None:
    """Read `aggregates` to its end and print a line of JSON per result. The last record of each key is valid."""
    topic = f"{pipeline}.aggregates"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{pipeline}-readers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
    if metadata.error:
        sys.exit(f"topic {topic} at {bootstrap}: {metadata.error.str()}")
    partitions = set(metadata.partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    latest = {}
    while partitions:
        message = consumer.poll(30)
        if message is None:
            sys.exit(f"no records from {bootstrap} within 30 s")
        if message.error() is None:
            latest[message.key()] = message.value()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            partitions.discard(message.partition())
        else:
            raise KafkaException(message.error())
    consumer.close()
    for value in filter(None, latest.values()):
        print(value.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
