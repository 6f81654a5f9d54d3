"""Kafka under Faust: the only code that imports Kafka's client library."""
