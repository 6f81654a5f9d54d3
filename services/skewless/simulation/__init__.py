"""Groupings run alone on a recorded stream of keys, without Kafka, and measured."""
