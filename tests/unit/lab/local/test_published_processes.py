"""The processes of a run on this machine, as other commands see them."""

from __future__ import annotations

from pathlib import Path

import pytest

import skewless as sk
from skewless.errors import FencedError
from skewless.lab.local.published_processes import published, read


def test_published_second_run_in_this_process_is_refused_and_the_first_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = sk.Pipeline("clicks").settings
    with published(settings, {"router-0": 9100}):
        with pytest.raises(FencedError, match="this process runs pipeline clicks already"):
            published(settings, {}).__enter__()
        assert {name: process.metrics_port for name, process in read(settings).items()} == {"router-0": 9100}
    with published(settings, {}):
        assert read(settings) == {}
