"""Settings of the sink: section `sink`, which the flusher shares."""

from __future__ import annotations

from skewless.stages.table_settings import SinkSettings

__all__ = ["SinkSettings"]
