"""Simulations and plans in Python equal those of the commands, and a notebook shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import skewless as sk
from skewless.api import analysis
from skewless.api.analysis import Plan, TopicReport
from skewless.cli.main import main

KEYS = [f"k{number % 7 if number % 3 else 0}" for number in range(5_000)]
COST = ("router_ns_per_tuple",)
CANDIDATE = {
    "grouping": "even",
    "workers": 4,
    "max_over_avg": 1.25,
    "worst_window_max_over_avg": None,
    "replication_factor": 2.0,
    "aggregation_cost": 8,
}


def comparable(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in COST}


def test_simulate_measures_are_those_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "ticks.tsv"
    file.write_text("".join(f"{time}\t{key}\n" for time, key in enumerate(KEYS)))
    command = [
        "simulate",
        "--input",
        str(file),
        "--grouping",
        "key,even",
        "--workers",
        "4,8",
        "--routers",
        "2",
        "--json",
    ]
    lines = CliRunner().invoke(main, command).stdout.splitlines()
    simulation = sk.simulate(KEYS, workers=[4, 8], grouping=["key", "even"], routers=2)
    found = [comparable(dict(run)) for run in simulation.candidates]
    assert found == [comparable({k: v for k, v in json.loads(line).items() if k != "window_s"}) for line in lines]
    page = simulation._repr_html_()
    assert page.count("<tr>") == 5
    assert page.count("background") == 4
    assert list(simulation.to_pandas()["workers"]) == [4, 8, 4, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grouping": "evn"}, "^grouping: unknown grouping evn, did you mean even"),
        ({"workers": 0}, "^workers: '0' must be an integer from 1 to 1024"),
        ({"keys": []}, "^keys: needs keys"),
        ({"times": [1]}, "^keys: needs keys, none of them None, and as many times: 5000 and 1"),
        ({"options": {"even": {"decay": 1}}}, r"^options: even.decay: "),
        ({"keys": [1, 2]}, "^keys: must be texts: "),
        ({"keys": "books"}, r"^keys: must be a list of texts, and are one text: give \['books'\]"),
        ({"keys": ["\ud800"]}, "^keys: must be texts: "),
        ({"times": [2**63 - 1] * 5_000}, "^times: must be within the years 1 to 9999$"),
        ({"times": [2**70]}, "^times: must be integers of 64 bits: "),
        ({"times": [0.5] * 5_000}, "^times: must be integers of 64 bits: "),
        ({"routers": 0}, "^routers: 0 must be a whole number, at least 1"),
        ({"routers": 1.5}, "^routers: 1.5 must be a whole number, at least 1"),
        ({"options": [1]}, r"^options: must be a mapping, not \[1\]"),
        ({"window_s": "5m"}, "^window_s: '5m' must be a number, at least 0.001, at most 1,000,000,000"),
        ({"window_s": 0}, "^window_s: 0 must be a number, at least 0.001"),
        ({"window_s": float("inf")}, "^window_s: inf must be a number, at least 0.001"),
        ({"window_s": float("nan")}, "^window_s: nan must be a number, at least 0.001"),
    ],
)
def test_simulate_invalid_argument_is_named(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"keys": KEYS, "workers": 4} | arguments
    with pytest.raises(sk.ConfigurationError, match=message):
        sk.simulate(**given)


@pytest.mark.parametrize("workers", [range(2, 4), np.array([2, 3])])
def test_simulate_each_of_several_workers_is_a_candidate(workers: Any) -> None:
    found = sk.simulate(KEYS, workers=workers, grouping="key")
    assert [candidate["workers"] for candidate in found.candidates] == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost_per_tuple_ms": 0}, "^cost_per_tuple_ms: 0 must be a number, above 0"),
        ({"rate": float("nan")}, "^rate: nan must be a number, above 0"),
        ({"headroom": -1}, "^headroom: -1 must be a number, at least 1"),
        ({"routers": 0}, "^routers: 0 must be a whole number, at least 1"),
        ({"routers": 1.5}, "^routers: 1.5 must be a whole number, at least 1"),
        ({"sample": 0}, "^sample: 0 must be a whole number, at least 1"),
        ({"pipeline": ["a", "b"]}, r"^pipeline: \['a', 'b'\] is not the name of a topic"),
        (
            {"pipeline": sk.Pipeline(["a", "b"], name="two")},
            "^pipeline: it reads several topics: give a pip",
        ),
    ],
)
def test_plan_invalid_argument_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(sk.ConfigurationError, match=message):
        sk.plan(**({"pipeline": "t"} | arguments))


def test_plan_shows_the_recommendation_with_its_reasons() -> None:
    recommended = {"grouping": "even", "workers": 4, "sufficient": False, "reasons": ["it is <fast>"]}
    plan = Plan({"recommendation": recommended, "candidates": [CANDIDATE]})
    assert (plan.grouping, plan.workers, plan.is_sufficient) == ("even", 4, False)
    page = plan._repr_html_()
    assert "Recommended: even on 4 workers, although that is too few for the rate" in page
    assert "it is &lt;fast&gt;" in page
    assert "1.250" in page


def test_topic_report_without_keys_shows_the_format() -> None:
    document = {"topic": "t", "records": 3, "format": {"description": "text"}, "keys": [], "loads": []}
    assert TopicReport(document)._repr_html_() == "<p>t: 3 records, text</p>"


def test_inspect_key_that_is_the_number_of_a_column_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "sample_range", lambda *_: None)
    monkeypatch.setattr(analysis, "inspect_topic", lambda _kafka, _topic, _range, key, **_: {"topic": key})
    assert sk.inspect("t", key=0).topic == "0"


def test_inspect_key_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def inspected(*_: object, **__: object) -> None:
        raise sk.ConfigurationError("--key: no record has a key; fields: a")

    monkeypatch.setattr(analysis, "sample_range", lambda *_: None)
    monkeypatch.setattr(analysis, "inspect_topic", inspected)
    with pytest.raises(sk.ConfigurationError, match=r"^key: no record has a key"):
        sk.inspect("t", key="record key")


def test_inspect_invalid_argument_is_named() -> None:
    with pytest.raises(sk.ConfigurationError, match=r"^key: 3.5 is not a field, the number of a column, or 'record"):
        sk.inspect("t", key=3.5)  # type: ignore[arg-type] # as a user may
    with pytest.raises(sk.ConfigurationError, match=r"^since: 'soon' is not a duration above 0"):
        sk.inspect("t", since="soon")
    with pytest.raises(sk.ConfigurationError, match=r"^since: 3600 is not a duration above 0"):
        sk.inspect("t", since=3600)  # type: ignore[arg-type] # as a user may
    with pytest.raises(sk.ConfigurationError, match=r"^topic: \{'topic': 't'\} is not the name of a topic"):
        sk.inspect({"topic": "t"})  # type: ignore[arg-type] # as a user may
    with pytest.raises(sk.ConfigurationError, match=r"^records: 0 must be a whole number, at least 1"):
        sk.inspect("t", records=0)
