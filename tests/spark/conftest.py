"""Fixture of the tests of Spark jobs: pipelines that have run."""

from __future__ import annotations

import pytest

from helpers.kafka import Pipeline
from helpers.recorded_runs import recorded


@pytest.fixture(scope="module")
def pipelines(broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Pipeline]:
    """Run three pipelines, `key`, `even` and `local`, to the end of one source with late and invalid records.

    Each test file has its own pipelines, because tests add differences and delete records.
    """
    return list(recorded(broker, tmp_path_factory.mktemp("recorded")))
