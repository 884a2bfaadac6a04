"""Regions, types, prices, networks and permissions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from chalicelib.domain.instants import SECOND
from tests.backends.fakes.books import Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers
from tests.backends.gcp import shop
from tests.backends.gcp.operations import HOST, PROJECT, ROOT, Operations, invalid, not_found, refusal
from tests.backends.gcp.tpu import shop as tpus
from tests.backends.gcp.tpu.shop import COMPUTE

IMAGE = "deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
ARM_IMAGE = "ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-arm64-with-nvidia-580"
ZONES = [zone for zones in shop.REGIONS.values() for zone in zones]
LIMITS = {
    "CPUS": 500,
    "N2_CPUS": 500,
    "A2_CPUS": 48,
    "PREEMPTIBLE_CPUS": 0,
    "NVIDIA_L4_GPUS": 8,
    "PREEMPTIBLE_NVIDIA_L4_GPUS": 8,
    "NVIDIA_T4_GPUS": 4,
    "PREEMPTIBLE_NVIDIA_T4_GPUS": 4,
    "NVIDIA_A100_GPUS": 0,
    "PREEMPTIBLE_NVIDIA_A100_GPUS": 4,
    "NVIDIA_A100_80GB_GPUS": 1,
    "IN_USE_ADDRESSES": 100,
    "SSD_TOTAL_GB": 100_000,
    "INSTANCES": 200,
}
EVERYWHERE = {"GPUS_ALL_REGIONS": 64, "CPUS_ALL_REGIONS": 1_000}


def region_of(zone: str) -> str:
    return next(region for region, zones in shop.REGIONS.items() if zone in zones)


@dataclass(frozen=True)
class Image:
    gib: int = 50
    arm: bool = False


class Places(Operations):
    networks: dict[str, set[str]]  # VPCs, and their regions with a subnetwork
    nats: set[str]  # regions
    rdma: dict[str, str]  # VPCs with a profile for RDMA, and their zones
    lacking: set[str]  # permissions that the credentials don't have

    def arrange(self) -> None:
        self.requests, self.unreachable, self.lacking, self.nats = {}, set(), set(), set()
        self.rdma = {}
        self.images = {IMAGE: Image(), ARM_IMAGE: Image(arm=True)}  # by project and path
        self.networks = {name: set(shop.REGIONS) for name in ("default", "training")}
        self.boot, self.end, self.notice = 20 * SECOND, 10 * SECOND, 30 * SECOND
        self.short: dict[str, str] = {}  # types that turn out not to be there, and the code that says so
        for kind, facts in _sold():
            self.books.add(kind, (0, "UP"), **facts)
        self.rule("default-allow-ssh", "default", sourceRanges=["0.0.0.0/0"], ports=["22"])

    def rule(self, name: str, network: str, ports: list[str], **more: Any) -> None:
        body = {"name": name, "network": f"{ROOT}/global/networks/{network}", "direction": "INGRESS", "priority": 65534}
        body |= {"allowed": [{"IPProtocol": "tcp", "ports": ports}], **more}
        self.books.add("firewall", (0, "READY"), name=name, body=body)

    def check_project(self, call: Call) -> None:
        if call.path["project"] != PROJECT:
            raise refusal(404, "notFound", f"The resource 'projects/{call.path['project']}' was not found")

    # --- what is sold ------------------------------------------------------------------------------------------------

    @answers("projects.get")
    def _project(self, call: Call) -> Any:
        self.check_project(call)
        quotas = [self._quota(metric, limit, "") for metric, limit in EVERYWHERE.items()]
        return {"name": PROJECT, "id": "1234567890", "quotas": quotas}

    def limit(self, metric: str, region: str) -> int:
        usual = LIMITS.get(metric) if region else EVERYWHERE.get(metric)
        found = self.script.limits.get(f"{metric} {region}".strip(), usual)
        return 10**9 if found is None else found

    def _quota(self, metric: str, _: int, region: str) -> Any:
        used = self.books.used(f"{metric} {region}".strip())
        return {"metric": metric, "limit": float(self.limit(metric, region)), "usage": float(used)}

    @answers("regions.list")
    def _regions(self, call: Call) -> Any:
        self.check_project(call)
        assert not call.query.get("filter") and call.query.get("maxResults", 500)
        return {"items": [self._region(name) for name in shop.REGIONS]}

    @answers("regions.get")
    def _one_region(self, call: Call) -> Any:
        if call.path["region"] not in shop.REGIONS:
            raise not_found(f"regions/{call.path['region']}")
        return self._region(call.path["region"])

    def _region(self, name: str) -> Any:
        zones = [f"{ROOT}/zones/{zone}" for zone in shop.REGIONS[name]]
        quotas = [self._quota(metric, limit, name) for metric, limit in LIMITS.items()]
        return {"name": name, "status": "UP", "zones": zones, "quotas": quotas}

    @answers("zones.list")
    def _zones(self, call: Call) -> Any:
        assert not call.query.get("filter") and call.query.get("maxResults", 500)
        return {"items": [{"name": zone, "region": f"{ROOT}/regions/{region_of(zone)}"} for zone in ZONES]}

    @answers("machineTypes.aggregatedList")
    def _types(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.existing("type"), _type, "machineTypes", scopes)

    @answers("acceleratorTypes.aggregatedList")
    def _cards(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.existing("card"), _card, "acceleratorTypes", scopes)

    @answers("services.skus.list")
    def _skus(self, call: Call) -> Any:
        assert call.query.get("currencyCode") == "USD"
        here = [each for each in self.books.existing("sku") if each.facts["service"] == call.path["parent"]]
        page, more = self.page(call, here, int(call.query.get("pageSize", 5000)), "pageToken")
        return {"skus": [each.facts["body"] for each in page], "nextPageToken": more}

    @answers("images.getFromFamily")
    def _image(self, call: Call) -> Any:
        project, family = call.path["project"], call.path["family"]
        path = f"{project}/global/images/family/{family}"
        if (image := self.images.get(path)) is None:
            raise refusal(404, "notFound", f"The resource 'projects/{path}' was not found")
        return {"name": f"{family}-v20261101", "family": family, "diskSizeGb": str(image.gib), "status": "READY"}

    # --- networks ----------------------------------------------------------------------------------------------------

    @answers("subnetworks.listUsable")
    def _subnets(self, call: Call) -> Any:
        assert call.query.get("maxResults", 500)
        host = f"{HOST}/projects/{call.path['project']}"
        items = [
            {
                "subnetwork": f"{host}/regions/{region}/subnetworks/{name}",
                "network": f"{host}/global/networks/{name}",
                "ipCidrRange": "10.0.0.0/20",
                "purpose": "PRIVATE",
            }
            for name, regions in self.networks.items()
            for region in sorted(regions)
        ]
        for name, region in self.rdma.items():
            of = {**items[0], "network": f"{host}/global/networks/{name}"}
            subnets = f"{host}/regions/{region_of(region)}/subnetworks/{name}"
            items += [{**of, "subnetwork": f"{subnets}-{number}"} for number in range(8)]
        proxies = {**items[0], "subnetwork": items[0]["subnetwork"] + "-a", "purpose": "REGIONAL_MANAGED_PROXY"}
        return {"items": [proxies, *items]} if items else {}

    @answers("networks.get")
    def _network(self, call: Call) -> Any:
        name = call.path["network"]
        if name in self.rdma:
            return {"name": name, "networkProfile": f"{ROOT}/global/networkProfiles/{self.rdma[name]}-vpc-roce"}
        if name not in self.networks:
            raise not_found(f"global/networks/{name}")
        return {"name": name, "selfLink": f"{ROOT}/global/networks/{name}"}

    @answers("routers.list")
    def _routers(self, call: Call) -> Any:
        assert not call.query.get("filter") and call.query.get("maxResults", 500)
        nats = [{"name": "nat"}] if call.path["region"] in self.nats else []
        return {"items": [{"name": "router", "network": f"{ROOT}/global/networks/training", "nats": nats}]}

    @answers("firewalls.get")
    def _firewall(self, call: Call) -> Any:
        return self._rule(call.path["firewall"]).facts["body"]

    def _rule(self, name: str) -> Resource:
        for each in self.books.existing("firewall"):
            if each.facts["name"] == name:
                return each
        raise not_found(f"global/firewalls/{name}")

    @answers("firewalls.insert")
    def _add_rule(self, call: Call) -> Any:
        body = call.body
        if any(each.facts["name"] == body["name"] for each in self.books.existing("firewall")):
            raise refusal(
                409,
                "alreadyExists",
                f"The resource 'projects/{PROJECT}/global/firewalls/{body['name']}' already exists",
            )
        if len(body["name"]) > 63:
            raise invalid("name", f"'{body['name']}'. Must be a match of regex")
        if body["network"].rpartition("/")[2] not in self.networks:
            raise not_found(body["network"])
        self.books.add("firewall", (0, "READY"), name=body["name"], body=body)
        return self.shown_operation(self.operation("insert", "global", f"firewalls/{body['name']}"))

    @answers("projects.testIamPermissions")
    def _allowed(self, call: Call) -> Any:
        assert len(call.body["permissions"]) <= 100
        return {"permissions": [each for each in call.body["permissions"] if each not in self.lacking]}


@cache
def _sold() -> list[tuple[str, dict[str, Any]]]:
    """What there is to buy, the same in every test: types, cards, and the price list, by their kinds."""
    found: list[tuple[str, dict[str, Any]]] = []
    for zone in ZONES:
        here = [kind for kind in shop.TYPES.values() if zone[-1] in kind.zones and "-ai" not in zone]
        found += [("type", {"zone": zone, "of": kind, "name": kind.name}) for kind in here]
        if zone in shop.T4_ZONES:
            found.append(("card", {"zone": zone, "name": "nvidia-tesla-t4"}))
    listed = [*((COMPUTE, sku) for sku in shop.skus()), *tpus.skus()]
    for number, (service, sku) in enumerate(listed):
        found.append(("sku", {"body": sku, "place": number, "service": f"services/{service}"}))
    return found


def _type(made: Resource) -> Any:
    kind, zone = made.facts["of"], made.facts["zone"]
    body = {
        "name": kind.name,
        "zone": zone,
        "guestCpus": kind.cpus,
        "memoryMb": round(kind.memory_gb * 1024),
        "architecture": "ARM64" if kind.arm else "X86_64",
        "isSharedCpu": kind.name == "e2-medium",
        "maximumPersistentDisks": 128,
    }
    if kind.card:
        body["accelerators"] = [{"guestAcceleratorType": kind.card, "guestAcceleratorCount": kind.cards}]
    if kind.ssds:
        body["bundledLocalSsds"] = {"partitionCount": kind.ssds, "defaultInterface": "NVME"}
    return body | {"zone": f"{ROOT}/zones/{zone}"}


def _card(made: Resource) -> Any:
    zone = made.facts["zone"]
    return {"name": made.facts["name"], "zone": f"{ROOT}/zones/{zone}", "maximumCardsPerInstance": 4}
