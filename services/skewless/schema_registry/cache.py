"""Schemas of a registry as a format has compiled them, by id. Bounded: the least recently used ones are dropped."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Final, Generic, TypeVar

from skewless.errors import UnknownSchemaError
from skewless.schema_registry.client import ReferencesError, RegistryClient
from skewless.schema_registry.schema import Schema, SchemaId
from skewless.schema_registry.settings import RegistrySettings

Compiled = TypeVar("Compiled")

CAPACITY: Final = 1000
"""Number of schemas that are kept. A batch with more schemas keeps all of its own."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A schema with which no record can be read."""

    reason: str
    """Reason of the dead letters."""
    expires: float = field(default=math.inf, compare=False)
    """Time of the monotonic clock in s from which on it is fetched again."""


UNKNOWN: Final = Unusable(UnknownSchemaError.REASON, expires=-math.inf)
UNKNOWN_S: Final = 2.0
"""Time after which an unknown schema is fetched again. Broken records may have any ids."""


class SchemaCache(Generic[Compiled]):
    """Schemas by id. `compile_schema` returns the compiled schema, or why it cannot be used. Safe in any thread.

    The reason of an unusable schema does not contain its id.
    """

    def __init__(
        self, settings: RegistrySettings, compile_schema: Callable[[SchemaId, Schema], Compiled | Unusable]
    ) -> None:
        self._settings = settings
        self._compile = compile_schema
        self._known: OrderedDict[SchemaId, Compiled | Unusable] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of schemas that are kept."""
        return len(self._known)

    @cached_property
    def client(self) -> RegistryClient:
        """The client of the registry."""
        return RegistryClient(self._settings)

    def wait(self) -> None:
        """Wait until the registry answers, and accepts the login.

        Raises UnreachableError after the time limit of the settings, and RegistryError if it refuses this client.
        """
        self.client.wait(self.client.check)

    def missing(self, ids: Iterable[SchemaId]) -> list[SchemaId]:
        """Return the ids whose schema must be fetched: an unknown one again after UNKNOWN_S, when it may exist."""
        now = time.monotonic()
        with self._lock:
            found = ((schema_id, self._known.get(schema_id, UNKNOWN)) for schema_id in ids)
            return [schema_id for schema_id, known in found if isinstance(known, Unusable) and known.expires <= now]

    def fetch(self, schema_id: SchemaId, keep: Collection[SchemaId] = ()) -> None:
        """Fetch a schema, in one attempt. `keep` are ids that must not be dropped for it.

        Raises UnavailableError if the registry does not answer, and RegistryError if it refuses this client.
        """
        try:
            compiled = self._compile(schema_id, self.client.schema(schema_id))
        except UnknownSchemaError:
            compiled = replace(UNKNOWN, expires=time.monotonic() + UNKNOWN_S)
        except ReferencesError as error:
            compiled = Unusable(f"one that {error.reason}")
        with self._lock:
            self._known[schema_id] = compiled
            excess = len(self._known) - max(CAPACITY, len(keep))
            if excess > 0:
                dropped = (known for known in self._known if known not in keep and known != schema_id)
                for known in list(islice(dropped, excess)):
                    del self._known[known]

    def get(self, schema_id: SchemaId) -> Compiled | Unusable:
        """Return a schema. Fetches one that is missing, and waits for the registry.

        Raises UnreachableError after the time limit of the settings.
        """
        with self._lock:
            if schema_id in self._known:
                self._known.move_to_end(schema_id)
                return self._known[schema_id]
        self.client.wait(lambda: self.fetch(schema_id))
        with self._lock:
            return self._known[schema_id]
