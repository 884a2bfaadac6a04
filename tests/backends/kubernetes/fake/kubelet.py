"""The kubelets of all nodes: a pod's containers are started, watched and ended through a runtime, which is scripted
(`scripted`) or a real engine (`engine`)."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from chalicelib.domain.instants import SECOND, Micros, from_iso
from tests.backends.kubernetes.fake.controllers import NEVER, claims_of
from tests.backends.kubernetes.fake.operations import ended
from tests.backends.kubernetes.fake.probes import Probes
from tests.backends.kubernetes.fake.quotas import ENDED
from tests.backends.kubernetes.fake.requests import is_sidecar
from tests.backends.kubernetes.fake.scheduler import Books, selected
from tests.backends.kubernetes.fake.schema import Object, of_kind
from tests.backends.kubernetes.fake.store import copied, date

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

RETRY = 10 * SECOND  # after what may go better another time
BACK_OFFS = {"ErrImagePull": "ImagePullBackOff"}


class Trouble(Exception):
    """Why a container doesn't start."""

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.reason, self.message, self.final = reason, message, final


class NotYet(Exception):
    """It's being started, until then."""

    def __init__(self, until: Micros) -> None:
        super().__init__(until)
        self.until = until


class Exit(NamedTuple):
    code: int
    reason: str = ""  # OOMKilled; empty: of the code
    message: str = ""

    @property
    def why(self) -> str:
        return self.reason or ("Error" if self.code else "Completed")


@dataclass(frozen=True)
class Wanted:
    """A container with what its kubelet has found for it."""

    pod: Object
    spec: Mapping[str, Any]
    env: Mapping[str, str]
    first: bool  # an init container
    login: Mapping[str, str] | None = None  # username and password of its registry

    @property
    def command(self) -> list[str]:
        return [expanded(each, self.env) for each in self.spec.get("command", ())]

    @property
    def args(self) -> list[str]:
        return [expanded(each, self.env) for each in self.spec.get("args", ())]


def expanded(text: str, env: Mapping[str, str]) -> str:
    """With the values of $(NAME), unless there is no such variable or the dollar is doubled."""
    return re.sub(
        r"\$(\$)|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)",
        lambda found: "$" if found[1] else env.get(found[2], found[0]),
        text,
    )


class Runtime(Protocol):
    def start(self, wanted: Wanted) -> None:
        """Raises Trouble and NotYet."""

    def state(self, pod: Object, container: str) -> Exit | Micros:
        """How it ended, or when to check again."""

    def stop(self, pod: Object, container: str) -> None:
        """It's asked to end."""

    def remove(self, pod: Object) -> None:
        """Nothing is left of the pod."""

    def address(self, pod: Object) -> str: ...

    def log(self, pod: Object, container: str) -> list[tuple[Micros, bytes]]: ...

    def execute(self, pod: Object, container: str, command: Sequence[str]) -> subprocess.Popen[bytes]: ...

    def dial(self, pod: Object, port: int) -> socket.socket: ...

    def probe(self, pod: Object, probe: Mapping[str, Any]) -> str:
        """Why it fails; empty: it succeeds."""


class Kubelet:
    def __init__(self, cluster: Cluster, runtime: Runtime) -> None:
        self._cluster, self.runtime = cluster, runtime
        self._probes = Probes(runtime.probe, lambda *said: cluster.event(*said, "Warning"))
        self.stuck: set[str] = set()  # names of pods whose end never ends
        self.removes_after: Micros = 0  # how long a deleted pod shows how its containers ended
        self._removed_at: dict[str, Micros] = {}
        self._due: dict[str, tuple[str, Micros]] = {}  # by uid: the version that was checked, and when to check again
        self._retry: dict[tuple[str, str], Micros] = {}  # when a container is started again that didn't start

    # --- what a test does to a pod -----------------------------------------------------------------------------------

    def fail(self, pod: Object, reason: str, message: str, *, disruption: str = "") -> None:
        """The kubelet ends it: Evicted, NodeShutdown, UnexpectedAdmissionError …"""
        with self._cluster.store.changed:
            if disruption:
                pod = self._cluster.disrupt(pod, disruption, message)
            if reason in ("Evicted", "Preempting"):
                self._cluster.event(pod, reason, message, "Warning")
            self._finish(pod, "Failed", {"reason": reason, "message": message}, Exit(137, "Error"))

    def evict(self, pod: Object, message: str = "The node was low on resource: memory. ") -> None:
        self.fail(pod, "Evicted", message, disruption="TerminationByKubelet")

    def recheck(self) -> None:
        """At all pods, whatever was due."""
        self._due = {uid: (version, 0) for uid, (version, _) in self._due.items()}

    # --- what it does ------------------------------------------------------------------------------------------------

    def settle(self) -> Micros:
        cluster, now, due = self._cluster, self._cluster.now(), NEVER
        for pod in cluster.store.in_order("pods"):
            meta, node = pod["metadata"], pod["spec"].get("nodeName")
            if not node or node in cluster.nodes.lost or cluster.store.find("nodes", "", node) is None:
                continue
            version, again = self._due.get(meta["uid"], ("", 0))
            if version == meta["resourceVersion"] and now < again:
                due = min(due, again)
                continue
            again = self._pod(pod, now)
            now_there = cluster.store.find("pods", meta["namespace"], meta["name"])
            if now_there and now_there["metadata"]["uid"] == meta["uid"]:
                self._due[meta["uid"]] = (now_there["metadata"]["resourceVersion"], again)
                due = min(due, again)
        self._reap()
        return due

    def _reap(self) -> None:
        """Pods that were removed past their kubelets, by force."""
        for uid in [each for each in self._due if each not in self._cluster.store.uids]:
            del self._due[uid]
            self._probes.forget(uid)
            for key in [each for each in self._retry if each[0] == uid]:
                del self._retry[key]
            self.runtime.remove({"metadata": {"uid": uid}})

    def _pod(self, pod: Object, now: Micros) -> Micros:
        """When to check again."""
        if "deletionTimestamp" in pod["metadata"]:
            return self._end(pod, now)
        if pod["status"]["phase"] in ENDED:
            return NEVER
        if "startTime" not in pod["status"]:
            if refused := self._refused(pod):
                self._finish(pod, "Failed", refused, None)
                return NEVER
            host = self._host(pod)
            address = host if pod["spec"].get("hostNetwork") else self.runtime.address(pod)
            start = {"startTime": date(now), "hostIP": host, "podIP": address, "podIPs": [{"ip": address}]}
            pod = self._cluster.store.change(pod, status=start)
        deadline = pod["spec"].get("activeDeadlineSeconds")
        over = from_iso(pod["status"]["startTime"]) + deadline * SECOND if deadline else NEVER
        if now >= over:
            reason = {
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
            self._finish(pod, "Failed", reason, Exit(137, "Error"))
            return NEVER
        return min(over, self._advance(pod, now))

    def _refused(self, pod: Object) -> dict[str, str] | None:
        """What the node says to a pod that was put on it past the scheduler."""
        if any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ())):
            return None
        store, node = self._cluster.store, pod["spec"]["nodeName"]
        others = [each for each in store.in_order("pods") if each is not pod and "startTime" in each["status"]]
        books = Books([store.get(of_kind("Node"), "", node)], others, {})
        if not selected(pod["spec"], books.nodes[node]):
            return {
                "reason": "NodeAffinity",
                "message": "Pod was rejected: Predicate NodeAffinity failed",
            }
        for name in books.short(node, pod):
            return {"reason": f"OutOf{name}", "message": f"Pod was rejected: Node didn't have enough resource: {name}"}
        return None

    def _host(self, pod: Object) -> str:
        node = self._cluster.store.get(of_kind("Node"), "", pod["spec"]["nodeName"])
        return str(
            next((each["address"] for each in node["status"].get("addresses", ()) if each["type"] == "InternalIP"), "")
        )

    def _advance(self, pod: Object, now: Micros) -> Micros:
        spec, old = pod["spec"], pod["status"]
        before = {each["name"]: each for part in ("init", "") for each in old.get(_statuses(part), ())}
        blocked = self._blocked(pod)
        due, first, started = NEVER, [], True
        for container in spec.get("initContainers", ()):
            status, again = self._container(
                pod, container, before, now, "PodInitializing" if not started else blocked, True
            )
            first.append(status)
            due = min(due, again)
            through = "running" in status["state"] if is_sidecar(container) else _code(status) == 0
            if _code(status) not in (None, 0) and spec["restartPolicy"] == "Never":
                status_of = self._status(
                    pod, first, [_waiting(each, "PodInitializing") for each in spec["containers"]], "Failed"
                )
                self._cluster.store.change(pod, status=status_of)
                return NEVER
            started = started and through
        rest = []
        for container in spec["containers"]:
            waits = blocked or ("" if started else "PodInitializing")
            status, again = self._container(pod, container, before, now, waits, False)
            rest.append(status)
            due = min(due, again)
        phase = _phase(rest)
        pod = self._cluster.store.change(pod, status=self._status(pod, first, rest, phase))
        if phase in ENDED:
            sidecars = [each["name"] for each in spec.get("initContainers", ()) if is_sidecar(each)]
            for name in sidecars:
                self.runtime.stop(pod, name)
            self._finish(pod, phase, {}, dict.fromkeys(sidecars, Exit(143)))
        return now if blocked else due

    def _container(
        self,
        pod: Object,
        container: Mapping[str, Any],
        before: Mapping[str, Object],
        now: Micros,
        waits: str,
        first: bool,
    ) -> tuple[Object, Micros]:
        """Its status from now on, and when to check again."""
        old = before.get(container["name"]) or _waiting(container, "PodInitializing" if first else "ContainerCreating")
        state = old["state"]
        if "terminated" in state:
            return old, NEVER
        if "running" in state:
            found = self.runtime.state(pod, container["name"])
            if not isinstance(found, Exit):
                seen = self._probes.look(pod, container, old, now)
                old = {**old, "started": seen.started, "ready": seen.ready}
                if seen.well:
                    return old, min(found, seen.due)
                found = self._restart(pod, container["name"])
            if not isinstance(found, Exit):
                return old, found
            return self._again(pod, container, self._exited(old, found, state["running"]["startedAt"], now), now, first)
        if waits:
            return {**old, "state": {"waiting": {"reason": waits}}}, NEVER
        retry = self._retry.get((pod["metadata"]["uid"], container["name"]), 0)
        return self._start(pod, container, old, now, first) if now >= retry else (old, retry)

    def _start(
        self, pod: Object, container: Mapping[str, Any], old: Object, now: Micros, first: bool
    ) -> tuple[Object, Micros]:
        reason = old["state"]["waiting"].get("reason")
        try:
            if not re.fullmatch(_IMAGE, container["image"]):
                raise Trouble("InvalidImageName", f'Failed to apply default image tag "{container["image"]}"')
            login = self._login(pod, container["image"])
            self.runtime.start(Wanted(pod, container, self._env(pod, container), first, login))
        except NotYet as wait:
            self._cluster.event(pod, "Pulling", f'Pulling image "{container["image"]}"')
            return {
                **old,
                "state": {"waiting": {"reason": "PodInitializing" if first else "ContainerCreating"}},
            }, wait.until
        except Trouble as trouble:
            shown = (
                BACK_OFFS.get(trouble.reason, trouble.reason)
                if reason in (*BACK_OFFS, *BACK_OFFS.values())
                else trouble.reason
            )
            message = trouble.message
            if shown == "ImagePullBackOff":
                message = f'Back-off pulling image "{container["image"]}": {trouble.reason}: {trouble.message}'
            self._cluster.event(pod, "BackOff" if shown == "ImagePullBackOff" else "Failed", message, "Warning")
            if trouble.final:
                ended_so = {
                    "exitCode": 128,
                    "reason": trouble.reason,
                    "message": message,
                    "startedAt": date(now),
                    "finishedAt": date(now),
                }
                return {**old, "state": {"terminated": ended_so}}, now
            self._retry[pod["metadata"]["uid"], container["name"]] = now + RETRY
            return {**old, "state": {"waiting": {"reason": shown, "message": message}}}, now + RETRY
        self._cluster.event(pod, "Pulled", f'Container image "{container["image"]}" already present on machine')
        self._cluster.event(pod, "Started", f"Started container {container['name']}")
        identity = f"containerd://{pod['metadata']['uid'].replace('-', '')}{container['name']}"
        running = {
            "state": {"running": {"startedAt": date(now)}},
            **self._probes.begin(pod, container, now),
            "containerID": identity,
        }
        return {**old, **running, "imageID": container["image"]}, now

    def _restart(self, pod: Object, container: str) -> Exit | Micros:
        """Asks a container that isn't well to end."""
        self._cluster.event(pod, "Killing", f"Container {container} failed a probe, will be restarted")
        self.runtime.stop(pod, container)
        return self.runtime.state(pod, container)

    def _exited(self, old: Object, found: Exit, started: str, now: Micros) -> Object:
        state = {
            "exitCode": found.code,
            "reason": found.why,
            **({"message": found.message} if found.message else {}),
            "startedAt": started,
            "finishedAt": date(now),
            "containerID": old.get("containerID", ""),
        }
        return {**old, "state": {"terminated": state}, "ready": False, "started": False}

    def _again(
        self, pod: Object, container: Mapping[str, Any], old: Object, now: Micros, first: bool
    ) -> tuple[Object, Micros]:
        """A container that has ended, by the pod's policy."""
        policy, code = pod["spec"]["restartPolicy"], _code(old)
        if policy == "Never" or (code == 0 and (policy == "OnFailure" or first)):
            return old, NEVER
        message = f"back-off 10s restarting failed container={container['name']} pod={pod['metadata']['name']}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        self._retry[pod["metadata"]["uid"], container["name"]] = now + RETRY
        count = old["restartCount"] + 1
        return {**old, "state": waiting, "lastState": old["state"], "restartCount": count}, now + RETRY

    def _status(self, pod: Object, first: list[Object], rest: list[Object], phase: str) -> dict[str, Any]:
        now = date(self._cluster.now())
        old = {each["type"]: each for each in pod["status"].get("conditions", ())}
        begun = all(_code(each) == 0 or "running" in each["state"] for each in first)
        ready = phase == "Running" and all(each["ready"] for each in rest)
        for kind, holds in (("Initialized", begun), ("ContainersReady", ready), ("Ready", ready)):
            status = "True" if holds else "False"
            since = old[kind]["lastTransitionTime"] if kind in old and old[kind]["status"] == status else now
            old[kind] = {"type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
        return {
            "phase": phase,
            "conditions": list(old.values()),
            "containerStatuses": rest,
            **({"initContainerStatuses": first} if first else {}),
        }

    # --- what a pod needs --------------------------------------------------------------------------------------------

    def _blocked(self, pod: Object) -> str:
        """Why nothing of it can start: its volumes."""
        store, space = self._cluster.store, pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes", ()):
            for source, plural, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
                given = volume.get(source)
                if given and not given.get("optional") and store.find(plural, space, given[key]) is None:
                    what = "secret" if source == "secret" else "configmap"
                    message = (
                        f'MountVolume.SetUp failed for volume "{volume["name"]}" : {what} "{given[key]}" not found'
                    )
                    self._cluster.event(pod, "FailedMount", message, "Warning")
                    return "ContainerCreating"
        for name in claims_of(pod):
            claim = store.find("persistentvolumeclaims", space, name)
            if claim is None or claim["status"]["phase"] != "Bound":
                return "ContainerCreating"
            if claim["spec"]["accessModes"] == ["ReadWriteOnce"] and (other := self._elsewhere(pod, name)):
                volume = claim["spec"]["volumeName"]
                message = f'Multi-Attach error for volume "{volume}" Volume is already used by pod(s) {other}'
                self._cluster.event(pod, "FailedAttachVolume", message, "Warning")
                return "ContainerCreating"
        return ""

    def _elsewhere(self, pod: Object, claim: str) -> str:
        """The pod on another node that has the claim."""
        for each in self._cluster.store.all("pods", pod["metadata"]["namespace"]):
            other = each["spec"].get("nodeName") not in (None, pod["spec"]["nodeName"])
            if other and each["status"]["phase"] == "Running" and claim in claims_of(each):
                return str(each["metadata"]["name"])
        return ""

    def _env(self, pod: Object, container: Mapping[str, Any]) -> dict[str, str]:
        """Raises Trouble."""
        out = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        if cards := int(container["resources"].get("limits", {}).get("nvidia.com/gpu", 0)):
            uid = pod["metadata"]["uid"]
            out["NVIDIA_VISIBLE_DEVICES"] = ",".join(f"GPU-{uid[:24]}{card:012x}" for card in range(cards))
        for each in container.get("envFrom", ()):
            for source, plural in (("secretRef", "secrets"), ("configMapRef", "configmaps")):
                if source in each:
                    given = self._data(pod, plural, each[source]) or {}
                    out |= {each.get("prefix", "") + key: value for key, value in given.items()}
        for each in container.get("env", ()):
            value = each.get("value", "")
            for source, found in each.get("valueFrom", {}).items():
                resolved = self._reference(pod, source, found)
                if resolved is None:
                    break
                value = resolved
            else:
                out[each["name"]] = expanded(value, out) if "value" in each else value
        return out

    def _login(self, pod: Object, image: str) -> Mapping[str, str] | None:
        """What the pod's pull secrets say for the image's registry; one that is missing is passed over."""
        host, slash, _ = image.partition("/")
        registry = host if slash and (set(".:") & set(host) or host == "localhost") else _DOCKER_HUB
        for each in pod["spec"].get("imagePullSecrets", ()):
            found = self._cluster.store.find("secrets", pod["metadata"]["namespace"], each["name"])
            if found is not None and found["type"] == "kubernetes.io/dockerconfigjson":
                logins = json.loads(base64.b64decode(found["data"][".dockerconfigjson"]))["auths"]
                if registry in logins:
                    login: Mapping[str, str] = logins[registry]
                    return login
        return None

    def _reference(self, pod: Object, source: str, given: Mapping[str, Any]) -> str | None:
        if source in ("secretKeyRef", "configMapKeyRef"):
            plural = "secrets" if source == "secretKeyRef" else "configmaps"
            data = self._data(pod, plural, given)
            if data is None:
                return None
            if given["key"] not in data and not given.get("optional"):
                space, name = pod["metadata"]["namespace"], given["name"]
                raise Trouble(
                    "CreateContainerConfigError",
                    f"couldn't find key {given['key']} in {_SINGULAR[plural]} {space}/{name}",
                )
            return data.get(given["key"])
        fields: dict[str, str] = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": pod["spec"]["nodeName"],
            "status.podIP": pod["status"].get("podIP", ""),
            "status.hostIP": pod["status"].get("hostIP", ""),
        }
        if source == "fieldRef" and given["fieldPath"] in fields:
            return fields[given["fieldPath"]]
        raise Trouble(
            "CreateContainerConfigError", f"this fake of a kubelet doesn't have {source} of {json.dumps(given)}"
        )

    def _data(self, pod: Object, plural: str, given: Mapping[str, Any]) -> dict[str, str] | None:
        found = self._cluster.store.find(plural, pod["metadata"]["namespace"], given["name"])
        if found is None:
            if given.get("optional"):
                return None
            raise Trouble("CreateContainerConfigError", f'{_SINGULAR[plural]} "{given["name"]}" not found')
        data: dict[str, str] = found.get("data", {})
        return {key: base64.b64decode(each).decode() for key, each in data.items()} if plural == "secrets" else data

    # --- its end -----------------------------------------------------------------------------------------------------

    def _end(self, pod: Object, now: Micros) -> Micros:
        meta, names = pod["metadata"], [each["name"] for each in _running(pod)]
        if meta["name"] in self.stuck:
            return NEVER
        for name in names:
            self._cluster.event(pod, "Killing", f"Stopping container {name}")
            self.runtime.stop(pod, name)
        states = {name: self.runtime.state(pod, name) for name in names}
        over = from_iso(meta["deletionTimestamp"])
        if now < over and not all(isinstance(each, Exit) for each in states.values()):
            return min((over, *(each for each in states.values() if not isinstance(each, Exit))))
        exits = {name: each if isinstance(each, Exit) else Exit(137, "Error") for name, each in states.items()}
        if now < self._removed_at.get(meta["uid"], 0):
            return self._removed_at[meta["uid"]]
        if names:
            self._removed_at[meta["uid"]] = now + self.removes_after
            pod = self._finish(pod, "Failed" if any(each.code for each in exits.values()) else "Succeeded", {}, exits)
            if self.removes_after:
                return now + self.removes_after
        else:
            self.runtime.remove(pod)
        self._removed_at.pop(meta["uid"], None)
        ended(self._cluster.store, pod, 0)
        return NEVER

    def _finish(
        self, pod: Object, phase: str, status: Mapping[str, str], exits: Exit | Mapping[str, Exit] | None
    ) -> Object:
        """All of its containers have ended: as each did, or all alike."""
        now = self._cluster.now()
        parts: dict[str, Any] = {}
        for part in ("init", ""):
            listed = pod["status"].get(_statuses(part), [])
            out = []
            for each in listed:
                end = exits.get(each["name"]) if isinstance(exits, Mapping) else exits
                running = each["state"].get("running")
                out.append(self._exited(each, end, running["startedAt"], now) if running and end is not None else each)
            if listed:
                parts[_statuses(part)] = out
        if isinstance(exits, Exit) or status.get("reason") == "DeadlineExceeded":
            self.runtime.remove(pod)
        conditions = [
            {**each, "status": "False"} if each["type"] in ("Ready", "ContainersReady") else each
            for each in pod["status"].get("conditions", ())
        ]
        new = {**parts, "phase": phase, "conditions": conditions, **status}
        return self._cluster.store.change(pod, status=copied(new))


_DOCKER_HUB = "https://index.docker.io/v1/"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REGISTRY = r"((?=[^/]*[.:])[A-Za-z0-9.-]+(:\d+)?/|localhost/)?"
_IMAGE = rf"{_REGISTRY}{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?"
_SINGULAR = {"secrets": "secret", "configmaps": "configmap"}


def _waiting(container: Mapping[str, Any], reason: str) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
        "ready": False,
        "started": False,
        "restartCount": 0,
    }


def _statuses(part: str) -> str:
    return "initContainerStatuses" if part else "containerStatuses"


def _running(pod: Object) -> list[Object]:
    status = pod["status"]
    listed = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return [each for each in listed if "running" in each["state"]]


def _code(status: Object) -> int | None:
    found: int | None = status["state"].get("terminated", {}).get("exitCode")
    return found


def _phase(statuses: Sequence[Object]) -> str:
    if all("terminated" in each["state"] for each in statuses):
        return "Failed" if any(_code(each) for each in statuses) else "Succeeded"
    begun = any(not each["state"].get("waiting") or each["restartCount"] for each in statuses)
    return "Running" if begun else "Pending"
