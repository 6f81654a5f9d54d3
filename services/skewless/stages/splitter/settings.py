"""Settings of the splitter."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from skewless.parsing.settings import ParsingSettings
from skewless.settings_base import EventTimeSpan, InvalidSettingsError, SettingsModel


class LocalSettings(SettingsModel):
    """Settings of local aggregation: the splitter reduces tuples to rows, one per key and span, and sends these."""

    mode: Literal["none", "buffer", "windows"] = Field(
        "none",
        description="none: the splitter sends each tuple. buffer: it aggregates the tuples between two commits. "
        "windows: it aggregates them in local windows of event time, and holds each until its end.",
    )
    window_s: EventTimeSpan | None = Field(
        None,
        le=86_400,
        description="Length of a local window in seconds of event time, for the mode `windows` only, which needs it. "
        "It must divide `worker.pane_s` or, if that is unset, windows and ticks.",
    )
    adaptive: bool = Field(
        True,
        description="Mode `buffer` only: whether a source partition whose tuples hardly become fewer is sent without "
        "aggregation, until a sample shows that aggregation pays again.",
    )
    buffer_rows: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Maximum rows of a source partition in memory, and maximum tuples that are not aggregated yet. At "
        "this number, or at 64 MiB, rows are sent before the next commit.",
    )

    @property
    def window_ms(self) -> int | None:
        """Length of a local window in milliseconds; None without local windows."""
        return None if self.window_s is None else round(self.window_s * 1000)

    @model_validator(mode="after")
    def _window_fits_mode(self) -> Self:
        if self.mode == "windows" and self.window_s is None:
            raise InvalidSettingsError("window_s: missing; set the length of a local window for mode: windows")
        if self.mode != "windows" and self.window_s is not None:
            raise InvalidSettingsError(
                f"window_s: mode {self.mode} has no local windows; remove it, or set mode: windows"
            )
        return self


class SplitterSettings(ParsingSettings):
    """Settings of the conversion of source records to tuples."""

    local: LocalSettings = LocalSettings()

    @model_validator(mode="after")
    def _function_is_not_called_again(self) -> Self:
        # A restart reads the records of held tuples again, and a changed function would give other tuples.
        if self.python is not None and self.local.mode == "windows":
            raise InvalidSettingsError("local.mode: not windows with python, whose code may change; set mode: buffer")
        return self

    @field_validator("local", mode="before")
    @classmethod
    def _is_a_group(cls, local: Any) -> Any:
        if isinstance(local, bool | str):
            mode = "none" if local in (False, "none", "off") else "buffer"
            mode = "windows, window_s: 5" if local == "windows" else mode
            raise ValueError(f"should be a mapping of settings: {{mode: {mode}}}")  # noqa: TRY004 - for pydantic
        return local
