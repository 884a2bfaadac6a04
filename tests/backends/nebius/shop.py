"""What this Nebius sells, and what it knows of its capacity: a tenant with a project in each of two regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.backends.fakes.books import Books
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import answers

TENANT = "tenant-e00acme"
PROJECTS = {  # id: name, region
    "project-e00north": ("default-project-eu-north1", "eu-north1"),
    "project-e00other": ("research", "eu-north1"),
    "project-u00central": ("default-project-us-central1", "us-central1"),
}
HOME = {"eu-north1": "project-e00north", "us-central1": "project-u00central"}
SPOT = 0.45  # of the price on demand
DISK_MONTH, HOURS = 0.071, 730  # dollars a GiB of a network SSD
ADDRESS_HOUR = 0.0042
DEFAULT_PAGE = 10


@dataclass(frozen=True)
class Platform:
    regions: tuple[str, ...]
    presets: Mapping[str, tuple[int, int, int]]  # CPUs, GiB, GPUs
    hour: float  # dollars a GPU, or a CPU
    quota: str
    gpu_gb: int = 0
    fabrics: tuple[str, ...] = ()
    spot: bool = True


PLATFORMS: Mapping[str, Platform] = {
    "gpu-h100-sxm": Platform(
        ("eu-north1",),
        {"1gpu-16vcpu-200gb": (16, 200, 1), "8gpu-128vcpu-1600gb": (128, 1600, 8)},
        2.95,
        "compute.instance.gpu.h100",
        80,
        ("fabric-2", "fabric-3"),
    ),
    "gpu-h200-sxm": Platform(
        ("us-central1",),
        {"1gpu-16vcpu-200gb": (16, 200, 1), "8gpu-128vcpu-1600gb": (128, 1600, 8)},
        3.5,
        "compute.instance.gpu.h200",
        141,
        ("us-central1-a",),
    ),
    "gpu-rtx6000": Platform(
        ("us-central1",), {"1gpu-24vcpu-218gb": (24, 218, 1)}, 1.8, "compute.instance.gpu.rtx6000", 96
    ),
    "cpu-d3": Platform(
        ("eu-north1", "us-central1"),
        {"4vcpu-16gb": (4, 16, 0), "8vcpu-32gb": (8, 32, 0)},
        0.025,
        "compute.instance.non-gpu.vcpu",
        spot=False,
    ),
    "gpu-gb200": Platform(
        ("us-central1",), {"4gpu-144vcpu-960gb": (144, 960, 4)}, 6.0, "compute.instance.gpu.gb200", 186
    ),
}


def price(sold: Platform, preset: str, *, spot: bool) -> float:
    cpus, _, gpus = sold.presets[preset]
    return round(sold.hour * (gpus or cpus) * (SPOT if spot else 1), 6)


def stock(region: str, platform: str, preset: str, *, spot: bool) -> str:
    """The counter of machines."""
    return f"{region}/{platform} {preset}/{'preemptible' if spot else 'on_demand'}"


def quota(region: str, name: str) -> str:
    """The counter of GPUs or CPUs."""
    return f"{region}/{name}"


def metadata(identity: str, name: str, parent: str = "") -> dict[str, Any]:
    return {"id": identity, "name": name, "parent_id": parent}


class Shop:
    """The services that only read."""

    books: Books
    script: Script
    projects: dict[str, tuple[str, str]]
    platforms: dict[str, Platform]
    prices: dict[str, float]  # of platforms, where they have changed
    advised: dict[str, tuple[int, str, str]]  # by fabric: how many, how sure, and how fresh that is

    def paged(self, call: Call, items: list[Any], key: str = "items") -> dict[str, Any]:
        raise NotImplementedError

    @answers("nebius.iam.v1.TenantService.List")
    def _tenants(self, call: Call) -> Any:
        return self.paged(call, [{"metadata": metadata(TENANT, "acme"), "spec": {}}])

    @answers("nebius.iam.v1.ProjectService.List")
    def _projects(self, call: Call) -> Any:
        found = [
            {"metadata": metadata(each, name, TENANT), "spec": {}, "status": {"region": region}}
            for each, (name, region) in self.projects.items()
            if call.body.get("parent_id") == TENANT
        ]
        return self.paged(call, found)

    @answers("nebius.vpc.v1.SubnetService.List")
    def _subnets(self, call: Call) -> Any:
        parent = call.body["parent_id"]
        found = {
            "metadata": metadata(f"vpcsubnet-of-{parent}", f"default-subnet-{parent[-5:]}", parent),
            "spec": {"network_id": f"vpcnetwork-of-{parent}"},
        }
        return self.paged(call, [found])

    @answers("nebius.compute.v1.PlatformService.List")
    def _platforms(self, call: Call) -> Any:
        region = self.projects[call.body["parent_id"]][1]
        found = [
            {
                "metadata": metadata(f"computeplatform-{name}", name, call.body["parent_id"]),
                "spec": {
                    "presets": [self._preset(name, preset) for preset in sold.presets],
                    **({"gpu_count_quota_type": sold.quota} if sold.gpu_gb else {}),
                    "short_human_readable_name": name.upper(),
                    "gpu_memory_gigabytes": sold.gpu_gb,
                },
                "status": {"allowed_for_preemptibles": sold.spot},
            }
            for name, sold in self.platforms.items()
            if region in sold.regions
        ]
        return self.paged(call, found)

    def _preset(self, platform: str, preset: str) -> dict[str, Any]:
        cpus, memory, gpus = self.platforms[platform].presets[preset]
        resources = {"vcpu_count": cpus, "memory_gibibytes": memory, "gpu_count": gpus}
        clusters = bool(self.platforms[platform].fabrics) and gpus == 8
        return {"name": preset, "resources": resources, "allow_gpu_clustering": clusters}

    @answers("nebius.capacity.v1.ResourceAdviceService.List")
    def _advice(self, call: Call) -> Any:
        return self.paged(call, list(self._advised()))

    def _advised(self) -> Iterator[dict[str, Any]]:
        for name, sold in self.platforms.items():
            for region in sold.regions:
                for preset, (cpus, memory, gpus) in sold.presets.items():
                    for fabric in sold.fabrics if gpus == 8 else ("",):
                        here = self.advised.get(fabric, (40, "HIGH", "FRESH"))
                        has = {"vcpu_count": cpus, "memory_gibibytes": memory, "gpu_count": gpus}
                        kind = {"platform": name, "preset": {"name": preset, "resources": has}}
                        known = {
                            "available": here[0],
                            "availability_level": f"AVAILABILITY_LEVEL_{here[1]}",
                            "data_state": f"DATA_STATE_{here[2]}",
                        }
                        yield {
                            "metadata": metadata(f"resourceadvice-{len(name)}", "", TENANT),
                            "spec": {"region": region, "fabric": fabric, "compute_instance": kind},
                            "status": {"on_demand": known, **({"preemptible": known} if sold.spot else {})},
                        }

    def reserve(self, region: str, platform: str, gpus: int, state: str, fabric: str = "") -> str:
        """Capacity block groups are Nebius's own to make."""
        made = self.books.add(
            "reservation",
            (0, state),
            prefix="capacityblockgroup-e00",
            region=region,
            affinity={"platform": platform, **({"fabric": fabric} if fabric else {})},
            limit=gpus,
        )
        self.script.limits[f"reservation/{made.id}"] = gpus
        return made.id

    @answers("nebius.capacity.v1.CapacityBlockGroupService.List")
    def _block_groups(self, call: Call) -> Any:
        found = [
            {
                "metadata": metadata(each.id, "", TENANT),
                "status": {
                    "region": each.facts["region"],
                    "resource_affinity": {"compute_v1": each.facts["affinity"]},
                    "service": "compute",
                    "state": each.state(self.books.now()),
                    "current_limit": str(each.facts["limit"]),
                    "usage": str(self.books.used(f"reservation/{each.id}")),
                },
            }
            for each in self.books.existing("reservation")
        ]
        return self.paged(call, found)

    @answers("nebius.quotas.v1.QuotaAllowanceService.List")
    def _allowances(self, call: Call) -> Any:
        found = [
            {
                "metadata": metadata(f"quotaallowance-{n}", sold.quota, TENANT),
                "spec": {"region": region, "limit": str(self.script.limits[quota(region, sold.quota)])},
                "status": {"usage": str(self.books.used(quota(region, sold.quota)))},
            }
            for n, sold in enumerate(self.platforms.values())
            for region in sold.regions
            if quota(region, sold.quota) in self.script.limits
        ]
        return self.paged(call, found)

    @answers("nebius.billing.v1.CalculatorService.EstimateBatch")
    def _estimates(self, call: Call) -> Any:
        units = call.body.get("filter_aggregation_unit", {}).get("filter_aggregation_unit_values", ())
        wanted = {each.removeprefix("FILTER_AGGREGATION_UNIT_").lower() for each in units} or {"hour", "month"}
        costs = [
            {
                "metadata": each["spec"].get("metadata", {}),
                "aggregation_unit": {"unit": unit, "unit_type": "UNIT_TYPE_TIME_BASED"},
                "general": {"total": {"cost": f"{hour * (HOURS if unit == 'month' else 1):.9f}"}},
            }
            for each in call.body["resource_specs"]
            if (hour := self._cost(each["spec"])) is not None
            for unit in sorted(wanted & {"hour", "month"})
        ]
        return {"resource_costs": costs, "currency": call.body.get("currency", "usd")}

    def _cost(self, create: Mapping[str, Any]) -> float | None:
        spec = create["spec"]
        if create["@type"].endswith("CreateDiskRequest"):
            return float(int(spec["size_gibibytes"]) * DISK_MONTH / HOURS)
        platform, preset = spec["resources"]["platform"], spec["resources"]["preset"]
        if self.prices.get(platform) == 0:
            return None  # it isn't sold at a list price
        return price(self.platforms[platform], preset, spot="preemptible" in spec)
