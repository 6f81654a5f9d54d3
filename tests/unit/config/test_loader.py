"""The configuration: three sources, all errors at once, no secret in a message."""

from __future__ import annotations

import operator
import re
from pathlib import Path

import pytest
import yaml

from skewless import topology
from skewless.algorithms.aggregates import AGGREGATES
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.parsing.field_settings import OPERATORS

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
MINIMAL = "name: words\nsource: {topic: text}\n"
SECURE = MINIMAL + "kafka: {security_protocol: SASL_SSL, sasl: {username: ann}}\n"
PASSWORD = "SKEWLESS__KAFKA__SASL__PASSWORD"  # noqa: S105 - the name of a variable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def load(file: Path, text: str, **environ: str) -> PipelineSettings:
    file.write_text(text)
    return loader.load(file, environ)


def problems(file: Path, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        load(file, text, **environ)
    assert str(raised.value) == "\n".join(raised.value.problems)
    return [problem.replace(str(file), "FILE") for problem in raised.value.problems]


def test_loader_environment_overrides_the_file_and_the_file_overrides_defaults(file: Path) -> None:
    settings = load(
        file,
        MINIMAL + "router: {workers: 4, grouping: key}\n",
        SKEWLESS__ROUTER__WORKERS="6",
        HOME="/",
        SKEWLESS_CACHE="/",
    )
    assert (settings.router.workers, settings.router.grouping, settings.pane_ms) == (6, "key", 15_000)


def test_loader_variable_of_a_section_with_an_anchor_changes_only_this_section(file: Path) -> None:
    text = MINIMAL + "kafka: &k {bootstrap_servers: 'a:1', options: {client.rack: a}}\nmirror: {kafka: *k}\n"
    settings = load(file, text, SKEWLESS__KAFKA__BOOTSTRAP_SERVERS="b:2", SKEWLESS__KAFKA__OPTIONS__CLIENT_RACK="b")
    assert settings.mirror is not None
    found = [
        (kafka.bootstrap_servers, kafka.options["client.rack"]) for kafka in (settings.kafka, settings.mirror.kafka)
    ]
    assert found == [("b:2", "b"), ("a:1", "a")]


def test_loader_without_a_file_reads_the_environment_alone() -> None:
    settings = loader.load(None, {"SKEWLESS__NAME": "words", "SKEWLESS__SOURCE__TOPIC": "text"})
    assert (settings.name, settings.aggregated.topic) == ("words", "text")


@pytest.mark.parametrize(
    ("name", "value", "path", "expected"),
    [
        ("KAFKA__BOOTSTRAP_SERVERS", "a:1,b:2", "kafka.bootstrap_servers", "a:1,b:2"),
        ("kafka__bootstrap_servers", "a:1", "kafka.bootstrap_servers", "a:1"),
        ("EVENT_TIME__IDLE_TIMEOUT_S", "null", "event_time.idle_timeout_s", None),
        ("AGGREGATOR__AGGREGATES", "[max, min]", "aggregator.aggregates", ["max", "min"]),
        ("KAFKA__OPTIONS__SOCKET_TIMEOUT_MS", "9", "kafka.options", {"socket.timeout.ms": 9}),
        ("KAFKA__OPTIONS__LOG_LEVEL", "7", "kafka.options", {"log_level": 7}),
        (
            "TOPICS__OPTIONS__WORKER_INPUT__RETENTION_MS",
            "60000",
            "topics.options",
            {"worker-input": {"retention.ms": "60000"}},
        ),
        ("SOURCE__TOPIC", "2016", "source.topic", "2016"),
        ("SOURCE__TOPIC", "on", "source.topic", "on"),
    ],
)
def test_loader_environment_values_are_parsed_as_yaml_unless_the_setting_is_text(
    file: Path, name: str, value: str, path: str, expected: object
) -> None:
    value_found = yaml.safe_load(loader.dump(load(file, MINIMAL, **{f"SKEWLESS__{name}": value})))
    for part in path.split("."):
        value_found = value_found[part]
    assert value_found == expected


LOGINS = f"""{MINIMAL}
kafka:
  security_protocol: SASL_SSL
  sasl: {{username: ann}}
  tls: {{certificate: c, key: k}}
mirror:
  kafka:
    bootstrap_servers: other:9093
    security_protocol: SASL_SSL
    sasl: {{mechanism: OAUTHBEARER, oauthbearer: {{token_endpoint_url: "https://tokens", client_id: ann}}}}
registry: {{url: "https://registry:8081", username: ann, tls: {{certificate: c, key: k}}}}
sink: {{url: "postgresql://db:5432/results", username: ann, table: words}}
splitter: {{format: avro, key: {{field: k}}}}
"""
SECRETS = [
    "kafka.sasl.password",
    "kafka.tls.key_password",
    "kafka.options.ssl.keystore.password",
    "kafka.options.ssl.key.pem",
    "mirror.kafka.sasl.oauthbearer.client_secret",
    "mirror.kafka.options.sasl.oauthbearer.config",
    "registry.password",
    "registry.tls.key_password",
    "sink.password",
]

NOT_THE_SAME_IN_YAML = (
    *("0123", "true", "1e5", "2020-01-01", "~", "null", "---", "|", "0x_"),
    *("p #1", "#abc", "abc ", " abc", "a\nb", "a\r", '"ab"', "'x'", "*x", "!x", "[a]", "{a: b}", "a: b: c"),
)


def loaded_secrets(file: Path, **changes: str) -> dict[str, str]:
    """Load a file with all secrets of `SECRETS` in the environment. `changes` are by variable."""
    environ = {loader.variable_of(name): "x" for name in SECRETS} | changes
    settings = load(file, LOGINS, **environ)
    found = {}
    for name in SECRETS:
        section, of_options, option = name.partition("kafka.options.")
        if of_options:
            value = operator.attrgetter(f"{section}kafka.options")(settings)[option]
        else:
            value = operator.attrgetter(f"{name}.get_secret_value")(settings)()
        found[name] = value
    return found


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("text", NOT_THE_SAME_IN_YAML)
def test_loader_secret_in_the_environment_is_taken_as_it_is(file: Path, secret: str, text: str) -> None:
    found = loaded_secrets(file, **{loader.variable_of(secret): text})
    assert found == dict.fromkeys(SECRETS, "x") | {secret: text}


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(("end", "rest"), [("\n", ""), ("\r\n", ""), ("\n\n", "\n")])
def test_loader_secret_in_the_environment_loses_one_line_break_at_its_end(
    file: Path, secret: str, end: str, rest: str
) -> None:
    assert loaded_secrets(file, **{loader.variable_of(secret): f"'p'{end}"})[secret] == f"'p'{rest}"


def test_loader_section_with_a_secret_in_one_variable_is_yaml(file: Path) -> None:
    settings = load(file, MINIMAL, SKEWLESS__KAFKA__OPTIONS="{ssl.key.pem: 'x'}")
    assert settings.kafka.options == {"ssl.key.pem": "x"}


@pytest.mark.parametrize("password", ["", "\n"])
def test_loader_empty_password_is_reported_as_missing(file: Path, password: str) -> None:
    assert problems(file, SECURE, **{PASSWORD: password}) == [f"{PASSWORD}: is required with SCRAM-SHA-512"]


@pytest.mark.parametrize(
    ("text", "environ", "servers"),
    [
        (MINIMAL, {}, "localhost:9092"),
        (MINIMAL, {"KAFKA_BOOTSTRAP_SERVERS": ""}, "localhost:9092"),
        (MINIMAL, {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, "a:1"),
        (MINIMAL + "kafka: {connect_timeout_s: 1}\n", {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, "a:1"),
        (MINIMAL + "kafka: {bootstrap_servers: 'b:1'}\n", {"KAFKA_BOOTSTRAP_SERVERS": "a:1"}, "b:1"),
        (MINIMAL, {"KAFKA_BOOTSTRAP_SERVERS": "a:1", "SKEWLESS__KAFKA__BOOTSTRAP_SERVERS": "c:1"}, "c:1"),
    ],
)
def test_loader_variable_of_kafka_is_the_default_of_the_address(
    file: Path, text: str, environ: dict[str, str], servers: str
) -> None:
    assert load(file, text, **environ).kafka.bootstrap_servers == servers


def test_loader_invalid_address_in_the_variable_of_kafka_is_reported_with_its_name(file: Path) -> None:
    (problem,) = problems(file, MINIMAL, KAFKA_BOOTSTRAP_SERVERS="ann@kafka:9092")
    assert problem.startswith("KAFKA_BOOTSTRAP_SERVERS: write host:port only")


@pytest.mark.parametrize(
    "setting",
    [
        "router.workers",
        "kafka.options",
        "kafka.options.socket.timeout.ms",
        "mirror.kafka.options.socket.timeout.ms",
        "topics.options",
        "topics.options.late.a.b",
    ],
)
def test_loader_variable_of_a_setting_is_read_as_this_setting(setting: str) -> None:
    path = loader.setting_of(loader.variable_of(setting))
    assert ".".join(path) == setting


def test_loader_several_problems_are_reported_at_once_with_their_places(file: Path) -> None:
    text = """
        name: words
        source: {topc: text}
        router: {workers: 0}
        splitter: {format: text, key: {field: [1]}}
        worker: 5
        aggregator: {aggregates: [mode]}
    """
    assert problems(file, text, SKEWLESS__OBSERVER__TOP_KEYS="many", SKEWLESS__OBSERVER__TICKS="1") == [
        "FILE: source.topic: is required",
        "FILE: source.topc: unknown setting; did you mean topic?",
        "FILE: splitter.key.field: should be a valid string, or should be a valid integer",
        "FILE: router.workers: should be greater than or equal to 1",
        "FILE: worker: must be a mapping of settings; add settings, or remove it",
        f"FILE: aggregator.aggregates.0: unknown aggregate mode (known: {', '.join(sorted(AGGREGATES))})",
        "SKEWLESS__OBSERVER__TOP_KEYS: should be a valid integer, unable to parse string as an integer",
        "SKEWLESS__OBSERVER__TICKS: unknown setting; did you mean tick_s?",
    ]


@pytest.mark.parametrize("grouping", ["d_choices", "w_choices"])
def test_loader_workers_beyond_the_sketch_of_the_grouping_are_refused(file: Path, grouping: str) -> None:
    router = f"router: {{workers: 20, grouping: {grouping}, choices: {{sketch_size: 100}}}}\n"
    (problem,) = problems(file, MINIMAL + router)
    assert problem == (
        f"FILE: router.workers: {grouping} with 20 workers needs choices.sketch_size above W / head_share = 100, "
        "not 100, or keys that are new in the sketch look hot: raise it"
    )


def test_loader_inconsistent_settings_are_named(file: Path) -> None:
    (problem,) = problems(file, MINIMAL + "router: {workers: 65}\nworker_input: {max_workers: 64}\n")
    assert problem == "FILE: router.workers (65) is more than worker_input.max_workers (64)"


def test_loader_problems_of_splitter_parts_have_their_paths(file: Path) -> None:
    splitter = "splitter: {format: json, value: {field: n, constant: 2}, time: {unit: s}}\n"
    assert problems(file, MINIMAL + splitter) == [
        "FILE: splitter.value.constant: only for tuples without value.field, remove one of the two",
        "FILE: splitter.time.unit: set time.field too, without it the time is the timestamp of the Kafka record",
        "FILE: splitter.key.field: missing, set the path of the key, such as user.id or hashtags[].text",
    ]


def test_two_problems_of_one_setting_are_one_line(file: Path) -> None:
    splitter = "splitter: {key: {field: k}, value: {field: n, constant: 10000000, decimals: 9}}\n"
    (problem,) = problems(file, MINIMAL + splitter)
    assert problem == (
        "FILE: splitter.value.constant: only for tuples without value.field, remove one of the two; "
        "with 9 decimals it is larger than 2**53"
    )


def test_problem_that_contains_a_separator_is_not_split(file: Path) -> None:
    """The missing column could be reported as a second problem."""
    splitter = "splitter: {format: {name: csv, columns: [a]}, key: {field: 'b; key.field: c'}}\n"
    assert problems(file, MINIMAL + splitter) == [
        "FILE: splitter.key.field: no column is named 'b; key.field: c', use one of format.columns (a)"
    ]


def test_loader_date_value_becomes_an_instant(file: Path) -> None:
    splitter = "splitter: {format: text, time: {earliest: 2016-11-08}}\n"
    assert load(file, MINIMAL + splitter).splitter.time.earliest == 1_478_563_200_000


OTHER_IN_YAML_1_1 = ("NO", "no", "off", "On", "yes", "01067", "12:30", "1:30.5", "1_000", "0b11", "0x_", "+0x1f", "=")
"""Texts that YAML 1.1 reads as booleans, numbers or an error."""


@pytest.mark.parametrize("text", OTHER_IN_YAML_1_1)
def test_loader_text_that_yaml_1_1_reads_as_another_value_stays_text(file: Path, text: str) -> None:
    where = f"splitter: {{format: json, key: {{field: k}}, where: [{{field: a, in: [{text}]}}]}}\n"
    settings = load(file, MINIMAL + where)
    assert settings.splitter.where[0].in_ == (text,)
    assert load(file, loader.dump(settings)).splitter == settings.splitter


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("0x1F", 31),
        ("1.50", 1.5),
        ("1.5e+3", 1500.0),
    ],
)
def test_loader_number_or_boolean_of_yaml_1_2_has_its_type(file: Path, text: str, value: float) -> None:
    where = f"splitter: {{format: json, key: {{field: k}}, where: [{{field: a, is: {text}}}]}}\n"
    found = load(file, MINIMAL + where).splitter.where[0].is_
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("text", "value"), [("yes", True), ("On", True), ("no", False), ("OFF", False)])
def test_loader_boolean_setting_accepts_the_words_of_yaml_1_1(file: Path, text: str, value: bool) -> None:  # noqa: FBT001
    splitter = f"splitter: {{format: text, key: {{lowercase: {text}}}}}\n"
    assert load(file, MINIMAL + splitter).splitter.key.lowercase is value


def test_loader_unknown_name_without_a_close_match_lists_the_known_names(file: Path) -> None:
    known = ", ".join(stage.name for stage in topology.STAGES)
    assert problems(file, MINIMAL, SKEWLESS__REPLICAS__X="1") == [
        f"SKEWLESS__REPLICAS__X: unknown setting; known settings: {known}"
    ]


def test_loader_variable_below_an_invalid_section_reports_the_problem_of_the_file(file: Path) -> None:
    assert problems(file, MINIMAL + "router: 5\n", SKEWLESS__ROUTER__WORKERS="4") == [
        "FILE: router: must be a mapping of settings; add settings, or remove it"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: [a\nb: c", "FILE:2:2: not valid YAML: expected ',' or ']', but got ':'"),
        ("name: a\n  b: c", "FILE:2:4: not valid YAML: mapping values are not allowed here"),
        ("name: a\nname: b", "FILE:2:1: not valid YAML: the name name is used twice"),
        ("name: !s3cret a", "FILE:1:7: not valid YAML: a value that begins with `*`, `&` or `!` needs quotes"),
        ("name: *s3cret", "FILE:1:7: not valid YAML: a value that begins with `*`, `&` or `!` needs quotes"),
        ("name: " + "7" * 5000, "FILE:1:7: not valid YAML: is no number that can be read"),
        ("name: !!int ''", "FILE:1:7: not valid YAML: is no number that can be read"),
        ("name: !!float s3cret", "FILE:1:7: not valid YAML: is no number that can be read"),
        ("name: !!bool s3cret", "FILE:1:7: not valid YAML: is no boolean that can be read"),
        ("name: !!timestamp s3cret", "FILE:1:7: not valid YAML: is no date that can be read"),
        ("name: !!map [s3cret]", "FILE:1:7: not valid YAML: expected a mapping node, but found sequence"),
        ("name: !!set s3cret", "FILE:1:7: not valid YAML: expected a mapping node, but found scalar"),
        ("name: a\n---\nname: b", "FILE:2:1: a second document begins: keep one, and remove `---`"),
        ("name: a\n---\n", "FILE:2:1: a second document begins: keep one, and remove `---`"),
        ("- a", "FILE: must be a YAML mapping such as `name: words`"),
        ("", "FILE: must be a YAML mapping such as `name: words`"),
        ("name: \x01", "FILE: is not YAML text: it has a character that YAML does not allow"),
    ],
)
def test_loader_file_without_a_yaml_mapping_is_refused_with_its_place(file: Path, text: str, problem: str) -> None:
    assert problems(file, text) == [problem]


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("{a: ", "}")])
@pytest.mark.parametrize("depth", [101, 900, 5000])
def test_loader_file_nested_too_deep_is_refused_with_its_place(file: Path, begin: str, end: str, depth: int) -> None:
    (problem,) = problems(file, MINIMAL + "router: " + begin * depth + end * depth)
    assert re.fullmatch(r"FILE:3:\d+: not valid YAML: nested deeper than 100 levels", problem)


@pytest.mark.parametrize("depth", [101, 900, 5000])
def test_loader_variable_nested_too_deep_is_refused_as_an_invalid_value(file: Path, depth: int) -> None:
    (problem,) = problems(file, MINIMAL, SKEWLESS__ROUTER__WORKERS="[" * depth + "]" * depth)
    assert problem.startswith("SKEWLESS__ROUTER__WORKERS: should be a valid integer")


@pytest.mark.parametrize("number", ["7" * 5000, "[7, !!int x]", "!!int x"])
def test_loader_variable_with_a_number_that_cannot_be_read_is_text(file: Path, number: str) -> None:
    (problem,) = problems(file, MINIMAL, SKEWLESS__ROUTER__WORKERS=number)
    assert problem.startswith("SKEWLESS__ROUTER__WORKERS: ")
    assert number not in problem
    assert load(file, MINIMAL, SKEWLESS__KAFKA__OPTIONS__CLIENT_RACK=number).kafka.options == {"client.rack": number}


def test_loader_variable_with_900_path_names_is_refused_as_an_unknown_setting(file: Path) -> None:
    (problem,) = problems(file, MINIMAL, **{"SKEWLESS__ROUTER__" + "__".join(["x"] * 900): "1"})
    assert problem.startswith("SKEWLESS__ROUTER__x__")
    assert ": router.x: unknown setting" in problem


@pytest.mark.parametrize("value", ["&here [*here]", "&here {x: *here}"])
def test_loader_value_that_contains_itself_is_refused(file: Path, value: str) -> None:
    (problem,) = problems(file, f"{MINIMAL}router: {value}\n")
    assert problem.startswith("FILE: router")


def test_loader_byte_order_mark_before_the_settings_is_skipped(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert loader.load(file, {}).name == "words"


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("router: {workers: true}", "router.workers"),
        ("router: {workers: False}", "router.workers"),
        ("worker: {pane_s: TRUE}", "worker.pane_s"),
        ("event_time: {idle_timeout_s: false}", "event_time.idle_timeout_s"),
        ("replicas: {splitter: true}", "replicas.splitter"),
        ("metrics: {port: true}", "metrics.port"),
        ("splitter: {value: {field: n, decimals: true}}", "splitter.value.decimals"),
    ],
)
def test_loader_boolean_for_a_number_is_refused(file: Path, section: str, setting: str) -> None:
    found = problems(file, f"{MINIMAL}{section}\n")
    assert f"FILE: {setting}: should be a number, not true or false" in found


@pytest.mark.parametrize("text", ["'8'", "8.0", "8"])
def test_loader_number_in_another_notation_keeps_its_value(file: Path, text: str) -> None:
    # Helm writes large integers with an exponent, and --set-string writes text. Both are unambiguous.
    assert load(file, f"{MINIMAL}router: {{workers: {text}}}\n").router.workers == 8


@pytest.mark.parametrize("number", [".nan", "-.inf", "nan"])
def test_loader_number_that_is_not_finite_is_refused(file: Path, number: str) -> None:
    assert len(problems(file, f"{MINIMAL}worker: {{pane_s: {number}}}\n")) == 1
    assert len(problems(file, f"{MINIMAL}router: {{workers: {number}}}\n")) == 1


@pytest.mark.parametrize("topic", [".", ".."])
def test_loader_topic_name_that_kafka_rejects_is_refused(file: Path, topic: str) -> None:
    join = f"join: {{left: {{topic: '{topic}'}}, right: {{topic: r, id: {{field: i}}}}, apart_s: 1}}"
    assert problems(file, f"name: words\nsource: {{topic: '{topic}'}}\n{join}\n") == [
        f"FILE: {setting}: must not be . or .., because Kafka rejects these topic names"
        for setting in ("source.topic", "join.left.topic")
    ]


def test_loader_variable_with_a_number_is_the_delimiter_of_a_side_of_a_join(file: Path) -> None:
    sides = "{left: {topic: l, id: {field: 0}, format: {name: csv}}, right: {topic: r, id: {field: i}}, apart_s: 1}"
    join = load(file, f"name: words\njoin: {sides}\n", SKEWLESS__JOIN__LEFT__FORMAT__DELIMITER="1").joined
    assert join.left.format.model_dump()["delimiter"] == "1"


def test_loader_unknown_grouping_is_refused_with_its_path_and_the_closest_name(file: Path) -> None:
    (problem,) = problems(file, MINIMAL + "router: {grouping: evn}\n")
    assert problem.startswith("FILE: router.grouping: unknown grouping evn, did you mean even? (known: consistent, ")


@pytest.mark.parametrize("value", ["count", "{count: 1}", "5"])
def test_loader_scalar_for_a_list_is_refused(file: Path, value: str) -> None:
    (problem,) = problems(file, f"{MINIMAL}aggregator: {{aggregates: {value}}}\n")
    assert problem == "FILE: aggregator.aggregates: should be a list"


@pytest.mark.parametrize(
    ("problem", "where"),
    [
        ("kafka.options: librdkafka refuses them: 'foo.bar'", "SKEWLESS__KAFKA__OPTIONS__FOO_BAR: "),
        ("kafka.options: librdkafka refuses them: 'linger.ms'", "p.yaml: "),
        ("transport.session_timeout_s: is not within bounds", "SKEWLESS__TRANSPORT__SESSION_TIMEOUT_S: "),
        ("router.workers: is too many", "p.yaml: "),
        ("elsewhere.yaml: cannot be read", ""),
        ("--option: is wrong", ""),
    ],
)
def test_loader_problem_found_after_loading_names_the_source_of_the_setting(problem: str, where: str) -> None:
    environ = {"SKEWLESS__KAFKA__OPTIONS__FOO_BAR": "1", "SKEWLESS__TRANSPORT__SESSION_TIMEOUT_S": "1"}
    assert loader.placed(problem, Path("p.yaml"), environ) == where + problem


def test_loader_missing_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        loader.load(file, {})


def test_loader_file_that_is_not_utf8_is_refused(file: Path) -> None:
    file.write_bytes(b"name: \xff")
    with pytest.raises(ConfigurationError, match="is not UTF-8 text"):
        loader.load(file, {})


def test_loader_problem_of_a_secret_setting_contains_no_secret(file: Path) -> None:
    text = MINIMAL + "kafka: {security_protocol: PLAINTEXT, sasl: {username: ann, password: [s3cret]}}\n"
    assert not any("s3cret" in problem for problem in problems(file, text))
    assert not any("s3cret" in problem for problem in problems(file, SECURE + "worker: 5\n", **{PASSWORD: "s3cret"}))


def test_dump_secrets_also_among_librdkafka_options_are_masked(file: Path) -> None:
    options = {
        "SKEWLESS__KAFKA__OPTIONS__SSL_KEY_PEM": "s3cret",
        "SKEWLESS__KAFKA__OPTIONS__SSL_KEYSTORE_PASSWORD": "s3cret",
    }
    options |= {name.replace("__KAFKA", "__MIRROR__KAFKA"): value for name, value in options.items()}
    text = SECURE + "mirror: {kafka: {bootstrap_servers: other:9092}}\n"
    dumped = loader.dump(load(file, text, **{PASSWORD: "s3cret"}, **options))
    assert "s3cret" not in dumped
    assert dumped.count("********") == 5


def test_dump_secret_that_is_not_set_is_empty(file: Path) -> None:
    sasl = "{mechanism: OAUTHBEARER, oauthbearer: {token_endpoint_url: 'https://tokens', client_id: ann}}"
    kafka = f"{{bootstrap_servers: other:9093, security_protocol: SASL_SSL, sasl: {sasl}}}"
    dumped = yaml.safe_load(loader.dump(load(file, MINIMAL + f"mirror: {{kafka: {kafka}}}\n")))
    assert dumped["mirror"]["kafka"]["sasl"]["oauthbearer"]["client_secret"] == ""


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_loader_each_example_is_valid_and_its_dump_loads_as_the_same_settings(example: Path, file: Path) -> None:
    environ = {PASSWORD: loader.HIDDEN} if "sasl:" in example.read_text() else {}
    settings = loader.load(example, environ)
    file.write_text(loader.dump(settings))
    assert loader.load(file, {}) == settings
    assert loader.dump(loader.load(file, {})) == loader.dump(settings)
    file.write_text(loader.dump(settings, only_set=True))
    assert loader.dump(loader.load(file, {})) == loader.dump(settings)


def test_dump_of_set_settings_contains_no_defaults(file: Path) -> None:
    text = SECURE + "router: {workers: 3}\n"
    settings = load(file, text, **{PASSWORD: "s3cret"})
    expected = yaml.safe_load(text)
    expected["kafka"]["sasl"]["password"] = loader.HIDDEN
    assert yaml.safe_load(loader.dump(settings, only_set=True)) == expected


def test_dump_settings_have_the_order_of_their_declaration(file: Path) -> None:
    assert list(yaml.safe_load(loader.dump(load(file, MINIMAL)))) == list(PipelineSettings.model_fields)


def test_loader_problems_of_source_and_conditions_are_all_reported_with_their_places(file: Path) -> None:
    file.write_text(
        "name: p\nsource: {topic: t, start: yesterday}\n"
        "splitter: {key: {from: record_key, field: k}, where: [{field: a}, {field: b, isnt: 1}]}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        loader.load(file, {})
    problems = [problem.removeprefix(f"{file}: ") for problem in caught.value.problems]
    assert problems == [
        "source.start: should be 'earliest' or 'latest', or 'yesterday' is not a time in ISO 8601",
        "splitter.key.field: set only one of from and field, because a key has one source",
        f"splitter.where.0: a condition needs an operator: one of {', '.join(OPERATORS.values())}",
        "splitter.where.1.isnt: unknown setting; did you mean is_not?",
    ]


def test_loader_grouping_local_is_key_with_a_local_buffer(file: Path) -> None:
    settings = load(file, MINIMAL + "router: {grouping: local, workers: 3}\n")
    assert (settings.router.grouping, settings.router.workers) == ("key", 3)
    assert (settings.splitter.local.mode, settings.splitter.local.adaptive) == ("buffer", True)
    assert settings.splitter == load(file, MINIMAL).splitter.model_copy(update={"local": settings.splitter.local})
    text = MINIMAL + "router: {grouping: local}\nsplitter: {format: text, local: {adaptive: false, buffer_rows: 7}}\n"
    local = load(file, text).splitter.local
    assert (local.mode, local.adaptive, local.buffer_rows) == ("buffer", False, 7)
    assert load(file, MINIMAL, SKEWLESS__ROUTER__GROUPING="local").splitter.local.mode == "buffer"
    assert load(file, MINIMAL).splitter.local.mode == "none"


ENCODING_PROBLEM = (
    "splitter.local.mode: buffer sends rows of several tuples, but with worker_input.encoding: record other consumers "
    "read each tuple; use the encoding batch, or the mode none"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("splitter: {format: text, local: on}", "splitter.local: should be a mapping of settings: {mode: buffer}"),
        ("splitter: {format: text, local: true}", "splitter.local: should be a mapping of settings: {mode: buffer}"),
        ("splitter: {format: text, local: off}", "splitter.local: should be a mapping of settings: {mode: none}"),
        ("splitter: {format: text, local: buffer}", "splitter.local: should be a mapping of settings: {mode: buffer}"),
        (
            "splitter: {format: text, local: windows}",
            "splitter.local: should be a mapping of settings: {mode: windows, window_s: 5}",
        ),
        (
            "splitter: {format: text, local: {mode: window}}",
            "splitter.local.mode: should be 'none', 'buffer' or 'windows'",
        ),
        (
            "splitter: {format: text, local: {mode: windows}}",
            "splitter.local.window_s: missing; set the length of a local window for mode: windows",
        ),
        (
            "splitter: {format: text, local: {mode: buffer, window_s: 5}}",
            "splitter.local.window_s: mode buffer has no local windows; remove it, or set mode: windows",
        ),
        (
            "splitter: {format: text, local: {window_s: 5}}",
            "splitter.local.window_s: mode none has no local windows; remove it, or set mode: windows",
        ),
        (
            "splitter: {format: text, local: {mode: windows, window_s: 4}}\nworker: {pane_s: 15}",
            "splitter.local.window_s: 4.0 does not divide worker.pane_s (15.0)",
        ),
        (
            "splitter: {format: text, local: {mode: windows, window_s: 7}}",
            "splitter.local.window_s: 7.0 does not divide 60 seconds: windows and ticks begin at multiples of them",
        ),
        (
            "splitter: {format: text, local: {mode: windows, window_s: 3}}\naggregator: {window_s: 10}",
            "splitter.local.window_s: 3.0 does not divide 10 seconds: windows and ticks begin at multiples of them",
        ),
        (
            "splitter: {format: text, local: {mode: windows, window_s: 5}}\nworker_input: {encoding: record}",
            ENCODING_PROBLEM.replace("buffer", "windows"),
        ),
        (
            "splitter: {format: text, local: {buffer_rows: 0}}",
            "splitter.local.buffer_rows: should be greater than or equal to 1",
        ),
        (
            "splitter: {format: text, local: {mode: none}}\nrouter: {grouping: local}",
            (
                "router.grouping: local aggregates in the splitter, but splitter.local.mode is none; remove the mode, "
                "or use the grouping key"
            ),
        ),
        (
            "splitter: {format: text, local: {mode: buffer}}\nworker_input: {encoding: record}",
            ENCODING_PROBLEM,
        ),
        (
            "router: {grouping: local}\nworker_input: {encoding: record}",
            ENCODING_PROBLEM,
        ),
    ],
)
def test_loader_local_aggregation_that_cannot_be_is_refused_with_the_remedy(
    file: Path, text: str, problem: str
) -> None:
    assert problems(file, f"{MINIMAL}{text}\n") == [f"FILE: {problem}"]
