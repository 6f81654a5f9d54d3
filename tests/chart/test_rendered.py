"""Manifests are valid for every supported version of Kubernetes, and the product accepts their configuration."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from pydantic import SecretStr

from helm.generate import files, kubernetes, pipeline_schema, schema, stages
from helpers import extra_stages
from helpers.docs_blocks import ROOT, blocks
from helpers.source_files import assert_none, problem_of
from helpers.tiers import thorough_except
from helpers.versions import VERSIONS
from skewless import topology
from skewless.cli.main import main
from skewless.config import acl_formats, acls, loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import desired_topics
from skewless.metric_definition import CONSTANT_LABELS
from skewless.monitoring.common_metrics import EVERY_STAGE

CHART = Path(__file__).parents[2] / "helm" / "skewless"
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
MINIMAL = CHART / "ci" / "minimal.yaml"
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
OLDEST, BUILT, NEWEST = (
    int(VERSIONS[name].split(".")[1]) for name in ("kubernetes_oldest", "kubernetes", "kubernetes_newest")
)
"""Minor versions of Kubernetes."""
SUPPORTED = [f"v1.{minor}.0" for minor in range(OLDEST, NEWEST + 1)]
CRDS = Path(__file__).parent / "crds"
TASTE = ("container-image-pull-policy", "container-cpu-limit")
"""Checks that are disabled for the chart. Always pulling images makes a start depend on a registry, and a CPU limit
slows a process down while CPU is free. Users can set both.
"""

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]
LABELED = ("commonLabels", "stageDefaults.podLabels", "monitoring.podMonitor.additionalLabels")
REFUSED_BY_SCHEMA = {"monitoring", "schema", "sink"}
"""Suites with values that the chart's schema refuses. The others run without it, because helm-unittest reads
it for each test, in more than half of its time."""
WORKLOADS = ("StatefulSet", "Job", "CronJob", "Pod")


def kind(objects: Objects, expected: str) -> Objects:
    return [found for found in objects if found["kind"] == expected]


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return name and spec of every pod."""
    for found in objects:
        spec = found.get("spec", {})
        if found["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if found["kind"] in WORKLOADS:
            yield found["metadata"]["name"], spec if found["kind"] == "Pod" else spec["template"]["spec"]


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return a container's variables. A secret is shown as its name and key."""
    found = {}
    for variable in container.get("env", []):
        secret = variable.get("valueFrom", {}).get("secretKeyRef")
        if secret or "value" in variable:
            found[variable["name"]] = f"{secret['name']}/{secret['key']}" if secret else variable["value"]
    return {name: value for name, value in found.items() if name.startswith(loader.PREFIX)}


def load(objects: Objects, stage: str, folder: Path) -> PipelineSettings:
    """Load the configuration file as the stage does."""
    (mounted,) = [
        found
        for found in kind(objects, "ConfigMap")
        if "pipeline.yaml" in found.get("data", {}) and "helm.sh/hook" not in found["metadata"].get("annotations", {})
    ]
    file = folder / "pipeline.yaml"
    file.write_text(mounted["data"]["pipeline.yaml"])
    (container,) = next(spec["containers"] for name, spec in pods(objects) if name.endswith((f"-{stage}", "-all")))
    return loader.load(file, environment(container))


@pytest.mark.thorough
def test_helm_lint_with_each_example_has_no_notes(helm: Callable[..., str]) -> None:
    def check(values: Path) -> None:
        printed = helm("lint", "--strict", CHART, "--kube-version", VERSIONS["kubernetes"], "--values", values)
        assert not (notes := [line for line in printed.splitlines() if line.startswith("[")]), "\n".join(notes)

    assert_none(problem for values in EXAMPLES for problem in problem_of(values.stem, partial(check, values)))


def test_helm_unittest_suites_pass(tools: Path) -> None:
    names = {path.name.removesuffix("_test.yaml") for path in CHART.glob("tests/*_test.yaml")}
    unchecked = names - REFUSED_BY_SCHEMA
    passed = run_suites(tools, REFUSED_BY_SCHEMA) + run_suites(tools, unchecked, "--skip-schema-validation")
    assert passed > 250


def run_suites(tools: Path, names: Collection[str], *options: str) -> int:
    """Run suites of the chart's tests, and return the number of tests."""
    files = [option for name in sorted(names) for option in ("--file", f"tests/{name}_test.yaml")]
    environment = os.environ | {"GOGC": "400"}  # a third faster, because it collects garbage less often
    ran = subprocess.run(
        [tools / "helm-unittest", *files, *options, CHART],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=CHART,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert "errored" not in ran.stdout
    return int(ran.stdout.rpartition("Tests:")[2].split()[0])


def test_chart_readme_equals_the_output_of_helm_docs(tools: Path, tmp_path: Path) -> None:
    copied = tmp_path / "skewless"
    shutil.copytree(CHART, copied)
    (copied / "README.md").unlink()
    command = [str(tools / "helm-docs"), "--chart-search-root", str(copied), "--sort-values-order", "file"]
    subprocess.run([*command, "--log-level", "warning"], check=True, timeout=60, capture_output=True)
    assert (copied / "README.md").read_text() == (CHART / "README.md").read_text(), "run `make chart`"


@pytest.fixture(scope="module")
def rendered(render: Render) -> dict[str, Objects]:
    """Return every example by its name."""
    return {path.stem: render(path) for path in EXAMPLES}


@pytest.fixture(scope="module")
def manifests(rendered: dict[str, Objects], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("manifests")
    for name, objects in rendered.items():
        (folder / f"{name}.yaml").write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
    return sorted(folder.iterdir())


def write_schemas(folder: Path, kinds: set[tuple[str, str]], version: str) -> None:
    """Write a self-contained schema for each (apiVersion, kind), with the file name that kubeconform expects."""
    for api, kind in kinds:
        group, _, name = api.rpartition("/")
        definition = f"{group.partition('.')[0] or 'core'}.{name}.{kind}"
        suffix = "-".join(filter(None, (group.partition(".")[0], name)))
        schema = {**kubernetes.reference(definition), "$defs": kubernetes.definitions({definition}, version)}
        (folder / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(schema), encoding="utf-8")


@pytest.mark.parametrize("version", thorough_except(SUPPORTED[-1:], SUPPORTED))
def test_rendered_object_of_each_supported_kubernetes_version_is_valid(
    tools: Path, rendered: dict[str, Objects], manifests: list[Path], version: str, tmp_path: Path
) -> None:
    used = {(found["apiVersion"], found["kind"]) for objects in rendered.values() for found in objects}
    write_schemas(tmp_path, {each for each in used if not is_custom(each[0])}, version)
    name = "{{.ResourceKind}}{{.KindSuffix}}.json"
    locations = [part for folder in (tmp_path, CRDS) for part in ("-schema-location", f"{folder}/{name}")]
    ran = subprocess.run(
        [tools / "kubeconform", "-strict", "-summary", *locations, *manifests],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout
    assert "Skipped: 0" in ran.stdout
    assert "Errors: 0" in ran.stdout


def is_custom(version: str) -> bool:
    return any(group in version for group in ("strimzi", "coreos", "keda"))


def test_rendered_manifests_have_no_critical_kube_score_finding(tools: Path, manifests: list[Path]) -> None:
    command = [str(tools / "kube-score"), "score", "--kubernetes-version", f"v1.{BUILT}", "--output-format", "ci"]
    ignored = [part for test in TASTE for part in ("--ignore-test", test)]
    ran = subprocess.run(
        [*command, "--ignore-container-cpu-limit", *ignored, *map(str, manifests)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    critical = [line for line in ran.stdout.splitlines() if line.startswith("[CRITICAL]")]
    assert critical == []
    assert "[OK]" in ran.stdout


def test_rendered_pipeline_file_and_environment_load_in_every_stage(
    rendered: dict[str, Objects], tmp_path: Path
) -> None:
    def check(values: Path) -> None:
        given, objects = yaml.safe_load(values.read_text()), rendered[values.stem]
        first = "splitter" if "source" in given else "join"
        for stage in topology.needed_stages(load(objects, first, tmp_path)):
            settings = load(objects, stage.name, tmp_path)
            inputs = ("source",) if "source" in given else ("left", "right")
            topics = {"source": given.get("source")} | given.get("pipeline", {}).get("join", {})
            assert [settings.topic(name) for name in inputs] == [topics[name]["topic"] for name in inputs], stage.name
            assert settings.metrics.port > 0, stage.name

    assert_none(problem for values in EXAMPLES for problem in problem_of(values.stem, partial(check, values)))


@pytest.mark.parametrize(
    ("start", "loaded"), [("latest", "latest"), ("2026-02-01T00:00:00Z", 1769904000000), (1769904000000, 1769904000000)]
)
def test_rendered_pipeline_file_has_the_first_records_of_the_source(
    render: Render, tmp_path: Path, start: str | int, loaded: str | int
) -> None:
    values = yaml.safe_load(MINIMAL.read_text())
    values["source"] |= {"start": start, "skipTo": {3: 1_000_000_000}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    source = load(render(file), "splitter", tmp_path).source
    assert source is not None
    assert (source.topic, source.start, source.skip_to) == ("clicks", loaded, {"3": 1_000_000_000})


def test_rendered_container_commands_exist_with_their_options(rendered: dict[str, Objects]) -> None:
    def check(container: dict[str, Any]) -> None:
        arguments = [argument.replace("$(POD_INDEX)", "3") for argument in container["args"]]
        command: click.Command = main
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), arguments.pop(0))
            assert found is not None, "there is no such command"
            command = found
        command.make_context("skewless", arguments, resilient_parsing=False)

    assert_none(
        problem
        for example, objects in rendered.items()
        for pod, spec in pods(objects)
        for container in [*spec.get("initContainers", []), *spec["containers"]]
        if "command" not in container and container.get("args")
        for problem in problem_of(f"{example}, {pod}: {container['args']}", partial(check, container))
    )


def test_rendered_files_and_arguments_with_sasl_hold_no_password(rendered: dict[str, Objects], tmp_path: Path) -> None:
    objects = rendered["sasl-job-topics"]
    for found in kind(objects, "ConfigMap"):
        assert "password" not in found.get("data", {}).get("pipeline.yaml", "")
    own = load(objects, "aggregator", tmp_path).kafka.sasl
    shared = load(objects, "splitter", tmp_path).kafka.sasl
    assert own is not None
    assert shared is not None
    assert (shared.username, secret(shared.password)) == ("pages", "kafka-pages/password")
    assert (own.username, secret(own.password)) == ("kafka-aggregator", "kafka-aggregator/password")


def test_rendered_login_with_tokens_takes_id_and_secret_of_each_stage(
    rendered: dict[str, Objects], tmp_path: Path
) -> None:
    objects = rendered["oauthbearer-keda"]
    own, shared = (load(objects, stage, tmp_path).kafka.sasl for stage in ("splitter", "worker"))
    assert own is not None
    assert shared is not None
    assert own.oauthbearer is not None
    assert shared.oauthbearer is not None
    assert own.oauthbearer.client_id == "splitter-client/client-id"
    assert secret(own.oauthbearer.client_secret) == "splitter-client/client-secret"
    assert (shared.oauthbearer.client_id, shared.oauthbearer.scope) == ("pipelines", "kafka")
    assert secret(shared.oauthbearer.client_secret) == "kafka-client/client-secret"


def test_rendered_registry_takes_its_login_and_certificates_from_secrets(
    rendered: dict[str, Objects], tmp_path: Path
) -> None:
    registry = load(rendered["registry"], "splitter", tmp_path).registry
    assert registry is not None
    assert registry.url == "https://registry.example.org:8081"
    assert registry.oauthbearer is not None
    assert registry.oauthbearer.client_id == "registry-client/client-id"
    assert secret(registry.oauthbearer.client_secret) == "registry-client/client-secret"
    assert registry.tls is not None
    assert secret(registry.tls.key_password) == "registry-certificate/password"


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


@pytest.mark.parametrize("name", ["strimzi-tls", "strimzi-scram"])
def test_strimzi_topics_equal_the_topic_plan(rendered: dict[str, Objects], name: str, tmp_path: Path) -> None:
    settings = load(rendered[name], "splitter", tmp_path)
    partitions = yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text())["source"]["partitions"]
    expected = {
        spec.name: (spec.partitions, spec.replication_factor, dict(spec.options))
        for spec in desired_topics(settings, partitions)
    }
    made = {
        found["spec"].get("topicName", found["metadata"]["name"]): (
            found["spec"]["partitions"],
            found["spec"].get("replicas"),
            found["spec"]["config"],
        )
        for found in kind(rendered[name], "KafkaTopic")
    }
    assert made == expected


@pytest.mark.parametrize("name", ["strimzi-tls", "strimzi-scram"])
def test_strimzi_users_have_the_acls_of_the_product(rendered: dict[str, Objects], name: str, tmp_path: Path) -> None:
    settings = load(rendered[name], "splitter", tmp_path)
    if name == "strimzi-scram":
        assert settings.kafka.security_protocol == "SASL_SSL"
    # Pipelines of several namespaces may share the one of Strimzi.
    pipeline = f"{settings.topics.prefix}clicks".lower().replace("_", "-").replace(".", "-")
    assert pipeline == ("prod-team-1-clicks" if name == "strimzi-scram" else "clicks")
    principals = {role: f"{pipeline}-{role}" for role in acls.ROLES}
    users = yaml.safe_load_all(acl_formats.strimzi(acls.acls_by_principal(settings, principals), settings))
    expected = {user["metadata"]["name"]: user["spec"] for user in users}
    made = {found["metadata"]["name"]: found["spec"] for found in kind(rendered[name], "KafkaUser")}
    made.pop(f"{pipeline}-test", None)
    names = [f"{pipeline}-{stage.name}" for stage in topology.needed_stages(settings)]
    assert made == {user: expected[user] for user in names}


def test_values_schema_misspelled_value_is_refused_with_its_path(helm: Callable[..., str]) -> None:
    command = ["template", "clicks", CHART, "--kube-version", VERSIONS["kubernetes"], "--values", MINIMAL, "--set"]
    output = helm(*command, "pipeline.router.wokers=3", fails=True)
    assert "at '/pipeline/router': additional properties 'wokers' not allowed" in output
    output = helm(*command, "stages.worker.livenessProbe.periodSecs=3", fails=True)
    assert "at '/stages/worker/livenessProbe': additional properties 'periodSecs' not allowed" in output


def test_chart_nulls_in_place_of_defaults_are_refused_before_a_template_needs_them(helm: Callable[..., str]) -> None:
    paths = yaml.safe_load((CHART / "files" / "not-null.yaml").read_text())
    for depth in range(max(path.count(".") for path in paths) + 1):
        group = {path for path in paths if path.count(".") == depth}
        nulls = [part for path in group for part in ("--set", f"{path}=null")]
        output = helm("template", "x", CHART, "--kube-version", VERSIONS["kubernetes"], *nulls, fails=True)
        refused = {line.strip().partition(": ")[0] for line in output.splitlines() if "has no value" in line}
        assert refused == group
        assert "with helm upgrade --reuse-values, use --reset-then-reuse-values instead" in output


LOGINS = (
    "kafka.sasl.existingSecret=s",
    "kafka.sasl.mechanism=OAUTHBEARER",
    "kafka.sasl.oauthbearer.tokenEndpointUrl=https://identity",
    "kafka.tls.enabled=true",
    "registry.url=https://registry",
    "registry.existingSecret=s",
)


def empty_values(path: str, section: dict[str, Any]) -> Iterator[str]:
    """Return the path of each text, list and object that is empty by default."""
    for name, value in section.items():
        inner = f"{path}.{name}" if path else name
        if schema.is_section(inner, value):
            yield from empty_values(inner, value)
        elif value in ("", [], {}):
            yield inner


def test_chart_empty_value_without_a_value_is_rendered_as_empty(render: Render) -> None:
    settings = (*LOGINS, "monitoring.dashboards.enabled=true", "spark.jobs.audit.enabled=true")
    given = {setting.partition("=")[0] for setting in settings}
    given |= {"global.imageRegistry", "kafka.bootstrapServers", "source.topic"}
    paths = set(empty_values("", yaml.safe_load(schema.VALUES.read_text()))) - given
    assert render(MINIMAL, *settings, *(f"{path}=null" for path in paths)) == render(MINIMAL, *settings)


def test_chart_kubernetes_without_pod_index_label_is_refused(helm: Callable[..., str]) -> None:
    output = helm("template", "x", CHART, "--kube-version", f"1.{OLDEST - 1}.9", "--values", MINIMAL, fails=True)
    assert f"chart requires kubeVersion: >={VERSIONS['kubernetes_oldest']}-0" in output


def test_rendered_labels_overridden_by_the_user_occur_once(render: Render) -> None:
    keys = ("managed-by", "part-of", "version", "name", "component")
    own = [f"{where}.app\\.kubernetes\\.io/{key}=mine" for where in LABELED for key in keys]
    objects = render(CHART / "ci" / "monitoring-keda.yaml", *own)  # the loader of the chart's tests refuses them
    found = {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in objects}
    assert found == {"skewless"}


def test_spark_job_name_changes_with_each_change_of_its_specification(render: Render) -> None:
    def name(*settings: str) -> str:
        (job,) = [
            each["metadata"]["name"]
            for each in kind(render(MINIMAL, "spark.jobs.plan.enabled=true", *settings), "Job")
            if "-plan-" in each["metadata"]["name"]
        ]
        return str(job)

    assert name() == name("pipeline.router.workers=9")
    assert name() != name("spark.memory=2g")


CLAIM = "spark.reports.volume.persistentVolumeClaim.claimName=reports"


@pytest.mark.parametrize("name", ["oauthbearer-keda", "registry", "strimzi-tls"])
def test_executor_pods_have_the_files_and_the_variables_of_the_user_as_their_driver(render: Render, name: str) -> None:
    master = "spark.master=k8s://https://kubernetes.default.svc"
    variable = ("spark.extraEnv[0].name=AWS_REGION", "spark.extraEnv[0].value=eu-west-1")
    objects = render(CHART / "ci" / f"{name}.yaml", "spark.jobs.audit.enabled=true", master, CLAIM, *variable)
    (driver,) = (spec for job, spec in pods(objects) if "-audit-" in job)
    (template,) = (found["data"]["executor.yaml"] for found in objects if "executor.yaml" in found.get("data", {}))
    executor = yaml.safe_load(template)["spec"]
    # Spark mounts a folder of its own at the path of another volume than this one, which Kubernetes refuses.
    renamed = {"tmp": "spark-local-dir-1"}
    files, mounts = (
        [each | {"name": renamed.get(each["name"], each["name"])} for each in found if each["name"] != "spark"]
        for found in (driver["volumes"], driver["containers"][0]["volumeMounts"])
    )
    assert {volume["name"] for volume in files} == {"pipeline", "tls", "spark-local-dir-1", "reports"}
    assert (executor["volumes"], executor["containers"][0]["volumeMounts"]) == (files, mounts)
    assert executor["containers"][0]["env"] == [{"name": "AWS_REGION", "value": "eu-west-1"}]


@pytest.fixture
def extended_chart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Generate the chart with the stages of tests."""
    settings = extra_stages.add(monkeypatch)
    for module in (stages, pipeline_schema):
        monkeypatch.setattr(module, "PipelineSettings", settings)
    copied = tmp_path / "skewless"
    shutil.copytree(CHART, copied)
    for name, content in files.files().items():
        (copied / name).write_text(content)
    return copied


def stage_objects(objects: Objects) -> dict[str, set[str]]:
    """Kinds of the objects of each stage that the chart's values do not list."""
    found: dict[str, set[str]] = {"reviewer": set(), "archiver": set()}
    for each in objects:
        for name, kinds in found.items():
            if each["metadata"]["name"].endswith(f"-{name}"):
                kinds.add(each["kind"])
    return found


def test_chart_stage_added_to_the_topology_needs_no_new_template(render: Render, extended_chart: Path) -> None:
    values = ("stages.archiver.existingSecret=store", "stages.reviewer.existingSecret=store")
    objects = render(
        MINIMAL, "pipeline.archive.mode=results", "stages.archiver.replicas=2", *values, chart=extended_chart
    )
    assert stage_objects(objects) == {each: {"StatefulSet", "PodDisruptionBudget"} for each in ("reviewer", "archiver")}
    (made,) = [found for found in kind(objects, "StatefulSet") if found["metadata"]["name"].endswith("-archiver")]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert made["spec"]["replicas"] == 2
    assert container["args"][:2] == ["run", "archiver"]
    assert ("SKEWLESS__ARCHIVE__PASSWORD", "store/password") in environment(container).items()


@pytest.mark.parametrize(
    ("archive", "added"),
    [
        ([], set()),
        (["pipeline.archive=null"], set()),
        (["pipeline.archive.mode=late"], {"reviewer"}),
        (["pipeline.archive.mode=results"], {"reviewer", "archiver"}),
        (["pipeline.archive.table=x"], {"reviewer", "archiver"}),
    ],
    ids=["not set", "null", "set to another value", "set", "set by default"],
)
def test_chart_stage_without_its_condition_has_no_object_topic_or_user(
    render: Render, extended_chart: Path, archive: list[str], added: set[str]
) -> None:
    values = [f"stages.{name}.existingSecret=store" for name in added]
    objects = render(CHART / "ci" / "strimzi-tls.yaml", *values, *archive, chart=extended_chart)
    expected = {"StatefulSet", "PodDisruptionBudget", "KafkaUser"}
    assert stage_objects(objects) == {name: expected if name in added else set() for name in ("reviewer", "archiver")}
    topics = {found["metadata"]["name"] for found in kind(objects, "KafkaTopic")}
    assert {name for name in topics if name.endswith(".reviewed")} == ({"clicks.reviewed"} if added else set())


def test_chart_keda_of_a_stage_with_two_inputs_has_a_trigger_for_each(render: Render, extended_chart: Path) -> None:
    values = ("stages.archiver.existingSecret=store", "stages.reviewer.existingSecret=store", "source.partitions=12")
    keda = ("stages.archiver.autoscaling.keda.enabled=true", "pipeline.archive.mode=all")
    objects = render(MINIMAL, *values, *keda, chart=extended_chart)
    (scaled,) = kind(objects, "ScaledObject")
    triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
    assert [trigger["topic"] for trigger in triggers] == ["clicks.aggregates", "clicks.reviewed"]
    assert {trigger["consumerGroup"] for trigger in triggers} == {"clicks-archiver"}
    assert scaled["spec"]["maxReplicaCount"] == 12


def test_rendered_keda_triggers_have_parameters_that_their_scalers_know(rendered: dict[str, Objects]) -> None:
    """The schemas of KEDA's objects allow any parameter."""

    def check(trigger: dict[str, Any], logins: dict[str, Any]) -> None:
        known = json.loads((CRDS / f"keda-{trigger['type']}.json").read_text())
        given = trigger["metadata"].keys()
        assert given >= set(known["required"]), f"no {sorted(set(known['required']) - given)}"
        assert given <= set(known["metadata"]), f"unknown: {sorted(given - set(known['metadata']))}"
        assert all(isinstance(value, str) for value in trigger["metadata"].values()), "a value is not a string"
        if "authenticationRef" in trigger:
            login = logins[trigger["authenticationRef"]["name"]]
            parameters = {each["parameter"] for part in ("env", "secretTargetRef") for each in login.get(part, [])}
            assert parameters <= set(known["authentication"]), f"unknown login: {sorted(parameters)}"

    assert_none(
        problem
        for example, objects in rendered.items()
        for scaled in kind(objects, "ScaledObject")
        for trigger in scaled["spec"]["triggers"]
        for problem in problem_of(
            f"{example}, {scaled['metadata']['name']}, {trigger['type']}",
            partial(
                check,
                trigger,
                {each["metadata"]["name"]: each["spec"] for each in kind(objects, "TriggerAuthentication")},
            ),
        )
    )


def test_rendered_keda_query_selects_a_metric_of_every_stage_by_its_labels(rendered: dict[str, Objects]) -> None:
    (query,) = [
        trigger["metadata"]["query"]
        for scaled in kind(rendered["monitoring-keda"], "ScaledObject")
        for trigger in scaled["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    name, _, matchers = query.removeprefix("max(").partition("{")
    assert name in {metric.name for metric in EVERY_STAGE}
    assert {"pipeline", "stage"} <= set(CONSTANT_LABELS)
    assert matchers == 'namespace="default", pipeline="clicks", stage="aggregator"})'


def test_rendered_configmaps_are_below_the_limit_with_room_for_more_stages(rendered: dict[str, Objects]) -> None:
    sizes = {
        (name, each["metadata"]["name"]): sum(len(text.encode()) for text in each.get("data", {}).values())
        for name, objects in rendered.items()
        for each in kind(objects, "ConfigMap")
    }
    assert {each for each, size in sizes.items() if size >= 0.6 * 1024 * 1024} == set()
    assert max(sizes.values()) > 30_000, "the dashboards are missing"


def test_prometheus_rule_expressions_equal_the_tested_ones(rendered: dict[str, Objects]) -> None:
    (rule,) = kind(rendered["monitoring-keda"], "PrometheusRule")
    source = [
        group
        for name in ("rules", "alerts")
        for group in yaml.safe_load((ROOT / "dashboards" / f"{name}.yaml").read_text())["groups"]
    ]
    left_out = yaml.safe_load((CHART / "ci" / "monitoring-keda.yaml").read_text())["monitoring"]["prometheusRule"]
    expressions = {
        each["expr"] for group in source for each in group["rules"] if each.get("alert") not in left_out["disabled"]
    }
    assert {each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]} == expressions


def test_chart_package_holds_required_files_only(helm: Callable[..., str], tmp_path: Path) -> None:
    helm("package", CHART, "--destination", tmp_path)
    (archive,) = tmp_path.glob("*.tgz")
    listed = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True, check=True, timeout=60)
    names = {name.removeprefix("skewless/") for name in listed.stdout.split()}
    assert "templates/tests/pods.yaml" in names
    assert not any(name.startswith(("ci/", "tests/")) for name in names)
    assert archive.stat().st_size < 500_000, f"{os.fspath(archive)}: a release is kept in a Secret, which is limited"


def selected(objects: Objects, selector: dict[str, str]) -> set[str]:
    """Return the names of the StatefulSets whose pods have these labels."""
    return {
        each["metadata"]["name"]
        for each in kind(objects, "StatefulSet")
        if selector.items() <= each["spec"]["template"]["metadata"]["labels"].items()
    }


def test_chart_single_process_has_the_probes_budget_and_monitors_of_a_stage(rendered: dict[str, Objects]) -> None:
    objects = rendered["single"]
    (single,) = kind(objects, "StatefulSet")
    name = single["metadata"]["name"]
    assert name == "clicks-skewless-all"
    for found in kind(objects, "PodDisruptionBudget") + kind(objects, "PodMonitor"):
        assert selected(objects, found["spec"]["selector"]["matchLabels"]) == {name}
    (database,) = [each for each in kind(objects, "NetworkPolicy") if each["metadata"]["name"].endswith("-database")]
    (expression,) = database["spec"]["podSelector"]["matchExpressions"]
    assert single["spec"]["template"]["metadata"]["labels"][expression["key"]] in expression["values"]


def test_chart_single_process_has_the_acls_of_all_stages(
    rendered: dict[str, Objects], render: Render, tmp_path: Path
) -> None:
    def rights(objects: Objects) -> dict[str, set[str]]:
        return {
            each["metadata"]["name"]: {json.dumps(acl, sort_keys=True) for acl in each["spec"]["authorization"]["acls"]}
            for each in kind(objects, "KafkaUser")
        }

    values = yaml.safe_load((CHART / "ci" / "single.yaml").read_text())
    del values["mode"], values["stages"]["all"]
    by_stage_file = tmp_path / "values.yaml"
    by_stage_file.write_text(yaml.safe_dump(values))
    single, by_stage = rights(rendered["single"]), rights(render(by_stage_file))
    stages_of = [name for name in by_stage if name != "clicks-test"]
    assert len(stages_of) == len(topology.needed_stages(load(rendered["single"], "all", tmp_path)))
    assert single == {
        "clicks-all": set().union(*(by_stage[name] for name in stages_of)),
        "clicks-test": by_stage["clicks-test"],
    }


def test_chart_mode_changes_nothing_but_the_processes(render: Render, tmp_path: Path) -> None:
    values = yaml.safe_load((CHART / "ci" / "monitoring-keda.yaml").read_text())
    del values["stages"]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))

    def others(mode: str) -> Objects:
        objects = render(file, f"mode={mode}")
        return [each for each in objects if each["kind"] not in {"StatefulSet", "PodDisruptionBudget"}]

    assert others("single") == others("stages")


def values_of_page(text: str, folder: Path) -> Path:
    """Write the values of the page that contain this text."""
    (found,) = [block for block in blocks(PAGE) if block.language == "text" and text in block.text]
    values = folder / "values.yaml"
    values.write_text(found.text)
    return values


def test_chart_on_openshift_has_no_fixed_user(render: Render, tmp_path: Path) -> None:
    values = values_of_page("runAsUser: null", tmp_path)
    objects = render(values, "global.imageRegistry=registry.example.org", "spark.jobs.audit.enabled=true")
    contexts = [
        context
        for _, spec in pods(objects)
        for context in (spec["securityContext"], *(each["securityContext"] for each in spec["containers"]))
    ]
    assert len(contexts) > 2 * len(kind(objects, "StatefulSet"))
    assert all(context["runAsNonRoot"] for context in contexts)
    assert_none(
        f"{name} is set" for context in contexts for name in ("runAsUser", "runAsGroup", "fsGroup") if name in context
    )


def test_chart_annotation_of_the_page_restarts_pods_when_a_secret_changes(render: Render, tmp_path: Path) -> None:
    values = values_of_page("reloader", tmp_path)
    for each in kind(render(values, "global.imageRegistry=registry.example.org"), "StatefulSet"):
        assert each["metadata"]["annotations"] == {"secret.reloader.stakater.com/auto": "true"}
