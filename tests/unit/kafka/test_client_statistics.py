from __future__ import annotations

from confluent_kafka import Producer

from helpers.waiting import until
from skewless.kafka.client_statistics import ClientStatistics

CONSUMER = """{"name": "c", "msg_cnt": 0, "brokers": {
 "b:1/1": {"throttle": {"sum": 300, "cnt": 9}, "rtt": {}}, "b:2/2": {"throttle": {"sum": 200}}},
 "topics": {"t": {"topic": "t", "partitions": {
 "0": {"fetchq_cnt": 7, "fetchq_size": 75}, "1": {"fetchq_cnt": 7, "fetchq_size": 75}, "-1": {"fetchq_cnt": 0}}}}}"""


def test_client_statistics_of_a_consumer_count_its_queue_once_and_sum_over_brokers() -> None:
    client = ClientStatistics()
    assert not client.reported
    client.update(CONSUMER)
    assert (client.reported, client.queue_records, client.queue_bytes, client.throttled_s) == (True, 7, 75, 0.5)


def test_client_statistics_throttle_times_of_all_reports_add_up_and_queues_are_the_last() -> None:
    client = ClientStatistics()
    client.update(CONSUMER)
    client.update('{"msg_cnt": 2, "msg_size": 9, "brokers": {"b:1/1": {"throttle": {"sum": 100}}}}')
    assert (client.queue_records, client.queue_bytes, client.throttled_s) == (2, 9, 0.6)


def test_client_statistics_of_a_real_producer_have_its_queue() -> None:
    client = ClientStatistics()
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "statistics.interval.ms": 20, **client.options()}
    )
    producer.produce("t", b"12345")
    until(lambda: client.queue_records == 1, each=lambda: producer.poll(0.01), limit_s=30)
    assert client.queue_bytes >= 5
    producer.purge()
