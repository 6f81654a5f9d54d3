"""Skewless: stateful stream aggregation on Kafka that stays fast and exact when keys are skewed."""

__version__ = "0.2.0"
