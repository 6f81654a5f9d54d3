"""Every alert fires when it should and only then, by promtool's own tests, and leads to a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.build.alerts import ALERTS
from dashboards.build.files import files
from dashboards.build.runbooks import RUNBOOKS
from docs_blocks import ROOT
from skewless.local.prometheus import find

CASES = Path(__file__).with_name("alerts.yaml")
RULES = [ROOT / "dashboards" / name for name in ("rules.yaml", "alerts.yaml")]


def promtool(*arguments: object) -> str:
    """Run it, and return what it says when it finds something wrong."""
    command = [str(find("promtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr if done.returncode else ""


def expectations() -> list[tuple[str, bool]]:
    """Every case: name of the alert, and whether it must fire."""
    tests = yaml.safe_load(CASES.read_text())["tests"]
    return [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES[1].read_text())["groups"] for rule in group["rules"]]


def test_rules_are_clean() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES) == ""


def test_alerts_fire_when_they_should_and_only_then() -> None:
    assert promtool("test", "rules", CASES) == ""


def test_a_changed_threshold_is_noticed(tmp_path: Path) -> None:
    for path in RULES:
        (tmp_path / path.name).write_text(path.read_text().replace("1.5 *", "3 *"))
    (tmp_path / "cases.yaml").write_text(CASES.read_text().replace("../../../dashboards/", ""))
    assert "SkewlessWorkerOverloaded" in promtool("test", "rules", tmp_path / "cases.yaml")


@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_every_alert_is_tested_firing_and_not_firing(name: str) -> None:
    assert {fires for alert, fires in expectations() if alert == name} == {True, False}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert "{{ $labels.pipeline }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}


def test_there_is_no_runbook_without_an_alert() -> None:
    assert list(RUNBOOKS) == [alert.name for alert in ALERTS]


def test_runbooks_may_stand_elsewhere() -> None:
    made = files("https://example.com/alerts")["dashboards/alerts.yaml"]
    assert "runbook_url: https://example.com/alerts#skewlessstagedown" in made
