"""Test cases of a pipeline in a YAML file: records, and what the pipeline must compute from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from skewless.config import yaml_loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.problems import by_setting, describe
from skewless.errors import ConfigurationError, unknown
from skewless.parsing.field_settings import Instant, instant_of
from skewless.settings_base import InvalidSettingsError, SettingsModel
from skewless.testing.run import InvalidRecord, Outcome, Record, outcome_of
from skewless.times import instant_text
from skewless.wire.joined import JoinLateRecord
from skewless.wire.tuples import TupleFormat

IDENTITY = ("topic", "partition", "offset", "id", "key", "window_start")
"""Fields that say which row of a topic is meant."""
TIMES = ("window_start", "window_end", "time", "watermark", "left_time", "right_time")
INVALID_PARTS = ("topic", "partition", "offset", "reason")
"""Fields of an invalid record besides its key and value."""
WITH_RESULTS = ("aggregates", "top")
"""Topics whose records have the results as fields."""
MEASURES = ("distribution", "hot-keys")
"""Topics whose numbers with decimals are all doubles."""
TOLERANCE = 1e-9
"""Relative difference of equal doubles, such as means. All other numbers must be equal."""
Row = dict[str, Any]
_encode = msgspec.json.Encoder(decimal_format="number").encode


class CaseRecord(SettingsModel):
    """A Kafka record of a test case."""

    value: Any = Field(None, description="Text, or a value that is written as JSON. null: a record without a value.")
    key: str | None = None
    timestamp: Instant | None = None
    partition: int = Field(0, ge=0, le=1023)
    topic: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)

    def to_record(self) -> Record:
        """Return the record for `run`."""
        return Record(**dict(self))


class Case(SettingsModel):
    """A test case. Expected rows contain the fields that are compared."""

    name: str
    now: Instant | None = Field(None, description="Time of the run. null: that of the clock.")
    values: tuple[Any, ...] | None = Field(None, description="Values of the records, in the order of their offsets.")
    records: tuple[CaseRecord, ...] | None = Field(None, description="Whole records, instead of `values`.")
    results: tuple[Row, ...] | None = Field(None, description="The last version of all results. null: any.")
    late: int | tuple[Row, ...] = Field(0, description="Late tuples and late records of a join, or their number.")
    invalid: int | tuple[Row, ...] = Field(0, description="Invalid records, or their number.")
    topics: dict[str, tuple[Row, ...]] = Field(
        default_factory=dict, description="Records of other public topics by name, such as `joined`."
    )

    @model_validator(mode="after")
    def _has_records(self) -> Case:
        if (self.values is None) == (self.records is None):
            raise InvalidSettingsError("values: set either values or records")
        return self


class CaseFile(SettingsModel):
    """A file with test cases."""

    cases: tuple[Case, ...] = Field(min_length=1)


def read_cases(file: Path, settings: PipelineSettings) -> Sequence[Case]:
    """Read the test cases of a file for a pipeline of these settings. Raises ConfigurationError with all problems."""
    document = yaml_loader.read(file, "cases: [{name: empty, values: []}]")
    try:
        cases = CaseFile.model_validate(document).cases
    except ValidationError as error:
        messages = by_setting(error.errors(include_url=False, include_input=False), document, CaseFile)
        raise ConfigurationError(*describe(messages, {}, file, document)) from None
    if problems := [f"{file}: {problem}" for problem in _unknown_fields(cases, settings)]:
        raise ConfigurationError(*problems)
    return cases


def _unknown_fields(cases: Sequence[Case], settings: PipelineSettings) -> Iterator[str]:
    """Yield a line for each field of an expected row that the pipeline never writes."""
    parts, results = settings.splitter.key.parts, [result.name for result in settings.results]
    late: list[type[msgspec.Struct]] = [TupleFormat(settings.values, parts).late_type]
    if settings.join is not None:
        late.append(JoinLateRecord)
    fields = {
        "results": ["key", "window_start", "window_end", *parts, *results, "revision"],
        "late": [field.name for record in late for field in msgspec.structs.fields(record)],
        "invalid": [*INVALID_PARTS, "key", "value"],
    }
    topics = {"topics.aggregates": fields["results"], "topics.late": fields["late"]}
    for number, case in enumerate(cases):
        expected = {"results": case.results, "late": case.late, "invalid": case.invalid}
        expected |= {f"topics.{name}": rows for name, rows in case.topics.items()}
        for where, known in (fields | topics).items():
            rows = expected.get(where)
            for index, row in enumerate(rows if isinstance(rows, tuple) else ()):
                unknown_names = (name for name in row if name not in known)
                yield from (
                    f"cases.{number}.{where}.{index}: {unknown('field', name, known)}" for name in unknown_names
                )


def check(settings: PipelineSettings, case: Case, now_ms: int) -> list[str]:
    """Run a test case, and return a line for each difference from what the case expects.

    `now_ms` is the time of the run if the case has none.
    """
    records = (case.values if case.records is None else [record.to_record() for record in case.records]) or ()
    outcome, unstable = outcome_of(settings, records, now_ms if case.now is None else case.now, Decimal)
    return [*filter(None, [unstable]), *_differences(settings, case, outcome)]


def _differences(settings: PipelineSettings, case: Case, outcome: Outcome) -> Iterator[str]:
    if case.results is not None:
        yield from _compare("results", case.results, [result.to_dict() for result in outcome.results])
    invalid = [_invalid_row(record) for record in outcome.invalid]
    yield from _compare("late", case.late, outcome.late)
    yield from _compare("invalid", case.invalid, invalid)
    for name, rows in case.topics.items():
        if name not in outcome.topics:
            topics = ", ".join(outcome.topics)
            yield f"topics.{name}: is not a public topic of JSON ({topics}); expect dead letters with `invalid`"
        else:
            yield from _compare(f"topics.{name}", rows, _with_doubles(settings, name, outcome.topics[name]))


def _with_doubles(settings: PipelineSettings, topic: str, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return records of a topic with floats for the fields that are doubles. Other numbers with decimals are exact."""
    doubles = {result.name for result in settings.results if _is_double(result.result_type)}
    return [
        {
            name: _to_float(value) if topic in MEASURES or (topic in WITH_RESULTS and name in doubles) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _is_double(result_type: pa.DataType) -> bool:
    return bool(pa.types.is_floating(result_type.value_type if pa.types.is_list(result_type) else result_type))


def _to_float(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case list():
            return [_to_float(each) for each in value]
        case dict():
            return {name: _to_float(each) for name, each in value.items()}
    return value


def _invalid_row(record: InvalidRecord) -> Row:
    texts = {"key": record.key, "value": record.value}
    return {name: getattr(record, name) for name in INVALID_PARTS} | {
        name: None if part is None else part.decode("utf-8", "replace") for name, part in texts.items()
    }


def _compare(what: str, expected: int | Sequence[Row], actual: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each difference between the expected rows, or their number, and the actual ones."""
    if isinstance(expected, int):
        if expected != len(actual):
            yield f"{what}: {len(actual)}, expected {expected}"
            yield from (f"{what}: {_text(row)}" for row in actual)
        return
    # A row with fewer fields may equal more of the actual ones: it gets what the others leave.
    rows = sorted(expected, key=len, reverse=True)
    matched = _match(rows, actual)
    missing = [row for number, row in enumerate(rows) if number not in matched]
    found_numbers = set(matched.values())
    unmatched = [row for number, row in enumerate(actual) if number not in found_numbers]
    for row in missing:
        same = next((found for found in unmatched if _is_same(row, found)), None)
        if same is None:
            yield f"{what}: missing {_text(row)}"
            continue
        unmatched.remove(same)
        identity = ", ".join(f"{name} {row[name]}" for name in IDENTITY if name in row)
        for name in _unequal(row, same):
            found = f"is {_text(same[name])}" if name in same else f"is not a field (fields: {', '.join(same)})"
            yield f"{what}: {identity}: {name} {found}, expected {_text(row[name])}"
    yield from (f"{what}: unexpected {_text(row)}" for row in unmatched)


def _match(expected: Sequence[Row], actual: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Return the number of the actual row of each expected one, by number, so that as many as possible have one.

    A row gets the first equal one that is free. If none is, other rows move along a shortest augmenting path.
    """
    matched: dict[int, int] = {}
    owners: dict[int, int] = {}
    free, without = list(range(len(actual))), []
    for number, row in enumerate(expected):
        equal = next((found for found in free if _fits(row, actual[found])), None)
        if equal is None:
            without.append(number)
        else:
            free.remove(equal)
            matched[number], owners[equal] = equal, number
    reachable: Sequence[int] = range(len(actual)) if free else ()
    for number in without:
        askers, end = _path(number, reachable, owners, lambda asker, found: _fits(expected[asker], actual[found]))
        if end is None:
            # No later path leads through rows from which no free one is reached.
            reachable = [found for found in reachable if found not in askers]
        while end is not None:
            asker = askers[end]
            left = matched.get(asker)
            matched[asker], owners[end], end = end, asker, left
    return matched


def _path(
    start: int, reachable: Iterable[int], owners: Mapping[int, int], fits: Callable[[int, int], bool]
) -> tuple[Mapping[int, int], int | None]:
    """Return which expected row asks for each actual row, breadth first from `start`, and the first one without owner.

    A row that is asked for is left to the row that asks: its owner asks for another one.
    """
    askers: dict[int, int] = {}
    asking, rest = [start], list(reachable)
    for asker in asking:  # grows
        equals = [found for found in rest if fits(asker, found)]
        askers |= dict.fromkeys(equals, asker)
        end = next((found for found in equals if found not in owners), None)
        if end is not None:
            return askers, end
        asking += [owners[found] for found in equals]
        if equals:
            rest = [found for found in rest if found not in askers]
    return askers, None


def _fits(expected: Row, actual: Mapping[str, Any]) -> bool:
    """Return whether the actual row has all fields of the expected one."""
    return next(_unequal(expected, actual), None) is None


def _is_same(expected: Row, actual: Mapping[str, Any]) -> bool:
    """Return whether the expected row names the actual one."""
    names = [name for name in IDENTITY if name in expected]
    return bool(names) and all(name in actual and _equal(expected[name], actual[name]) for name in names)


def _unequal(expected: Row, actual: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the expected fields that the actual row does not have."""
    yield from (name for name, value in expected.items() if name not in actual or not _equal(value, actual[name]))


def _equal(expected: Any, actual: Any) -> bool:
    """Return whether values are equal.

    Times may be given in ISO 8601, keys that are numbers without quotes, and numbers with decimals as text: YAML reads
    those without quotes as doubles, which keep 15 digits.
    """
    match expected, actual:
        case list(), list():
            equal = len(expected) == len(actual) and all(map(_equal, expected, actual))
        case dict(), dict():
            equal = expected.keys() == actual.keys() and all(_equal(expected[name], actual[name]) for name in expected)
        case (bool(), _) | (_, bool()):
            equal = expected is actual
        case str(), int():
            equal = _is_read_as(actual, instant_of, expected)
        case str(), Decimal():
            equal = _is_read_as(actual, Decimal, expected)
        case int() | float(), float():
            equal = math.isclose(expected, actual, rel_tol=TOLERANCE)
        case int() | float(), int() | Decimal():
            equal = Decimal(str(expected)) == actual
        case int() | float(), str():
            equal = str(expected) == actual
        case _:
            equal = bool(expected == actual)
    return equal


def _is_read_as(actual: Any, parse: Callable[[str], Any], text: str) -> bool:
    try:
        return bool(parse(text) == actual)
    except (ValueError, InvalidOperation):
        return False


def _text(value: Any) -> str:
    """Return a value or a row as JSON, its times in ISO 8601 as test cases have them."""
    if isinstance(value, Mapping):
        times = {name: instant_text(value[name]) for name in TIMES if isinstance(value.get(name), int)}
        value = {**value, **times}
    return _encode(value).decode()
