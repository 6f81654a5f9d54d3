"""What a pipeline that goes on running has answered, against a plain count over the same source."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from helpers.kafka import Pipeline, Truth, read, truth
from skewless.config.pipeline_settings import PipelineSettings

SETTLED_S = 180.0


class Deployed(Pipeline):
    """A pipeline that somebody else runs: its topics can be read."""

    def __init__(self, bootstrap: str, document: Mapping[str, Any]) -> None:
        self.bootstrap = bootstrap
        self.settings = PipelineSettings.model_validate({**document, "kafka": {"bootstrap_servers": bootstrap}})
        self.name = self.settings.name

    def expected(self) -> Truth:
        """Count what is in the source by now."""
        records = read(self.bootstrap, self.settings.source.topic)
        return truth(records, lateness_ms=self.settings.event_time.lateness_ms)

    def wrong(self, limit_s: float = SETTLED_S) -> tuple[list[str], int]:
        """Say in what the results differ from the count, once they are as many or time is up; and how many tuples."""
        expected = self.expected()
        deadline = time.monotonic() + limit_s
        while (problems := self._differences(expected)) and time.monotonic() < deadline:
            time.sleep(1.0)
        return problems, expected.tuples

    def _differences(self, expected: Truth) -> list[str]:
        results, problems = self.results()
        found = {at: (fact["count"], fact["sum"]) for at, fact in results.items()}
        wanted = {at: (count, expected.sums[at]) for at, count in expected.counts.items()}
        late = [json.loads(record.value or b"") for record in self.read("late")]
        places = sorted((fact["partition"], fact["offset"]) for fact in late)
        problems += [] if places == sorted(expected.late) else [f"{len(places)} late, should be {len(expected.late)}"]
        unlike = sorted(at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at))
        problems += [f"{at}: {found.get(at)}, should be {wanted.get(at)} (one of {len(unlike)})" for at in unlike[:5]]
        return problems
