"""Describes the topics as an API: an AsyncAPI 3 document, generated from the topology and the record types."""
