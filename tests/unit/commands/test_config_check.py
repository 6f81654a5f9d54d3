"""`config check` finds what only librdkafka knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli import main

PIPELINE = "name: p\nsource: {topic: t}\nkafka: {bootstrap_servers: 'nowhere:1', options: {%s}}\n"


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ("linger.ms: 20", 0, "pipeline p is valid"),
        ("message.timeout.ms: 60000", 2, "kafka.options: librdkafka refuses them: "),
    ],
)
def test_options_are_tried_without_a_broker(tmp_path: Path, options: str, code: int, told: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE % options)
    found = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    assert (found.exit_code, told in found.output) == (code, True), found.output
