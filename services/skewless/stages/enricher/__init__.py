"""The enricher: adds fields of compacted topics to the records of a topic, before they are aggregated."""
