"""Quotas of a namespace: what counts, what is used, and what a new object would bring over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from tests.backends.kubernetes.fake.quantities import amount, written
from tests.backends.kubernetes.fake.requests import Amounts, effective, plus
from tests.backends.kubernetes.fake.schema import Object, Resource, resources
from tests.backends.kubernetes.fake.store import Store

_COUNTED = ("pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas")
ENDED = ("Succeeded", "Failed")


def counts(of: Resource, given: Object) -> Amounts:
    """By the keys of quotas."""
    if of.kind == "Pod" and given.get("status", {}).get("phase") in ENDED:
        return {f"count/{of.qualified}": Decimal(1)}
    out: Amounts = {f"count/{of.qualified}": Decimal(1)}
    if of.plural in _COUNTED:
        out[of.plural] = Decimal(1)
    if of.kind == "Pod":
        for side in ("requests", "limits"):
            for name, value in effective(given["spec"], side).items():
                out[f"{side}.{name}"] = value
                if side == "requests":
                    out[name] = value
    elif of.kind == "PersistentVolumeClaim":
        out["requests.storage"] = amount(given["spec"]["resources"]["requests"]["storage"])
    elif of.kind == "Service" and given["spec"]["type"] in ("LoadBalancer", "NodePort"):
        out[f"services.{given['spec']['type'].lower()}s"] = Decimal(1)
    return out


def _scopes(quota: Object) -> list[Mapping[str, Any]]:
    spec = quota.get("spec", {})
    return [
        *({"scopeName": each} for each in spec.get("scopes", ())),
        *spec.get("scopeSelector", {}).get("matchExpressions", ()),
    ]


def _is_in(scope: Mapping[str, Any], pod: Object) -> bool:
    """Is the pod in this scope of a quota?"""
    name, spec = scope["scopeName"], pod["spec"]
    if name in ("Terminating", "NotTerminating"):
        return ("activeDeadlineSeconds" in spec) is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return bool(effective(spec, "requests") or effective(spec, "limits")) is (name == "NotBestEffort")
    if name == "PriorityClass":
        own, operator = spec.get("priorityClassName"), scope.get("operator", "Exists")
        if operator in ("In", "NotIn"):
            return (own in scope.get("values", ())) is (operator == "In")
        return bool(own) is (operator == "Exists")
    terms = (spec.get("affinity", {}).get(each, {}) for each in ("podAffinity", "podAntiAffinity"))
    return "namespaces" in str(list(terms))  # CrossNamespacePodAffinity


def _of_scope(quota: Object, of: Resource, given: Object) -> bool:
    scopes = _scopes(quota)
    return not scopes or (of.kind == "Pod" and all(_is_in(each, given) for each in scopes))


def used(store: Store, quota: Object, keys: Iterable[str]) -> Amounts:
    total: Amounts = {}
    for plural, of in resources().items():
        if of.namespaced:
            for each in store.all(plural, quota["metadata"]["namespace"]):
                if _of_scope(quota, of, each):
                    total = plus(total, counts(of, each))
    return {key: total.get(key, Decimal(0)) for key in keys}


def exceeded(store: Store, of: Resource, given: Object) -> str:
    """Why the quotas of its namespace refuse it; empty if they don't."""
    counted = counts(of, given)
    for quota in store.all("resourcequotas", given["metadata"]["namespace"]):
        name, hard = quota["metadata"]["name"], quota.get("spec", {}).get("hard", {})
        if not _of_scope(quota, of, given):
            continue
        if of.kind == "Pod":
            needed = [
                key
                for key in sorted(hard)
                if key.removeprefix("requests.").removeprefix("limits.") in ("cpu", "memory")
            ]
            containers = (*given["spec"]["containers"], *given["spec"].get("initContainers", ()))
            if missing := [key for key in needed if not all(_gives(each, key) for each in containers)]:
                return f"failed quota: {name}: must specify {','.join(missing)}"
        before = used(store, quota, hard)
        over = [key for key in sorted(hard) if counted.get(key) and before[key] + counted[key] > amount(hard[key])]
        if over:
            parts = {
                "requested": {key: counted[key] for key in over},
                "used": {key: before[key] for key in over},
                "limited": {key: amount(hard[key]) for key in over},
            }
            texts = (
                f"{part}: {','.join(f'{key}={shown(key, each)}' for key, each in of.items())}"
                for part, of in parts.items()
            )
            return f"exceeded quota: {name}, {', '.join(texts)}"
    return ""


def _gives(container: Mapping[str, Any], key: str) -> bool:
    side = "limits" if key.startswith("limits.") else "requests"
    return key.rpartition(".")[2] in container.get("resources", {}).get(side, {})


def shown(key: str, value: Decimal) -> str:
    return written(value, binary=key.rpartition(".")[2] in ("memory", "storage", "ephemeral-storage"))


def settle(store: Store) -> None:
    for quota in store.all("resourcequotas"):
        hard = quota.get("spec", {}).get("hard", {})
        found = used(store, quota, hard)
        store.change(quota, status={"hard": hard, "used": {key: shown(key, each) for key, each in found.items()}})
