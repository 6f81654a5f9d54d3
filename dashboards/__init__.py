"""Grafana dashboards, Prometheus rules and their runbooks; `dashboards.build` makes them."""
