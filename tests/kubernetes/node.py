"""The node: containerd and kubelet. The processes of its containers are found by their cgroups."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

from kubernetes.tools import ToolError, run, seconds_until, write_json
from skewless.lab.local import child_process

CONTAINERD = """version = 2
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{network}"
"""
PRIVATE = ("/run", "/var/lib/cni", "/var/log")
"""Folders of the machine to which these programs write by fixed names. Empty folders are mounted over them."""
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
"""Kernel settings that the kubelet changes for the whole machine."""
SETTLED_S = 120.0


class Node:
    """One node in a folder. `login` is the kubelet's kubeconfig."""

    def __init__(self, folder: Path, programs: Path, login: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._programs = programs
        self._login = login
        self._socket = folder / "containerd.sock"
        self._children: list[subprocess.Popen[bytes]] = []
        self._sysctls = {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}

    def start(self, bridge: str, host: str) -> None:
        """Start containerd and kubelet. Pods get addresses of the bridge."""
        for place in PRIVATE:
            Path(place).mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "tmpfs", place)
        self._start_containerd(bridge)
        self._start_kubelet(host)

    def stop(self) -> None:
        """End all containers and the node's programs, and restore the machine's settings."""
        for child in reversed(self._children[1:]):
            child_process.stop(child, grace_s=3.0)
        with contextlib.suppress(ToolError, subprocess.TimeoutExpired):
            for task in self._ctr("tasks", "list", "--quiet").split():
                self._ctr("tasks", "kill", "--signal", "SIGKILL", task)
        for child in self._children[:1]:
            child_process.stop(child, grace_s=3.0)
        for name, value in self._sysctls.items():
            Path("/proc/sys", name).write_text(value)

    def load(self, archive: Path) -> None:
        """Import the images of an archive."""
        self._ctr("images", "import", str(archive), limit_s=300.0)

    def processes(self, container: str) -> list[int]:
        """Return the process ids of a container."""
        return [int(line.split()[0]) for line in self._ctr("tasks", "ps", container).splitlines()[1:]]

    def _start_containerd(self, bridge: str) -> None:
        network = self._folder / "network"
        network.mkdir()
        write_json(network / "10-bridge.conflist", _network(bridge))
        places = {name: self._folder / name for name in ("root", "state")}
        config = self._folder / "containerd.toml"
        config.write_text(CONTAINERD.format(**places, socket=self._socket, network=network))
        self._child("containerd", "--config", str(config))
        seconds_until(lambda: bool(self._ctr("version")), "an answer of containerd", SETTLED_S)

    def _start_kubelet(self, host: str) -> None:
        config = write_json(self._folder / "kubelet.json", _kubelet(host, self._socket, self._folder / "logs"))
        self._child(
            str(self._programs / "kubelet"),
            f"--config={config}",
            f"--kubeconfig={self._login}",
            "--hostname-override=n1",
            f"--node-ip={host}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--cert-dir={self._folder / 'kubelet-keys'}",
        )

    def _ctr(self, *arguments: str, limit_s: float = 60.0) -> str:
        return run("ctr", "--address", self._socket, "--namespace", "k8s.io", *arguments, limit_s=limit_s)

    def _child(self, program: str, *arguments: str) -> None:
        log = self._folder / f"{Path(program).name}.log"
        self._children.append(child_process.start([program, *arguments], log=log))


def remove_cgroups(limit_s: float = 10.0) -> None:
    """Remove the cgroups of pods, after their last processes have ended."""
    deadline = time.monotonic() + limit_s
    folders = [path for path in Path("/sys/fs/cgroup").glob("*/kubepods*") if path.is_dir()]
    for top in folders:
        for folder in sorted((top, *(each for each in top.rglob("*") if each.is_dir())), reverse=True):
            while folder.exists() and time.monotonic() < deadline:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.1)


def _network(bridge: str) -> dict[str, object]:
    addresses = {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}


def _kubelet(host: str, socket: Path, logs: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": host,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "1Mi"},
        # Never remove images, which would happen on a full disk: nothing could pull them again.
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [host],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "podLogsDir": str(logs),
    }
