"""Monitoring of a running stage: metrics, health checks, logs and traces."""
