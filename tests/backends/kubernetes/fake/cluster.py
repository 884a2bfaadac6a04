"""A cluster: an API server, and what makes its objects come true. All in one process, by the test's clock.

    cluster = Cluster(clock.now)
    cluster.add_node("gpu-1", cpu="16", memory="128Gi", **{"nvidia.com/gpu": "8"})
    with cluster.serving():
        client = kubernetes.config.new_client_from_config_dict(cluster.kubeconfig())

Whatever is due happens with the next request, or before the next event of a watch; `settle` asks for it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import orjson

from chalicelib.domain.instants import Micros
from tests.backends.fakes.script import Call
from tests.backends.kubernetes.fake import controllers, defaults, quotas, stateful
from tests.backends.kubernetes.fake.admission import Admission
from tests.backends.kubernetes.fake.api import Api
from tests.backends.kubernetes.fake.balancers import LoadBalancers
from tests.backends.kubernetes.fake.faults import Faults
from tests.backends.kubernetes.fake.kubelet import Kubelet, Runtime
from tests.backends.kubernetes.fake.rbac import ADMIN, Users
from tests.backends.kubernetes.fake.scheduler import Scheduler
from tests.backends.kubernetes.fake.schema import Object, Reading, decoded, of_kind, resources
from tests.backends.kubernetes.fake.scripted import Scripted
from tests.backends.kubernetes.fake.store import Store, copied, date
from tests.backends.kubernetes.fake.transport import Server, certificate

NEVER: Micros = 1 << 62
TOKEN = "admin-token"
ROUNDS = 100  # of its controllers, until nothing changes any more


class Cluster:
    def __init__(self, now: Callable[[], Micros], name: str = "test", runtime: Runtime | None = None) -> None:
        self.now, self.name = now, name
        self.store = Store(now, name)
        self.users = Users({TOKEN: ADMIN})
        self.admission = Admission(self.store)
        self.faults = Faults()
        self.calls: list[Call] = []
        self.scheduler = Scheduler(self)
        self.binder = controllers.Binder(self)
        self.scripted = Scripted(now)
        self.kubelet = Kubelet(self, runtime or self.scripted)
        self.nodes = controllers.Nodes(self)
        self.balancers = LoadBalancers(self)
        self.closing = False
        self.api = Api(self)
        self._events: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._settled, self._due = -1, NEVER
        self._settling = False
        for each in ("default", "kube-system"):
            self.add_namespace(each)

    # --- what there is -----------------------------------------------------------------------------------------------

    def add(self, kind: str, name: str, namespace: str = "", **parts: Any) -> Object:
        """An object as it is, past all checks."""
        of = resources().get(kind) or of_kind(kind)
        labels = parts.pop("metadata", {})
        meta = {"name": name, **({"namespace": namespace} if namespace else {}), **labels}
        given = {"apiVersion": of.api_version, "kind": of.kind, "metadata": meta, **parts}
        defaults.set_in(given)
        given |= {"status": parts["status"]} if "status" in parts else {}
        with self.store.changed:
            return self.store.add(of, self.store.prepared(copied(given)))

    def add_namespace(self, name: str, **labels: str) -> None:
        self.add("Namespace", name, metadata={"labels": labels})
        self.settle()

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        **allocatable: str,
    ) -> Object:
        """A node that is ready. Resources are named as in the API, with an underscore for a hyphen."""
        has = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
        has |= {key.replace("_", "-"): value for key, value in allocatable.items()}
        own = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
        number = len(self.store.all("nodes")) + 1
        status = {
            "capacity": has,
            "allocatable": has,
            "conditions": [controllers.ready(date(self.now()))],
            "addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}, {"type": "Hostname", "address": name}],
            "nodeInfo": _node_info({**own, **(labels or {})}["kubernetes.io/arch"]),
        }
        spec = {"taints": taints} if taints else {}
        return self.add("Node", name, metadata={"labels": {**own, **(labels or {})}}, spec=spec, status=status)

    def pod(self, name: str, namespace: str = "default") -> Object:
        self.settle()
        return self.store.get(of_kind("Pod"), namespace, name)

    # --- what happens ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Whatever is due happens."""
        with self.store.changed:
            if self._settling:
                return
            if self.store.version == self._settled and self.now() < self._due:
                return
            self._settling = True
            try:
                for _ in range(ROUNDS):
                    before = self.store.version
                    self._due = min((NEVER, *self._round()))
                    if self.store.version == before:
                        break
                else:
                    raise AssertionError(f"the cluster never comes to rest: {self.store.since(before)[:3]}")
                self._settled = before
            finally:
                self._settling = False

    def _round(self) -> Iterator[Micros]:
        yield self.nodes.settle()
        controllers.collect_garbage(self)
        controllers.end_namespaces(self)
        stateful.settle(self)
        yield self.balancers.settle()
        yield self.binder.settle()
        self.scheduler.settle()
        yield self.kubelet.settle()
        quotas.settle(self.store)

    def wake(self) -> None:
        """What is due has changed, though no object has."""
        with self.store.changed:
            self._settled = -1
            self.kubelet.recheck()
            self.store.changed.notify_all()

    def condition(self, given: Object, kind: str, status: str, reason: str = "", message: str = "") -> bool:
        """Sets a condition of an object; was it another?"""
        given = (
            self.store.find(
                of_kind(given["kind"]).plural, given["metadata"].get("namespace", ""), given["metadata"]["name"]
            )
            or given
        )
        conditions = given["status"].get("conditions", [])
        old = next((each for each in conditions if each["type"] == kind), None)
        now = date(self.now())
        since = old["lastTransitionTime"] if old and old["status"] == status else now
        new = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        new |= {key: each for key, each in (("reason", reason), ("message", message)) if each}
        if new == old:
            return False
        others = [each for each in conditions if each["type"] != kind]
        self.store.change(given, status={"conditions": [*others, new]})
        return True

    def disrupt(self, pod: Object, reason: str, message: str) -> Object:
        """Says that the pod is ended by the cluster and not by itself."""
        self.condition(pod, "DisruptionTarget", "True", reason, message)
        return self.store.get(of_kind("Pod"), pod["metadata"]["namespace"], pod["metadata"]["name"])

    def event(self, about: Object, reason: str, message: str, kind: str = "Normal", source: str = "") -> None:
        """The same again is counted."""
        meta, now = about["metadata"], date(self.now())
        involved = {
            "kind": about["kind"],
            "namespace": meta.get("namespace", ""),
            "name": meta["name"],
            "uid": meta["uid"],
            "apiVersion": about["apiVersion"],
            "resourceVersion": meta["resourceVersion"],
        }
        space = meta.get("namespace", "default")
        known = self.store.find("events", *self._events.get((meta["uid"], reason, message), ("", "")))
        if known is not None:
            if known["lastTimestamp"] != now:
                counted = {**copied(known), "count": known["count"] + 1, "lastTimestamp": now}
                self.store.replace(of_kind("Event"), known, counted)
            return
        component = source or {"Scheduled": "default-scheduler", "FailedScheduling": "default-scheduler"}.get(
            reason, "kubelet"
        )
        name = f"{meta['name']}.{self.store.letters(16)}"
        self._events[meta["uid"], reason, message] = (space, name)
        self.add(
            "Event",
            name,
            space,
            involvedObject=involved,
            reason=reason,
            message=message,
            type=kind,
            count=1,
            firstTimestamp=now,
            lastTimestamp=now,
            eventTime=None,
            source={"component": component},
            reportingComponent=component,
            reportingInstance="",
        )

    def watched(self, plural: str) -> bool:
        """Has anybody begun a watch of these? Those who wait on `store.changed` are woken when one does."""
        return any(each.operation.name == f"watch {plural}" for each in self.calls)

    def misshapen(self) -> list[str]:
        """What in the objects that the cluster has shown isn't as the server's document has it."""
        shown = [change for change in self.store.since(0) if change.new is not None]
        return [each for change in shown for each in _misshapen(change.plural, orjson.dumps(change.new))]

    # --- serving -----------------------------------------------------------------------------------------------------

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[str]:
        """Its address. An error of the fake's own is an answer 500, and raised at the end."""
        server = Server(self.api, port)
        self._url = server.url
        try:
            yield server.url
        finally:
            self.closing = True
            for event in self.faults.slow.values():
                event.set()
            self.wake()
            server.close()
        if server.wrong:
            raise server.wrong[0]
        assert not (wrong := self.misshapen()), wrong

    def kubeconfig(self, token: str = TOKEN, namespace: str = "") -> dict[str, Any]:
        authority = base64.b64encode(certificate()[0]).decode()
        context = {"cluster": self.name, "user": self.name, **({"namespace": namespace} if namespace else {})}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": self.name, "cluster": {"server": self._url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": self.name, "user": {"token": token}}],
            "contexts": [{"name": self.name, "context": context}],
            "current-context": self.name,
        }


@lru_cache(maxsize=1_000)  # one cluster after the other begins with the same objects
def _misshapen(plural: str, content: bytes) -> list[str]:
    of, reading = resources()[plural], Reading()
    decoded(of.schema, orjson.loads(content), reading)
    named = [f"unknown {each}" for each in reading.unknown] + [f"missing {each}" for each in reading.missing]
    return [f"{of.kind}: {each}" for each in (*named, *map(str, reading.unsupported))]


def _node_info(architecture: str) -> dict[str, str]:
    return {
        "architecture": architecture,
        "operatingSystem": "linux",
        "kubeletVersion": "v1.35.0",
        "kubeProxyVersion": "",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kernelVersion": "6.1.0",
        "osImage": "Debian GNU/Linux 12 (bookworm)",
        "bootID": "",
        "machineID": "",
        "systemUUID": "",
    }
