"""A runtime whose containers are real ones, of a Docker engine. All pods are in one of its networks, each at an address
of its own, except those that ask for their host's, or that load balancers lead to."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib.agent.kernel import networks
from chalicelib.agent.runtimes.docker_client import DockerClient, DockerError, registry_header, split_image
from chalicelib.domain.instants import SECOND, Micros, from_iso
from tests.backends.kubernetes.fake.kubelet import Exit, Trouble, Wanted
from tests.backends.kubernetes.fake.probes import KINDS
from tests.backends.kubernetes.fake.quantities import amount
from tests.backends.kubernetes.fake.schema import Object

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.store import Store

POD = "pod"  # the label of a container that says whose it is
POLL = SECOND // 5
DOMAIN = "svc.cluster.local"
NETWORK, SUBNET = "pods", "10.64.0.0/10"
HOST = "10.64.0.1"  # where pods reach what is in the engine's own namespace: load balancers, too
_CONTAINERS_LACK = ("lifecycle",)
_PODS_LACK = ("hostAliases", "dnsConfig", "hostPID", "hostIPC", "shareProcessNamespace")


def _lacking(pod: Mapping[str, Any], container: Mapping[str, Any]) -> list[str]:
    probes = [kind for kind in KINDS if kind in container and "httpGet" not in container[kind]]
    return [
        *(each for each in _CONTAINERS_LACK if each in container),
        *(each for each in _PODS_LACK if pod.get(each)),
        *(f"a {kind} but by HTTP" for kind in probes),
    ]


class Engine:
    def __init__(self, client: DockerClient, folder: Path, now: Callable[[], Micros]) -> None:
        self._client, self._folder, self._now = client, folder, now
        self._signalled: set[str] = set()  # containers that were sent their signal
        self.store: Store | None = None  # whose secrets are mounted; set by who makes the cluster
        self._make_network()

    def _make_network(self) -> None:
        """Unless an earlier cluster of this engine has made it."""
        if not self._client.call("GET", "/networks", {"filters": json.dumps({"name": [NETWORK]})}):
            wanted = {"Name": NETWORK, "IPAM": {"Config": [{"Subnet": SUBNET, "Gateway": HOST}]}}
            self._client.call("POST", "/networks/create", body=wanted)

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self, wanted: Wanted) -> None:
        name = _name(wanted.pod, wanted.spec["name"])
        try:
            found = self._client.container(name)
            if found is not None and found["State"]["Status"] == "exited":
                self._client.remove(name)  # it is restarted, by another in its place
                found = None
            self._signalled.discard(name)
            if found is None:
                self._pull(wanted)
                self._client.call("POST", "/containers/create", {"name": name}, self._body(wanted))
            self._client.call("POST", f"/containers/{name}/start")
        except DockerError as problem:
            self._client.remove(name)
            # As containerd's shim says of a program that isn't there or can't be run.
            raise Trouble("StartError", f"failed to create containerd task: {problem.message}", final=True) from problem

    def _pull(self, wanted: Wanted) -> None:
        image, policy = wanted.spec["image"], wanted.spec["imagePullPolicy"]
        here = self._client.image(image) is not None
        if policy == "Never" and not here:
            raise Trouble("ErrImageNeverPull", f'Container image "{image}" is not present with pull policy of Never')
        if policy == "Never" or (here and policy == "IfNotPresent"):
            return
        repository, tag = split_image(image)
        query = {"fromImage": repository, "tag": tag}
        login = dict(wanted.login) if wanted.login else None
        try:
            for line in self._client.lines("POST", "/images/create", query, registry_header(login), lambda: None):
                if "error" in line:
                    raise DockerError(500, line["error"])
        except DockerError as problem:
            why = f'failed to pull and unpack image "{image}": {problem.message}'
            raise Trouble("ErrImagePull", why) from problem

    def _body(self, wanted: Wanted) -> dict[str, Any]:
        spec, whole = wanted.spec, wanted.pod["spec"].get("securityContext", {})
        own = {**whole, **spec.get("securityContext", {})}
        for key in _lacking(wanted.pod["spec"], spec):
            raise Trouble("CreateContainerConfigError", f"this fake of a kubelet doesn't have {key}")
        user = str(own.get("runAsUser", "")) + (f":{own['runAsGroup']}" if "runAsGroup" in own else "")
        found = (self._client.image(spec["image"]) or {}).get("Config") or {}
        stated = user or found.get("User") or ""
        if own.get("runAsNonRoot") and stated.partition(":")[0] in ("", "0", "root"):
            raise Trouble("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
        limits, capabilities = spec["resources"].get("limits", {}), own.get("capabilities", {})
        # A command takes the place of the image's entry point, and its arguments with it.
        command = {"Entrypoint": wanted.command, "Cmd": wanted.args} if wanted.command else {}
        return {
            "Image": spec["image"],
            **(command or ({"Cmd": wanted.args} if wanted.args else {})),
            **({"WorkingDir": spec["workingDir"]} if spec.get("workingDir") else {}),
            "Env": [f"{key}={value}" for key, value in wanted.env.items()],
            "User": user,
            "Hostname": wanted.pod["spec"].get("hostname", wanted.pod["metadata"]["name"])[:63],
            "Labels": {POD: wanted.pod["metadata"]["uid"]},
            **self._network(wanted.pod),
            "HostConfig": {
                "NetworkMode": "host" if self._is_at_host(wanted.pod) else NETWORK,
                "ExtraHosts": self._names(wanted.pod),
                "Mounts": [self._mount(wanted.pod, each) for each in spec.get("volumeMounts", ())],
                "Privileged": bool(own.get("privileged")),
                "ReadonlyRootfs": bool(own.get("readOnlyRootFilesystem")),
                "CapAdd": capabilities.get("add"),
                "CapDrop": capabilities.get("drop"),
                "SecurityOpt": ["no-new-privileges"] if own.get("allowPrivilegeEscalation") is False else [],
                "GroupAdd": [str(each) for each in (*whole.get("supplementalGroups", ()), *_group(whole))],
                "Memory": int(amount(limits["memory"])) if "memory" in limits else 0,
                "NanoCpus": int(amount(limits["cpu"]) * 10**9) if "cpu" in limits else 0,
            },
        }

    # --- network -----------------------------------------------------------------------------------------------------

    def address(self, pod: Object) -> str:
        """The same for all its containers, and known before the first of them."""
        if self._is_at_host(pod):
            return HOST
        one, two, three = sha256(pod["metadata"]["uid"].encode()).digest()[:3]
        return f"10.{64 + one % 64}.{two}.{max(2, three % 255)}"

    def _network(self, pod: Object) -> dict[str, Any]:
        if self._is_at_host(pod):
            return {}
        subdomain, namespace = pod["spec"].get("subdomain"), pod["metadata"]["namespace"]
        endpoint = {"IPAMConfig": {"IPv4Address": self.address(pod)}}
        return {
            **({"Domainname": f"{subdomain}.{namespace}.{DOMAIN}"} if subdomain else {}),
            "NetworkingConfig": {"EndpointsConfig": {NETWORK: endpoint}},
        }

    def _names(self, pod: Object) -> list[str]:
        """Of the pods of its headless service, which a real cluster's DNS would answer; its own the engine adds."""
        spec, namespace = pod["spec"], pod["metadata"]["namespace"]
        if self.store is None or not spec.get("subdomain"):
            return []
        service = self.store.find("services", namespace, spec["subdomain"])
        if service is None or service["spec"].get("clusterIP") != "None":
            return []
        found = []
        for each in self.store.all("pods", namespace):
            name = each["spec"].get("hostname")
            if name and each["metadata"]["uid"] != pod["metadata"]["uid"] and _selects(service, each):
                short = f"{name}.{spec['subdomain']}"
                found.append(f"{short}.{namespace}.{DOMAIN} {short}:{self.address(each)}")
        return found

    def _is_at_host(self, pod: Object) -> bool:
        """Pods that load balancers lead to are where these are, in the engine's namespace."""
        services = self.store.all("services", pod["metadata"]["namespace"]) if self.store else []
        balanced = (each for each in services if each["spec"]["type"] == "LoadBalancer")
        return bool(pod["spec"].get("hostNetwork")) or any(_selects(each, pod) for each in balanced)

    # --- volumes -----------------------------------------------------------------------------------------------------

    def _mount(self, pod: Object, mount: Mapping[str, Any]) -> dict[str, Any]:
        (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
        if "subPath" in mount or "subPathExpr" in mount:
            raise Trouble("CreateContainerConfigError", "this fake of a kubelet doesn't have paths in volumes")
        out = {"Target": mount["mountPath"], "ReadOnly": bool(mount.get("readOnly"))}
        empty = volume.get("emptyDir", {})
        if empty.get("medium") == "Memory":
            size = f",size={int(amount(empty['sizeLimit']))}" if "sizeLimit" in empty else ""
            options = {"type": "tmpfs", "device": "tmpfs", "o": f"mode=1777{size}"}
            driver = {"DriverConfig": {"Name": "local", "Options": options}}
            name = f"{pod['metadata']['uid']}-{volume['name']}"
            return {**out, "Type": "volume", "Source": name, "VolumeOptions": driver}
        return {**out, "Type": "bind", "Source": str(self._source(pod, volume))}

    def _source(self, pod: Object, volume: Mapping[str, Any]) -> Path:
        """The folder that is mounted; it's filled when the pod's first container needs it."""
        group = pod["spec"].get("securityContext", {}).get("fsGroup")
        folder: Path = self._folder / pod["metadata"]["uid"] / volume["name"]
        if claimed := volume.get("persistentVolumeClaim"):
            folder = self._folder / "claims" / pod["metadata"]["namespace"] / claimed["claimName"]
        elif "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        elif not volume.keys() & {"emptyDir", "secret", "configMap"}:
            kind = ", ".join(volume.keys() - {"name"})
            raise Trouble("CreateContainerConfigError", f"this fake of a kubelet doesn't have volumes of {kind}")
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o777)  # whatever umask says
            if claimed and group is not None:  # root's, as a new disk is, and the group's
                shutil.chown(folder, group=group)
                folder.chmod(0o2775)
            self._fill(pod, volume, folder, group)
        return folder

    def _fill(self, pod: Object, volume: Mapping[str, Any], folder: Path, group: int | None) -> None:
        for source, plural, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
            if source not in volume:
                continue
            given, store = volume[source], self.store
            assert store is not None
            data = (store.find(plural, pod["metadata"]["namespace"], given[key]) or {}).get("data", {})
            items = {each["key"]: each["path"] for each in given.get("items", ())} or {name: name for name in data}
            for name, path in items.items():
                file, content = folder / path, data[name]
                file.write_bytes(base64.b64decode(content) if source == "secret" else content.encode())
                mode = given["defaultMode"]
                if group is not None:
                    shutil.chown(file, group=group)
                    mode |= 0o040
                file.chmod(mode)
            folder.chmod(0o755)

    # --- looking and ending ------------------------------------------------------------------------------------------

    def state(self, pod: Object, container: str) -> Exit | Micros:
        found = self._client.container(_name(pod, container))
        if found is None:
            return Exit(137, "ContainerStatusUnknown", "The container could not be located when the pod was terminated")
        state = found["State"]
        if state["Status"] not in ("exited", "dead"):
            return self._now() + POLL
        return Exit(state["ExitCode"], "OOMKilled" if state["OOMKilled"] else "")

    def stop(self, pod: Object, container: str) -> None:
        name = _name(pod, container)
        if name not in self._signalled:
            self._signalled.add(name)
            with contextlib.suppress(DockerError):  # it has just ended
                self._client.call("POST", f"/containers/{name}/kill", {"signal": "SIGTERM"})

    def remove(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        for found in self._client.labelled(f"{POD}={uid}"):
            self._client.remove(found["Id"])
        shutil.rmtree(self._folder / uid, ignore_errors=True)

    # --- streams -----------------------------------------------------------------------------------------------------

    def log(self, pod: Object, container: str) -> list[tuple[Micros, bytes]]:
        query = {"stdout": 1, "stderr": 1, "timestamps": 1}
        try:
            sock, data = self._client.stream("GET", f"/containers/{_name(pod, container)}/logs", query)
        except DockerError:
            return []  # it isn't there any more
        with sock:
            data += b"".join(iter(lambda: sock.recv(65536), b""))
        return [_line(each) for each in _frames(data)]

    def execute(self, pod: Object, container: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        pipe, name = subprocess.PIPE, _name(pod, container)
        argv = ["docker", "-H", f"unix://{self._client.path}", "exec", "-i", name, *command]
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)

    def dial(self, pod: Object, port: int) -> socket.socket:
        name = _name(pod, pod["spec"]["containers"][0]["name"])

        def process() -> int | None:
            found = self._client.container(name)
            return int(found["State"]["Pid"]) if found else None

        with networks.open_network(process) as network:
            return networks.connect(network, port)

    def probe(self, pod: Object, probe: Mapping[str, Any]) -> str:
        wanted, seconds = probe["httpGet"], probe["timeoutSeconds"]
        asked = http.client.HTTPConnection(self.address(pod), _port(probe), timeout=seconds)
        try:
            asked.sock = self.dial(pod, _port(probe))
            asked.sock.settimeout(seconds)
            asked.request("GET", wanted.get("path", "/"), headers={"User-Agent": "kube-probe/1.35"})
            status = asked.getresponse().status
        except (OSError, http.client.HTTPException) as problem:
            return f"Get {wanted.get('path', '/')}: {problem}"
        finally:
            asked.close()
        return "" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}"


def _port(probe: Mapping[str, Any]) -> int:
    """A port by its number, or by its name in the container."""
    given = probe["httpGet"]["port"]
    named = {each.get("name"): each["containerPort"] for each in probe["ports"]}
    return int(given if isinstance(given, int) else named[given])


def _selects(service: Object, pod: Object) -> bool:
    return bool(service["spec"]["selector"].items() <= pod["metadata"].get("labels", {}).items())


def _group(security: Mapping[str, Any]) -> list[int]:
    return [security["fsGroup"]] if "fsGroup" in security else []


def _name(pod: Object, container: str) -> str:
    return f"{pod['metadata']['uid']}-{container}"


def _frames(data: bytes) -> Iterator[bytes]:
    """Of a log without a terminal: each begins with its stream and its size."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        yield data[at + 8 : at + 8 + size]
        at += 8 + size


def _line(given: bytes) -> tuple[Micros, bytes]:
    stamp, _, line = given.partition(b" ")
    return from_iso(stamp.decode()[:26] + "+00:00"), line
