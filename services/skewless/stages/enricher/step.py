"""Step of the enricher: adds the fields of tables to each record, and separates records without a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from skewless.engine.step import Sample
from skewless.parsing.batch_slices import slices
from skewless.parsing.converters import Problems
from skewless.parsing.formats.base import ParsedBatch
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.source_records import record_key_texts, select
from skewless.stages.enricher.settings import EnrichSettings, TableSettings
from skewless.stages.enricher.table import Table
from skewless.stages.stateless_step import StatelessStep
from skewless.wire.dead_letters import dead_letter
from skewless.wire.record import Batch, Headers, OutputRecord, OwnHeaders

ENRICHED = "enriched"


class EnricherStep(StatelessStep):
    """Writes each record with the fields of its rows as additional headers, to the partition with the same number.

    `tables` are those of the settings, in their order.
    """

    def __init__(self, settings: EnrichSettings, tables: Sequence[Table]) -> None:
        super().__init__()
        self.parser = RecordParser(settings.records)
        self.table_waits: Callable[[], tuple[str, ...]] = tuple
        """Returns what the tables wait for; set by the stage."""
        self._lookups = [
            _Lookup(f"enrich.tables.{number}", of_table, table)
            for number, (of_table, table) in enumerate(zip(settings.tables, tables, strict=True))
        ]
        self._names = frozenset(name for of_table in settings.tables for name in of_table.fields)
        """Names of the headers that only tables add."""

    def process(self, batch: Batch, now: int) -> Iterator[OutputRecord]:  # noqa: ARG002 - no time is needed
        """Yield the records of a batch with the fields of their rows, and dead letters."""
        for part in slices(batch):
            yield from self._enrich(part)

    @property
    def waiting(self) -> tuple[str, ...]:
        """What partitions and tables wait for."""
        return (*self.waits(), *self.table_waits())

    def _enrich(self, batch: Batch) -> Iterator[OutputRecord]:
        parsed = self.parser.parse(batch)
        invalid: dict[int, str] = {}
        added: list[list[tuple[str, bytes]]] = [[] for _ in batch.values]
        for number, lookup in enumerate(self._lookups):
            name = f"tables.{number}.key"
            if name in parsed.values:
                keys, problems = self._texts(batch, parsed, name)
            else:
                texts, of_keys = record_key_texts(batch, lookup.encoding)
                problems = {row: f"enrich.{name}: {reason}" for row, reason in of_keys.items()}
                keys = [None if row in problems else text for row, text in enumerate(texts)]
            for row, (fields, reason) in enumerate(lookup.find(keys)):
                added[row] += fields
                if reason:
                    invalid.setdefault(row, problems.get(row, reason))
        columns = batch.keys, batch.values, batch.timestamps.tolist(), batch.headers, added
        for row, (key, value, timestamp, headers, own) in enumerate(zip(*columns, strict=True)):
            if row in invalid:
                yield dead_letter(batch.topic, batch, row, invalid[row])
            else:
                kept = self._without_names(headers) if headers else ()
                yield OutputRecord(ENRICHED, value, key, batch.partition, timestamp, cast("OwnHeaders", [*kept, *own]))
        self.tuples += len(added) - len(invalid)

    def _texts(self, batch: Batch, parsed: ParsedBatch, name: str) -> tuple[list[str | None], Problems]:
        """Return a value of each record, and the reasons of the records in which it cannot be read."""
        texts: list[str | None] = [None] * len(batch.values)
        _set_texts(texts, range(len(texts)), parsed, name)
        if not parsed.invalid:
            return texts, {}
        # What is wrong with the key of another table does not matter for this one. If a record that cannot be read is
        # kept, the splitter decides whether it is invalid.
        rows = [row for row, _ in parsed.invalid]
        alone = self.parser.parse_only(name, select(batch, rows))
        _set_texts(texts, rows, alone, name)
        reasons = {rows[index]: reason for index, reason in alone.invalid}
        # The format knows best why it could not read its field.
        reasons |= {row: reason for row, reason in parsed.invalid if reason.startswith(f"values.{name} ")}
        return texts, {row: reason.replace("values.", "enrich.", 1) for row, reason in reasons.items()}

    def _without_names(self, headers: Headers) -> Headers:
        """Drop the record's own headers of fields: without a row, it would be counted under what is in no table."""
        for name, _ in headers:
            if name in self._names:
                return [header for header in headers if header[0] not in self._names]
        return headers

    def collect_metrics(self) -> Iterator[Sample]:
        """Yield the numbers of rows, of unreadable rows, and of records without a row, by table."""
        for lookup in self._lookups:
            table, labels = lookup.table, (lookup.table.topic,)
            yield Sample("skewless_enricher_table_rows", labels, len(table))
            yield Sample("skewless_enricher_unreadable_rows_total", labels, table.unreadable)
            yield Sample("skewless_enricher_missing_rows_total", labels, lookup.missing)


def _set_texts(texts: list[str | None], rows: Sequence[int], parsed: ParsedBatch, name: str) -> None:
    """Set the texts of the records that were parsed: those with the indices `rows`."""
    column = parsed.values[name].dictionary_decode().to_pylist()
    for index, text in zip(parsed.records.tolist(), column, strict=True):
        texts[rows[index]] = text


class _Lookup:
    """Finds the headers that a table adds to records."""

    def __init__(self, path: str, settings: TableSettings, table: Table) -> None:
        self.table = table
        self.encoding = settings.encoding
        self.missing = 0
        """Number of records without a row, or whose row lacks a field, since the process started."""
        self._path = path
        self._fields = settings.fields
        self._keeps = settings.missing == "keep"
        self._default = None if settings.default is None else settings.default.encode()

    def find(self, keys: Sequence[str | None]) -> Iterator[tuple[OwnHeaders, str]]:
        """Yield for each key the headers of its record, and the reason why the record is invalid; empty if it is not.

        None: the record has no key of a row.
        """
        found: Mapping[str | None, tuple[OwnHeaders, str]] = {key: self._of(key) for key in set(keys)}
        for key in keys:
            headers, reason = found[key]
            self.missing += bool(reason)
            yield headers, "" if self._keeps else reason

    def _of(self, key: str | None) -> tuple[OwnHeaders, str]:
        texts = None if key is None else self.table.fields(key)
        headers: list[tuple[str, bytes]] = []
        lacking = ""
        for (name, reference), text in zip(self._fields.items(), texts or [None] * len(self._fields), strict=True):
            value = self._default if text is None else text.encode()
            if text is None:
                lacking = lacking or f"its row in table {self.table.topic} has no text in field {reference}"
            if value is not None:
                headers.append((name, value))
        if key is None:
            lacking = f"{self._path}.key is missing"
        elif texts is None:
            lacking = f"table {self.table.topic} has no row for its key ({self._path}.key)"
        return headers, lacking
