"""Settings of the aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from skewless.aggregate_registry import choices_of
from skewless.algorithms.aggregates import DEFAULT
from skewless.algorithms.windowing.assigner import DAY_MS, CalendarWindows, HoppingWindows, WindowAssigner, tumbling
from skewless.algorithms.windowing.sessions import SessionWindows
from skewless.errors import ConfigurationError
from skewless.schema_registry.settings import ResultFormat, Subject
from skewless.settings_base import EventTimeOffset, EventTimeSpan, InvalidSettingsError, SettingsModel
from skewless.time_zone import closest_zone, time_zone, zone_names
from skewless.wire.aggregates import Numbers

STATE_BYTES = 384 * 2**20
"""Default limit of the state: with it, half of the chart's memory limit (1 GiB) is left for everything else."""


MAX_WINDOW_S = 31_536_000
MAX_OVERLAP = 1_440
"""Maximum number of windows that contain a tuple: a day every minute. Each of them stores the keys of the tuple."""
MAX_RANKS = 1_000
"""Maximum keys of a list: its rows must fit into one record."""
WEEK_MS = 7 * DAY_MS
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)


class SessionSettings(SettingsModel):
    """Settings of session windows: tuples of a key, each less than `gap_s` after an earlier one."""

    gap_s: EventTimeSpan = Field(
        1_800.0,
        ge=0.001,
        le=MAX_WINDOW_S,
        description="Seconds of event time without tuples of a key after which its session ends.",
    )
    max_s: EventTimeSpan = Field(
        DAY_MS / 1000,
        ge=0.001,
        le=MAX_WINDOW_S,
        description="A session ends at the latest at the next multiple of these seconds since 1970-01-01 00:00 UTC. "
        "The state has all sessions since the last one.",
    )

    @model_validator(mode="after")
    def _gap_fits(self) -> SessionSettings:
        if self.max_s < self.gap_s:
            raise InvalidSettingsError("max_s: must not be less than gap_s, because no session would end by its gap")
        return self

    def assigner(self) -> SessionWindows:
        """Return the sessions that these settings describe."""
        return SessionWindows(_ms(self.gap_s), _ms(self.max_s))


class WindowSettings(SettingsModel):
    """Settings of windows, instead of `aggregator.window_s`. One of `size_s`, `size` and `session` is required."""

    size_s: EventTimeSpan | None = Field(
        None, ge=0.001, le=MAX_WINDOW_S, description="Length of a window in seconds of event time."
    )
    every_s: EventTimeSpan | None = Field(
        None,
        ge=0.001,
        le=MAX_WINDOW_S,
        description="With size_s: seconds from the start of a window to the start of the next one. If it is less than "
        "size_s, windows overlap, and a tuple counts in several of them. null: size_s.",
    )
    size: Literal["day", "week"] | None = Field(
        None, description="Calendar days, or weeks of seven of them, that begin at midnight in `zone`."
    )
    zone: str | None = Field(
        None, description="With size: time zone of the calendar days, such as Europe/Berlin. null: UTC."
    )
    offset_s: EventTimeOffset = Field(
        0.0,
        le=MAX_WINDOW_S,
        description="Seconds by which windows begin later, for example 18000 for days that begin at 05:00.",
    )
    start: Weekday | None = Field(
        None,
        description="Day on which weeks begin: with size week, or if windows begin every n weeks. null: monday with "
        "size week, otherwise thursday, because 1970-01-01 is one.",
    )
    session: SessionSettings | None = Field(
        None, description="Sessions of each key, instead of windows that are the same for all keys."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> WindowSettings:
        if self.session is not None:
            problems = [
                f"{name}: has no effect on session: remove one of them"
                for name in sorted(self.model_fields_set - {"session"})
                if getattr(self, name)
            ]
        else:
            problems = list(self._problems() if self.size is None else self._calendar_problems())
        if problems:
            raise InvalidSettingsError(*problems)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong with windows of a number of seconds."""
        if self.zone is not None:
            yield "zone: needs size day or week instead of size_s, because the length of a day varies"
        if self.size_s is None:
            yield "size_s: is required, or size with day or week"
            return
        every_s = self.size_s if self.every_s is None else self.every_s
        if every_s > self.size_s:
            yield "every_s: must not be more than size_s, because some tuples would be in no window"
        elif _ms(self.size_s) > MAX_OVERLAP * _ms(every_s):
            least_ms = -(-_ms(self.size_s) // MAX_OVERLAP)
            yield f"every_s: must be at least {_seconds(least_ms)}: a tuple can be in at most {MAX_OVERLAP:,} windows"
        if self.offset_s >= every_s:
            yield f"offset_s: must be less than {_seconds(_ms(every_s))}, because a window begins after this time again"
        if self.start is not None and _ms(every_s) % WEEK_MS:
            yield f"start: needs size week, or windows that begin every n weeks ({_seconds(WEEK_MS)} seconds)"

    def _calendar_problems(self) -> Iterator[str]:
        """Yield what is wrong with calendar windows."""
        for name in ("size_s", "every_s"):
            if getattr(self, name) is not None:
                yield f"{name}: has no effect on size {self.size}: remove one of them"
        if _ms(self.offset_s) >= DAY_MS:
            yield f"offset_s: must be less than a day ({_seconds(DAY_MS)})"
        if self.start is not None and self.size != "week":
            yield "start: needs size week"
        if self.zone is not None and self.zone not in zone_names():
            yield f"zone: unknown time zone{closest_zone(self.zone)}"

    @property
    def length_ms(self) -> int:
        """Length of a window in milliseconds, without changes of clocks. That of sessions is the longest possible."""
        if self.session is not None:
            return self.session.assigner().max_ms
        if self.size_s is not None:
            return _ms(self.size_s)
        return WEEK_MS if self.size == "week" else DAY_MS

    def assigner(self) -> WindowAssigner:
        """Return the function of event time that these settings describe."""
        if self.session is not None:
            return self.session.assigner()
        weekday = WEEKDAYS.index(self.start or "monday")
        if self.size is None:
            every_ms = self.length_ms if self.every_s is None else _ms(self.every_s)
            # The first Monday is the fifth day.
            start_ms = (weekday + 4) % 7 * DAY_MS if self.start is not None else 0
            return HoppingWindows(self.length_ms, every_ms, (start_ms + _ms(self.offset_s)) % every_ms)
        days = 7 if self.size == "week" else 1
        return CalendarWindows(days, weekday, _ms(self.offset_s), time_zone(self.zone or "UTC").utc_offset)

    def summary(self) -> str:
        """Return the settings that have an effect, as text for the state schema."""
        windows = self.assigner()
        if isinstance(windows, SessionWindows):
            return f"session gap_s {_seconds(windows.gap_ms)} max_s {_seconds(windows.max_ms)}"
        if isinstance(windows, HoppingWindows):
            every, offset = _seconds(windows.every_ms), _seconds(windows.offset_ms)
            return f"size_s {_seconds(windows.size_ms)} every_s {every} offset_s {offset}"
        start = f" start {self.start or 'monday'}" if self.size == "week" else ""
        return f"size {self.size}{start} offset_s {_seconds(_ms(self.offset_s))} zone {self.zone or 'UTC'}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.15g}"


class HavingSettings(SettingsModel):
    """Conditions on a result, all of which must match."""

    above: int | float | None = Field(None, description="The result is greater than this.")
    at_least: int | float | None = Field(None, description="The result is not less than this.")
    below: int | float | None = Field(None, description="The result is less than this.")
    at_most: int | float | None = Field(None, description="The result is not greater than this.")

    @model_validator(mode="after")
    def _has_a_condition(self) -> HavingSettings:
        if not self.bounds():
            raise ValueError(f"needs a condition: {', '.join(HavingSettings.model_fields)}")
        return self

    def bounds(self) -> dict[str, int | float]:
        """Return the bounds by the name of their operator."""
        return self.model_dump(exclude_none=True)


class TopSettings(SettingsModel):
    """Settings of the keys of each window with the largest results, in topic `top`."""

    n: int = Field(ge=1, le=MAX_RANKS, description="Number of keys per window.")
    by: str = Field(
        description="Name of the result that determines the order, the largest first. Keys with equal results are in "
        "ascending order. Keys without this result have no rank."
    )


class AggregatorSettings(SettingsModel):
    """Settings of windows and of their results."""

    window_s: EventTimeSpan | None = Field(
        60.0,
        ge=0.001,
        le=MAX_WINDOW_S,
        description="Length of tumbling windows in seconds of event time. The same as window with this size_s. "
        "null with window.",
    )
    window: WindowSettings | None = None
    aggregates: tuple[str | dict[str, Any], ...] = Field(
        DEFAULT,
        min_length=1,
        description="Aggregates to compute per key and window: a name, or a mapping of the name to a value, with the "
        "arguments of the aggregate and the name of the result (`as`), for example {quantile: price, at: [0.5]}.",
    )
    numbers: Numbers = Field(
        "number",
        description="Sums and results with decimals in the topic: JSON numbers with all digits, or text for consumers "
        "whose JSON numbers are doubles (15 to 17 digits).",
    )
    format: ResultFormat = "json"
    subject: Subject = "topic"
    having: dict[str, HavingSettings] = Field(
        default_factory=dict,
        description="Conditions on results by their name, for example {count: {at_least: 10}}. Only results of keys "
        "that match all of them are emitted. Needs emit: final.",
    )
    top: TopSettings | None = Field(
        None,
        description="Writes the keys of each window with the largest results to topic `top`, one record per rank. "
        "emit: updates writes each change, emit: final the exact list when the window has closed. null: no ranks.",
    )
    emit: Literal["updates", "final"] = Field(
        "updates",
        description="updates: emit all changed results at each commit; final: emit one result when the window closes.",
    )
    emit_interval_s: float = Field(
        0.0,
        ge=0,
        le=86_400,
        description="With emit updates: minimum seconds of wall clock between two updates of the same key and window, "
        "until the window closes. 0: at each commit.",
    )
    closed_window_retention_s: float = Field(
        3_600.0,
        ge=0,
        le=315_360_000_000,
        description="Event time after its end until which a closed window can be reopened, in seconds.",
    )
    max_state_bytes: int = Field(
        STATE_BYTES,
        ge=2**20,
        le=2**50,
        description="Maximum bytes of keys and partials in the open windows of a process. With more, the process exits "
        "with code 3. A key of 15 bytes takes about 70 bytes per window. The process uses up to twice the limit plus "
        "200 MB.",
    )

    @model_validator(mode="before")
    @classmethod
    def _window_replaces_default(cls, settings: Any) -> Any:
        if isinstance(settings, dict) and settings.get("window") is not None:
            return {"window_s": None} | settings
        return settings

    @model_validator(mode="after")
    def _parts_fit(self) -> AggregatorSettings:
        if problems := list(self._problems()):
            raise InvalidSettingsError(*problems)
        return self

    def _problems(self) -> Iterator[str]:
        if self.window_s is None and self.window is None:
            yield "window_s: is required, or window"
            return
        if self.window_s is not None and self.window is not None:
            yield "window_s: has the same meaning as window.size_s: remove window_s or window"
        has_sessions = isinstance(self.windows, SessionWindows)
        if self.top is not None and has_sessions:
            yield "top: ranks the keys of a window, and sessions differ by key: remove it, or window.session"
        if self.emit_interval_s and has_sessions:
            yield "emit_interval_s: is not possible with window.session: remove one of them"
        elif self.emit_interval_s and self.emit != "updates":
            yield f"emit_interval_s: has no effect on emit {self.emit}: remove one of them"
        if self.having and self.emit == "updates":
            yield "having: needs emit: final, because a result that is updated may match at one time and not at another"

    def _window(self) -> WindowSettings:
        return self.window or WindowSettings(size_s=self.window_s)

    @property
    def windows(self) -> WindowAssigner:
        """Assigns event times to windows."""
        return self._window().assigner()

    @property
    def window_ms(self) -> int:
        """Length of a window in milliseconds, without changes of clocks."""
        return self._window().length_ms

    @property
    def window_schema(self) -> int | str:
        """Windows in the state schema: the length in ms of tumbling windows from 1970 on, or a summary."""
        window = self._window()
        return window.length_ms if window.assigner() == tumbling(window.length_ms) else window.summary()

    @property
    def emit_interval_ms(self) -> int:
        """Minimum wall-clock time between two updates of a key and window in milliseconds."""
        return _ms(self.emit_interval_s)

    @property
    def closed_window_retention_ms(self) -> int:
        """Event time for which closed windows are kept after their end, in milliseconds."""
        return round(self.closed_window_retention_s * 1000)

    @field_validator("aggregates")
    @classmethod
    def _known(cls, elements: tuple[str | dict[str, Any], ...]) -> tuple[str | dict[str, Any], ...]:
        try:
            choices_of(elements)
        except ConfigurationError as error:
            raise InvalidSettingsError(*error.problems) from None
        return elements
