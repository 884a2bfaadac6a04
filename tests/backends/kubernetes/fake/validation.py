"""What no schema says and the server refuses all the same: names, labels, and rules between fields."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.backends.kubernetes.fake.errors import Cause, forbidden_field, required, wrong_value
from tests.backends.kubernetes.fake.quantities import amount
from tests.backends.kubernetes.fake.schema import SCHEMAS, Object, Resource
from tests.backends.kubernetes.fake.store import copied

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SERVICE = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_ENDS = "and must start and end with an alphanumeric character"
_STARTS = "start with an alphabetic character, and end with an alphanumeric character"
_WHAT = {
    pattern: f"a {kind} must consist of lower case alphanumeric {parts} (e.g. '{example}', regex used is '{pattern}')"
    for pattern, kind, parts, example in (
        (_LABEL, "lowercase RFC 1123 label", f"characters or '-', {_ENDS}", "my-name"),
        (_SUBDOMAIN, "lowercase RFC 1123 subdomain", f"characters, '-' or '.', {_ENDS}", "example.com"),
        (_SERVICE, "DNS-1035 label", f"characters or '-', {_STARTS}", "abc-123"),
    )
}
_NAMES = {"services": (_SERVICE, 63), "namespaces": (_LABEL, 63)}
BASIC = ("cpu", "memory", "ephemeral-storage", "pods", "storage")
_LACKS = ("resources", "resourceClaims", "readinessGates", "ephemeralContainers", "workloadRef")  # of pods
MUTABLE = ("image", "imagePullPolicy")  # of a container


def _named(value: str, pattern: str, most: int, field: str) -> Iterator[Cause]:
    if len(value) > most:
        yield wrong_value(field, value, f"must be no more than {most} characters")
    elif not re.fullmatch(pattern, value):
        yield wrong_value(field, value, _WHAT[pattern])


def problems(of: Resource, given: Object) -> Iterator[Cause]:
    meta = given["metadata"]
    if not meta.get("name"):
        yield required("metadata.name", "name or generateName is required")
    else:
        pattern, most = _NAMES.get(of.plural, (_SUBDOMAIN, 253))
        yield from _named(meta["name"], pattern, most, "metadata.name")
    for key, value in meta.get("labels", {}).items():
        yield from _label(key, value, "metadata.labels")
    for key in meta.get("annotations", {}):
        yield from _key(key, "metadata.annotations")
    if sum(len(key) + len(value) for key, value in meta.get("annotations", {}).items()) > 256 << 10:
        yield Cause("metadata.annotations", "Too long: may not be more than 262144 bytes", "FieldValueTooLong")
    if own := _KINDS.get(of.kind):
        yield from own(given)


def _label(key: str, value: str, field: str) -> Iterator[Cause]:
    yield from _key(key, field)
    if len(value) > 63:
        yield wrong_value(field, value, "must be no more than 63 bytes")
    elif value and not re.fullmatch(_NAME, value):
        yield wrong_value(
            field,
            value,
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            f"start and end with an alphanumeric character (regex used for validation is '({_NAME})?')",
        )


def _key(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if (slash and not (re.fullmatch(_SUBDOMAIN, prefix) and len(prefix) <= 253)) or not (
        re.fullmatch(_NAME, name) and len(name) <= 63
    ):
        yield wrong_value(field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'")


# --- pods ------------------------------------------------------------------------------------------------------------


def _pod(pod: Object) -> Iterator[Cause]:
    spec = pod.get("spec")
    if spec is None:
        yield required("spec")
        return
    volumes: dict[str, Any] = {}
    for at, volume in enumerate(spec.get("volumes", ())):
        yield from _volume(f"spec.volumes[{at}]", volume, volumes)
        volumes[volume["name"]] = volume
    if not spec["containers"]:
        yield required("spec.containers")
    names: set[str] = set()
    for part in ("initContainers", "containers"):
        for at, container in enumerate(spec.get(part, ())):
            yield from _container(f"spec.{part}[{at}]", container, volumes, names)
            names.add(container.get("name", ""))
    for at, toleration in enumerate(spec.get("tolerations", ())):
        if toleration.get("operator", "Equal") == "Exists" and toleration.get("value"):
            why = "value must be empty when `operator` is 'Exists'"
            yield wrong_value(f"spec.tolerations[{at}].operator", toleration["value"], why)
        elif not toleration.get("key") and toleration.get("operator") != "Exists":
            yield wrong_value(
                f"spec.tolerations[{at}].operator", "Equal", "operator must be Exists when `key` is empty"
            )
    for field in ("hostname", "subdomain"):
        if field in spec:
            yield from _named(spec[field], _LABEL, 63, f"spec.{field}")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        yield wrong_value("spec.activeDeadlineSeconds", spec["activeDeadlineSeconds"], "must be greater than 0")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
    for name in _LACKS:
        if spec.get(name):
            yield forbidden_field(f"spec.{name}", "this fake doesn't have it")
    for at, spread in enumerate(spec.get("topologySpreadConstraints", ())):
        if spread["whenUnsatisfiable"] == "DoNotSchedule":
            yield forbidden_field(f"spec.topologySpreadConstraints[{at}]", "this fake has those that are soft only")
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in spec.get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            if extra := sorted(term.keys() - {"labelSelector", "topologyKey", "namespaces"}):
                yield forbidden_field(f"spec.affinity.{kind}", f"this fake doesn't have {extra[0]}")


def _volume(field: str, volume: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[Cause]:
    if volume["name"] in known:
        yield Cause(f"{field}.name", f'Duplicate value: "{volume["name"]}"', "FieldValueDuplicate")
    yield from _named(volume["name"], _LABEL, 63, f"{field}.name")
    sources = volume.keys() & SCHEMAS["core.v1.Volume"]["properties"].keys() - {"name"}
    if not sources:
        yield required(field, "must specify a volume type")
    elif len(sources) > 1:
        yield forbidden_field(f"{field}.{sorted(sources)[1]}", "may not specify more than 1 volume type")
    if "secret" in volume and not volume["secret"].get("secretName"):
        yield required(f"{field}.secret.secretName")


def _container(
    field: str, container: Mapping[str, Any], volumes: Mapping[str, Any], names: set[str]
) -> Iterator[Cause]:
    name = container.get("name", "")
    if name in names:
        yield Cause(f"{field}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate")
    if name:
        yield from _named(name, _LABEL, 63, f"{field}.name")
    if not container.get("image"):
        yield required(f"{field}.image")
    if "restartPolicy" in container and (".containers" in field or container["restartPolicy"] != "Always"):
        yield forbidden_field(f"{field}.restartPolicy", "only an init container can have it here, and only Always")
    places: set[str] = set()
    for at, mount in enumerate(container.get("volumeMounts", ())):
        if mount["name"] not in volumes:
            yield Cause(f"{field}.volumeMounts[{at}].name", f'Not found: "{mount["name"]}"', "FieldValueNotFound")
        if mount["mountPath"] in places:
            yield wrong_value(f"{field}.volumeMounts[{at}].mountPath", mount["mountPath"], "must be unique")
        places.add(mount["mountPath"])
    for at, variable in enumerate(container.get("env", ())):
        if variable.get("value") and variable.get("valueFrom"):
            yield wrong_value(f"{field}.env[{at}].valueFrom", "", "may not be specified when `value` is not empty")
    yield from _amounts(f"{field}.resources", container.get("resources", {}))
    security = container.get("securityContext", {})
    if security.get("privileged") and security.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield wrong_value(f"{field}.securityContext", "", why)


def is_extended(resource: str) -> bool:
    return "/" in resource and not resource.startswith("kubernetes.io/")


def _amounts(field: str, resources: Mapping[str, Any]) -> Iterator[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            where = f"{field}.{part}.{name}"
            if "/" not in name and name not in BASIC[:3] and not name.startswith("hugepages-"):
                yield wrong_value(where, name, "must be a standard resource type or fully qualified")
            elif amount(value) < 0:
                yield wrong_value(where, value, "must be greater than or equal to 0")
            elif is_extended(name) and amount(value) % 1:
                yield wrong_value(where, value, "must be an integer")
    for name, value in requests.items():
        if is_extended(name) and limits.get(name) != value:
            where = f"{field}.requests.{name}"
            if name not in limits:
                yield Cause(f"{field}.limits", "Required value: Limit must be set for non overcommitable resources")
            else:
                yield wrong_value(where, value, f"must be equal to {name} limit of {limits[name]}")
        elif name in limits and amount(value) > amount(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield wrong_value(f"{field}.requests", value, why)


def pod_update(old: Object, new: Object) -> Iterator[Cause]:
    """Hardly anything of a pod can be changed."""
    before, after = copied(old["spec"]), copied(new["spec"])
    gates = [each["name"] for each in before.get("schedulingGates", ())]
    if any(each["name"] not in gates for each in after.get("schedulingGates", ())):
        yield forbidden_field("spec.schedulingGates", "only deletion is allowed")
    remaining = after.get("tolerations", [])
    if any(each not in remaining for each in before.get("tolerations", ())):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )
    selector = after.get("nodeSelector", {})
    if gates:  # until they are open, it may be limited further
        if before.get("nodeSelector", {}).items() - selector.items():
            yield wrong_value("spec.nodeSelector", selector, "only additions are allowed (no mutations or deletions)")
        for spec in (before, after):
            spec.pop("nodeSelector", None)
    deadline = before.get("activeDeadlineSeconds")
    if deadline and after.get("activeDeadlineSeconds", deadline + 1) > deadline:
        yield forbidden_field("spec.activeDeadlineSeconds", "must be less than or equal to previous value")
    for spec in (before, after):
        for key in ("schedulingGates", "tolerations", "activeDeadlineSeconds"):
            spec.pop(key, None)
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            for key in MUTABLE:
                container.pop(key, None)
    if before != after:
        keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            f"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative): {keys}",
        )


# --- others ----------------------------------------------------------------------------------------------------------


def _service(service: Object) -> Iterator[Cause]:
    spec = service["spec"]
    if not spec.get("ports") and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    for at, port in enumerate(spec.get("ports", ())):
        if not 1 <= port["port"] <= 65535:
            yield wrong_value(f"spec.ports[{at}].port", port["port"], "must be between 1 and 65535, inclusive")
        if len(spec["ports"]) > 1 and not port.get("name"):
            yield required(f"spec.ports[{at}].name")


def _secret(secret: Object) -> Iterator[Cause]:
    data = secret.get("data", {})
    for key in data:
        if not re.fullmatch(r"[-._a-zA-Z0-9]+", key):
            yield wrong_value(
                f"data[{key}]", key, "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            )
    if sum(len(each) * 3 // 4 for each in data.values()) > 1 << 20:
        yield Cause("data", "Too long: may not be more than 1048576 bytes", "FieldValueTooLong")
    if secret["type"] == "kubernetes.io/dockerconfigjson":
        if ".dockerconfigjson" not in data:
            yield required("data[.dockerconfigjson]")
        else:
            yield from _login(data[".dockerconfigjson"])


def _login(coded: str) -> Iterator[Cause]:
    try:
        json.loads(base64.b64decode(coded))
    except ValueError as problem:
        yield wrong_value("data[.dockerconfigjson]", "<secret contents redacted>", str(problem))


def _claim(claim: Object) -> Iterator[Cause]:
    spec = claim["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if "storage" not in spec.get("resources", {}).get("requests", {}):
        yield required("spec.resources[storage]")
    for key in ("volumeName", "selector", "dataSource", "dataSourceRef"):
        if key in spec and "status" in claim and claim["status"]["phase"] == "Pending":
            yield forbidden_field(f"spec.{key}", "this fake makes volumes by their classes only")
    if amount(spec.get("resources", {}).get("requests", {}).get("storage", "1")) <= 0:
        yield wrong_value(
            "spec.resources[storage]", spec["resources"]["requests"]["storage"], "must be greater than zero"
        )


def claim_update(old: Object, new: Object) -> Iterator[Cause]:
    before, after = copied(old["spec"]), copied(new["spec"])
    sizes = [spec.get("resources", {}).pop("requests", {}).get("storage", "0") for spec in (before, after)]
    if before != after and before.get("volumeName"):
        yield forbidden_field(
            "spec",
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        )
    if amount(sizes[1]) < amount(sizes[0]):
        yield forbidden_field("spec.resources.requests.storage", "field can not be less than status.capacity")


def _data_update(old: Object, new: Object) -> Iterator[Cause]:
    """Of a Secret or a ConfigMap."""
    if old.get("type") != new.get("type"):
        yield wrong_value("type", new.get("type"), "field is immutable")
    if old.get("immutable") and (old.get("data") != new.get("data") or not new.get("immutable")):
        yield forbidden_field("data", "field is immutable when `immutable` is set")


def _volume_of_cluster(volume: Object) -> Iterator[Cause]:
    yield forbidden_field("spec", "this fake has no volumes but those that it makes for claims")


def _limits(limit: Object) -> Iterator[Cause]:
    for at, item in enumerate(limit.get("spec", {}).get("limits", ())):
        if item["type"] != "Container":
            yield forbidden_field(f"spec.limits[{at}].type", "this fake has limits of containers only")


def _quota(quota: Object) -> Iterator[Cause]:
    if quota.get("spec", {}).keys() & {"scopes", "scopeSelector"}:
        yield forbidden_field("spec.scopes", "this fake doesn't have quotas with scopes")


SETS_ARE = {"podManagementPolicy": "OrderedReady", "minReadySeconds": 0, "ordinals": {"start": 0}}
SETS_ARE["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
SETS_ARE["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Retain", "whenScaled": "Retain"}
SETS_MAY_CHANGE = ("replicas", "template", "revisionHistoryLimit", *SETS_ARE)


def _stateful_set(given: Object) -> Iterator[Cause]:
    spec = given["spec"]
    labels, template = spec["template"].get("metadata", {}).get("labels", {}), spec["template"].get("spec")
    if "matchExpressions" in spec["selector"]:
        yield forbidden_field("spec.selector.matchExpressions", "this fake selects a set's pods by labels only")
    if not spec["selector"].get("matchLabels", {}).items() <= labels.items():
        yield wrong_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    for name, only in SETS_ARE.items():
        if spec.get(name, only) != only:
            yield forbidden_field(f"spec.{name}", f"this fake has stateful sets with {json.dumps(only)} only")
    if template is None:
        yield required("spec.template.spec")
    elif template["restartPolicy"] != "Always":
        yield Cause(
            "spec.template.spec.restartPolicy",
            f'Unsupported value: "{template["restartPolicy"]}": supported values: "Always"',
            "FieldValueNotSupported",
        )


def _stateful_set_update(old: Object, new: Object) -> Iterator[Cause]:
    fixed = (old["spec"].keys() | new["spec"].keys()) - {*SETS_MAY_CHANGE}
    if any(old["spec"].get(key) != new["spec"].get(key) for key in fixed):
        yield forbidden_field(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        )


_KINDS: Mapping[str, Callable[[Object], Iterator[Cause]]] = {
    "Pod": _pod,
    "Service": _service,
    "Secret": _secret,
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume_of_cluster,
    "LimitRange": _limits,
    "ResourceQuota": _quota,
    "StatefulSet": _stateful_set,
}
UPDATES: Mapping[str, Callable[[Object, Object], Iterator[Cause]]] = {
    "Pod": pod_update,
    "PersistentVolumeClaim": claim_update,
    "Secret": _data_update,
    "ConfigMap": _data_update,
    "StatefulSet": _stateful_set_update,
}
