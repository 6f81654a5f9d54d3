"""`skewless audit` of topics without records, which compares nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skewless.cli import audit_scope
from skewless.cli.commands import audit as command
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


def audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str, **ends: int) -> Result:
    monkeypatch.setattr(offsets, "OffsetReader", Topics)
    monkeypatch.setattr(Topics, "ends", {"text": ends["source"], "p.aggregates": ends["aggregates"]}, raising=False)
    file = tmp_path / "pipeline.yaml"
    file.write_text("{name: p, source: {topic: text}, sink: {url: sqlite:////nowhere/p.db}}")
    return CliRunner().invoke(main, ["audit", "-f", str(file), *options])


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


@pytest.mark.parametrize(
    ("options", "chosen"),
    [((), {"of_table": True, "first": 20}), (("--no-table", "--limit", "3"), {"of_table": False, "first": 3})],
)
def test_audit_options_choose_what_is_compared_and_how_much_is_printed(
    options: tuple[str, ...], chosen: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, calls = list[Any](), list[dict[str, Any]]()

    def open_table(settings: object) -> contextlib.AbstractContextManager[None]:
        opened.append(settings)
        return contextlib.nullcontext()

    def compare(*_arguments: object, **given: Any) -> dict[str, Any]:
        calls.append({name: given[name] for name in chosen})
        return {"compared": 1}

    monkeypatch.setattr(audit_scope, "find", lambda *_: None)
    monkeypatch.setattr(command, "_truncation_problems", lambda _scope: ())
    monkeypatch.setattr(command, "_problems", lambda *_: ())
    monkeypatch.setattr(command, "opened_table", open_table)
    monkeypatch.setattr(command, "spark_running", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(command, "_compare", compare)
    result = audit(tmp_path, monkeypatch, "--json", *options, source=5, aggregates=5)
    assert (result.exit_code, calls, bool(opened)) == (0, [chosen], chosen["of_table"]), result.output


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
