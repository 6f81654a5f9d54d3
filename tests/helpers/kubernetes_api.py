"""The part of the Kubernetes API that a driver of Spark calls. A pod is a process on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlparse

from helpers.docs_blocks import ROOT
from skewless.lab.local import child_process

ENTRY_POINT = ROOT / "deploy" / "spark-entrypoint.sh"
FIELDS = {"status.podIP": "127.0.0.1"}
LISTS = {"pods": "PodList", "configmaps": "ConfigMapList"}
Entry = dict[str, Any]


class Request(NamedTuple):
    """A request as a rule of a Role names it: the resource, such as `pods`, and the verb."""

    resource: str
    verb: str


@dataclass
class Api:
    """Objects and requests so far. Pods run in `folder` with `environment`."""

    folder: Path
    environment: Mapping[str, str]
    objects: dict[tuple[str, str], Entry] = field(default_factory=dict)
    requests: set[Request] = field(default_factory=set)
    pods: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def create(self, resource: str, entry: Entry) -> Entry:
        """Store an object, and start the process of a pod."""
        entry["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1", "namespace": "default"}
        name = entry["metadata"]["name"]
        self.objects[resource, name] = entry
        if resource == "pods":
            (container,) = entry["spec"]["containers"]
            fields = FIELDS | {"metadata.name": name}
            variables = {
                each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
                for each in container["env"]
            }
            folder = self.folder / name
            folder.mkdir()
            environment = {**self.environment, **variables, "SPARK_LOCAL_DIRS": str(folder)}
            # The first pod fails at once, as on a node without memory.
            command = [str(ENTRY_POINT), *container["args"]] if self.pods else ["false"]
            self.pods[name] = child_process.start(command, environment, log=self.folder / f"{name}.log")
        return entry

    def answer(self, verb: str, resource: str, name: str, body: Entry) -> tuple[int, Entry]:
        """Return the status code and the object that answer a request."""
        if verb == "create":
            return 201, self.create(resource, body)
        for running, process in self.pods.items():
            self.objects["pods", running]["status"] = _status(process)
        if verb == "list":
            items = [entry for (kind, _), entry in self.objects.items() if kind == resource]
            return 200, {
                "apiVersion": "v1",
                "kind": LISTS[resource],
                "metadata": {"resourceVersion": "1"},
                "items": items,
            }
        success = {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        return 200, self.objects.get((resource, name), success)


def _status(process: subprocess.Popen[bytes]) -> Entry:
    """Return the status of a pod by its process."""
    if process.poll() is None:
        return {"phase": "Running"}
    ended = {"exitCode": process.returncode, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    return {"phase": "Failed", "containerStatuses": [{"name": "executor", "state": {"terminated": ended}}]}


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a client of the API."""

    protocol_version = "HTTP/1.1"
    server: Server

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Return the handler of all methods, which the base class names `do_GET` and so on."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _handle(self) -> None:
        address = urlparse(self.path)
        resource, *name = address.path.partition("/namespaces/default/")[2].split("/")
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        is_watch = parse_qs(address.query).get("watch") == ["true"]
        verbs = {
            "POST": "create",
            "PATCH": "patch",
            "PUT": "update",
            "GET": "watch" if is_watch else "get" if name else "list",
            "DELETE": "delete" if name else "deletecollection",
        }
        verb = verbs[self.command]
        self.server.api.requests.add(Request(resource, verb))
        if verb == "watch":
            self._watch()
        else:
            self._answer(*self.server.api.answer(verb, resource, "".join(name), body))

    def _answer(self, code: int, entry: Entry) -> None:
        body = json.dumps(entry).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        """Report no change. The client polls, too."""
        if self.headers.get("Upgrade"):
            self._answer(503, {"kind": "Status", "status": "Failure", "code": 503})
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.server.api.ended.wait()


class Server(ThreadingHTTPServer):
    """Serves an API."""

    daemon_threads = True

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.api = api


@contextlib.contextmanager
def kubernetes_api(folder: Path, home: Path) -> Iterator[tuple[str, Api]]:
    """Serve the API. Yields its address, and what it has received. `home`: that of Spark for the executors."""
    api = Api(folder, os.environ | {"SPARK_HOME": str(home)})
    driver = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": "driver", "namespace": "default", "uid": str(uuid.uuid4())}
    api.objects["pods", "driver"] = {**driver, "metadata": metadata, "status": ready}
    server = Server(api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"k8s://http://127.0.0.1:{server.server_port}", api
    finally:
        api.ended.set()
        server.shutdown()
        server.server_close()
        for pod in api.pods.values():
            child_process.kill(pod)
