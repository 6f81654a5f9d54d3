"""Grafana dashboards, Prometheus rules and their runbooks. `dashboards.generate` writes them."""
