"""Two real clients of Kubernetes behind one face, so that the fake is held to both: the official one and kubectl."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).parents[3]
KUBECTL = ROOT / ".venvs" / "kubectl" / "bin" / "kubectl"
PATCHES = {"json": "application/json-patch+json", "merge": "application/merge-patch+json"}
PATCHES |= {"strategic": "application/strategic-merge-patch+json"}
PATIENCE = 120.0
Object = dict[str, Any]


class Refused(Exception):
    """The server's reason, and its message."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason, self.message = reason, message


class Client(Protocol):
    """Everything in the namespace `default`. Kinds are written as in objects: Pod."""

    def create(self, body: Object) -> Object: ...

    def read(self, kind: str, name: str) -> Object: ...

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]: ...

    def replace(self, body: Object) -> Object: ...

    def patch(self, kind: str, name: str, form: str, body: Any) -> Object: ...

    def apply(self, body: Object, manager: str, *, force: bool = False) -> Object: ...

    def delete(self, kind: str, name: str) -> None: ...

    def log(self, name: str) -> str: ...

    def run(self, name: str, *command: str) -> tuple[str, int]: ...

    def port(self, name: str, port: int) -> AbstractContextManager[socket.socket]: ...

    def port_error(self, name: str, port: int) -> str: ...

    def may(self, verb: str, resource: str, part: str = "") -> bool: ...

    def watch(self, kind: str, count: int) -> list[tuple[str, str]]: ...


class Official:
    def __init__(self, kubeconfig: Object, folder: Path) -> None:
        from kubernetes import client, config, dynamic

        self._api = config.new_client_from_config_dict(kubeconfig)
        self._client = dynamic.DynamicClient(self._api, cache_file=str(folder / "discovery.json"))
        self._core = client.CoreV1Api(self._api)

    def _of(self, kind: str) -> Any:
        return self._client.resources.get(api_version="v1", kind=kind)

    def _call(self, call: Any, *given: Any, **named: Any) -> Any:
        from kubernetes.client import ApiException

        try:
            return call(*given, **named)
        except ApiException as problem:
            status = json.loads(problem.body)
            raise Refused(status["reason"], status["message"]) from problem

    def create(self, body: Object) -> Object:
        of = self._of(body["kind"])
        found: Object = self._call(of.create, body=body, namespace="default").to_dict()
        return found

    def read(self, kind: str, name: str) -> Object:
        found: Object = self._call(self._of(kind).get, name=name, namespace="default").to_dict()
        return found

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        of = self._of(kind)
        found = self._call(of.get, namespace="default", label_selector=labels, field_selector=fields)
        items: list[Object] = found.to_dict()["items"]
        return items

    def replace(self, body: Object) -> Object:
        found: Object = self._call(self._of(body["kind"]).replace, body=body, namespace="default").to_dict()
        return found

    def patch(self, kind: str, name: str, form: str, body: Any) -> Object:
        of = self._of(kind)
        found = self._call(of.patch, body=body, name=name, namespace="default", content_type=PATCHES[form])
        changed: Object = found.to_dict()
        return changed

    def apply(self, body: Object, manager: str, *, force: bool = False) -> Object:
        of, name = self._of(body["kind"]), body["metadata"]["name"]
        more = {"field_manager": manager, "force_conflicts": force}
        found: Object = self._call(of.server_side_apply, body=body, name=name, namespace="default", **more).to_dict()
        return found

    def delete(self, kind: str, name: str) -> None:
        self._call(self._of(kind).delete, name=name, namespace="default")

    def log(self, name: str) -> str:
        found: str = self._call(self._core.read_namespaced_pod_log, name, "default")
        return found

    def run(self, name: str, *command: str) -> tuple[str, int]:
        from kubernetes.stream import stream

        opens = self._core.connect_get_namespaced_pod_exec
        opened = stream(opens, name, "default", command=list(command), stderr=True, stdout=True, _preload_content=False)
        opened.run_forever(timeout=PATIENCE)
        return opened.read_stdout(), opened.returncode

    @contextmanager
    def port(self, name: str, port: int) -> Iterator[socket.socket]:
        with closing(self._forwarded(name, port).socket(port)) as sock:
            yield sock

    def port_error(self, name: str, port: int) -> str:
        forwarded = self._forwarded(name, port)
        with closing(forwarded.socket(port)) as sock:
            sock.settimeout(PATIENCE)
            assert sock.recv(1) == b""
        return str(forwarded.error(port))

    def _forwarded(self, name: str, port: int) -> Any:
        from kubernetes.stream import portforward

        return portforward(self._core.connect_get_namespaced_pod_portforward, name, "default", ports=str(port))

    def may(self, verb: str, resource: str, part: str = "") -> bool:
        from kubernetes import client

        asked = {"verb": verb, "resource": resource, "subresource": part, "namespace": "default"}
        review = {"spec": {"resourceAttributes": asked}}
        answer = client.AuthorizationV1Api(self._api).create_self_subject_access_review(review)
        return bool(answer.status.allowed)

    def watch(self, kind: str, count: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for each in self._of(kind).watch(namespace="default", timeout=600):
            found.append((each["type"], each["object"].metadata.name))
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self._api.close()


class Kubectl:
    def __init__(self, kubeconfig: Object, folder: Path) -> None:
        if not KUBECTL.exists():
            pytest.skip("kubectl isn't installed here; `make test` installs it into .venvs/kubectl")
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        self._command = [str(KUBECTL), f"--kubeconfig={folder}/kubeconfig", f"--cache-dir={folder}/cache"]

    def _call(self, *arguments: str, body: Any = None) -> Any:
        given = None if body is None else json.dumps(body)
        done = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        if done.returncode:
            raise self._refused(done.stderr)
        return json.loads(done.stdout) if "json" in arguments else done.stdout

    @staticmethod
    def _refused(text: str) -> Refused:
        """Error from server (NotFound): pods "a" not found"""
        for line in text.splitlines():
            head, bracket, rest = line.partition("from server (")
            if bracket and "rror" in head:
                reason, _, message = rest.partition("): ")
                return Refused(reason, message.partition("when creating")[2].partition(": ")[2] or message)
        if "is invalid" in text:
            return Refused("Invalid", text.strip())
        if "conflict" in text:
            return Refused("Conflict", text.strip())
        raise AssertionError(text)

    def create(self, body: Object) -> Object:
        found: Object = self._call("create", "-o", "json", "-f", "-", body=body)
        return found

    def read(self, kind: str, name: str) -> Object:
        found: Object = self._call("get", kind, name, "-o", "json")
        return found

    def list(self, kind: str, labels: str = "", fields: str = "") -> list[Object]:
        found: list[Object] = self._call("get", kind, "-o", "json", "-l", labels, f"--field-selector={fields}")["items"]
        return found

    def replace(self, body: Object) -> Object:
        found: Object = self._call("replace", "-o", "json", "-f", "-", body=body)
        return found

    def patch(self, kind: str, name: str, form: str, body: Any) -> Object:
        found: Object = self._call("patch", kind, name, f"--type={form}", "-o", "json", "-p", json.dumps(body))
        return found

    def apply(self, body: Object, manager: str, *, force: bool = False) -> Object:
        more = ["--force-conflicts"] if force else []
        arguments = ("apply", "--server-side", f"--field-manager={manager}", *more, "-o", "json", "-f", "-")
        found: Object = self._call(*arguments, body=body)
        return found

    def delete(self, kind: str, name: str) -> None:
        self._call("delete", kind, name, "--wait=false")

    def log(self, name: str) -> str:
        found: str = self._call("logs", name)
        return found

    def run(self, name: str, *command: str) -> tuple[str, int]:
        arguments = [*self._command, "exec", name, "--", *command]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False)
        return done.stdout, done.returncode

    @contextmanager
    def port(self, name: str, port: int) -> Iterator[socket.socket]:
        with self._forwarding(name, port) as (_, local), socket.create_connection(("127.0.0.1", local)) as sock:
            yield sock

    def port_error(self, name: str, port: int) -> str:
        """It ends after that."""
        with self._forwarding(name, port) as (process, local), socket.create_connection(("127.0.0.1", local)):
            said, _ = process.communicate(timeout=PATIENCE)
            return str(said)

    @contextmanager
    def _forwarding(self, name: str, port: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
        """The command, and its port on loopback."""
        arguments = [*self._command, "port-forward", "--address=127.0.0.1", f"pod/{name}", f":{port}"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
                assert found, line + process.stdout.read()
                yield process, int(found[1])
            finally:
                process.kill()

    def may(self, verb: str, resource: str, part: str = "") -> bool:
        arguments = ["auth", "can-i", verb, resource, *([f"--subresource={part}"] if part else [])]
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True, timeout=PATIENCE)
        assert done.stdout in ("yes\n", "no\n"), done.stderr
        return done.stdout == "yes\n"

    def watch(self, kind: str, count: int) -> list[tuple[str, str]]:
        arguments = [*self._command, "get", kind, "--watch", "--output-watch-events", "--no-headers"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline().split() for _ in range(count)]
            process.kill()
        return [(line[0], line[1]) for line in lines]

    def close(self) -> None:
        """Each command has closed its own."""
