"""Envelope: what is around the data of a record. It is opened before the format reads the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skewless.parsing.converters import Problems
from skewless.parsing.field_settings import FieldRef, LimitSettings
from skewless.parsing.formats.base import OptionalFields
from skewless.parsing.source_records import SourceRecords
from skewless.settings_base import SettingsModel
from skewless.wire.record import Headers


@dataclass(frozen=True, slots=True)
class OpenedRecords:
    """Records of which the envelope was opened, as the format reads them."""

    records: SourceRecords
    """As many as before."""
    skipped: Sequence[int] = ()
    """Indices of the records that a rule of the envelope leaves out."""
    invalid: Problems = field(default_factory=dict)
    """Reasons of the records that have no such envelope, by index."""
    tracebacks: Mapping[int, str] = field(default_factory=dict)
    """Tracebacks of the invalid records for which a function of the user failed, by index."""


class Envelope(SettingsModel):
    """Settings of an envelope, and what it does with records. The docstring is its description in the reference.

    An envelope has no other place than its class, and its line in `ENVELOPES`.
    """

    name: str = Field(description="Name of the envelope.")
    title: ClassVar[str]
    """What its records are, for reports about topics."""
    event_time: ClassVar[str]
    """Field with the time of the event as settings name it, or header if a part of the envelope is in headers."""
    in_headers: ClassVar[bool] = False
    """Whether a part of it may be in the headers of a record."""
    needs_paths: ClassVar[bool] = False
    """Whether it is a part of the document that the format reads, so that the format must have nested fields."""

    def locate(self, reference: FieldRef) -> FieldRef:
        """Return where the format finds a field that a setting names."""
        return reference

    def name_of(self, located: FieldRef) -> FieldRef | None:
        """Return how a setting names a field: the opposite of `locate`. None if no setting should."""
        return located

    @property
    def rule_fields(self) -> Mapping[str, FieldRef]:
        """Fields that `meets` needs, where the format finds them."""
        return {}

    def open(self, records: SourceRecords, limits: LimitSettings, headers: Sequence[str]) -> OpenedRecords:  # noqa: ARG002 - for subclasses
        """Return the records as the format reads them. `headers` are the names of the headers that are needed."""
        return OpenedRecords(records)

    def provides(self, header: str) -> bool:  # noqa: ARG002 - as above
        """Return whether `open` may add a header of this name."""
        return False

    def meets(self, found: OptionalFields) -> tuple[NDArray[np.bool_], Problems]:
        """Return per readable record whether it counts, and the reasons of invalid records by index in the batch."""
        return np.ones(len(found.rows), dtype=np.bool_), {}

    def sample_fields(self) -> Sequence[tuple[FieldRef, Any]]:
        """Return the fields of a record for the smoke test that the envelope needs, where the format finds them."""
        return ()

    def sample_headers(self) -> Headers:
        """Return the headers of a record for the smoke test that the envelope needs."""
        return ()

    @classmethod
    def recognizes(cls, value: bytes, headers: Headers) -> bool:
        """Return whether a sampled record of a topic has this envelope."""
        raise NotImplementedError
