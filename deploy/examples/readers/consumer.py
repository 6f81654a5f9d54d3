"""Process the router's output in a consumer group: python consumer.py BOOTSTRAP PIPELINE (needs confluent-kafka).

This example prints each tuple. Ctrl-C ends it. Tuples that are not committed by then are delivered again.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException


def main(bootstrap: str, pipeline: str) -> None:
    """Read `worker-input`, which has a record per tuple with `worker_input.encoding: record`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{pipeline}-consumers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([f"{pipeline}.worker-input"])
    try:
        while True:
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                if dict(message.headers())["schema"] == b"skewless.tuple.v1":
                    print(json.dumps({"key": message.key().decode(), **json.loads(message.value())}), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
