"""`skewless config check` reports all invalid settings at once. Settings that are valid are then checked together."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from skewless.cli.main import main

Checks = list[tuple[dict[str, str], dict[str, str]]]
"""Corrections of a file before each check. Then each setting with a problem, and a part of the message."""

FILES: dict[str, tuple[str, Checks]] = {
    "aggregates": (
        """
        name: p
        source: {topic: t}
        splitter:
          key: {field: k}
          values:
            price: {field: p, decimals: 2}
            user: {field: u, kind: text}
        aggregator:
          aggregates:
            - mode
            - {sum: prize}
            - {sum: user}
            - {quantile: price, at: [0.5, 1.5]}
            - {largest: price, n: 0}
            - {distinct: user, precison: 12}
            - {mean: price, as: x}
            - {max: price, as: x}
        """,
        [
            (
                {},
                {
                    "aggregator.aggregates.0": "unknown aggregate mode",
                    "aggregator.aggregates.3": "at.1: should be less than or equal to 1",
                    "aggregator.aggregates.4": "n: should be greater than or equal to 1",
                    "aggregator.aggregates.5": "unknown argument of distinct (known: precision, as)",
                },
            ),
            (
                {"- mode": "- count", "[0.5, 1.5]": "[0.5]", "n: 0": "n: 1", "precison": "precision"},
                {
                    "aggregator.aggregates.1": "unknown value prize, did you mean price?",
                    "aggregator.aggregates.2": "the value user is a text, but it needs a number",
                    "aggregator.aggregates.7": "the result x is there twice",
                },
            ),
        ],
    ),
    "conditions": (
        """
        name: p
        source: {topic: t}
        splitter:
          format: {name: csv, columns: [kind, amount]}
          key: {field: kind}
          where:
            - {field: kind, equals: sale}
            - {field: amont, above: 0}
            - {field: amount, above: zero}
            - {field: kind, header: kind, is: sale}
            - {field: kind}
            - {field: kind, matches: '('}
            - {field: kind, exists: false, is: sale}
        """,
        [
            (
                {},
                {
                    "splitter.where.0.equals": "unknown setting",
                    "splitter.where.2.above": "should be a valid number",
                    "splitter.where.3": "exactly one of field and header",
                    "splitter.where.4": "needs an operator: one of is, is_not",
                    "splitter.where.5.matches": "not a regular expression",
                    "splitter.where.6.exists": "false needs an absent field",
                },
            ),
            (
                {
                    "equals: sale": "is: sale",
                    "above: zero": "above: 0",
                    "header: kind, ": "",
                    "{field: kind}\n            - {field: kind, matches: '('}": "{field: kind, matches: x}",
                    "exists: false, is: sale": "exists: true",
                },
                {
                    "splitter.where.1.field": "no column is named 'amont'",
                },
            ),
        ],
    ),
    "keys": (
        """
        name: p
        source: {topic: t}
        splitter:
          key: {from: record_key, header: h, encoding: int32}
          value: {field: v, header: v, constant: 2}
          time: {field: t, header: t}
        """,
        [
            (
                {},
                {
                    "splitter.key.header": "set only one of from and header",
                },
            ),
            (
                {"header: h, encoding": "encoding"},
                {
                    "splitter.value.header": "set only one of field and header",
                    "splitter.value.constant": "only for tuples without value.field",
                    "splitter.time.header": "set only one of field and header",
                },
            ),
        ],
    ),
    "composite key": (
        """
        name: p
        source: {topic: t}
        splitter:
          key:
            lowercase: true
            fields:
              - {field: revision}
              - {field: a.b}
              - {from: time, name: hour}
              - {field: c, truncate: week}
              - {field: d}
              - {header: D}
        """,
        [
            (
                {},
                {
                    "splitter.key.fields.1.name": "'a.b' is not a name",
                    "splitter.key.fields.2.truncate": "missing, set minute, hour or day",
                    "splitter.key.fields.3.truncate": "should be 'minute', 'hour' or 'day'",
                },
            ),
            (
                {
                    "a.b}": "a.b, name: b}",
                    "{from: time, name: hour}": "{from: time, name: hour, truncate: hour}",
                    "c, truncate: week": "c",
                },
                {
                    "splitter.key.lowercase": "not for a composite key",
                    "splitter.key.fields.0.name": "revision is a field of public records already",
                    "splitter.key.fields.5.name": "two parts are named D",
                },
            ),
        ],
    ),
    "start": (
        """
        name: Pages
        source: {topic: pages, start: newest, skip_to: {0: -1}}
        router: {workers: 65}
        worker_input: {max_workers: 64}
        """,
        [
            (
                {},
                {
                    "name": "must contain only lower-case letters, digits and '-', and neither begin nor end with '-'",
                    "source.start": "should be 'earliest' or 'latest', or 'newest' is not a time in ISO 8601",
                    "source.skip_to.0": "should be greater than or equal to 0",
                },
            ),
            (
                {"Pages": "pages", "newest": "latest", "-1": "1"},
                {
                    "": "router.workers (65) is more than worker_input.max_workers (64)",
                },
            ),
        ],
    ),
    "required settings": (
        """
        source: {}
        worker: {pane_s: 7}
        router: {grouping: evn}
        """,
        [
            (
                {},
                {
                    "name": "is required",
                    "source.topic": "is required",
                    "router.grouping": "unknown grouping evn, did you mean even?",
                },
            ),
            (
                {"source: {}": "name: p\n        source: {topic: t}", "evn": "even"},
                {
                    "worker.pane_s": "7 does not divide aggregator.window_s",
                    "": "observer.tick_s (60.0) must be a multiple of worker.pane_s (7.0)",
                },
            ),
        ],
    ),
    "values": (
        """
        name: p
        source: {topic: t}
        splitter:
          key: {field: k}
          values:
            price: {field: p, decimals: 12}
            user: {field: u, kind: text, decimals: 2}
            key: {field: n}
            half: {times: n}
            also: {missing: skip}
        aggregator: {aggregates: [{mean: price}, {sum: user}, {max: cost}]}
        """,
        [
            (
                {},
                {
                    "splitter.values.price.decimals": "should be less than or equal to 9",
                },
            ),
            (
                {"decimals: 12": "decimals: 3"},
                {
                    "splitter.values.user.decimals": "only for numbers",
                    "splitter.values.key": "this name is used by other fields",
                    "splitter.values.half.times": "needs a field",
                    "splitter.values.also.missing": "needs a field or header",
                },
            ),
            (
                {
                    "text, decimals: 2": "text",
                    "key: {field: n}": "number: {field: n}",
                    "{times: n}": "{field: h, times: n}",
                    "{missing": "{field: a, missing",
                },
                {
                    "aggregator.aggregates.1": "the value user is a text",
                    "aggregator.aggregates.2": "unknown value cost",
                },
            ),
        ],
    ),
    "having": (
        """
        name: p
        source: {topic: t}
        splitter: {key: {from: record_key}}
        aggregator:
          window: {size_s: 300, every_s: 70}
          aggregates: [count, {largest: value, n: 3}]
          emit: final
          having: {cuont: {at_least: 10}, largest: {above: 1}}
        observer: {top_keys: many}
        worker: {pane_s: 15}
        """,
        [
            (
                {},
                {
                    "observer.top_keys": "should be a valid integer",
                },
            ),
            (
                {"many": "10"},
                {
                    "aggregator.having.cuont": "unknown result cuont, did you mean count?",
                    "aggregator.having.largest": "is not a number",
                    "worker.pane_s": "15 does not divide aggregator.window",
                },
            ),
        ],
    ),
    "top": (
        """
        name: p
        source: {topic: t}
        splitter: {key: {fields: [{field: rank}, {field: k}]}, limits: {key_bytes: 5000}}
        aggregator:
          aggregates: [count, {largest: value, n: 3}]
          format: avro
          top: {n: 0, by: cuont}
        registry: {url: 'http://localhost:8081'}
        """,
        [
            ({}, {"aggregator.top.n": "should be greater than or equal to 1"}),
            ({"n: 0": "n: 1001"}, {"aggregator.top.n": "should be less than or equal to 1000"}),
            ({"n: 1001, by": "by"}, {"aggregator.top.n": "is required"}),
            (
                {"{by": "{n: 1000, by"},
                {
                    "aggregator.top.by": "unknown result cuont, did you mean count?",
                    "aggregator.top.n": "must be at most 838",
                    "aggregator.top": "is possible with aggregator.format: json only, not with avro",
                    "splitter.key.fields": "rank is a field of topic top",
                },
            ),
            (
                {
                    "5000": "1024",
                    "cuont": "largest",
                    "avro": "json",
                    "source: {topic: t}": "",
                    "{field: rank}": "{field: j}",
                },
                {
                    "source": "missing",
                    "aggregator.top": "without source there is none",
                    "aggregator.top.by": "largest is not a number",
                },
            ),
        ],
    ),
    "own topic": (
        """
        name: p
        source: {topic: p.tuples}
        splitter:
          key: {fields: [{field: count}, {field: k}]}
          time: {unit: s}
        aggregator: {aggregates: [count]}
        topics: {options: {tupels: {retention.ms: '1'}}}
        """,
        [
            (
                {},
                {
                    "topics.options": "unknown topic tupels",
                    "splitter.time.unit": "set time.field too",
                },
            ),
            (
                {"tupels": "tuples", "time: {unit: s}": "time: {field: t, unit: s}"},
                {
                    "splitter.key.fields.0.name": "count is a result of aggregator.aggregates",
                    "source.topic": "p.tuples is one of the pipeline's own topics",
                },
            ),
        ],
    ),
    "formats": (
        """
        name: p
        join:
          apart_s: 1
          left: {topic: l, format: {name: csv, delimter: ';'}}
          right: {topic: r, format: {name: tsv, columns: 3}}
        enrich:
          topic: t
          format: {name: json, colums: [a]}
          tables: [{topic: u, format: {name: csv, columns: [a], quotng: false}, fields: {format: 1.5}}]
        """,
        [
            (
                {},
                {
                    "join.left.format.delimter": "did you mean delimiter?",
                    "join.right.format.columns": "should be a list",
                    "enrich.format.colums": "unknown setting",
                    "enrich.tables.0.format.quotng": "did you mean quoting?",
                    "enrich.tables.0.fields.format": "should be",
                },
            ),
        ],
    ),
}


def check(file: Path) -> tuple[int, list[tuple[str, str]]]:
    """Check a file. Returns the exit code, and setting and message of each problem."""
    result = CliRunner().invoke(main, ["config", "check", "-f", str(file)])
    lines = [line.removeprefix(f"error: {file}: ") for line in result.stderr.splitlines()]
    return result.exit_code, [_split(line) for line in lines]


def _split(line: str) -> tuple[str, str]:
    setting, colon, message = line.partition(": ")
    return (setting, message) if colon and " " not in setting else ("", line)


@pytest.mark.parametrize("name", FILES)
def test_config_check_corrected_settings_shows_the_problems_of_their_groups(name: str, tmp_path: Path) -> None:
    text, checks = FILES[name]
    file = tmp_path / "pipeline.yaml"
    for corrections, expected in checks:
        for wrong, right in corrections.items():
            assert text.count(wrong) == 1
            text = text.replace(wrong, right)
        file.write_text(text)
        code, problems = check(file)
        assert code == 2
        assert sorted(setting for setting, _ in problems) == sorted(expected), problems
        assert {setting: message for setting, message in problems if expected[setting] not in message} == {}


@pytest.mark.parametrize(
    ("splitter", "aggregates", "settings"),
    [
        ("{format: cvs, key: {field: 3}}", "[count]", ["splitter.format"]),
        ("{key: {from: recrod_key}}", "[count]", ["splitter.key.from"]),
        ("{key: {field: k}, time: {field: [1], unit: s}}", "[count]", ["splitter.time.field"]),
        ("{key: {field: k}, values: {price: 5}}", "[{sum: price}]", ["splitter.values.price"]),
        ("{values: {price: {field: p}}}", "[{sum: price}]", ["splitter.key.field"]),
        ("{key: {field: k}}", "[{summ: value}]\n  having: {sum: {above: 1}}", ["aggregator.aggregates.0"]),
    ],
)
def test_config_check_invalid_setting_causes_no_problem_of_another_one(
    splitter: str, aggregates: str, settings: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"name: p\nsource: {{topic: t}}\nsplitter: {splitter}\naggregator:\n  aggregates: {aggregates}\n")
    code, problems = check(file)
    assert (code, [setting for setting, _ in problems]) == (2, settings), problems
