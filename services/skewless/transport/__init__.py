"""Kafka under Faust: the only package that imports confluent_kafka."""
