"""`skewless audit` of topics without records, which compares nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skewless.cli import audit_scope
from skewless.cli.main import main
from skewless.kafka.consumer import offsets
from skewless.wire.topic_partition import CommittedOffset


class Topics:
    """Replaces `OffsetReader`: `ends` by topic, and no group has committed an offset above 0."""

    ends: dict[str, int]
    ran = True

    def __init__(self, _kafka: object) -> None:
        pass

    def begin(self, topic: str) -> dict[int, int]:
        return dict.fromkeys(range(2), 0) if topic in self.ends else {}

    def end(self, topic: str) -> dict[int, int]:
        return {0: 0, 1: self.ends[topic]}

    def committed(self, _group: str, _topic: str) -> dict[int, CommittedOffset]:
        return {0: CommittedOffset(0)} if self.ran else {}


def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **ends: int) -> Result:
    monkeypatch.setattr(offsets, "OffsetReader", Topics)
    monkeypatch.setattr(Topics, "ends", {"text": ends["source"], "p.aggregates": ends["aggregates"]}, raising=False)
    file = tmp_path / "pipeline.yaml"
    file.write_text("{name: p, source: {topic: text}}")
    return CliRunner().invoke(main, ["audit", "-f", str(file)])


def test_audit_of_drained_empty_topics_ends_with_nothing_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = audit(tmp_path, monkeypatch, source=0, aggregates=0)
    assert result.exit_code == 1
    assert result.stderr == "error: nothing to compare: topics text and p.aggregates are empty\n"


@pytest.mark.parametrize(("source", "aggregates"), [(5, 0), (0, 5), (0, 0)])
def test_audit_of_a_pipeline_that_never_ran_asks_to_run_it(
    source: int, aggregates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topics, "ran", False)
    result = audit(tmp_path, monkeypatch, source=source, aggregates=aggregates)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "run the pipeline first" in result.stderr


def test_audit_crash_has_another_exit_code_than_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of CI has to know whether the results are wrong, or the audit is."""

    def crash(*_arguments: object) -> None:
        raise ValueError("planted")

    assert audit(tmp_path, monkeypatch, source=0, aggregates=0).exit_code == 1
    monkeypatch.setattr(audit_scope, "find", crash)
    result = audit(tmp_path, monkeypatch, source=5, aggregates=5)
    assert result.exit_code == 70
    assert "this is a bug in skewless" in result.stderr
    assert "ValueError: planted" in result.stderr
