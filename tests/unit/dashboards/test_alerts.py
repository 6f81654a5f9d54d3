"""Every alert fires when it should and only then (by promtool's own tests), and has a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from pydantic import BaseModel

from dashboards.generate.alerts import ALERTS
from dashboards.generate.dashboard import panels
from dashboards.generate.files import files
from dashboards.generate.runbooks import RUNBOOKS
from helpers.docs_blocks import ROOT
from skewless import topology
from skewless.algorithms.grouping import GROUPINGS
from skewless.cli import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.settings import TransportSettings
from skewless.lab.local.prometheus import find
from skewless.monitoring.metrics import METRICS

CASES = [Path(__file__).with_name(name) for name in ("alerts.yaml", "alerts_of_days.yaml")]
RULES = [ROOT / "dashboards" / name for name in ("rules.yaml", "alerts.yaml")]
QUOTED = re.compile(r"`([^`]+)`")
ITALIC = re.compile(r"\*([^*]+)\*")
BROKER_SETTINGS = {"transaction.max.timeout.ms", "offsets.retention.minutes"}
"""Names in runbooks that are settings of the broker."""
PAGES = {"/metrics", "/livez", "/readyz", "/version"}


def promtool(*arguments: object) -> str:
    """Run promtool; returns its errors."""
    command = [str(find("promtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout + done.stderr if done.returncode else ""


def expectations() -> list[tuple[str, bool]]:
    """Every case: name of the alert, and whether it must fire."""
    tests = [test for path in CASES for test in yaml.safe_load(path.read_text())["tests"]]
    return [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES[1].read_text())["groups"] for rule in group["rules"]]


def test_alert_rules_pass_the_lint_of_promtool() -> None:
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES) == ""


def test_alert_cases_fire_or_stay_silent_as_expected() -> None:
    assert promtool("test", "rules", *CASES) == ""


def test_alert_with_a_changed_threshold_fails_its_case(tmp_path: Path) -> None:
    for path in RULES:
        (tmp_path / path.name).write_text(path.read_text().replace("1.5 *", "3 *"))
    (tmp_path / "cases.yaml").write_text(CASES[0].read_text().replace("../../../dashboards/", ""))
    assert "SkewlessWorkerOverloaded" in promtool("test", "rules", tmp_path / "cases.yaml")


@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_alert_has_a_firing_and_a_silent_case(name: str) -> None:
    assert {fires for alert, fires in expectations() if alert == name} == {True, False}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alert_has_severity_summary_description_and_runbook(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert "{{ $labels.pipeline }}" in rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^## (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {heading.lower() for heading in headings}


def test_hung_process_alert_at_the_longest_commit_interval_stays_silent() -> None:
    (slowest,) = [
        rule.le for rule in TransportSettings.model_fields["commit_interval_s"].metadata if hasattr(rule, "le")
    ]
    (hung,) = [alert for alert in ALERTS if alert.name == "SkewlessProcessHung"]
    (minutes,) = re.findall(r"\[(\d+)m\]", hung.expr)
    assert slowest == 60, "the alert's description says so"
    assert int(minutes) * 60 >= 3 * slowest


def test_runbooks_exist_for_alerts_only() -> None:
    assert list(RUNBOOKS) == [alert.name for alert in ALERTS]


def settings(model: type[BaseModel] = PipelineSettings, above: str = "") -> set[str]:
    """Paths of all settings, and of groups of them."""
    found = set()
    for name, field in model.model_fields.items():
        found.add(above + name)
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= settings(kind, f"{above}{name}.")
    return found


def values(path: str) -> set[str]:
    """Return the possible values of a setting with choices."""
    model: Any = PipelineSettings
    *groups, last = path.split(".")
    for name in groups:
        model = model.model_fields[name].annotation
    return set(map(str, get_args(model.model_fields[last].annotation)))


def commands(command: click.Command = main.main, words: tuple[str, ...] = ("skewless",)) -> set[str]:
    """Every command, and every option of a command."""
    options = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
    found = {" ".join(words)} | {option for option in options if option.startswith("--")}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            part = command.get_command(context, name)
            assert part is not None
            found |= commands(part, (*words, name))
    return found


def titles() -> set[str]:
    """Names of dashboards, panels and alerts."""
    made = [json.loads(text) for name, text in files().items() if name.endswith(".json")]
    shown = {panel["title"] for found in made for panel in panels(found)}
    return shown | {found["title"].rpartition(" / ")[2] for found in made} | {alert.name for alert in ALERTS}


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbook_names_resolve_to_existing_things(name: str) -> None:
    known = {*GROUPINGS, *settings(), *commands(), *PAGES, *BROKER_SETTINGS}
    known |= {metric.name for metric in METRICS} | {topic.name for topic in topology.TOPICS}
    for quoted in QUOTED.findall(RUNBOOKS[name]):
        path, _, value = quoted.partition(": ")
        assert path in known, quoted
        assert not value or value in values(path), quoted
    assert set(ITALIC.findall(" ".join(RUNBOOKS[name].split()))) <= titles()


def test_alert_files_with_another_base_url_link_to_it() -> None:
    made = files("https://example.com/alerts")["dashboards/alerts.yaml"]
    assert "runbook_url: https://example.com/alerts#skewlessstagedown" in made
