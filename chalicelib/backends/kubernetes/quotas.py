"""What a namespace allows: what its quotas leave, and the ranges that its containers have to keep within.

The API server decides, when a pod is created. This says before why it would refuse, as far as these two show it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.backends.kubernetes.pods import INIT_RESOURCES
from chalicelib.backends.kubernetes.quantities import Amounts, available, largest, parsed, requested
from chalicelib.backends.kubernetes.shown import shown, shown_of

Body = Mapping[str, Any]
COUNTED = ("pods", "secrets")  # one of each for every job
DEMANDED = ("cpu", "memory")  # whose limits every container needs where a quota counts them
SCOPES = ("NotTerminating", "NotBestEffort")  # that our pods are in; besides, only their priority class may matter


@dataclass(frozen=True)
class PodAmounts:
    """What the job's container of a pod requests, and its limits, where it has them."""

    requests: Amounts
    limits: Amounts


@dataclass(frozen=True)
class Allowance:
    namespace: str = ""
    quotas: Sequence[Body] = ()
    ranges: Sequence[Body] = ()
    priority_class: str | None = None  # of our pods

    def refusal(self, pod: PodAmounts, pods: int) -> str:
        """Why the namespace doesn't allow so many of these pods now; empty if it does."""
        return next(self._refusals(pod, pods), "")

    def _refusals(self, pod: PodAmounts, pods: int) -> Iterator[str]:
        limits = dict(pod.limits)
        for _, item in self._items("Container"):
            limits = {**available({**item.get("max", {}), **item.get("default", {})}), **limits}
        pod = PodAmounts(pod.requests, limits)
        for name, item in self._items("Container"):
            yield from _out_of_range(name, item, pod, "container")
        init = self._init
        whole = PodAmounts(largest([pod.requests, init.requests]), largest([limits, init.limits]))
        for name, item in self._items("Pod"):
            yield from _out_of_range(name, item, whole, "pod")
        for quota in self.quotas:
            if all(self._is_in(scope) for scope in _scopes(quota)):
                yield from _over(quota, whole, pod, pods)

    @property
    def init_resources(self) -> Mapping[str, Mapping[str, str]]:
        """What the agent's container gets: as usual, or else what the limit ranges make of that."""
        init = self._init
        if init == _USUAL:
            return INIT_RESOURCES
        return {"requests": _written(init.requests), "limits": _written(init.limits)}

    @property
    def _init(self) -> PodAmounts:
        found = _USUAL
        for _, item in self._items("Container"):
            found = _within(item, found)
        return found

    def _items(self, kind: str) -> Iterator[tuple[str, Body]]:
        for each in self.ranges:
            for item in each.get("spec", {}).get("limits", ()):
                if item.get("type") == kind:
                    yield str(each["metadata"]["name"]), item

    def _is_in(self, scope: Body) -> bool:
        """Are our pods in this scope of a quota?"""
        if scope["scopeName"] != "PriorityClass":
            return scope["scopeName"] in SCOPES
        operator, values = scope.get("operator", "Exists"), scope.get("values", ())
        if operator in ("In", "NotIn"):
            return (self.priority_class in values) is (operator == "In")
        return (self.priority_class is not None) is (operator == "Exists")


_USUAL = PodAmounts(requested(INIT_RESOURCES["requests"]), requested(INIT_RESOURCES["limits"]))


def _within(item: Body, pod: PodAmounts) -> PodAmounts:
    """The nearest that a limit range allows."""
    least, most = available(item.get("min", {})), available(item.get("max", {}))
    limits = {
        name: min(max(amount, least.get(name, 0)), most.get(name, sys.maxsize)) for name, amount in pod.limits.items()
    }
    ratios = {name: parsed(ratio) for name, ratio in item.get("maxLimitRequestRatio", {}).items()}
    requests = {
        name: min(
            limits[name], max(amount, least.get(name, 0), math.ceil(limits[name] / ratios.get(name, limits[name] or 1)))
        )
        for name, amount in pod.requests.items()
    }
    return PodAmounts(requests, limits)


def _written(amounts: Amounts) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}


def _scopes(quota: Body) -> Iterator[Body]:
    spec = quota.get("spec", {})
    yield from ({"scopeName": each} for each in spec.get("scopes", ()))
    yield from spec.get("scopeSelector", {}).get("matchExpressions", ())


def _out_of_range(name: str, item: Body, pod: PodAmounts, what: str) -> Iterator[str]:
    least, most = available(item.get("min", {})), available(item.get("max", {}))
    for resource, amount in least.items():
        if resource in pod.requests and pod.requests[resource] < amount:
            yield f"the limit range {name} demands at least {shown_of(resource, amount)} of a {what}"
    for resource, amount in most.items():
        taken = max(pod.limits.get(resource, 0), pod.requests.get(resource, 0))
        if taken > amount:
            yield f"the limit range {name} allows a {what} at most {shown_of(resource, amount)}"
        elif resource in pod.requests and resource not in pod.limits:
            yield f"the limit range {name} demands a limit: {_upper_end(resource)}"
    for resource, limit in pod.limits.items():
        if pod.requests.get(resource, 0) > limit and what == "container":
            has = shown_of(resource, limit)
            yield f"the limit range {name} limits a container to {has} unless it has a limit itself"
    for resource, ratio in item.get("maxLimitRequestRatio", {}).items():
        request, limit = pod.requests.get(resource, 0), pod.limits.get(resource, 0)
        if request and limit > request * parsed(ratio):
            yield f"the limit range {name} allows limits of at most {ratio} times the request of {resource}"


def _over(quota: Body, whole: PodAmounts, job: PodAmounts, pods: int) -> Iterator[str]:
    name, status = quota["metadata"]["name"], quota.get("status", {})
    hard, used = status.get("hard") or quota.get("spec", {}).get("hard", {}), status.get("used", {})
    for key, text in hard.items():
        side, resource = _counted(key)
        if side == "limits" and resource in DEMANDED and resource not in job.limits:
            yield f"the quota {name} demands a limit: {_upper_end(resource)}"
            continue
        amounts = {"limits": whole.limits, "requests": whole.requests, "count": dict.fromkeys(COUNTED, 1)}[side]
        most, before = available({resource: text})[resource], requested({resource: used.get(key, "0")})[resource]
        if (each := amounts.get(resource, 0)) and before + each * pods > most:
            of = " of limits" if side == "limits" else ""
            yield f"the quota {name} leaves {shown(resource, max(0, most - before))} of {shown_of(resource, most)}{of}"


def _counted(key: str) -> tuple[str, str]:
    """What a quota's key counts: requests, limits or objects, and of what."""
    side, point, resource = key.partition(".")
    if point and side in ("requests", "limits"):
        return side, resource
    name = key.removeprefix("count/")
    return ("count", name) if name in COUNTED else ("requests", key)


def _upper_end(resource: str) -> str:
    example = {"cpu": "`cpu: 2..4`", "memory": "`memory: 8GB..16GB`", "ephemeral-storage": "`disk: 50GB..100GB`"}
    return f"write an upper end, such as {example.get(resource, resource)}"
