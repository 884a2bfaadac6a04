"""The controller of stateful sets: their pods one after the other, each with a name and claims that it keeps.

It has no ControllerRevisions, so nothing is rolled back, and of the ways to update only the usual one: from the last
pod to the first, each after the one before it is ready.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tests.backends.fakes.server import Refusal
from tests.backends.kubernetes.fake.operations import Place, ended
from tests.backends.kubernetes.fake.quotas import ENDED
from tests.backends.kubernetes.fake.schema import Object, of_kind
from tests.backends.kubernetes.fake.store import copied, owners

if TYPE_CHECKING:
    from tests.backends.kubernetes.fake.cluster import Cluster

AGENT = "statefulset-controller"
REVISION = "controller-revision-hash"


def settle(cluster: Cluster) -> None:
    for each in cluster.store.in_order("statefulsets"):
        if "deletionTimestamp" not in each["metadata"]:
            _set(cluster, each)


def _set(cluster: Cluster, given: Object) -> None:
    """One step at a time: what comes next waits until all is well so far."""
    store, spec, revision = cluster.store, given["spec"], revision_of(given)
    owned = {each["metadata"]["name"]: each for each in _owned(cluster, given)}
    wanted = [f"{given['metadata']['name']}-{number}" for number in range(spec["replicas"])]
    _say(cluster, given, list(owned.values()), revision)
    for number, name in enumerate(wanted):
        pod = owned.get(name)
        if pod is None:
            return _create(cluster, given, name, number, revision)
        if pod["status"]["phase"] in ENDED and "deletionTimestamp" not in pod["metadata"]:
            ended(store, pod)
            return None
        if not is_ready(pod):
            return _replace_outdated(cluster, [pod], revision)
    for name in sorted(owned.keys() - set(wanted), reverse=True):
        if "deletionTimestamp" not in owned[name]["metadata"]:
            ended(store, owned[name])
        return None
    return _replace_outdated(cluster, [owned[name] for name in reversed(wanted)], revision)


def _replace_outdated(cluster: Cluster, pods: list[Object], revision: str) -> None:
    """The first that isn't of this revision."""
    for pod in pods:
        if pod["metadata"]["labels"][REVISION] != revision:
            if "deletionTimestamp" not in pod["metadata"]:
                ended(cluster.store, pod)
            return


def _owned(cluster: Cluster, given: Object) -> Iterator[Object]:
    for pod in cluster.store.all("pods", given["metadata"]["namespace"]):
        if given["metadata"]["uid"] in owners(pod):
            yield pod


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def revision_of(given: Object) -> str:
    digest = sha256(json.dumps(given["spec"]["template"], sort_keys=True).encode()).hexdigest()
    return f"{given['metadata']['name']}-{digest[:10]}"


def _say(cluster: Cluster, given: Object, pods: list[Object], revision: str) -> None:
    ready = sum(map(is_ready, pods))
    updated = sum(each["metadata"]["labels"][REVISION] == revision for each in pods)
    whole = updated == len(pods) == given["spec"]["replicas"]
    before = given["status"].get("currentRevision", revision)
    status = {
        "observedGeneration": given["metadata"]["generation"],
        "replicas": len(pods),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": len(pods) if whole else len(pods) - updated,
        "updatedReplicas": updated,
        "currentRevision": revision if whole else before,
        "updateRevision": revision,
        "collisionCount": 0,
    }
    cluster.store.change(given, status=status)


def _create(cluster: Cluster, given: Object, name: str, number: int, revision: str) -> None:
    """Its claims, unless they are there, and the pod."""
    space, template = given["metadata"]["namespace"], copied(given["spec"]["template"])
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template.get("metadata", {}), "name": name, "namespace": space, **_owner(given)}
    own = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number), REVISION: revision}
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **own}
    spec, kept = pod["spec"], []
    spec |= {"hostname": name, "subdomain": given["spec"].get("serviceName", "")}
    for claim in given["spec"].get("volumeClaimTemplates", ()):
        volume = claim["metadata"]["name"]
        claimed = f"{volume}-{name}"
        kept.append({"name": volume, "persistentVolumeClaim": {"claimName": claimed}})
        if cluster.store.find("persistentvolumeclaims", space, claimed) is None:
            labels = given["spec"]["selector"].get("matchLabels", {})
            meta = {**claim["metadata"], "name": claimed, "namespace": space, "labels": labels}
            body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim["spec"]}
            _post(cluster, given, body, "Claim")
    taken = {each["name"] for each in kept}
    spec["volumes"] = [*kept, *(each for each in spec.get("volumes", ()) if each["name"] not in taken)]
    _post(cluster, given, pod, "Pod")


def _owner(given: Object) -> Mapping[str, Any]:
    named = {"apiVersion": given["apiVersion"], "kind": given["kind"], "name": given["metadata"]["name"]}
    return {
        "ownerReferences": [{**named, "uid": given["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True}]
    }


def _post(cluster: Cluster, given: Object, body: Object, what: str) -> None:
    """As through the API, with all that it checks."""
    of, name, owner = of_kind(body["kind"]), body["metadata"]["name"], given["metadata"]["name"]
    try:
        cluster.api.operations.create(Place(of, body["metadata"]["namespace"]), body, {}, AGENT, lambda warning: None)
    except Refusal as refused:
        why = f"create {what} {name} in StatefulSet {owner} failed error: {refused.answer.body['message']}"
        cluster.event(given, "FailedCreate", why, "Warning", AGENT)
        return
    cluster.event(given, "SuccessfulCreate", f"create {what} {name} in StatefulSet {owner} successful", source=AGENT)
