"""Checks that each cluster answers, is new enough, has the namespace, and allows all that is needed."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.backends.kit.regions import everywhere
from chalicelib.backends.kubernetes.client import Clusters
from chalicelib.backends.kubernetes.gateways import has_services
from chalicelib.backends.kubernetes.permissions import GATEWAYS, RULES, Rule, verbs
from chalicelib.errors import Gone, MissingPermission, Unfit

OLDEST = (1, 27)  # the first whose pods have scheduling gates
REVIEWS = ("apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews")


def check(clusters: Clusters) -> None:
    """Raises InvalidCredentials, MissingPermission with everything that is denied, or Unfit."""
    denied = [
        text for found in everywhere(clusters.regions, lambda region: _denied(clusters, region)) for text in found
    ]
    if denied:
        raise MissingPermission(
            f"Kubernetes denies what jobs need. {' '.join(denied)}",
            hint="The role is in docs/examples/kubernetes/role.yml.",
        )


def _denied(clusters: Clusters, region: str) -> list[str]:
    check_version(region, clusters.call(region, "GET", ("version",)))
    namespace = clusters.cluster(region).namespace
    rules = (*RULES, *(GATEWAYS if has_services(clusters.cluster(region)) else ()))
    missing = [(rule, verb) for rule, verb in verbs(rules) if not _is_allowed(clusters, region, rule, verb)]
    if not missing:
        _check_namespace(clusters, region, namespace)
    found: dict[str, list[str]] = {}
    for rule, verb in missing:
        place = "in all namespaces" if rule.cluster else f"in the namespace {namespace}"
        found.setdefault(f"{rule.resource} {place} ({rule.what_for})", []).append(verb)
    return [f"{region}: {', '.join(verbs)} {what}." for what, verbs in found.items()]


def check_version(region: str, found: Mapping[str, str]) -> None:
    """`found`: as the server answers. One that gives no numbers may be of any version."""
    numbers = [re.match(r"\d+", str(found.get(part, ""))) for part in ("major", "minor")]
    version = tuple(int(each[0]) for each in numbers if each)
    if len(version) == 2 and version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Unfit(
            f"{region} has Kubernetes {found.get('gitVersion', '')}, and {oldest} is the oldest that is supported."
        )


def _is_allowed(clusters: Clusters, region: str, rule: Rule, verb: str) -> bool:
    place = {} if rule.cluster else {"namespace": clusters.cluster(region).namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"resource": rule.resource, "verb": verb, **place}},
    }
    answer = clusters.call(region, "POST", REVIEWS, body=review)
    return bool(answer.get("status", {}).get("allowed"))


def _check_namespace(clusters: Clusters, region: str, namespace: str) -> None:
    """A list of pods in a namespace that doesn't exist is empty, so only the namespace itself tells."""
    try:
        clusters.call(region, "GET", ("api", "v1", "namespaces", namespace))
    except Gone:
        raise Unfit(
            f"{region} has no namespace {namespace}.",
            hint=f"Create it with `kubectl create namespace {namespace}`, or correct `namespace`.",
        ) from None
    except MissingPermission:
        return  # nobody has to be allowed to read it; the first pod would tell
