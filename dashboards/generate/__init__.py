"""Generates dashboards, rules and runbooks from the topology and the list of metrics: `make dashboards`."""
