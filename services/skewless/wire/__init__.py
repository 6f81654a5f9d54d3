"""Formats of the records in Kafka: columns, headers, keys, and metadata of offsets."""
