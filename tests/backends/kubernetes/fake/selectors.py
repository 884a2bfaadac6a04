"""Selectors of labels and of fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.backends.kubernetes.fake import errors
from tests.backends.kubernetes.fake.schema import Object

Matches = Callable[[Object], bool]
_COMMON = ("metadata.name", "metadata.namespace")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
        *("status.phase", "status.podIP", "status.nominatedNodeName"),
    ),
    "events": (
        *(f"involvedObject.{each}" for each in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")),
        *("involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"),
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
}
_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"


def of_labels(text: str) -> Matches:
    needs = [_need(each.strip()) for each in re.split(r",(?![^(]*\))", text) if each.strip()]
    return lambda given: all(need(given["metadata"].get("labels") or {}) for need in needs)


def _need(text: str) -> Callable[[Mapping[str, str]], bool]:
    if match := re.fullmatch(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})", text):
        key, operator, value = match.groups()
        return lambda labels: (labels.get(key) == value) is not (operator == "!=")
    if match := re.fullmatch(rf"({_KEY})\s+(in|notin)\s+\(([^)]*)\)", text):
        key, operator, listed = match.groups()
        values = {each.strip() for each in listed.split(",")}
        return lambda labels: (labels.get(key) in values) is (operator == "in")
    if match := re.fullmatch(rf"(!?)\s*({_KEY})", text):
        absent, key = match.groups()
        return lambda labels: (key in labels) is not bool(absent)
    raise errors.bad_request(f"unable to parse requirement: found '{text}'")


def of_fields(plural: str, text: str) -> Matches:
    needs = []
    for each in filter(None, text.split(",")):
        match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", each)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{each}'")
        name, operator, value = match.groups()
        if name not in (*_COMMON, *FIELDS.get(plural, ())):
            raise errors.bad_request(f"field label not supported: {name}")
        needs.append((name, operator != "!=", value))
    return lambda given: all((field(given, name) == value) is wanted for name, wanted, value in needs)


def field(given: Object, path: str) -> str:
    found: Any = given
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    if path == "source":
        found = given.get("source", {}).get("component", "")
    return (
        str(found).lower() if isinstance(found, bool) or (path == "spec.unschedulable" and found == "") else str(found)
    )


def of_expressions(selector: Mapping[str, Any]) -> Callable[[Mapping[str, str]], bool]:
    """A selector of labels, written as an object."""
    exact = selector.get("matchLabels", {})
    expressions = selector.get("matchExpressions", ())
    return lambda labels: (
        all(labels.get(key) == value for key, value in exact.items())
        and all(meets(each, labels) for each in expressions)
    )


def meets(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    key, operator, listed = expression["key"], expression["operator"], expression.get("values", [])
    found = values.get(key)
    if operator in ("Exists", "DoesNotExist"):
        return (found is not None) is (operator == "Exists")
    if operator in ("In", "NotIn"):
        return (found in listed) is (operator == "In")
    try:
        left, right = int(found or ""), int(listed[0])
    except ValueError:
        return False
    return left > right if operator == "Gt" else left < right
