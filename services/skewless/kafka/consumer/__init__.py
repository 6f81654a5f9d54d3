"""Consumers: options, offsets, and reads without a consumer group."""
