"""Clusters: pods for the nodes of one task, with InfiniBand between them.

Runpod creates a cluster in one call, with one environment for all of its pods, and nothing of it can be created before.
But each node's agent has settings of its own, and nodes are requested one by one. So each is written down first, in a
template, which costs nothing and bears the name of its owner; the call that finds the last one creates the cluster with
the settings of all, of which each pod takes those of its rank. A template is there as long as its node: a pod without
one is needed by nobody.

Whoever is about to create a cluster first writes that down in a template, too, whose name no other one can have: the
*claim*. So two calls at the same time create one, whatever the lists show by then.

A node's handle has the gang and the rank in its id, because its pod doesn't exist when it is yielded. Pods of a
cluster can't be deleted, only the cluster can, with all of them. So one that isn't needed any more is stopped, and the
last that is to end takes the cluster with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import owned
from chalicelib.backends.kit.scripts import secrets_of
from chalicelib.backends.kit.visibility import CREATED, is_fresh, stamp
from chalicelib.backends.runpod import pods
from chalicelib.backends.runpod.client import Body, Client
from chalicelib.backends.runpod.facts import FACTS
from chalicelib.backends.spi import CreateRequest, GangMember, Owned
from chalicelib.domain import container_script
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.owner import OwnedKind
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Bug,
    Gone,
    InsufficientCapacity,
    NotYet,
    Transient,
    Unfit,
)

NODE, CLUSTER, CLAIM = "vm", "cluster", "claim"  # kinds of handles
CLAIMED_FOR = FACTS.create_timeout + FACTS.visibility_lag  # then its call has ended, and what it created shows
# Variables that we set in templates, and some in pods.
GANG = "DSTACK_GANG"  # token of the gang, number of nodes; in a template also: rank, time of its creation
CLAIMED = "DSTACK_CLAIM"  # in a claim: the gang's token, whose call creates the cluster, since when, data center
MOUNTS = "DSTACK_MOUNTS"  # in a template: the volume of the node
CARDS = "DSTACK_CARDS"  # in a template: data center, number and name of its GPUs
OWN = "DSTACK_OWN"  # in a pod: the names of the variables that each node has for itself
INTERFACE = {"NCCL_SOCKET_IFNAME": "ens1"}  # between the pods; the other one leads outside
STOP = {"action": "stop"}
TEMPLATE = "image", "args", "disk", "ports", "startSsh", "startJupyter"  # that of a node has these as its pod
OVER = {"EXITED", "ERROR", "TERMINATED"}  # statuses of a pod that nothing runs in
# Runpod numbers the pods of a cluster in NODE_RANK.
TAKE_OWN = (
    '[ -n "${NODE_RANK-}" ] || { echo "dstack: Runpod has set no NODE_RANK in this pod" >&2; exit 78; }; '
    f"for each in ${OWN}; do "
    'eval "export $each=\\"\\${${each}_$NODE_RANK-}\\""; done; exec "$@"'
)

Made = dict[tuple[str, int], Body]  # templates, by the gang's token and the rank


class ClusterNode(NamedTuple):
    gang: str
    rank: int
    made_at: str  # empty: it is a pod's

    @property
    def id(self) -> str:
        return f"{self.gang}/{self.rank}"


def node_of(body: Body) -> ClusterNode | None:
    """Whose template or pod it is; None: no cluster's, or it has no rank yet."""
    gang, _, rank, at = (*str((body.get("env") or {}).get(GANG, "")).split(), "", "", "", "")[:4]
    if "cluster" in body:
        found = body["cluster"].get("rank")
        rank = "" if found is None else str(found)
    return ClusterNode(gang, int(rank), at) if gang and rank.isdecimal() else None


def is_node(handle: Handle) -> bool:
    return handle.kind == NODE and "/" in handle.id


def id_of(pod: Body) -> str:
    """As in the handle of the pod, or of the node that it is for."""
    node = node_of(pod) if "cluster" in pod else None
    return node.id if node is not None else str(pod["id"])


class RunpodClusters:
    def __init__(self, client: Client, now: Now, forget_offers: Callable[[], None]) -> None:
        self._client, self._now, self._forget_offers = client, now, forget_offers
        self._creating = threading.Lock()

    def templates(self) -> Iterator[Body]:
        return self._client.listed("templates", "templates")

    def clusters(self) -> Iterator[Body]:
        return self._client.listed("clusters", "clusters")

    # --- create -------------------------------------------------------------------------------------------------------

    def create(self, request: CreateRequest, made: Made | None = None, *, is_last: bool = True) -> Iterator[Handle]:
        """`made`: by the same call so far, because a list may not show it yet; `is_last` of the gang in that call."""
        member, several, made = _member(request), made is not None, {} if made is None else made
        known = self._of_gang(member.token).get(member.rank)
        own = known or self._client.call(
            "POST", "templates", body=self._template(request, member), secrets=secrets_of(request)
        )
        made[member.token, member.rank] = own
        yield _handle(own)
        with self._creating:  # by two calls at the same time, it would be created twice
            just_made = {rank: body for (token, rank), body in made.items() if token == member.token}
            found = {**self._of_gang(member.token), **just_made}
            if len(found) == member.nodes:
                self._create_cluster(request, [found[rank] for rank in range(member.nodes)])
            elif is_last and (several or (known and is_fresh(_handle(own), self._now(), FACTS.visibility_lag))):
                raise NotYet(f"Runpod shows {len(found)} of the {member.nodes} templates of the cluster's nodes.")

    def _of_gang(self, token: str) -> dict[int, Body]:
        """Templates by rank."""
        known = ((node_of(body), body) for body in self.templates())
        return {node.rank: body for node, body in known if node is not None and node.gang == token}

    def _template(self, request: CreateRequest, member: GangMember) -> dict[str, Any]:
        container = pods.container_of(request)
        if container.login is not None:
            raise Unfit(
                "Runpod's clusters can't pull an image with a login: use a public image, or a task of one node."
            )
        same = pods.pod(request, "")
        at = stamp(datetime.fromtimestamp(self._now() // SECOND, UTC))
        gang = f"{member.token} {member.nodes} {member.rank} {at}"
        has = request.offer.instance
        cards = f"{request.offer.region} {len(has.resources.gpus)} {has.name}"
        marked = {**same["env"], GANG: gang, MOUNTS: orjson.dumps(same.get("mounts")).decode(), CARDS: cards}
        return {
            **{name: same[name] for name in ("name", *TEMPLATE)},
            "env": marked,
            "public": False,
            "serverless": False,
        }

    def _cluster(self, templates: Sequence[Body]) -> Body | None:
        """It bears the name of the node whose request created it, which looks for it as long as that request may have
        an effect."""
        names = {body["name"] for body in templates}
        return next((body for body in self.clusters() if body["name"] in names), None)

    def _create_cluster(self, request: CreateRequest, templates: Sequence[Body]) -> None:
        """Unless there is one. Raises InsufficientCapacity if its pods don't fit at once."""
        if self._cluster(templates) is not None:
            return
        offer, container = request.offer, pods.container_of(request)
        if len({each["env"].get(MOUNTS) for each in templates}) > 1:
            raise Unfit("The pods of a cluster of Runpod mount one and the same network volume, at one path.")
        if len({each["env"].get(CARDS) for each in templates}) > 1:
            raise Unfit("The pods of a cluster of Runpod have the same GPUs, in one data center.")
        body = {
            "name": request.name,
            "type": "TRAINING",
            "compute": {
                "gpuTypeId": offer.instance.name,
                "gpuCountPerPod": len(offer.instance.resources.gpus),
                "podCount": len(templates),
            },
            "dataCenterIds": [offer.region],
            "image": container.image,
            "args": pods.as_args(["/bin/sh", "-c", TAKE_OWN, "sh", *container.command]),
            "env": _env(templates),
            "ports": [],
            "disk": max(each["disk"] for each in templates),
            "startSsh": False,
            "startJupyter": False,
            **pods.mounts_of(container),
        }
        claim = self._claimed(request, templates)
        try:
            self._client.call(
                "POST", "clusters", body=body, region=offer.region, secrets=[*secrets_of(request), *_secrets(templates)]
            )
        except Transient:
            raise  # it may exist
        except BackendError as error:
            self._delete_template(claim)
            if not isinstance(error, InsufficientCapacity):
                raise
            self._forget_offers()
            raise InsufficientCapacity(
                f"Runpod has no cluster of {len(templates)} pods with {offer.instance.name} left: {error.message}"
            ) from None

    def _claimed(self, request: CreateRequest, templates: Sequence[Body]) -> str:
        """The id of the claim. Raises NotYet if another call has it, or has had it so shortly before that the cluster
        may exist and not show yet."""
        first, now = templates[0], self._now()
        name, at = _claim_name(first["name"]), stamp(datetime.fromtimestamp(now // SECOND, UTC))
        same = {**{each: first[each] for each in TEMPLATE if each in first}, "public": False, "serverless": False}
        env = {CLAIMED: f"{_member(request).token} {request.name} {at} {request.offer.region}"}
        try:
            return str(self._client.call("POST", "templates", body={**same, "name": name, "env": env})["id"])
        except AlreadyThere:
            held = next((each for each in self.templates() if each["name"] == name), None)
        if held is None:
            raise NotYet("Another call creates the cluster.")
        _, holder, since, _ = held["env"][CLAIMED].split()
        patience = FACTS.visibility_lag if holder == request.name else CLAIMED_FOR
        if not is_fresh(Handle(kind=CLAIM, id=str(held["id"]), data={CREATED: since}), now, patience):
            self._delete_template(str(held["id"]))
        raise NotYet(f"The call for {holder} creates the cluster.")

    # --- end ----------------------------------------------------------------------------------------------------------

    def terminate_node(self, handle: Handle, all_pods: Sequence[Body]) -> None:
        """Its template first: without it no other node waits for this one, even if its pod can't be stopped. A pod that
        has been stopped is left to the cluster's end."""
        own = next((body for body in all_pods if "cluster" in body and id_of(body) == handle.id), None)
        listed = list(self.templates())
        templates = {node.id: body for body in listed if (node := node_of(body)) is not None}
        template = templates.pop(handle.id, None)
        if template is not None:
            gang = handle.id.partition("/")[0]
            for claim in [body for body in listed if _claimed_by(body) == gang]:  # by now the cluster shows
                self._delete_template(str(claim["id"]))
            self._delete_template(str(template["id"]))
        if own is not None and own["status"] != "TERMINATED":
            cluster = str(own["cluster"]["id"])
            if not any(_is_needed(body, cluster, templates.keys()) for body in all_pods):
                self._delete_cluster(cluster)
                return
            if own["status"] == "RUNNING":
                self._client.call("POST", "pods", str(own["id"]), "action", body=STOP, meanings={409: NotYet})
        if template is not None or (own is not None and own["status"] != "EXITED"):
            return
        if is_fresh(handle, self._now(), FACTS.visibility_lag):
            raise Transient(f"Runpod doesn't show {handle.id} yet.")
        raise Gone(f"There is no node {handle.id}.")

    def terminate_cluster(self, handle: Handle, all_pods: Sequence[Body]) -> None:
        """Once no node needs it, because others than its owner may."""
        nodes = {node.id for body in self.templates() if (node := node_of(body)) is not None}
        if any(_is_needed(body, handle.id, nodes) for body in all_pods):
            self._client.call("GET", "clusters", handle.id)  # it may be gone
            raise NotYet(f"Other nodes still run in the cluster {handle.id}, which ends with the last of them.")
        self._client.call("DELETE", "clusters", handle.id)

    def terminate_claim(self, handle: Handle) -> None:
        self._client.call("DELETE", "templates", handle.id)

    def _delete_template(self, template: str) -> None:
        with suppress(Gone):  # a list may still show it
            self._client.call("DELETE", "templates", template)

    def _delete_cluster(self, cluster: str) -> None:
        with suppress(Gone):  # its pods follow
            self._client.call("DELETE", "clusters", cluster)

    # --- what is ours -------------------------------------------------------------------------------------------------

    def owned(self, templates: Sequence[Body], clusters: Sequence[Body], region: str) -> Iterator[Owned]:
        for body in templates:
            node = node_of(body)
            if node is not None and region in ("", pods.bought(body).region):
                yield from owned(_handle(body), {}, body["name"])
            elif _claimed_by(body) and region in ("", body["env"][CLAIMED].split()[3]):
                yield from owned(Handle(kind=CLAIM, id=str(body["id"])), {}, _claim_name(body["name"], back=True))
        for body in clusters:
            if not body.get("dataCenterId") or region in ("", body["dataCenterId"]):
                yield from owned(Handle(kind=CLUSTER, id=str(body["id"])), {}, body["name"])


def _handle(template: Body) -> Handle:
    node = node_of(template)
    if node is None:
        raise Transient(f"Runpod's template {template['id']} isn't what was written.")
    return Handle(kind=NODE, id=node.id, data={CREATED: node.made_at})


def _claim_name(node: str, *, back: bool = False) -> str:
    """The name of the claim, from that of the first node's template, which says whose it is; `back`: the other way."""
    return f"{OwnedKind.instance[0] if back else CLAIM[0]}{node[1:]}"


def _claimed_by(template: Body) -> str:
    """The token of the gang whose claim it is; empty: it is none."""
    return str((template.get("env") or {}).get(CLAIMED, "")).partition(" ")[0]


def _member(request: CreateRequest) -> GangMember:
    found = pods.container_of(request).gang
    if found is None:
        raise Bug(f"{request.name} is no node of a task")
    return found


def _is_needed(body: Body, cluster: str, nodes: Set[str]) -> bool:
    """Does one of these nodes run in this pod of the cluster, or is about to?"""
    in_cluster = str((body.get("cluster") or {}).get("id")) == cluster
    return in_cluster and body["status"] not in OVER and id_of(body) in nodes


def _env(templates: Sequence[Body]) -> Mapping[str, str]:
    """For all nodes: what is the same for all, and what isn't, with the rank behind its name."""
    envs = [
        {name: str(value) for name, value in body["env"].items() if name not in (GANG, MOUNTS, CARDS)}
        for body in templates
    ]
    first, own = envs[0], sorted(name for name in envs[0] if len({env.get(name) for env in envs}) > 1)
    numbered = {f"{name}_{rank}": env[name] for rank, env in enumerate(envs) for name in own}
    gang, nodes = templates[0]["env"][GANG].split()[:2]
    hidden = [*first[container_script.HIDDEN].split(), GANG, OWN, *numbered]
    return {
        **INTERFACE,
        **{name: value for name, value in first.items() if name not in own},
        **numbered,
        OWN: " ".join(own),
        GANG: f"{gang} {nodes}",
        container_script.HIDDEN: " ".join(hidden),
    }


def _secrets(templates: Sequence[Body]) -> list[str]:
    return [container_script.read_settings(body["env"])[2] for body in templates]
