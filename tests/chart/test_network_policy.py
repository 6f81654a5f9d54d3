"""The rendered NetworkPolicies allow the connections that a pipeline needs, and no others. Nothing enforces them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from helpers.docs_blocks import ROOT
from skewless import topology
from skewless.config.loader import load

CHART = ROOT / "helm" / "skewless"
METRICS = 9464
PORTS = {"kafka": 9092, "database": 5432, "identity provider": 8443, "registry": 8081, "elsewhere": 443}
"""Destinations outside of the release, and their ports."""
CLUSTER_DNS = "name server"
DNS = (("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353))
DATABASE_STAGES = {stage.name for stage in topology.STAGES if stage.section == "sink"}
TOKENS = {
    f"SKEWLESS__KAFKA__SASL__OAUTHBEARER__{name}": value
    for name, value in (("CLIENT_ID", "x"), ("CLIENT_SECRET", "x"), ("TOKEN_ENDPOINT_URL", "https://x"))
}
REGISTRY = {
    f"SKEWLESS__REGISTRY__OAUTHBEARER__{name}": value for name, value in (("CLIENT_ID", "x"), ("CLIENT_SECRET", "x"))
}
JOBS = {"audit", "batch", "evaluate", "plan"}

Objects = list[dict[str, Any]]
Labels = Mapping[str, str]
Render = Callable[..., Objects]


class Pod(NamedTuple):
    """A kind of pod: its component, such as the name of a stage, and its labels."""

    component: str
    labels: Labels


class Flow(NamedTuple):
    """A connection from one kind of pod to another, or to a destination outside of the release."""

    source: str
    destination: str
    port: int


def pods(objects: Objects) -> Iterator[Pod]:
    found: dict[str, Labels] = {}
    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if each["kind"] in {"StatefulSet", "Job", "CronJob", "Pod"}:
            labels = each["metadata"]["labels"] if each["kind"] == "Pod" else spec["template"]["metadata"]["labels"]
            found[labels.get("app.kubernetes.io/component", "kafka")] = labels
    return (Pod(component, labels) for component, labels in found.items())


def selected(selector: Mapping[str, Any], labels: Labels) -> bool:
    equal = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    return equal and all(labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", []))


def rules(policies: Objects, direction: str, labels: Labels) -> list[dict[str, Any]] | None:
    """Return the rules of a direction for a pod; None if no policy applies, so that everything is allowed."""
    own = [
        each["spec"]
        for each in policies
        if selected(each["spec"]["podSelector"], labels) and direction in each["spec"]["policyTypes"]
    ]
    return [rule for spec in own for rule in spec.get(direction.lower(), [])] if own else None


def allows(found: list[dict[str, Any]] | None, peer: Labels | None, port: int, protocol: str = "TCP") -> bool:
    """Return whether rules allow a port of a peer. A peer outside of the release has no labels: None."""
    if found is None:
        return True
    return any(_port(rule, port, protocol) and _peer(rule.get("to", rule.get("from")), peer) for rule in found)


def _port(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    return "ports" not in rule or {"port": port, "protocol": protocol} in rule["ports"]


def _peer(peers: Sequence[Mapping[str, Any]] | None, labels: Labels | None) -> bool:
    """Return whether a list of peers contains one. Addresses and namespaces are outside of the release."""
    if not peers:
        return True
    if labels is None:
        return any("podSelector" not in each for each in peers)
    return any(selected(each["podSelector"], labels) for each in peers if "podSelector" in each)


def allowed_flows(objects: Objects) -> set[Flow]:
    """Return the connections that the policies allow: out of one pod and, within the release, into the other one."""
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    found = list(pods(objects))
    flows = set()
    for pod in found:
        outgoing = rules(policies, "Egress", pod.labels)
        flows |= {Flow(pod.component, name, port) for name, port in PORTS.items() if allows(outgoing, None, port)}
        if all(allows(outgoing, None, port, protocol) for protocol, port in DNS):
            flows.add(Flow(pod.component, CLUSTER_DNS, 53))
        for other in found:
            incoming = rules(policies, "Ingress", other.labels)
            flows |= {
                Flow(pod.component, other.component, port)
                for port in (METRICS, PORTS["kafka"], PORTS["elsewhere"])
                if allows(outgoing, other.labels, port) and allows(incoming, pod.labels, port)
            }
        incoming = rules(policies, "Ingress", pod.labels)
        flows |= {
            Flow("outside", pod.component, port) for port in (METRICS, *PORTS.values()) if allows(incoming, None, port)
        }
    return flows


def needed_flows(objects: Objects, folder: Path) -> set[Flow]:
    """Return the connections that the topology and the settings need."""
    file = folder / "pipeline.yaml"
    (text,) = {each["data"]["pipeline.yaml"] for each in objects if "pipeline.yaml" in each.get("data", {})}
    file.write_text(text)
    document = yaml.safe_load(text)
    with_tokens = document["kafka"].get("sasl", {}).get("mechanism") == "OAUTHBEARER"
    with_registry = "registry" in document
    settings = load(file, (TOKENS if with_tokens else {}) | (REGISTRY if with_registry else {}))
    stages = {stage.name for stage in topology.needed_stages(settings)}
    components = {pod.component for pod in pods(objects)}
    own_kafka = "kafka" in components
    clients = components - {"kafka"}
    assert stages <= clients <= stages | JOBS | {"test", "topics"}
    flows = {Flow(name, CLUSTER_DNS, 53) for name in components}
    flows |= {Flow(name, "kafka", PORTS["kafka"]) for name in clients}
    if own_kafka:  # it connects to itself by its name, and KEDA and consumers in other namespaces to it
        flows |= {Flow("kafka", "kafka", PORTS["kafka"]), Flow("outside", "kafka", PORTS["kafka"])}
    if with_tokens or with_registry:
        flows |= {Flow(name, "identity provider", PORTS["identity provider"]) for name in clients}
    if with_registry:
        flows |= {Flow(name, "registry", PORTS["registry"]) for name in clients}
    if settings.sink is not None:
        users = (stages & DATABASE_STAGES) | (components & {"audit"})
        flows |= {Flow(name, "database", PORTS["database"]) for name in users}
    flows |= {Flow("outside", name, METRICS) for name in stages}  # Prometheus
    if "test" in components:
        flows |= {Flow("test", name, METRICS) for name in stages}
    return flows


@pytest.mark.parametrize(
    "values", ["minimal", "embedded-kafka", "postgresql", "oauthbearer-keda", "registry", "join", "spark"]
)
def test_network_policies_allow_the_flows_of_the_topology_and_no_others(
    render: Render, values: str, tmp_path: Path
) -> None:
    objects = render(
        CHART / "ci" / f"{values}.yaml",
        *(() if values == "embedded-kafka" else ("kafka.bootstrapServers=kafka:9092",)),
    )
    assert relevant(allowed_flows(objects)) == relevant(needed_flows(objects, tmp_path))


def relevant(flows: set[Flow]) -> set[Flow]:
    """Return the flows without the metrics ports of pods that have none: nothing listens there."""
    listening = {stage.name for stage in topology.STAGES}
    return {
        flow
        for flow in flows
        if not (flow.source == "outside" and flow.port == METRICS) or flow.destination in listening
    }


def test_network_policies_with_peers_let_only_them_and_the_tests_in(render: Render) -> None:
    objects = render(CHART / "ci" / "everything.yaml", "metrics.port=9464", "networkPolicy.egress.kafkaPorts={9092}")
    flows = allowed_flows(objects)
    stages = {flow.destination for flow in flows if flow.source == "test" and flow.port == METRICS}
    assert stages == {"splitter", "router", "worker", "aggregator", "observer"}
    assert {flow.destination for flow in flows if flow.source == "worker"} == {"kafka", CLUSTER_DNS}
