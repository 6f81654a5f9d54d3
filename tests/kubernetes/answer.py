"""Results of a running pipeline, compared with a plain count of the same source."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from helpers.kafka import Pipeline, Truth, read, truth
from helpers.waiting import until
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader

SETTLED_S = 180.0


class Deployed(Pipeline):
    """A pipeline that other processes run. Its topics can be read."""

    def __init__(self, bootstrap: str, document: Mapping[str, Any]) -> None:
        self.bootstrap = bootstrap
        self.settings = PipelineSettings.model_validate({**document, "kafka": {"bootstrap_servers": bootstrap}})
        self.name = self.settings.name

    def expected(self) -> Truth:
        """Count the records that the source contains now."""
        records = read(self.bootstrap, self.settings.topic("source"))
        return truth(records, lateness_ms=self.settings.event_time.lateness_ms)

    def source_ends(self) -> dict[int, int]:
        """Return the end offsets of the source."""
        return OffsetReader(self.settings.kafka).end(self.settings.topic("source"))

    def failures(self, limit_s: float = SETTLED_S) -> tuple[list[str], int]:
        """Compare results and count when results are complete or at the deadline; returns differences and tuples."""
        expected = self.expected()
        with contextlib.suppress(AssertionError):
            until(lambda: not self._differences(expected), limit_s=limit_s, every_s=1.0)
        return self._differences(expected), expected.tuples

    def _differences(self, expected: Truth) -> list[str]:
        results, problems = self.results()
        found = {at: (entry["count"], entry["sum"]) for at, entry in results.items()}
        wanted = {at: (count, expected.sums[at]) for at, count in expected.counts.items()}
        late = [json.loads(record.value or b"") for record in self.read("late")]
        places = sorted((entry["partition"], entry["offset"]) for entry in late)
        problems += [] if places == sorted(expected.late) else [f"{len(places)} late, should be {len(expected.late)}"]
        unlike = sorted(at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at))
        problems += [f"{at}: {found.get(at)}, should be {wanted.get(at)} (one of {len(unlike)})" for at in unlike[:5]]
        return problems
