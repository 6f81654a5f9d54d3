"""Reads the records of one side of a join: parses them, and checks their ids, keys and times. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skewless.algorithms.join.held_records import Records, records_of
from skewless.parsing.formats import find_format
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import SourceRecords
from skewless.parsing.validation import TOO_FAR_AHEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRules:
    """Settings of one side."""

    topic: str
    """Full name of its topic."""
    parser: RecordParser
    is_json: bool
    """Whether results contain the records as JSON. Otherwise they contain their text."""
    earliest: int
    latest: int
    """Bounds of event times in ms."""
    keyed: bool = True
    """Whether the key of a record must be its id."""


def side_rules(settings: JoinSideSettings) -> SideRules:
    """Return the rules of one side."""
    return SideRules(
        topic=settings.topic,
        parser=RecordParser(settings.parsing),
        is_json=find_format(settings.format.name).in_json,
        earliest=settings.time.earliest,
        latest=settings.time.latest,
    )


def read_records(
    rules: SideRules, source: SourceRecords, offsets: NDArray[np.int64], newest: int
) -> tuple[Records, Mapping[int, str]]:
    """Return the valid records, and the reasons of the others by index.

    `newest` is the largest event time that is not too far ahead of the clock, in ms.
    """
    parsed = rules.parser.parse(source)
    invalid = {row: _about_the_id(reason) for row, reason in parsed.invalid}
    rows, ids = parsed.records, parsed.keys
    if len(rows) + len(invalid) < len(source.values):
        without_id = set(range(len(source.values))) - set(rows.tolist()) - invalid.keys()
        invalid |= dict.fromkeys(without_id, "no id")
    if "" in ids:
        invalid |= {int(rows[index]): "empty id" for index, record_id in enumerate(ids) if not record_id}
    if rules.keyed:
        for row in _rows_without_their_id(source.keys, rows, ids):
            invalid.setdefault(row, "the record key is not the id")
    _check_times(rules, parsed.times[rows], rows, newest, invalid)
    columns = _without(invalid, rows.tolist(), ids)
    documents, problems = rules.parser.documents(source, columns[0])
    valid, kept_ids, kept = _without(problems, *columns, documents)
    return records_of(kept_ids, parsed.times[valid], offsets[valid], kept), invalid | problems


def _without(invalid: Mapping[int, str], rows: Sequence[int], *columns: Sequence[Any]) -> list[Any]:
    """Return rows and columns without the rows that are invalid."""
    if not invalid:
        return [rows, *columns]
    keep = [row not in invalid for row in rows]
    return [list(compress(column, keep)) for column in (rows, *columns)]


def _check_times(
    rules: SideRules, times: NDArray[np.int64], rows: NDArray[np.int32], newest: int, invalid: dict[int, str]
) -> None:
    for is_out_of_bounds, reason in (
        (times < rules.earliest, "time before time.earliest"),
        (times > rules.latest, "time after time.latest"),
        (times > newest, TOO_FAR_AHEAD),
    ):
        for row in rows[is_out_of_bounds].tolist():
            invalid.setdefault(row, reason)


def _about_the_id(reason: str) -> str:
    """Return the reason of an invalid record: a format calls the id its key."""
    return f"id{reason[3:]}" if reason.startswith("key ") else reason


def _rows_without_their_id(keys: Sequence[bytes | None], rows: NDArray[np.int32], ids: Sequence[str]) -> list[int]:
    """Return the rows of a batch whose record key is not the id. `rows` has the row of each id."""
    encoded = [record_id.encode() for record_id in ids]
    if len(encoded) == len(keys) and encoded == keys:
        return []
    return [row for row, record_id in zip(rows.tolist(), encoded, strict=True) if keys[row] != record_id]
