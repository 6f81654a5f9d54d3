"""Skewless: stateful stream aggregation on Kafka that stays fast and exact when keys are skewed."""

__version__ = "0.3.0-dev"
