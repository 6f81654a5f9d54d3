"""Process the router's output in a consumer group: python consumer.py BOOTSTRAP PIPELINE (needs confluent-kafka).

This example prints each tuple. Ctrl-C ends it. Tuples that are not committed by then are delivered again. At a record
of another format it ends with an error, and a later start continues at this record.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException

TUPLES = (b"skewless.tuple.v1", b"skewless.tuple.v2")
WATERMARK = b"skewless.watermark.v1"


def main(bootstrap: str, pipeline: str) -> None:
    """Read `worker-input`, which has a record per tuple with `worker_input.encoding: record`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{pipeline}-consumers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([f"{pipeline}.worker-input"])
    try:
        while True:
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is not None:
                    raise KafkaException(message.error())
                schema = dict(message.headers() or ()).get("schema")
                if schema in TUPLES:
                    print(json.dumps({"key": message.key().decode(), **json.loads(message.value())}), flush=True)
                elif schema != WATERMARK:
                    where = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
                    sys.exit(f"{where}: schema {schema}, which this program does not know")
                consumer.store_offsets(message=message)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
