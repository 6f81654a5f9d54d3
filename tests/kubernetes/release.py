"""A release of the chart in a namespace that enforces restricted Pod Security."""

from __future__ import annotations

import json
import os
import random
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml

from helpers.versions import VERSIONS
from kubernetes.cluster import Cluster
from kubernetes.tools import run, seconds_until, write_json

CHART = Path(__file__).parents[2] / "helm" / "skewless"
READY_S = 240.0
METRICS_PORT = 9464
W = "skewless_router_workers"
BUILT_IN = {
    "v1",
    "apps",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
}
"""Groups of the objects that Kubernetes knows by itself."""
BY_KUBERNETES = {"configmaps": "kube-root-ca.crt", "serviceaccounts": "default"}
"""Objects that Kubernetes itself creates in every namespace."""
KINDS = (
    "pods,services,statefulsets,jobs,cronjobs,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets"
)


class Release:
    """The objects that Helm installs from the chart with some values, and their pods. Its namespace has its name."""

    def __init__(self, cluster: Cluster, helm: Path, folder: Path, name: str, values: Mapping[str, Any]) -> None:
        self.name = name
        self._cluster = cluster
        self._helm = helm
        self.values = write_json(folder / f"{name}.json", values)
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))

    def validate(self) -> dict[str, int]:
        """Validate the objects for these values and for each file in `ci` of the chart, by file.

        The API server refuses unknown fields. Objects of operators, which it does not know, are left out.
        """
        return {file.stem: self._validate(file) for file in (self.values, *sorted((CHART / "ci").glob("*.yaml")))}

    def _validate(self, values: Path) -> int:
        # Without the pod of `helm test`, because its service account must really exist.
        version = ("--kube-version", VERSIONS["kubernetes"])
        rendered = self.helm("template", self.name, str(CHART), "-f", str(values), *version, "--skip-tests")
        objects = [each for each in yaml.safe_load_all(rendered) if each["apiVersion"].partition("/")[0] in BUILT_IN]
        stdin = "\n".join(map(json.dumps, objects))
        self._cluster.kubectl("-n", self.name, "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=stdin)
        return len(objects)

    def install(self) -> None:
        """Install the release. Helm waits for hooks, not for pods."""
        self.helm("install", self.name, str(CHART), "-f", str(self.values))

    def upgrade(self, *settings: str) -> None:
        """Change values, each as PATH=VALUE, and wait until all pods have the new revision."""
        changes = [part for setting in settings for part in ("--set-json", setting)]
        self.helm("upgrade", self.name, str(CHART), "--reuse-values", *changes)
        self.settled()

    def replace_values(self, values: Mapping[str, Any]) -> None:
        """Replace all values, as a changed file does, and wait as `upgrade`."""
        self.helm("upgrade", self.name, str(CHART), "-f", str(write_json(self.values, values)))
        self.settled()

    def helm(self, command: str, *arguments: str, limit_s: float = 400.0) -> str:
        """Run helm."""
        where = ("--kubeconfig", self._cluster.admin, "--namespace", self.name)
        return run(self._helm, command, *where, *arguments, limit_s=limit_s)

    def settled(self) -> float:
        """Wait until all pods of every StatefulSet are ready and of the newest revision; returns the seconds."""
        return seconds_until(self._all_ready, "pods that are all ready", READY_S)

    def replicas(self) -> dict[str, int]:
        """Stage -> number of ready pods."""
        sets = self._cluster.objects("statefulsets", "-n", self.name)
        return {_stage(each): each["status"].get("readyReplicas", 0) for each in sets}

    def pods(self) -> dict[str, dict[str, Any]]:
        """Name -> pod, of the stages."""
        found = self._cluster.objects("pods", "-n", self.name)
        owned = (pod for pod in found if pod["metadata"].get("ownerReferences", [{}])[0].get("kind") == "StatefulSet")
        return {pod["metadata"]["name"]: pod for pod in owned if "deletionTimestamp" not in pod["metadata"]}

    def running(self) -> dict[str, str]:
        """Pod -> id of its container, which is new after each start."""
        return {name: _identity(pod) for name, pod in self.pods().items()}

    def workers_of_routers(self) -> set[int]:
        """Return W of each router, from its metrics."""
        return {int(_metric(pod, W)) for name, pod in self.pods().items() if "-router-" in name}

    def kill(self, pod: str) -> None:
        """Send SIGKILL to all processes of a pod's containers."""
        for container in _containers(self.pods()[pod]):
            for pid in self._cluster.node.processes(container):
                os.kill(pid, signal.SIGKILL)

    def delete(self, pod: str) -> None:
        """Delete a pod without grace period, as after the loss of its node."""
        self._cluster.kubectl("-n", self.name, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def disturb(self, seed: int) -> Iterator[tuple[str, str, float]]:
        """Kill or delete each pod, in a seeded order; yields pod, action, and seconds until all pods are ready."""
        rng = random.Random(seed)  # noqa: S311 - not a secret
        actions = {"kill -9": self.kill, "delete --force": self.delete}
        names = sorted(self.pods())
        for name in rng.sample(names, len(names)):
            action = rng.choice(sorted(actions))
            before = self.running()[name]
            actions[action](name)
            seconds = seconds_until(lambda: self._replaced(name, before), f"another {name}", READY_S)  # noqa: B023 - called at once
            yield name, action, seconds + self.settled()

    def finished_job(self, part: str) -> str:
        """Wait for the end of the job with this in its name and return its log. A failed job is an error."""
        (name,) = [job["metadata"]["name"] for job in self._jobs() if part in job["metadata"]["name"]]
        seconds_until(lambda: bool(self._ended(name)), f"an end of job {name}", READY_S)
        output = self._cluster.kubectl("-n", self.name, "logs", f"job/{name}", "--tail=50")
        if self._ended(name) != "Complete":
            raise AssertionError(f"job {name} failed: {output}")
        return output

    def _jobs(self) -> list[dict[str, Any]]:
        return self._cluster.objects("jobs", "-n", self.name)

    def _ended(self, job: str) -> str:
        (found,) = [each for each in self._jobs() if each["metadata"]["name"] == job]
        conditions = found["status"].get("conditions", [])
        return next((each["type"] for each in conditions if each["type"] in {"Complete", "Failed"}), "")

    def memory(self) -> dict[str, int]:
        """Pod -> resident bytes of its processes."""
        node = self._cluster.node
        return {
            name: sum(
                psutil.Process(pid).memory_info().rss for each in _containers(pod) for pid in node.processes(each)
            )
            for name, pod in self.pods().items()
        }

    def left(self) -> list[str]:
        """Return the names of the objects in the namespace that Kubernetes did not create."""
        found = self._cluster.objects(KINDS, "-n", self.name)
        named = ((each["kind"], each["metadata"]["name"]) for each in found)
        return [f"{kind}/{name}" for kind, name in named if BY_KUBERNETES.get(f"{kind.lower()}s") != name]

    def _replaced(self, name: str, before: str) -> bool:
        pod = self.pods().get(name)
        return pod is not None and _identity(pod) not in {before, ""}

    def _all_ready(self) -> bool:
        sets = self._cluster.objects("statefulsets", "-n", self.name)
        return bool(sets) and all(_complete(each) for each in sets)


def _complete(stateful: Mapping[str, Any]) -> bool:
    status, expected = stateful["status"], stateful["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == stateful["metadata"]["generation"]
        and status.get("replicas") == status.get("readyReplicas", 0) == expected
        and status.get("updateRevision") == status.get("currentRevision")
    )


def _stage(stateful: Mapping[str, Any]) -> str:
    return str(stateful["metadata"]["name"]).rpartition("-")[2]


def _containers(pod: Mapping[str, Any]) -> list[str]:
    statuses = pod["status"].get("containerStatuses", [])
    return [each["containerID"].removeprefix("containerd://") for each in statuses if each["state"].get("running")]


def _identity(pod: Mapping[str, Any]) -> str:
    return ",".join(_containers(pod))


def _metric(pod: Mapping[str, Any], name: str) -> float:
    address = f"http://{pod['status']['podIP']}:{METRICS_PORT}/metrics"
    with urllib.request.urlopen(address, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(name)]
    return float(value)
