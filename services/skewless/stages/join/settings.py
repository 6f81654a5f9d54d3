"""Settings of the join."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.schema_registry.settings import ResultFormat, Subject
from skewless.settings_base import EventTimeSpan, InvalidSettingsError, SettingsModel

SPAN_SETTINGS = {Side.LEFT: "join.window_s", Side.RIGHT: "join.sync_delay_s"}
"""Setting that contains the tolerated disorder of a side, besides `join.apart_s`."""


class JoinSettings(SettingsModel):
    """Settings of the join of two topics: each record of the left one with at most one record of the right one."""

    left: JoinSideSettings = Field(description="Topic of the records that come first, for example impressions.")
    right: JoinSideSettings = Field(description="Topic of the records that may follow, for example clicks.")
    kind: Literal["left", "inner"] = Field(
        "left",
        description="left: left records without a partner are written to unmatched-left. inner: they are only counted.",
    )
    apart_s: EventTimeSpan = Field(
        le=315_360_000,
        description="A pair: the right record is at most this time after the left one, and not before it.",
    )
    sync_delay_s: float | None = Field(
        None,
        ge=0,
        le=315_360_000,
        description="A left record is unmatched when the largest right time has passed it by more than this: apart_s "
        "plus the disorder of the right topic. null: apart_s.",
    )
    window_s: float | None = Field(
        None,
        ge=0,
        le=315_360_000,
        description="apart_s plus the disorder of the left topic: a right record expires when the largest left time "
        "has passed it by more than window_s - apart_s. null: apart_s.",
    )
    max_watermark_drift_s: EventTimeSpan = Field(
        60.0,
        le=315_360_000,
        description="A partition whose watermark is this far ahead of the slowest one of its process is paused.",
    )
    buffer_records: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        1_000_000,
        description="Records that one process holds, of both sides. At this number only the slowest partition is read.",
    )
    buffer_bytes: int = Field(
        512 * 2**20,
        ge=2**20,
        le=2**50,
        description="Bytes of the values of these records, and 300 more for each record. At this number, too, only the "
        "slowest partition is read. The process uses up to 300 MB more.",
    )
    idle_timeout_s: float | None = Field(
        None,
        ge=0.001,
        le=315_360_000,
        description="Seconds without valid records after which a partition that was read to its end no longer holds "
        "the join back. Older records that follow are late. null: a silent partition stops the join.",
    )

    repartition: Literal["never", "always"] = Field(
        "never",
        description="never: an id has the same partition number in both topics, and is the record key. always: the "
        "stages left and right write both topics again, partitioned by id.",
    )
    format: ResultFormat = "json"
    subject: Subject = "topic"

    @field_validator("sync_delay_s", "window_s")
    @classmethod
    def _covers_a_pair(cls, value: float | None, info: ValidationInfo) -> float | None:
        apart_s = info.data.get("apart_s")
        if value is not None and apart_s is not None and value < apart_s:
            raise ValueError(f"is {value:g}, less than apart_s ({apart_s:g}): allowed pairs would be missed")
        return value

    @model_validator(mode="after")
    def _two_topics(self) -> JoinSettings:
        if self.left.topic == self.right.topic:
            raise InvalidSettingsError(f"right.topic: is {self.right.topic}, like left.topic; a join needs two topics")
        return self

    def side(self, side: Side) -> JoinSideSettings:
        """Return the settings of a side."""
        return self.left if side is Side.LEFT else self.right

    def rules(self) -> JoinRules:
        """Return the rules of the join, in ms."""
        apart_ms = round(self.apart_s * 1000)
        return JoinRules(
            apart_ms=apart_ms,
            left_disorder_ms=0 if self.window_s is None else round(self.window_s * 1000) - apart_ms,
            right_disorder_ms=0 if self.sync_delay_s is None else round(self.sync_delay_s * 1000) - apart_ms,
        )
