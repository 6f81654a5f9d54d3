"""Simulation of groupings on a recorded stream of keys, without Kafka: runs them and measures load and replication."""
