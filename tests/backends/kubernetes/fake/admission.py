"""What happens to an object between its validation and its storage, by plugins as a cluster has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.backends.kubernetes.fake import errors, quotas, security
from tests.backends.kubernetes.fake.quantities import amount, written
from tests.backends.kubernetes.fake.requests import effective
from tests.backends.kubernetes.fake.schema import Object, Resource, of_kind
from tests.backends.kubernetes.fake.store import Store

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
PROTECTION = "kubernetes.io/pvc-protection"
Webhook = Callable[[Object], str | None]  # why it denies the object


class Admission:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.webhooks: dict[str, Webhook] = {}
        self._ports = iter(range(30000, 32768))
        self._addresses = (f"10.96.{high}.{low}" for high in range(256) for low in range(1, 255))

    def before(self, of: Resource, given: Object) -> None:
        """Sets in a new object what the cluster says, before it's validated."""
        name = given["metadata"]["name"]
        if of.namespaced:
            namespace = self._store.get(of_kind("Namespace"), "", given["metadata"]["namespace"])
            if "deletionTimestamp" in namespace["metadata"]:
                space = given["metadata"]["namespace"]
                why = f"unable to create new content in namespace {space} because it is being terminated"
                found = errors.forbidden(of, name, why)
                cause = {"reason": "NamespaceTerminating", "message": why, "field": "metadata.namespace"}
                found.answer.body["details"]["causes"] = [cause]
                raise found
        if of.kind == "Pod" and "spec" in given:
            for plugin in (self._limits, self._account, self._priority, self._runtime, self._tolerations):
                plugin(of, given)
        elif of.kind == "Service":
            self._service(of, given)
        elif of.kind == "PersistentVolumeClaim":
            given["metadata"]["finalizers"] = [*given["metadata"].get("finalizers", ()), PROTECTION]
            self._class(given)

    def after(self, of: Resource, given: Object) -> None:
        """Refuses a valid object, or lets it pass."""
        name = given["metadata"]["name"]
        for webhook, denies in self.webhooks.items():
            if why := denies(given):
                message = f'admission webhook "{webhook}" denied the request: {why}'
                raise errors.refusal(403, "Forbidden", message)
        if of.kind == "Pod":
            namespace = self._store.get(of_kind("Namespace"), "", given["metadata"]["namespace"])
            if why := security.violation(namespace["metadata"].get("labels", {}), given["spec"]):
                raise errors.forbidden(of, name, why)
        if of.namespaced and (why := quotas.exceeded(self._store, of, given)):
            raise errors.forbidden(of, name, why)

    # --- pods --------------------------------------------------------------------------------------------------------

    def _account(self, of: Resource, pod: Object) -> None:
        spec, namespace = pod["spec"], pod["metadata"]["namespace"]
        account = spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
        spec["serviceAccount"] = account
        found = self._store.find("serviceaccounts", namespace, account)
        if found is None:
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise errors.forbidden(of, pod["metadata"]["name"], why)
        if not spec.get("imagePullSecrets") and "imagePullSecrets" in found:
            spec["imagePullSecrets"] = found["imagePullSecrets"]
        if spec.get("automountServiceAccountToken", found.get("automountServiceAccountToken", True)):
            volume = f"kube-api-access-{self._store.letters(5)}"
            token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
            spec.setdefault("volumes", []).append(
                {"name": volume, "projected": {"sources": [token], "defaultMode": 420}}
            )
            mount = {"name": volume, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                container.setdefault("volumeMounts", []).append(dict(mount))

    def _priority(self, of: Resource, pod: Object) -> None:
        spec, classes = pod["spec"], self._store.all("priorityclasses")
        name = spec.get("priorityClassName")
        if not name:
            found = next((each for each in classes if each.get("globalDefault")), None)
            name = found["metadata"]["name"] if found else ""
        known = {**SYSTEM, **{each["metadata"]["name"]: each["value"] for each in classes}}
        if name and name not in known:
            raise errors.forbidden(of, pod["metadata"]["name"], f"no PriorityClass with name {name} was found")
        value = known.get(name, 0)
        if spec.get("priority", value) != value:
            why = (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise errors.forbidden(of, pod["metadata"]["name"], why)
        policies = {each["metadata"]["name"]: each["preemptionPolicy"] for each in classes}
        spec |= {
            "priority": value,
            "preemptionPolicy": spec.get("preemptionPolicy", policies.get(name, "PreemptLowerPriority")),
        }
        if name:
            spec["priorityClassName"] = name

    def _runtime(self, of: Resource, pod: Object) -> None:
        spec = pod["spec"]
        if not (name := spec.get("runtimeClassName")):
            return
        found = self._store.find("runtimeclasses", "", name)
        if found is None:
            why = f'pod rejected: RuntimeClass "{name}" not found'
            raise errors.forbidden(of, pod["metadata"]["name"], why)
        if overhead := found.get("overhead", {}).get("podFixed"):
            spec["overhead"] = overhead
        scheduling = found.get("scheduling", {})
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **scheduling.get("nodeSelector", {})}
        spec.setdefault("tolerations", []).extend(scheduling.get("tolerations", ()))

    def _tolerations(self, of: Resource, pod: Object) -> None:
        own = pod["spec"].setdefault("tolerations", [])
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(
                each.get("key") in (key, None, "") and each.get("effect") in ("NoExecute", None, "") for each in own
            ):
                own.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})

    def _limits(self, of: Resource, pod: Object) -> None:
        """LimitRanges of containers, and of pods."""
        problems: list[str] = []
        for limit in self._store.all("limitranges", pod["metadata"]["namespace"]):
            for item in limit["spec"]["limits"]:
                if item["type"] == "Container":
                    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
                        problems += _limited(container["resources"], item)
                elif item["type"] == "Pod":
                    sums = {
                        side: {name: written(each) for name, each in effective(pod["spec"], side).items()}
                        for side in ("limits", "requests")
                    }
                    problems += _outside(sums, item, "Pod")
        if problems:
            raise errors.forbidden(of, pod["metadata"]["name"], _list(problems))

    # --- services and claims -----------------------------------------------------------------------------------------

    def _service(self, of: Resource, service: Object) -> None:
        spec = service["spec"]
        if spec["type"] != "ExternalName":
            spec.setdefault("clusterIP", next(self._addresses))
            spec["clusterIPs"] = [spec["clusterIP"]]
            spec |= {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}
        if spec["type"] not in ("NodePort", "LoadBalancer") or spec.get("allocateLoadBalancerNodePorts") is False:
            return
        taken = {port.get("nodePort") for each in self._store.all("services") for port in each["spec"].get("ports", ())}
        for at, port in enumerate(spec.get("ports", ())):
            if "nodePort" not in port:
                port["nodePort"] = next(each for each in self._ports if each not in taken)
                continue
            field, number = f"spec.ports[{at}].nodePort", port["nodePort"]
            if number in taken:
                cause = errors.wrong_value(field, number, "provided port is already allocated")
                raise errors.invalid(of, service["metadata"]["name"], [cause])
            if not 30000 <= number <= 32767:
                why = "provided port is not in the valid range. The range of valid ports is 30000-32767"
                raise errors.invalid(of, service["metadata"]["name"], [errors.wrong_value(field, number, why)])

    def _class(self, claim: Object) -> None:
        """The default class of the cluster; an empty one means none."""
        marked = "storageclass.kubernetes.io/is-default-class"
        for each in self._store.all("storageclasses"):
            if each["metadata"].get("annotations", {}).get(marked) == "true":
                claim["spec"].setdefault("storageClassName", each["metadata"]["name"])


def _limited(resources: dict[str, Any], item: dict[str, Any]) -> list[str]:
    limits, requests = resources.setdefault("limits", {}), resources.setdefault("requests", {})
    for name, value in item.get("defaultRequest", {}).items():
        requests.setdefault(name, limits.get(name, value))
    for name, value in item.get("default", {}).items():
        limits.setdefault(name, value)
    return _outside(resources, item, "Container")


def _outside(resources: Mapping[str, Mapping[str, Any]], item: dict[str, Any], what: str) -> list[str]:
    found = []
    limits, requests = resources["limits"], resources["requests"]
    for name, most in item.get("max", {}).items():
        given = limits.get(name)
        if given is None:
            found.append(f"maximum {name} usage per {what} is {most}.  No limit is specified")
        elif amount(given) > amount(most):
            found.append(f"maximum {name} usage per {what} is {most}, but limit is {given}")
    for name, least in item.get("min", {}).items():
        given = requests.get(name)
        if given is None:
            found.append(f"minimum {name} usage per {what} is {least}.  No request is specified")
        elif amount(given) < amount(least):
            found.append(f"minimum {name} usage per {what} is {least}, but request is {given}")
    for name, most in item.get("maxLimitRequestRatio", {}).items():
        if name not in limits or name not in requests:
            found.append(
                f"{name} max limit to request ratio per {what} is {most}, but no request or limit is specified"
            )
        elif (ratio := amount(limits[name]) / amount(requests[name])) > amount(most):
            found.append(f"{name} max limit to request ratio per {what} is {most}, but provided ratio is {ratio:.6f}")
    return found


def _list(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
