"""Settings of the flusher: section `sink`, which the sink shares."""

from __future__ import annotations

from skewless.stages.table_settings import SinkSettings

__all__ = ["SinkSettings"]
