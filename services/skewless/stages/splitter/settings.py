"""Settings of the splitter."""

from __future__ import annotations

from skewless.parsing.settings import ParsingSettings


class SplitterSettings(ParsingSettings):
    """Settings of the conversion of source records to tuples."""
