"""Every alert fires when it should and only then (by promtool's own tests), and has a runbook."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
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
from helpers import tools
from helpers.docs_blocks import ROOT
from helpers.source_files import assert_none
from skewless import topology
from skewless.algorithms.grouping import GROUPINGS
from skewless.cli import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.settings import TransportSettings
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
    command = [tools.promtool(), *map(str, arguments)]
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


@pytest.mark.thorough
def test_alert_with_a_changed_threshold_fails_its_case(tmp_path: Path) -> None:
    alert = "SkewlessWorkerOverloaded"
    for path in RULES:
        (tmp_path / path.name).write_text(path.read_text().replace("1.5 *", "3 *"))
    document = yaml.safe_load(CASES[0].read_text().replace("../../../dashboards/", ""))
    document["tests"] = [
        test for test in document["tests"] if any(case["alertname"] == alert for case in test["alert_rule_test"])
    ]
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(document))
    assert alert in promtool("test", "rules", tmp_path / "cases.yaml")


def test_alert_has_a_firing_and_a_silent_case() -> None:
    cases = set(expectations())
    wanted = [(alert.name, fires) for alert in ALERTS for fires in (True, False)]
    assert_none(
        f"{name}: no {'firing' if fires else 'silent'} case" for name, fires in wanted if (name, fires) not in cases
    )


def test_alert_has_severity_summary_description_and_runbook() -> None:
    assert_none(f"{rule['alert']}: no {missing}" for rule in rules() for missing in missing_parts(rule))


def missing_parts(rule: dict[str, Any]) -> Iterator[str]:
    notes = rule["annotations"]
    if rule["labels"].get("severity") not in {"warning", "critical"}:
        yield "severity: warning or critical"
    if "{{ $labels.pipeline }}" not in notes.get("summary", ""):
        yield "summary with the pipeline"
    if not notes.get("description"):
        yield "description"
    page, _, anchor = notes["runbook_url"].partition("#")
    if anchor not in {heading.lower() for heading in re.findall(r"^## (.*)$", (ROOT / page).read_text(), re.MULTILINE)}:
        yield f"heading for {notes['runbook_url']}"


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


def test_runbook_names_resolve_to_existing_things() -> None:
    known = {*GROUPINGS, *settings(), *commands(), *PAGES, *BROKER_SETTINGS}
    known |= {metric.name for metric in METRICS} | {topic.name for topic in topology.TOPICS}
    named = titles()
    unknown = []
    for name, text in RUNBOOKS.items():
        for quoted in QUOTED.findall(text):
            path, _, value = quoted.partition(": ")
            if path not in known or (value and value not in values(path)):
                unknown.append(f"{name}: `{quoted}`")
        unknown += [f"{name}: *{title}*" for title in ITALIC.findall(" ".join(text.split())) if title not in named]
    assert_none(unknown)


def test_alert_files_with_another_base_url_link_to_it() -> None:
    made = files("https://example.com/alerts")["dashboards/alerts.yaml"]
    assert "runbook_url: https://example.com/alerts#skewlessstagedown" in made
