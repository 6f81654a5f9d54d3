"""Up to which time a pipeline has closed windows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.config.pipeline_settings import PipelineSettings
from skewless.operations import closed_windows


@pytest.mark.parametrize(("emit", "expected"), [("final", MAX_WATERMARK), ("updates", None)])
def test_closed_everywhere_without_checkpoints_is_known_for_final_results(
    monkeypatch: pytest.MonkeyPatch, emit: str, expected: int | None
) -> None:
    checked: list[str] = []
    reader = SimpleNamespace(committed=lambda _group, _topic: {})
    monkeypatch.setattr(closed_windows, "OffsetReader", lambda _kafka: reader)
    monkeypatch.setattr(closed_windows, "Admin", lambda _kafka: SimpleNamespace(check_visible=checked.extend))
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "aggregator": {"emit": emit}})
    assert closed_windows.closed_everywhere(settings, "aggregator") == expected
    assert checked == ["p.partials"], "a user without rights would see no checkpoint either"
