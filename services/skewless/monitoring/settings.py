"""Settings of metrics, health checks, logs and traces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from skewless.settings_base import SettingsModel


class MetricsSettings(SettingsModel):
    """HTTP server of a process for monitoring: /metrics, /livez, /readyz and /version on one port."""

    port: int = Field(
        0, ge=0, le=65_535, description="Port of the server; 0 disables it. Processes on one host need different ports."
    )
    address: str = Field(
        "0.0.0.0",  # noqa: S104 - pods are scraped from outside
        min_length=1,
        description="Address to listen on, IPv4 or IPv6.",
    )
    liveness_timeout_s: float = Field(
        180.0,
        ge=10,
        le=86_400,
        description="/livez fails if the event loop or the consumer thread makes no progress for this time.",
    )


class LogSettings(SettingsModel):
    """Log of a process, written to stderr."""

    format: Literal["auto", "text", "json"] = Field(
        "auto", description="json: one object per line; text: one readable line; auto: text on a terminal, else json."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of log lines. Libraries log from warning on, at level debug everything."
    )


class TracingSettings(SettingsModel):
    """OpenTelemetry spans of batches and commits; needs the extra `otel`."""

    enabled: bool = Field(False, description="Whether batches are traced and W3C trace context is propagated.")
    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s@]+$",
        description="URL of the OTLP/HTTP receiver, as http://collector:4318/v1/traces; null: from OTEL_* variables.",
    )
    sample_ratio: float = Field(
        0.01, ge=0, le=1, description="Share of batches that start a trace if none of their records belongs to a trace."
    )
