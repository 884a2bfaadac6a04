"""Runpod: pods and what they cost, logins of registries, network volumes, and the catalogue of three data centers.

`rest.json` is made by `extract` from the document that it names. What that doesn't say is from Runpod's pages and from
reports of those who use it: a request that contradicts itself and a lack of capacity are both a 400, an account
without credit for an hour is a 402, a login that a pod uses can't be deleted, a list may come in pages, and a pod whose
image can't be pulled, or whose host is broken, is about to start for ever; only its log tells. Data centers are a wish
that may not be fulfilled. Spot pods are rented by GraphQL, whose refusals are a 200; REST shows them like all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import SECOND, Micros, iso
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.schema import Api, Operation
from tests.backends.fakes.script import Answer, Call, Cut, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers
from tests.backends.runpod import graphql

KEY = "rpa_0123456789ABCDEFGHIJ"
CENTERS = ("EU-SE-1", "US-KS-2", "CA-MTL-3")
# Memory in GB, price an hour in the secure cloud and in the community's, the most in one pod, vCPUs and RAM of each.
GPUS: Mapping[str, tuple[int, float, float, int, int, int]] = {
    "NVIDIA RTX A4000": (16, 0.25, 0.17, 8, 6, 32),
    "NVIDIA H100 80GB HBM3": (80, 2.69, 1.99, 8, 20, 125),
    "AMD Instinct MI300X OAM": (192, 2.49, 0.0, 8, 24, 283),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": (10, 0.4, 0.0, 7, 4, 16),  # a share of a card
}
# The least and the most vCPUs, RAM in GB and price an hour of each, and disk in GB.
CPUS: Mapping[str, tuple[int, int, float, float, int]] = {
    "cpu3c": (2, 32, 2, 0.03, 200),
    "cpu5g": (2, 32, 4, 0.045, 15),
}
BID = 0.5  # the share of the price that a bid has to reach where nobody bids more
H100 = "NVIDIA H100 80GB HBM3"
CLUSTERED = (H100,)  # what clusters are made of, eight in each pod
PERSISTENT, STOPPED = 0.10 / 730, 0.20 / 730  # what a GB of a pod's own volume costs an hour: while it runs, or not
CREDIT = "credit"  # the counter of what all pods cost in an hour, in ten thousandths of a dollar


def stock(kind: str, center: str) -> str:
    return f"stock of {kind} in {center}"


def _api() -> Api:
    """With the answers that aren't JSON, and with pages, which the document doesn't have."""
    document = json.loads(Path(__file__).with_name("rest.json").read_text(encoding="utf-8"))
    document["operations"]["getPodLogs"]["responses"]["200"] = {"type": "string"}
    for name in ("deletePod", "deleteCluster", "deleteTemplate", "deleteRegistry", "deleteNetworkVolume"):
        document["operations"][name]["responses"]["204"] = {"type": "null"}
    document["operations"]["listPods"]["parameters"].append({"name": "cursor", "in": "query", "schema": {}})
    document["schemas"]["ListPodsResponse"]["properties"]["pagination"] = {"type": "object"}
    return Api(document)


class Runpod(Fake):
    api = _api()

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.start, self.run, self.end = 5 * SECOND, 20 * SECOND, 10 * SECOND
        self.short: set[str] = set()  # kinds whose next pods find no host that works
        self.graphql = True
        self.place = 4 * SECOND  # until a cluster's pods show
        self.bids: dict[tuple[str, str], float] = {}  # the lowest that are taken, by GPU and data center, or ""
        self.cluster_prices: dict[str, float] = {}  # of a GPU in a cluster, where it isn't the catalogue's
        self.dearer = 1.0  # by how much the next pods cost more than the catalogue says
        self.elsewhere = ""  # the data center in which the next pods are placed, whatever is requested

    def answer(self, request: Request) -> Answer:
        if request.target != "/graphql":
            return super().answer(request)
        try:
            self.authenticate(request)
            return self._by_graphql(request)
        except Refusal as refusal:
            return refusal.answer

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise _problem(401, "invalid API key")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return _problem(429, message, {"retry-after": str(int(wait) + 1)})
        return _problem(404 if why == "no-route" else 422, message)

    # --- what is sold -------------------------------------------------------------------------------------------------

    @answers("listGpuTypes")
    def _gpus(self, call: Call) -> Any:
        self._with_availability(call)
        count, side = int(call.query.get("count", 1)), call.query.get("cloud", "SECURE").lower()
        sold = CLUSTERED if call.query.get("product") == ["CLUSTER"] else tuple(GPUS)
        least = 2 * count if sold is CLUSTERED else count
        return {"gpus": [self._gpu(kind, count, side, least) for kind in GPUS if kind in sold]}

    def _gpu(self, kind: str, count: int, side: str, least: int) -> Any:
        memory, secure, community, most, *_ = GPUS[kind]
        return {
            "id": kind,
            "name": kind,
            "pool": None,
            "manufacturer": "AMD" if kind.startswith("AMD") else "NVIDIA",
            "memory": memory,
            "secure": secure > 0,
            "community": community > 0,
            "price": {"secure": secure, "community": community},
            "maxCount": {"secure": most, "community": most if community else 0},
            **self._availability(kind, least if count <= most and (side == "secure" or community) else 10_000),
        }

    @answers("listCpuTypes")
    def _cpus(self, call: Call) -> Any:
        self._with_availability(call)
        count = int(call.query.get("vcpuCount", 2))
        return {"cpus": [self._cpu(kind, count) for kind in CPUS]}

    def _cpu(self, kind: str, count: int) -> Any:
        least, most, memory, price, _ = CPUS[kind]
        fits = least <= count <= most
        return {
            "id": kind,
            "name": kind,
            "group": "Compute",
            "vcpu": {"min": least, "max": most},
            "ramGbPerVcpu": memory,
            "price": {"securePerVcpu": price, "serverlessPerVcpu": 2 * price},
            **self._availability(kind, 1 if fits else 10_000),
        }

    def _with_availability(self, call: Call) -> None:
        if call.query.get("include") != ["AVAILABILITY"] or call.query.get("product") not in (["POD"], ["CLUSTER"]):
            raise self.refused("invalid", "this fake is asked for what pods or clusters can have now")

    def _availability(self, kind: str, count: int) -> Any:
        levels = {center: "HIGH" if self._left(kind, center) >= count else "NONE" for center in CENTERS}
        whole = "HIGH" if "HIGH" in levels.values() else "NONE"
        return {
            "availability": whole,
            "dataCenters": [{"id": each, "name": each, "availability": level} for each, level in levels.items()],
        }

    def _left(self, kind: str, center: str) -> int:
        counter = stock(kind, center)
        return self.script.limits.get(counter, 1_000) - self.books.used(counter)

    @answers("listDataCenters")
    def _centers(self, call: Call) -> Any:
        rest = {"region": "EUROPE", "networkVolumeTypes": ["STANDARD"], "compliance": [], "globalNetwork": False}
        return {"dataCenters": [{"id": each, "name": each, **rest} for each in CENTERS]}

    # --- the older API ------------------------------------------------------------------------------------------------

    def _by_graphql(self, request: Request) -> Answer:
        if not self.graphql:
            raise _problem(410, "GraphQL has been retired")
        body = json.loads(request.body)
        try:
            _, fields = graphql.read(body)
        except graphql.Wrong as wrong:
            raise Refusal(400, _errors(str(wrong), "GRAPHQL_VALIDATION_FAILED")) from wrong
        operation, variables = Operation(fields[0].name, "POST", "/graphql"), body.get("variables") or {}
        call = Call(operation, {}, variables, {}, fields[0].input, self.now())
        self.calls.append(call)
        if fault := self.script.fault(call, "before"):
            return _as_sent(fault.becomes)
        made = Answer(200, {"data": {each.key: self._resolved(each) for each in fields}})
        fault = self.script.fault(call, "after")
        return _as_sent(fault.becomes) if fault else made

    def _resolved(self, field: graphql.Field) -> Any:
        if field.name == "gpuTypes":
            return [{each.key: self._of_gpu(kind, each) for each in field.fields} for kind in GPUS]
        if field.name == "cpuFlavors":
            return [{"id": kind, "diskLimitPerVcpu": disk} for kind, (*_, disk) in CPUS.items()]
        if field.name == "myself":
            pods = ({"id": each.id, "lastStatusChange": self._change(each)} for each in self.books.shown("vm"))
            return {"id": "user_1", "pods": list(pods)}
        return self._rent(field.input)

    def _of_gpu(self, kind: str, field: graphql.Field) -> Any:
        if field.name == "id":
            return kind
        if field.name == "clusterPrice":
            return self._cluster_price(kind) if kind in CLUSTERED else None
        _, secure, community, most, cpus, memory = GPUS[kind]
        count, price = field.input["gpuCount"], secure if field.input["secureCloud"] else community
        center = field.input.get("dataCenterId", "")
        if count > most or not price or (center and self._left(kind, center) < count):
            return dict.fromkeys([each.name for each in field.fields])
        least = {
            "minimumBidPrice": self.bid(kind, center, price),
            "minVcpu": count * cpus - (not field.input["secureCloud"]),
            "minMemory": count * memory,
        }
        return {each.name: least[each.name] for each in field.fields}

    def _cluster_price(self, kind: str) -> float:
        return self.cluster_prices.get(kind, GPUS[kind][1])

    def bid(self, kind: str, center: str, price: float) -> float:
        return self.bids.get((kind, center), round(price * BID, 4))

    def _change(self, pod: Resource) -> str:
        state = pod.state(self.now())
        return (
            str(pod.facts.get("change", "")) or f"{'Exited by Runpod' if state == 'EXITED' else 'Rented by User'}: now"
        )

    def _rent(self, body: Any) -> Any:
        """In the words of the REST API, and as there but for the price and the refusals."""
        center, bid = body.get("dataCenterId"), body["bidPerGpu"]
        if bid < self.bid(body["gpuTypeId"], center or "", GPUS[body["gpuTypeId"]][1 if center else 2]):
            raise Refusal(200, _errors("Your bid is lower than the minimum bid for this machine."))
        mount = {"volumeId": body.get("networkVolumeId"), "path": body.get("volumeMountPath")}
        same = {
            "name": body["name"],
            "image": body["imageName"],
            "args": body["dockerArgs"],
            "env": {each["key"]: each["value"] for each in body["env"]},
            "ports": [each for each in body["ports"].split(",") if each],
            "disk": body["containerDiskInGb"],
            "gpu": {"id": body["gpuTypeId"], "count": body["gpuCount"]},
            "cloud": body["cloudType"],
            "dataCenterIds": [center] if center else [],
            **({"mounts": {"network": [mount]}} if mount["volumeId"] else {}),
            **({"registry": body["containerRegistryAuthId"]} if "containerRegistryAuthId" in body else {}),
        }
        if body.get("volumeInGb"):
            same["mounts"] = {"persistent": {"size": body["volumeInGb"], "path": body["volumeMountPath"]}}
        try:
            return {"id": self._made(same, bid * body["gpuCount"], spot=True).id}
        except Refusal as refusal:
            raise Refusal(200, _errors(refusal.answer.body["detail"])) from refusal

    # --- pods ---------------------------------------------------------------------------------------------------------

    @answers("createPod")
    def _create(self, call: Call) -> Any:
        body = call.body
        if ("gpu" in body) == ("cpu" in body):
            raise _problem(400, "exactly one of gpu and cpu is required")
        if "image" not in body and "templateId" not in body:
            raise _problem(400, "an image or a template is required")
        login = body.get("registry")
        if login and self.books.find("registry", login) is None:
            raise _problem(404, f"registry {login} not found")
        return Answer(201, self._pod(self._made(body)))

    def _made(self, body: Any, price: float = 0.0, *, spot: bool = False) -> Resource:
        self._check_mounts(body)
        kind, listed = self._price(body)
        price = price or listed
        cost = round(price * 10_000)
        if self.books.over({CREDIT: cost}, self.script.limits):
            raise _problem(402, "your balance is too low for an hour of this pod")
        center = self._place(body, kind)
        steps = [(0, "PROVISIONING"), (self.start, "STARTING"), (self.run, "RUNNING")]
        if kind in self.short:
            steps[1:] = [(self.start + self.run // 2, "ERROR")]
        return self.books.add(
            "vm",
            *steps,
            lag=self.script.lag,
            counts={CREDIT: cost, stock(kind, center): int(body.get("gpu", {}).get("count", 1))},
            request=body,
            center=self.elsewhere or center,
            cost=price * self.dearer,
            log=[],
            name=body["name"],
            spot=spot,
        )

    def _check_mounts(self, body: Any) -> None:
        for each in body.get("mounts", {}).get("network", ()):
            volume = self.books.find("volume", each["volumeId"])
            if volume is None or body.get("dataCenterIds") != [volume.facts["dataCenter"]]:
                raise _problem(400, f"network volume {each['volumeId']} isn't in this data center")
            if body.get("cloud") == "COMMUNITY":
                raise _problem(400, "network volumes are in the secure cloud")

    def _price(self, body: Any) -> tuple[str, float]:
        community = body.get("cloud") == "COMMUNITY"
        if "gpu" in body:
            kind, count = body["gpu"]["id"], body["gpu"].get("count", 1)
            if kind not in GPUS or count > GPUS[kind][3] or (community and not GPUS[kind][2]):
                raise _problem(400, f"no {count} x {kind} in this cloud")
            return kind, GPUS[kind][2 if community else 1] * count
        kind, count = body["cpu"]["id"], body["cpu"]["vcpuCount"]
        if kind not in CPUS or count & (count - 1) or not CPUS[kind][0] <= count <= CPUS[kind][1] or community:
            raise _problem(400, f"no {kind} with {count} vCPUs")
        if body.get("disk", 1) > count * CPUS[kind][4]:
            raise _problem(400, f"disk must be at most {count * CPUS[kind][4]} GB")
        return kind, CPUS[kind][3] * count

    def _place(self, body: Any, kind: str) -> str:
        wanted = body.get("dataCenterIds") or CENTERS
        if unknown := set(wanted) - set(CENTERS):
            raise _problem(422, f"unknown data center {', '.join(sorted(unknown))}")
        count = int(body.get("gpu", {}).get("count", 1))
        for center in wanted:
            if self._left(kind, center) >= count:
                return str(center)
        raise _problem(400, "There are no longer any instances available with the requested specifications.")

    @answers("listPods")
    def _list(self, call: Call) -> Any:
        every = call.query.get("includeClusterPods")
        shown = (each for each in self.books.shown("vm") if every or "cluster" not in each.facts)
        page, more = self.page(call, shown, 1_000, "cursor")
        marker = {"hasNextPage": bool(more), "nextCursor": more or None}
        return {"pods": [self._pod(each) for each in page], "pagination": marker}

    @answers("getPod")
    def _get(self, call: Call) -> Any:
        return self._pod(self._found("vm", call.path["id"]))

    @answers("deletePod")
    def _delete(self, call: Call) -> Any:
        pod = self._found("vm", call.path["id"])
        if pod.state(self.now()) == "TERMINATED":
            raise _problem(409, "the pod is being terminated")
        if "cluster" in pod.facts:
            raise _problem(409, "the pod is in a cluster: delete that")
        pod.goes(self.now(), (0, "TERMINATED"), (self.end, GONE))
        return Answer(204)

    @answers("podAction")
    def _act(self, call: Call) -> Any:
        pod = self._found("vm", call.path["id"])
        if call.body["action"] != "stop" or pod.state(self.now()) != "RUNNING":
            raise _problem(409, f"the pod can't {call.body['action']} now")
        pod.facts["change"] = "Exited by user: now"
        pod.goes(self.now(), (0, "EXITED"))
        return self._pod(pod)

    def billed(self) -> float:
        """What all pods cost an hour now. One that has stopped costs what its own volume does, at twice the price."""
        total = 0.0
        for each in self.books.existing("vm"):
            own, state = each.facts["request"].get("mounts", {}).get("persistent", {"size": 0}), each.state(self.now())
            total += own["size"] * (STOPPED if state == "EXITED" else PERSISTENT)
            total += 0.0 if state in ("EXITED", "TERMINATED") else each.facts["cost"]
        return total

    # --- clusters -----------------------------------------------------------------------------------------------------

    @answers("createCluster")
    def _create_cluster(self, call: Call) -> Any:
        body, compute = call.body, call.body["compute"]
        kind, count, nodes = compute["gpuTypeId"], compute["gpuCountPerPod"], compute["podCount"]
        if kind not in CLUSTERED or count != 8 or nodes > 8:
            raise _problem(400, "Insufficient resources: nobody but sales has such clusters")
        cost = round(self._cluster_price(kind) * count * 10_000)
        if self.books.over({CREDIT: cost * nodes}, self.script.limits):
            raise _problem(402, "your balance is too low for an hour of this cluster")
        wanted = body.get("dataCenterIds") or CENTERS
        center = next((each for each in wanted if self._left(kind, each) >= count * nodes), None)
        if center is None:
            raise _problem(400, "Insufficient resources for this cluster")
        made = self.books.add("cluster", (0, "there"), lag=self.script.lag, request=body, name=body["name"])
        same = {name: body[name] for name in ("image", "args", "env", "disk", "ports", "mounts") if name in body}
        for rank in range(nodes):
            self.books.add(
                "vm",
                (0, "PROVISIONING"),
                (self.start, "STARTING"),
                (self.run, "RUNNING"),
                lag=self.script.lag + self.place,
                counts={CREDIT: cost, stock(kind, center): count},
                request={**same, "gpu": {"id": kind, "count": count}, "cloud": "SECURE"},
                center=self.elsewhere or center,
                cost=cost / 10_000,
                log=[],
                name=f"{body['name']}-{rank}",
                spot=False,
                cluster={"id": made.id, "rank": rank, "ip": f"10.65.{made.number % 250}.{rank + 2}"},
            )
        return Answer(201, self._cluster(made))

    def _members(self, cluster: Resource) -> list[Resource]:
        return [each for each in self.books.shown("vm") if each.facts.get("cluster", {}).get("id") == cluster.id]

    def _cluster(self, made: Resource) -> Any:
        return {
            **{name: made.facts["request"][name] for name in ("name", "type", "compute")},
            "id": made.id,
            "pods": {"total": len(self._members(made)), "byStatus": {}},
            "createdAt": iso(made.born),
        }

    @answers("listClusters")
    def _list_clusters(self, call: Call) -> Any:
        return {"clusters": [self._cluster(each) for each in self.books.shown("cluster")]}

    @answers("getCluster")
    def _get_cluster(self, call: Call) -> Any:
        return self._cluster(self._found("cluster", call.path["id"]))

    @answers("deleteCluster")
    def _delete_cluster(self, call: Call) -> Any:
        made = self._found("cluster", call.path["id"])
        for each in self.books.existing("vm"):
            if each.facts.get("cluster", {}).get("id") == made.id:
                each.goes(self.now(), (0, "TERMINATED"), (self.end, GONE))
        made.goes(self.now(), (0, GONE))
        return Answer(204)

    @answers("getPodLogs")
    def _logs(self, call: Call) -> Any:
        pod = self._found("vm", call.path["id"])
        lines = pod.facts["log"][-int(call.query.get("tail", 100)) :]
        sources = ("container" if line.startswith("dstack:") else "system" for line in lines)
        events = (
            json.dumps({"source": source, "line": line, "ts": iso(self.now())})
            for source, line in zip(sources, lines, strict=True)
        )
        return Answer(200, "".join(f"data: {each}\n\n" for each in events), {"content-type": "text/event-stream"})

    def _pod(self, pod: Resource) -> Any:
        body, state = pod.facts["request"], pod.state(self.now())
        running, started = state == "RUNNING", pod.first("RUNNING", self.now())
        size: dict[str, Any] = {"gpu": {"count": 1, **body["gpu"]}} if "gpu" in body else {}
        if "cpu" in body:
            size = {"cpu": {**body["cpu"], "memory": int(body["cpu"]["vcpuCount"] * CPUS[body["cpu"]["id"]][2])}}
        return {
            **{name: body.get(name) for name in ("image", "registry")},
            "args": body.get("args", ""),
            "disk": body.get("disk", 20),
            "env": body.get("env", {}),
            "ports": body.get("ports", []),
            "mounts": body.get("mounts", {}),
            "id": pod.id,
            "name": pod.facts["name"],
            "status": state,
            "actions": ["stop", "terminate"] if state == "RUNNING" else ["terminate"] if state != "TERMINATED" else [],
            **({"cluster": pod.facts["cluster"]} if "cluster" in pod.facts else {}),
            "cloud": body.get("cloud", "SECURE"),
            "dataCenterId": None if state == "PROVISIONING" else pod.facts["center"],
            "cudaVersion": None,
            "ssh": {"proxy": None, "direct": None},
            "template": None,
            "cost": pod.facts["cost"],
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": {"uptime": (self.now() - pod.since(self.now())) // SECOND, "ports": []} if running else None,
            "createdAt": iso(pod.born),
            "startedAt": None if started is None else iso(started),
            **size,
        }

    # --- templates ----------------------------------------------------------------------------------------------------

    @answers("createTemplate")
    def _add_template(self, call: Call) -> Any:
        if any(each.facts["name"] == call.body["name"] for each in self.books.existing("template")):
            raise _problem(400, "Template name must be unique.")
        return Answer(201, _template(self.books.add("template", (0, "there"), lag=self.script.lag, **call.body)))

    @answers("listTemplates")
    def _list_templates(self, call: Call) -> Any:
        return {"templates": [_template(each) for each in self.books.shown("template")]}

    @answers("deleteTemplate")
    def _delete_template(self, call: Call) -> Any:
        self._found("template", call.path["id"]).goes(self.now(), (0, GONE))
        return Answer(204)

    # --- logins -------------------------------------------------------------------------------------------------------

    @answers("createRegistry")
    def _add_login(self, call: Call) -> Any:
        made = self.books.add("registry", (0, "there"), **call.body)
        return Answer(201, {"id": made.id, "name": made.facts["name"]})

    @answers("listRegistries")
    def _list_logins(self, call: Call) -> Any:
        return {"registries": [{"id": each.id, "name": each.facts["name"]} for each in self.books.shown("registry")]}

    @answers("deleteRegistry")
    def _delete_login(self, call: Call) -> Any:
        login = self._found("registry", call.path["id"])
        if any(login.id == each.facts["request"].get("registry") for each in self.books.existing("vm")):
            raise _problem(400, "a pod uses this registry")
        login.goes(self.now(), (0, GONE))
        return Answer(204)

    # --- network volumes ----------------------------------------------------------------------------------------------

    @answers("createNetworkVolume")
    def _add_volume(self, call: Call) -> Any:
        if call.body["dataCenter"] not in CENTERS:
            raise _problem(400, f"no data center {call.body['dataCenter']}")
        return Answer(201, _volume(self.books.add("volume", (0, "there"), lag=self.script.lag, **call.body)))

    @answers("listNetworkVolumes")
    def _list_volumes(self, call: Call) -> Any:
        return {"networkVolumes": [_volume(each) for each in self.books.shown("volume")]}

    @answers("getNetworkVolume")
    def _get_volume(self, call: Call) -> Any:
        return _volume(self._found("volume", call.path["id"]))

    @answers("deleteNetworkVolume")
    def _delete_volume(self, call: Call) -> Any:
        volume = self._found("volume", call.path["id"])
        if any(volume.id in _mounted(each) for each in self.books.existing("vm")):
            raise _problem(409, "You must remove this network volume from all pods before deleting it.")
        volume.goes(self.now(), (0, GONE))
        return Answer(204)

    def _found(self, kind: str, identity: str) -> Resource:
        found = self.books.find(kind, identity)
        if found is None:
            raise _problem(404, f"{kind} {identity} not found")
        return found


def _template(made: Resource) -> Any:
    rest = {"mounts": {}, "category": "NVIDIA", "allowedCudaVersions": [], "registry": None}
    return {**rest, **made.facts, "id": made.id}


def _volume(made: Resource) -> Any:
    return {**{name: made.facts[name] for name in ("name", "size", "dataCenter")}, "id": made.id, "type": "STANDARD"}


def _mounted(pod: Resource) -> Iterator[str]:
    return (each["volumeId"] for each in pod.facts["request"].get("mounts", {}).get("network", ()))


def _errors(message: str, code: str = "RUNPOD") -> Any:
    return {"errors": [{"message": message, "path": ["it"], "extensions": {"code": code}}], "data": None}


def _as_sent(becomes: Any) -> Answer:
    if isinstance(becomes, Answer):
        return becomes
    raise Cut


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Refusal:
    return Refusal(status, {"title": "Refused", "status": status, "detail": detail}, headers)
