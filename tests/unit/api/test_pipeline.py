"""A pipeline in Python has the settings of the equivalent file, and its problems name the argument."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import skewless as sk
from helpers.docs_blocks import ROOT, blocks
from skewless.algorithms.aggregates import AGGREGATES
from skewless.config import loader
from skewless.parsing.formats.schema_format import SchemaFormatSettings

PAGE = ROOT / "docs" / "how-to" / "python.md"
HEAVY = ("click", "pydantic", "numpy", "confluent_kafka", "pyarrow", "yaml")
SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl": {"mechanism": "PLAIN", "username": "u", "password": "007"},
}
CLICKS: dict[str, Any] = {"source": "clicks", "key": "user", "time": "ts"}


def settings_in(text: str, folder: Path) -> object:
    file = folder / "pipeline.yaml"
    file.write_text(text)
    return loader.load(file, {})


def problems(*args: Any, **arguments: Any) -> tuple[str, ...]:
    with pytest.raises(sk.ConfigurationError) as raised:
        sk.Pipeline(*args, **arguments)
    return raised.value.problems


def printed_by(program: str) -> str:
    """Run a program in a process of its own, and return what it prints."""
    environment = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.check_output([sys.executable, "-c", program], text=True, env=environment)


def test_import_of_the_package_imports_nothing_expensive_until_a_name_is_used() -> None:
    program = (
        f"import sys, skewless as sk; early = [name for name in {HEAVY} if name in sys.modules]; "
        "missing = [name for name in sk.__all__ if not hasattr(sk, name)]; "
        "print(early, missing, set(sk.__all__) - set(dir(sk)))"
    )
    assert printed_by(program) == "[] [] set()\n"


def test_package_without_pyspark_has_all_names_and_batch_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; from skewless import *; import skewless as sk\n"
        "try: sk.Pipeline('t').batch(None)\n"
        "except sk.ConfigurationError as error: print(error)"
    )
    printed = printed_by(program)
    assert printed.startswith("PySpark cannot be imported (")
    assert "install Skewless with its extra `spark`" in printed


def test_package_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'skewless' has no attribute 'Pipelines'"):
        _ = sk.Pipelines  # type: ignore[attr-defined] # it does not exist


def test_function_of_each_aggregate_has_its_arguments_and_gives_its_element() -> None:
    for name, aggregate in AGGREGATES.items():
        function = getattr(sk, name)
        parameters = inspect.signature(function).parameters
        assert set(parameters) == {"value", *aggregate.arguments.model_fields, "name"}, name
        assert function("amount", name="total") == {name: "amount", "as": "total"}
    assert [sk.count(), sk.count("user")] == ["count", {"count": "user"}]
    assert sk.quantile("ms", 0.5, 0.99, relative_error=0.02, name=("a", "b")) == {
        "quantile": "ms",
        "at": [0.5, 0.99],
        "relative_error": 0.02,
        "as": ["a", "b"],
    }
    assert sk.aggregate("earliest", "ms", limit=3) == {"earliest": "ms", "limit": 3}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"source": "Clicks.Raw"}, "name: clicks-raw\nsource: {topic: Clicks.Raw}"),
        (
            CLICKS | {"window": "1h", "aggregates": [sk.count(), sk.sum("amount")], "brokers": "kafka:9092"},
            """
            name: clicks
            source: {topic: clicks}
            kafka: {bootstrap_servers: 'kafka:9092'}
            splitter: {key: {field: user}, time: {field: ts}, values: {amount: {field: amount}}}
            aggregator: {window_s: 3600, aggregates: [count, {sum: amount}]}
            """,
        ),
        (
            {
                "source": ["a", "b"],
                "name": "both",
                "key": ["country", {"field": "page", "name": "site"}],
                "values": {"price": {"field": "order.price", "decimals": 2}, "ms": "took"},
                "format": {"name": "csv", "columns": ["country", "page", "order.price", "took"]},
                "window": {"size": "day", "zone": "Europe/Berlin"},
                "aggregates": ["count"],
                "brokers": ["a:1", "b:2"],
                "router": {"workers": 4, "even": {"decay_tuples": 2000}},
                "splitter": {"where": [{"field": "took", "above": 1e-05}]},
                "kafka": {"options": {"socket.timeout.ms": "9000"}, **SASL},
                "topics": {"options": {"worker-input": {"retention.ms": "86400000"}}},
            },
            """
            name: both
            source: {topics: [a, b]}
            kafka:
              bootstrap_servers: 'a:1,b:2'
              options: {socket.timeout.ms: '9000'}
              security_protocol: SASL_SSL
              sasl: {mechanism: PLAIN, username: u, password: '007'}
            topics: {options: {worker-input: {retention.ms: '86400000'}}}
            splitter:
              format: {name: csv, columns: [country, page, order.price, took]}
              key: {fields: [{field: country}, {field: page, name: site}]}
              values: {price: {field: order.price, decimals: 2}, ms: {field: took}}
              where: [{field: took, above: 0.00001}]
            router: {workers: 4, even: {decay_tuples: 2000}}
            aggregator: {window: {size: day, zone: Europe/Berlin}, aggregates: [count]}
            """,
        ),
        (
            {
                "source": "t",
                "format": "csv",
                "key": [{"field": 0, "name": "day"}, {"field": 1, "name": "shop"}],
                "time": 2,
                "values": {"price": 3},
                "aggregates": [sk.sum("price")],
            },
            """
            name: t
            source: {topic: t}
            splitter:
              format: csv
              key: {fields: [{field: 0, name: day}, {field: 1, name: shop}]}
              time: {field: 2}
              values: {price: {field: 3}}
            aggregator: {aggregates: [{sum: price}]}
            """,
        ),
        (
            {"source": "t", "format": "csv", "key": 0},
            "name: t\nsource: {topic: t}\nsplitter: {format: csv, key: {field: 0}}",
        ),
        ({"source": "t", "window": timedelta(minutes=2)}, "name: t\nsource: {topic: t}\naggregator: {window_s: 120}"),
    ],
    ids=["topic alone", "main arguments", "groups and sections", "columns", "one column", "timedelta"],
)
def test_pipeline_of_arguments_has_the_settings_of_the_file(
    arguments: dict[str, Any], text: str, tmp_path: Path
) -> None:
    assert sk.Pipeline(**arguments).settings == settings_in(text, tmp_path)


@pytest.mark.parametrize("secret", ["007", "p #1", '"ab"', "#abc", "null", "~", " ", "two\nlines"])
def test_pipeline_of_arguments_takes_secrets_as_they_are(secret: str) -> None:
    options = {"ssl.keystore.password": secret}
    login = {"mechanism": "PLAIN", "username": "u", "password": secret}
    kafka = sk.Pipeline("t", kafka={"security_protocol": "SASL_SSL", "sasl": login, "options": options}).settings.kafka
    assert kafka.sasl is not None
    assert kafka.sasl.password is not None
    assert (kafka.sasl.password.get_secret_value(), kafka.options["ssl.keystore.password"]) == (secret, secret)


def test_pipeline_of_names_whose_order_counts_keeps_it() -> None:
    renamed = {"zeta": ("a",), "Alpha": ("b",), "alpha": ("a",)}
    for names in (renamed, dict(reversed(renamed.items()))):
        pipeline = sk.Pipeline("t", key={"field": "k", "rename_if_contains": names})
        assert list(pipeline.settings.splitter.key.rename_if_contains.items()) == list(names.items())
        (result,) = sk.testing.run(pipeline, [{"k": "abc"}]).results
        assert result.key == next(iter(names))


def test_pipeline_to_yaml_is_a_file_with_the_same_settings(tmp_path: Path) -> None:
    pipeline = sk.Pipeline(**CLICKS, aggregates=[sk.mean("ms")], window=30, topics={"prefix": "007."})
    file = tmp_path / "pipeline.yaml"
    file.write_text(pipeline.to_yaml())
    assert sk.Pipeline.load(file).settings == pipeline.settings
    secret = sk.Pipeline(**CLICKS, kafka=SASL)
    assert "007" not in secret.to_yaml() + repr(secret)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"source": "a b"}, "source: must contain only letters"),
        (CLICKS | {"window": "1x"}, "window: '1x' is not a duration above 0 such as 30s"),
        (CLICKS | {"window": 0}, "window: should be greater than or equal to 0.001"),
        (CLICKS | {"key": 3}, "key: 3 is not a path"),
        (CLICKS | {"key": ["user"]}, "key: a composite key has at least 2 parts"),
        (CLICKS | {"key": {"feild": "user"}}, "key.feild: unknown setting; did you mean field?"),
        (CLICKS | {"time": {"field": "ts", "unit": "hours"}}, "time.unit: should be"),
        (CLICKS | {"aggregates": [sk.aggregate("median", "ms")]}, "aggregates.0: unknown aggregate median"),
        (CLICKS | {"aggregates": [sk.quantile("ms", 2)]}, "aggregates.0: at.0: should be less than or equal to 1"),
        (CLICKS | {"aggregates": [sk.sum("order.Total")]}, "aggregates: 'order.Total' is not the name of a value: add"),
        (CLICKS | {"aggregates": sk.sum("ms")}, "aggregates: must be a list of elements, not {'sum': 'ms'}: use ["),
        (CLICKS | {"aggregates": sk.count()}, "aggregates: must be a list of elements, not 'count': use ['count']"),
        (CLICKS | {"aggregates": 5}, "aggregates: must be a list of elements, not 5"),
        (CLICKS | {"values": ["ms"]}, "values: must be a mapping from names to fields, not ['ms']"),
        (CLICKS | {"values": {"ms": {"decimals": 12}}}, "values.ms.decimals: should be less than or equal to 9"),
        (CLICKS | {"windw": "1m"}, "unknown argument windw, did you mean window?"),
        (CLICKS | {"router": {"workers": "many"}}, "router.workers: should be a valid integer"),
        (CLICKS | {"router": {"workers": 1j}}, "router.workers: complex is not a value of a setting"),
        (CLICKS | {"splitter": {"key": {"field": "u"}}}, "key: splitter.key.field is set as well, remove one of them"),
        (CLICKS | {"brokers": "kafka"}, "brokers: "),
        (CLICKS | {"name": "No"}, "name: must contain only lower-case letters"),
    ],
    ids=str,
)
def test_pipeline_invalid_argument_is_named(arguments: dict[str, Any], expected: str) -> None:
    (problem,) = problems(**arguments)
    assert problem.startswith(expected)


def test_pipeline_value_of_an_element_is_that_of_its_aggregate() -> None:
    """Sorted YAML has `as` first. A value of section `splitter` needs no argument."""
    named = sk.Pipeline("t", key="c", aggregates=[{"as": "total", "sum": "price"}])
    assert [value.name for value in named.settings.values] == ["price"]
    own = sk.Pipeline("t", key="c", aggregates=[sk.sum("b")], splitter={"values": {"b": {"field": "price"}}})
    assert [(value.name, own.settings.splitter.named_values["b"].field) for value in own.settings.values] == [
        ("b", "price")
    ]


def test_pipeline_of_a_mapping_has_the_name_of_its_topic() -> None:
    assert sk.Pipeline({"topic": "My_Orders"}, key="c").name == sk.Pipeline("My_Orders", key="c").name


def test_pipeline_all_problems_are_reported_at_once() -> None:
    assert sorted(problem.split(":")[0] for problem in problems("t", time={"unit": 1}, router={"workers": 0})) == [
        "router.workers",
        "time.unit",
    ]


def test_pipeline_load_arguments_override_the_environment_and_it_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nsource: {topic: t}\nrouter: {workers: 2, grouping: key}\nevent_time: {max_ahead_s: 1}\n")
    monkeypatch.setenv("SKEWLESS__ROUTER__WORKERS", "3")
    monkeypatch.setenv("SKEWLESS__EVENT_TIME__MAX_AHEAD_S", "4")
    settings = sk.Pipeline.load(file, name="other", router={"workers": 5}).settings
    assert (settings.name, settings.router.workers, settings.router.grouping) == ("other", 5, "key")
    assert settings.event_time.max_ahead_s == 4
    monkeypatch.setenv("SKEWLESS__EVENT_TIME__MAX_AHEAD_S", "never")
    with pytest.raises(sk.ConfigurationError) as raised:
        sk.Pipeline.load(file, router={"grouping": "evn"})
    places = {problem.rpartition(": ")[0].split(":")[0] for problem in raised.value.problems}
    assert places == {"router.grouping", "SKEWLESS__EVENT_TIME__MAX_AHEAD_S"}
    with pytest.raises(sk.ConfigurationError, match=r"gone.yaml: cannot be read"):
        sk.Pipeline.load(tmp_path / "gone.yaml")
    with pytest.raises(sk.ConfigurationError, match=r"^path: None is not the path of a file"):
        sk.Pipeline.load(None)  # type: ignore[arg-type] # as a user may


def test_python_page_imports_only_the_package() -> None:
    sender = "send_orders.py"  # stands for the programs that write into the topic of a user
    code = "\n".join(block.text for block in blocks(PAGE) if block.language == "python" and block.name != sender)
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {ast.unparse(node) for node in imports} == {"import skewless as sk"}


def test_pipeline_up_file_that_has_changed_since_it_was_loaded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nsource: {topic: t}\nrouter: {workers: 2}\n")
    pipeline = sk.Pipeline.load(file, aggregator={"window_s": 5})
    pipeline.up(log_dir=tmp_path)
    file.write_text("name: p\nsource: {topic: other}\nrouter: {workers: 2}\n")
    with pytest.raises(sk.ConfigurationError, match=r"pipeline.yaml: it, or the environment, has changed since it was"):
        pipeline.up(log_dir=tmp_path)


def test_pipeline_up_accepts_settings_that_have_warned_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    splitter = "{format: avro, key: {field: k}, value: {}, time: {}}"
    file.write_text(f"name: p\nsource: {{topic: t}}\nsplitter: {splitter}\nregistry: {{url: 'http://127.0.0.1:1'}}\n")
    pipeline = sk.Pipeline.load(file)
    settings = pipeline.settings.splitter.format.resolved()
    assert isinstance(settings, SchemaFormatSettings)
    settings.warn_once("a field is missing")
    pipeline.up(log_dir=tmp_path)


def test_pipeline_up_log_dir_of_another_type_is_refused() -> None:
    with pytest.raises(sk.ConfigurationError, match=r"^log_dir: 5 is not the path of a folder"):
        sk.Pipeline("clicks").up(log_dir=5)  # type: ignore[arg-type] # as a user may


def test_pipeline_up_leaves_a_file_in_the_folder_of_logs_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: mine\n")
    sk.Pipeline("clicks", key="user", name="other").up(log_dir=tmp_path)
    assert file.read_text() == "name: mine\n"
    assert "name: other" in (tmp_path / "other.settings.yaml").read_text()


@pytest.mark.parametrize("text", ["a\x85b", "a\u2028b", "größe", "東京 \U0001f30d", "'a\n\"b"])
def test_pipeline_text_of_an_argument_is_taken_as_it_is(text: str) -> None:
    pipeline = sk.Pipeline("clicks", key={"field": "user", "strip_prefix": text})
    assert pipeline.settings.splitter.key.strip_prefix == text


def test_pipeline_fields_that_are_numbers_are_columns() -> None:
    pipeline = sk.Pipeline("clicks", key=0, time=1, values={"v": 2}, aggregates=[sk.sum("v")], format="csv")
    splitter = pipeline.settings.splitter
    assert splitter.values is not None
    assert (splitter.key.field, splitter.time.field, splitter.values["v"].field) == (0, 1, 2)
