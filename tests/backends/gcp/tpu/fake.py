"""Cloud TPU: requests that wait in a queue, and the nodes that they become.

Its data are `tpu.json`, made by `extract` from Google's discovery document. What that doesn't say is from the public
reports that the tests of traps name: what counts against quotas, what a slice that is taken back looks like, and codes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Answer, Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers
from tests.backends.gcp.tpu import shop

PROJECT, TOKEN = "my-project", "ya29.never-shown-0123456789"
STATUSES = {
    "INVALID_ARGUMENT": (400, 3),
    "NOT_FOUND": (404, 5),
    "ALREADY_EXISTS": (409, 6),
    "PERMISSION_DENIED": (403, 7),
    "RESOURCE_EXHAUSTED": (429, 8),
    "FAILED_PRECONDITION": (400, 9),
    "UNAVAILABLE": (503, 14),
    "UNAUTHENTICATED": (401, 16),
}
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z][-_a-z0-9]{0,62}"), re.compile(r"[-_a-z0-9]{0,63}")
GIVEN_UP = "waits"  # of a type: nobody has one, and the request waits until its time is over
NO_ROOM = 'There is no more capacity in the zone "{}"; you can try in another zone'
DELETABLE = ("ACCEPTED", "FAILED", "SUSPENDED")  # without force


def error(status: str, message: str, *details: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"code": STATUSES[status][1], "message": message}
    return {**found, "details": list(details)} if details else found


def refusal(status: str, message: str, *details: Mapping[str, Any]) -> Refusal:
    code = STATUSES[status][0]
    return Refusal(code, {"error": {**error(status, message, *details), "code": code, "status": status}})


def of_quota(counter: str, limit: int) -> tuple[str, Mapping[str, Any]]:
    metric, _, place = counter.partition(" ")
    detail = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"subject": metric}]}
    return f"Quota '{metric}' exhausted. Limit {limit} in region {place}", detail


def stock(zone: str, kind: str) -> str:
    return f"stock {zone} {kind}"


def quota(region: str, kind: str, *, spot: bool) -> str:
    family = kind.partition("-")[0].upper()
    return f"TPU{family}s{'Preemptible' if spot else ''}PerProjectPerRegionForTPUAPI {region}"


def _configs(topology: str | None) -> dict[str, Any]:
    return {"acceleratorConfigs": [{"topology": topology}]} if topology else {}


def _endpoint(number: int, host: int, *, public: bool) -> dict[str, Any]:
    access = {"accessConfig": {"externalIp": f"203.0.{113 + host}.{number % 250}"}} if public else {}
    return {"ipAddress": f"10.128.{host}.{number % 250}", "port": 8470, **access}


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def written(at: Micros) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).isoformat().replace("+00:00", "Z")


class Tpus(Fake):
    api = Api.of(Path(__file__).parent / "tpu.json")

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.short: dict[str, Any] = {}  # types that turn out not to be there: the error that says so, or GIVEN_UP
        self.refuses: dict[str, Any] = {}  # types whose operation ends with this error, and nothing was made
        self.unreachable: list[str] = []
        self.more: dict[str, Sequence[str]] = {}  # types of a zone that it lists as well
        self.topologies = dict(shop.TOPOLOGIES)
        self.hosts: dict[str, int] = {}  # of types of which it makes another number of hosts
        self.end = 10 * SECOND  # how long a deletion takes
        self.requests: dict[str, tuple[str, Resource]] = {}

    def _check(self, call: Call, made: Answer) -> None:
        call.query.get("alt")  # every answer is JSON
        super()._check(call, made)

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise refusal("UNAUTHENTICATED", "Request had invalid authentication credentials.")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "RATE_LIMIT_EXCEEDED"}
            return refusal("RESOURCE_EXHAUSTED", f"Quota exceeded for quota metric 'Read requests': {message}", detail)
        return refusal("NOT_FOUND" if why == "no-route" else "INVALID_ARGUMENT", message)

    # --- places ------------------------------------------------------------------------------------------------------

    def _zone(self, call: Call) -> str:
        zone = call.path["location"]
        if call.path["project"] != PROJECT or zone not in shop.ZONES:
            text = f"Location {zone} is not found or access is unauthorized."
            raise refusal("PERMISSION_DENIED" if zone in shop.CLOSED else "NOT_FOUND", text)
        return zone

    @answers("locations.list")
    def _locations(self, call: Call) -> Any:
        call.query.get("pageSize"), call.query.get("pageToken")
        names = sorted([*shop.ZONES, *shop.CLOSED])
        return {"locations": [{"name": f"projects/{PROJECT}/locations/{each}", "locationId": each} for each in names]}

    @answers("acceleratorTypes.list")
    def _types(self, call: Call) -> Any:
        zone = self._zone(call)
        call.query.get("pageSize"), call.query.get("pageToken")
        base = f"projects/{PROJECT}/locations/{zone}/acceleratorTypes"
        return {
            "acceleratorTypes": [
                {"name": f"{base}/{each}", "type": each, **_configs(self.topologies.get(each))}
                for each in (*shop.ZONES[zone], *self.more.get(zone, ()))
            ]
        }

    # --- queued resources --------------------------------------------------------------------------------------------

    @answers("queuedResources.create")
    def _create(self, call: Call) -> Any:
        zone, name, sent = self._zone(call), str(call.query.get("queuedResourceId", "")), json.dumps(call.body)
        identity = str(call.query.get("requestId", ""))
        if known := self.requests.get(identity):
            if known[0] != sent:
                raise refusal("INVALID_ARGUMENT", "the request id was used for another request")
            return self._shown_operation(known[1])
        node, spot = self._valid(zone, name, call.body), "spot" in call.body
        if any(each.facts["zone"] == zone and each.facts["name"] == name for each in self._alive()):
            raise refusal("ALREADY_EXISTS", f"Resource 'projects/{PROJECT}/locations/{zone}/.../{name}' already exists")
        kind = node["acceleratorType"]
        counts = {stock(zone, kind): 1, quota(region_of(zone), kind, spot=spot): shop.chips(kind)}
        over = self.books.over(counts, self.script.limits)
        if over and over.startswith("stock"):
            raise refusal("RESOURCE_EXHAUSTED", NO_ROOM.format(zone))
        if over:
            text, detail = of_quota(over, self.script.limits[over])
            raise refusal("RESOURCE_EXHAUSTED", text, detail)
        wrong = self.refuses.get(kind)
        if wrong is None:
            self._queue(zone, name, call.body, counts)
        operation = self._operation(zone, name, "create", wrong)
        if identity:
            self.requests[identity] = sent, operation
        return self._shown_operation(operation)

    def _valid(self, zone: str, name: str, body: Any) -> Any:
        (spec,) = body["tpu"]["nodeSpec"]
        node, network = spec["node"], spec["node"].get("networkConfig", {})
        family = node.get("acceleratorType", "").partition("-")[0]
        waits = body.get("queueingPolicy", {}).get("validUntilDuration", "1s")
        labels, region = node.get("labels", {}), network.get("subnetwork", "").split("/")[3:4]
        wrong = [
            text
            for text, holds in {
                f"queuedResourceId {name!r} is no name": NAME.fullmatch(name),
                "the node has no name": NAME.fullmatch(spec.get("nodeId", "")),
                "the parent isn't this location": spec.get("parent") == f"projects/{PROJECT}/locations/{zone}",
                "no such accelerator type here": node.get("acceleratorType") in shop.ZONES[zone],
                "no such runtime version": node.get("runtimeVersion") == shop.RUNTIMES.get(family),
                "the subnetwork is of another region": region == [region_of(zone)],
                "networks are paths": network.get("network", "").startswith("projects/"),
                "a spot request can't be guaranteed": not {"spot", "guaranteed"} <= body.keys(),
                "a duration is in seconds": re.fullmatch(r"\d+s", waits),
                "labels have another form": all(
                    LABEL[0].fullmatch(key) and LABEL[1].fullmatch(value) for key, value in labels.items()
                ),
                "there are too many labels": len(labels) <= 64,
                "metadata are too long": len(json.dumps(node.get("metadata", {}))) < 512 * 1024,
            }.items()
            if not holds
        ]
        if wrong:
            raise refusal("INVALID_ARGUMENT", "; ".join(wrong))
        return node

    def _queue(self, zone: str, name: str, body: Any, counts: Mapping[str, int]) -> None:
        node, lag = body["tpu"]["nodeSpec"][0]["node"], self.script.lag
        short = self.short.pop(node["acceleratorType"], None)
        waits = int(body.get("queueingPolicy", {}).get("validUntilDuration", "1000000s")[:-1]) * SECOND
        s = SECOND
        steps: list[tuple[Micros, str | None]] = [(0, "CREATING"), (s, "ACCEPTED")]
        if short == GIVEN_UP:
            steps += [(5 * s, "WAITING_FOR_RESOURCES"), (waits, "FAILED")]
        elif short is not None:
            steps += [(5 * s, "PROVISIONING"), (20 * s, "FAILED")]
        else:
            steps += [(2 * s, "WAITING_FOR_RESOURCES"), (5 * s, "PROVISIONING"), (30 * s, "ACTIVE")]
        facts = {"zone": zone, "name": name, "body": body, "error": None if short == GIVEN_UP else short, "by": ""}
        self.books.add("vm", *steps, lag=lag, counts=counts, **facts)
        if short is None:
            of_node = (5 * s, "CREATING"), (30 * s, "READY")
            self.books.add("node", *of_node, lag=lag, zone=zone, name=name, body=node)

    def _shown_queued(self, made: Resource) -> dict[str, Any]:
        state, body = str(made.state(self.now())), made.facts["body"]
        shown: dict[str, Any] = {"state": state}
        if state == "FAILED":
            shown["failedData"] = {"error": made.facts["error"]} if made.facts["error"] else {}
        if made.facts["by"] and state.startswith("SUSPEND"):
            shown["stateInitiator"] = made.facts["by"]
        return {**body, "name": self._path(made, "queuedResources"), "createTime": written(made.born), "state": shown}

    @answers("queuedResources.get")
    def _get_queued(self, call: Call) -> Any:
        return self._shown_queued(self._found(call, "vm", "queuedResource"))

    @answers("queuedResources.list")
    def _list_queued(self, call: Call) -> Any:
        return self._listed(call, "queuedResources", self.books.shown("vm"), self._shown_queued)

    @answers("queuedResources.delete")
    def _delete_queued(self, call: Call) -> Any:
        made = self._found(call, "vm", "queuedResource")
        state, force = str(made.state(self.now())), call.query.get("force", False)
        if state in ("CREATING", "DELETING") or not (force or state in DELETABLE):
            raise refusal("FAILED_PRECONDITION", f"{made.facts['name']} can't be deleted while it is {state}")
        for each in (made, *self._nodes_of(made)):
            each.goes(self.now(), (0, "DELETING"), (self.end, GONE))
        return self._shown_operation(self._operation(made.facts["zone"], made.facts["name"], "delete"))

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _shown_node(self, made: Resource) -> dict[str, Any]:
        state, body = str(made.state(self.now())), made.facts["body"]
        shown = {**body, "name": self._path(made, "nodes"), "state": state, "id": str(made.number)}
        if state != "CREATING":
            public = body["networkConfig"].get("enableExternalIps")
            kind = body["acceleratorType"]
            shown["networkEndpoints"] = [
                _endpoint(made.number, host, public=public) for host in range(self.hosts.get(kind, shop.hosts(kind)))
            ]
        return shown

    @answers("nodes.get")
    def _get_node(self, call: Call) -> Any:
        return self._shown_node(self._found(call, "node", "node"))

    @answers("nodes.list")
    def _list_nodes(self, call: Call) -> Any:
        return self._listed(call, "nodes", self.books.shown("node"), self._shown_node)

    @answers("nodes.delete")
    def _delete_node(self, call: Call) -> Any:
        made = self._found(call, "node", "node")
        made.goes(self.now(), (0, "DELETING"), (self.end, GONE))
        return self._shown_operation(self._operation(made.facts["zone"], made.facts["name"], "delete", of="nodes"))

    # --- operations --------------------------------------------------------------------------------------------------

    def _operation(self, zone: str, name: str, verb: str, wrong: Any = None, of: str = "queuedResources") -> Resource:
        target = f"projects/{PROJECT}/locations/{zone}/{of}/{name}"
        steps = (0, "RUNNING"), (2 * SECOND, "DONE")
        return self.books.add("operation", *steps, zone=zone, target=target, verb=verb, error=wrong)

    def _shown_operation(self, made: Resource) -> dict[str, Any]:
        ended = made.first("DONE", self.now())
        about = {"target": made.facts["target"], "verb": made.facts["verb"], "createTime": written(made.born)}
        shown = {"name": f"projects/{PROJECT}/locations/{made.facts['zone']}/operations/{made.id}", "metadata": about}
        if ended is None:
            return shown
        about["endTime"] = written(ended)
        wrong = made.facts["error"]
        return {**shown, "done": True, **({"error": wrong} if wrong else {"response": {}})}

    @answers("operations.list")
    def _operations(self, call: Call) -> Any:
        return self._listed(call, "operations", self.books.existing("operation"), self._shown_operation)

    # --- what tests arrange ------------------------------------------------------------------------------------------

    def preempted(self, made: Resource) -> None:
        made.facts["by"] = "SERVICE"
        made.goes(self.now(), (0, "SUSPENDING"), (60 * SECOND, "SUSPENDED"))
        for node in self._nodes_of(made):
            node.goes(self.now(), (0, "PREEMPTED"))

    def vanishes(self, made: Resource) -> None:
        for each in (made, *self._nodes_of(made)):
            each.goes(self.now(), (0, GONE))

    def node_of(self, made: Resource) -> Resource:
        return self._nodes_of(made)[0]

    # --- parts -------------------------------------------------------------------------------------------------------

    def _alive(self) -> list[Resource]:
        return [*self.books.existing("vm"), *self.books.existing("node")]

    def _nodes_of(self, made: Resource) -> list[Resource]:
        name = made.facts["zone"], made.facts["name"]
        return [each for each in self.books.made("node") if (each.facts["zone"], each.facts["name"]) == name]

    def _path(self, made: Resource, collection: str) -> str:
        return f"projects/{PROJECT}/locations/{made.facts['zone']}/{collection}/{made.facts['name']}"

    def _found(self, call: Call, kind: str, key: str) -> Resource:
        zone, name = self._zone(call), call.path[key]
        for each in self.books.shown(kind):
            if (each.facts["zone"], each.facts["name"]) == (zone, name):
                return each
        raise refusal("NOT_FOUND", f"Resource 'projects/{PROJECT}/locations/{zone}/{kind}/{name}' was not found")

    def _listed(self, call: Call, key: str, found: Iterable[Resource], show: Callable[[Resource], Any]) -> Any:
        zone = self._zone(call)
        rows = [each for each in found if each.facts["zone"] == zone]
        page, more = self.page(call, rows, int(call.query.get("pageSize", 100)), "pageToken")
        lost = {"unreachable": [f"projects/{PROJECT}/locations/{zone}"]} if zone in self.unreachable else {}
        return {key: [show(each) for each in page], **({"nextPageToken": more} if more else {}), **lost}
