"""Settings of the splitter."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from skewless.parsing.settings import ParsingSettings
from skewless.settings_base import SettingsModel


class LocalSettings(SettingsModel):
    """Settings of local aggregation: the splitter reduces tuples to one row per key and pane before it sends them."""

    mode: Literal["none", "buffer"] = Field(
        "none",
        description="none: the splitter sends each tuple. buffer: it aggregates the tuples between two commits.",
    )
    adaptive: bool = Field(
        True,
        description="Whether a source partition whose tuples hardly become fewer is sent without aggregation, until a "
        "sample shows that aggregation pays again.",
    )
    buffer_rows: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Maximum rows of a source partition in memory, and maximum tuples that are not aggregated yet. At "
        "this number, or at 64 MiB, rows are sent before the next commit.",
    )

    @field_validator("mode", mode="before")
    @classmethod
    def _is_no_boolean(cls, mode: Any) -> Any:
        if isinstance(mode, bool):
            word = "buffer" if mode else "none"
            raise ValueError(f"should be {word}; YAML reads on and off as true and false")  # noqa: TRY004 - for pydantic
        return mode


class SplitterSettings(ParsingSettings):
    """Settings of the conversion of source records to tuples."""

    local: LocalSettings = LocalSettings()

    @field_validator("local", mode="before")
    @classmethod
    def _is_a_group(cls, local: Any) -> Any:
        if isinstance(local, bool | str):
            mode = "none" if local in (False, "none", "off") else "buffer"
            raise ValueError(f"should be a mapping of settings: {{mode: {mode}}}")  # noqa: TRY004 - for pydantic
        return local
