"""A Kubernetes of one node. Its processes are children in separate namespaces, which also end all their children."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

from kubernetes.keys import Keys
from kubernetes.node import Node
from kubernetes.tools import ToolError, run, seconds_until
from skewless.lab.local import child_process

HOST = "10.244.0.1"
"""Address of this machine for pods."""
API = f"https://{HOST}:16443"
ETCD = "http://127.0.0.1:12379"
SERVICES = "10.96.0.0/16,fd00:10:96::/108"
BRIDGE = "kbr0"
NAMES = """.:53 {{
    bind {host}
    errors
    kubernetes cluster.local {{
        kubeconfig {login}
    }}
}}
"""
"""Configuration of CoreDNS: names of services without a virtual address are those of their pods."""
READY_S = 180.0


class Cluster:
    """Control plane and node. `programs` is the folder of Kubernetes' programs, `images` that of the image archives."""

    def __init__(self, folder: Path, programs: Path, images: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._images = images
        names = ("localhost", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1", HOST)
        self._keys = Keys(folder / "keys", API, names)
        self.admin = self._keys.login("admin", "system:masters")
        self._controllers = self._keys.login("controllers", "system:masters")
        self.node = Node(folder / "node", programs, self._keys.login("system:node:n1", "system:nodes"))
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all components; returns when the node is ready and has the image of the stages."""
        _make_network()
        self._start_control_plane()
        self.node.start(BRIDGE, HOST)
        for image in ("pause", "slim"):
            self.load(image)
        seconds_until(self._node_ready, "a node that is ready", READY_S)

    def load(self, image: str) -> None:
        """Import an image into the node."""
        (archive,) = self._images.glob(f"{image}*.tar")
        self.node.load(archive)

    def stop(self) -> None:
        """Stop all components."""
        self.node.stop()
        for child in reversed(self._children):
            child_process.stop(child, grace_s=3.0)

    def kubectl(self, *arguments: str, stdin: str | None = None, limit_s: float = 120.0) -> str:
        """Run kubectl as administrator."""
        program = self._programs / "kubectl"
        return run(program, "--kubeconfig", self.admin, *arguments, stdin=stdin, limit_s=limit_s)

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """List objects, by the arguments of `kubectl get`."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def _start_control_plane(self) -> None:
        self._child("etcd", *_etcd(self.folder / "etcd"))
        self._child(self._programs / "kube-apiserver", *self._api_server())
        seconds_until(self._api_ready, "an API server that is ready", READY_S)
        keys = self._keys.folder
        controllers = f"--kubeconfig={self._controllers}"
        alone = ("--leader-elect=false", "--bind-address=127.0.0.1")
        accounts = (f"--service-account-private-key-file={keys / 'accounts.key'}", f"--root-ca-file={keys / 'ca.crt'}")
        manager = self._programs / "kube-controller-manager"
        self._child(manager, controllers, *alone, *accounts, "--use-service-account-credentials")
        self._child(self._programs / "kube-scheduler", controllers, *alone)
        names = self.folder / "Corefile"
        names.write_text(NAMES.format(host=HOST, login=self._controllers))
        self._child(self._programs / "coredns", "-conf", str(names))

    def _api_server(self) -> list[str]:
        keys = self._keys.folder
        return [
            f"--etcd-servers={ETCD}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            "--secure-port=16443",
            f"--tls-cert-file={keys / 'server.crt'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--token-auth-file={self._keys.tokens}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys / 'accounts.pub'}",
            f"--service-account-signing-key-file={keys / 'accounts.key'}",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _child(self, program: str | Path, *arguments: str) -> None:
        log = self.folder / f"{Path(program).name}.log"
        self._children.append(child_process.start([str(program), *arguments], log=log))

    def _api_ready(self) -> bool:
        return self.kubectl("get", "--raw=/readyz") == "ok"

    def _node_ready(self) -> bool:
        path = "-o=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "nodes", path) == "True"


def _make_network() -> None:
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{HOST}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    with contextlib.suppress(ToolError):  # only a name of a folder, which the tools look up
        run("hostname", "n1")


def _etcd(folder: Path) -> list[str]:
    peers = "http://127.0.0.1:12380"
    return [
        f"--data-dir={folder}",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]
