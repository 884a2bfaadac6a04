"""Pod Security: what the levels of a namespace forbid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_BASELINE_CAPABILITIES = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
_RESTRICTED_VOLUMES = {
    *(
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ),
}
Spec = Mapping[str, Any]


def violation(labels: Mapping[str, str], spec: Spec) -> str:
    """Why the namespace with these labels refuses the pod; empty if it doesn't."""
    level = labels.get("pod-security.kubernetes.io/enforce", "privileged")
    checks = {"privileged": (), "baseline": (_baseline,), "restricted": (_baseline, _restricted)}[level]
    found = [each for check in checks for each in check(spec)]
    version = labels.get("pod-security.kubernetes.io/enforce-version", "latest")
    return f'violates PodSecurity "{level}:{version}": {", ".join(found)}' if found else ""


def _containers(spec: Spec) -> list[Spec]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _that(spec: Spec, test: Callable[[Spec], bool]) -> str:
    names = [each["name"] for each in _containers(spec) if test(each.get("securityContext", {}))]
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"container{'s' if len(names) > 1 else ''} {quoted}" if names else ""


def _baseline(spec: Spec) -> Iterator[str]:
    if namespaces := [f"{key}=true" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]:
        yield f"host namespaces ({', '.join(namespaces)})"
    if names := [each["name"] for each in spec.get("volumes", ()) if "hostPath" in each]:
        listed = ", ".join(f'"{each}"' for each in names)
        yield f"hostPath volumes (volume{'s' if len(names) > 1 else ''} {listed})"
    if which := _that(spec, lambda own: bool(own.get("privileged"))):
        yield f"privileged ({which} must not set securityContext.privileged=true)"
    added = {
        each
        for one in _containers(spec)
        for each in one.get("securityContext", {}).get("capabilities", {}).get("add", ())
    }
    if extra := sorted(added - set(_BASELINE_CAPABILITIES)):
        which = _that(spec, lambda own: bool({*own.get("capabilities", {}).get("add", ())} & set(extra)))
        named = ", ".join(f'"{each}"' for each in extra)
        yield f"non-default capabilities ({which} must not include {named} in securityContext.capabilities.add)"
    if any("hostPort" in port for each in _containers(spec) for port in each.get("ports", ())):
        yield "hostPort (a container uses hostPort)"
    profiles = [spec.get("securityContext", {}), *(each.get("securityContext", {}) for each in _containers(spec))]
    if any(each.get("seccompProfile", {}).get("type") == "Unconfined" for each in profiles):
        yield 'seccompProfile (pod or containers must not set securityContext.seccompProfile.type to "Unconfined")'


def _restricted(spec: Spec) -> Iterator[str]:
    whole = spec.get("securityContext", {})
    if which := _that(spec, lambda own: own.get("allowPrivilegeEscalation") is not False):
        yield f"allowPrivilegeEscalation != false ({which} must set securityContext.allowPrivilegeEscalation=false)"
    if which := _that(spec, lambda own: "ALL" not in own.get("capabilities", {}).get("drop", ())):
        yield f'unrestricted capabilities ({which} must set securityContext.capabilities.drop=["ALL"])'
    elif which := _that(spec, lambda own: bool({*own.get("capabilities", {}).get("add", ())} - {"NET_BIND_SERVICE"})):
        yield f"unrestricted capabilities ({which} must not add more than NET_BIND_SERVICE)"
    kinds = {each["name"]: next(iter(each.keys() - {"name"})) for each in spec.get("volumes", ())}
    if names := [name for name, kind in kinds.items() if kind not in _RESTRICTED_VOLUMES]:
        yield f"restricted volume types (volume {', '.join(names)} uses {', '.join(kinds[each] for each in names)})"
    if which := _that(spec, lambda own: not own.get("runAsNonRoot", whole.get("runAsNonRoot"))):
        yield f"runAsNonRoot != true (pod or {which} must set securityContext.runAsNonRoot=true)"
    if which := _that(spec, lambda own: own.get("runAsUser", whole.get("runAsUser")) == 0):
        yield f"runAsUser=0 (pod or {which} must not set runAsUser=0)"
    confined = ("RuntimeDefault", "Localhost")
    if which := _that(
        spec, lambda own: own.get("seccompProfile", whole.get("seccompProfile", {})).get("type") not in confined
    ):
        field = "securityContext.seccompProfile.type"
        yield f'seccompProfile (pod or {which} must set {field} to "RuntimeDefault" or "Localhost")'
