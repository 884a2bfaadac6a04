"""Machines: what a launch must be like, whether there is room, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.script import Call
from tests.backends.fakes.server import answers
from tests.backends.gcp import shop
from tests.backends.gcp.operations import PROJECT, ROOT, invalid, not_found, refusal, written
from tests.backends.gcp.places import ZONES, Places, region_of

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
KEY, VALUE = re.compile(r"[a-z][-_a-z0-9]{0,62}"), re.compile(r"[-_a-z0-9]{0,63}")
EXHAUSTED = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
CPUS = {"a4": "OTHER_CPUS", "e2": "CPUS", "n1": "CPUS", "n2": "N2_CPUS", "a2": "A2_CPUS"}
CARDS = {"nvidia-l4": "L4", "nvidia-tesla-t4": "T4", "nvidia-tesla-a100": "A100", "nvidia-a100-80gb": "A100_80GB"}
GROUPABLE = ("a2", "a3", "a4", "a4x", "g2", "n2")
RDMA_TYPES = {"a3-ultragpu-8g": 8, "a4-highgpu-8g": 8, "a4x-highgpu-4g": 4}


def stock(zone: str, kind: str) -> str:
    return f"stock of {kind} in {zone}"


def check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not KEY.fullmatch(key) or not VALUE.fullmatch(value):
            raise invalid("labels", f"'{key}: {value}'. Label keys and values must match the requirements.")
    if len(labels) > 64:
        raise invalid("labels", "Number of labels exceeds the maximum of 64.")


def exhausted(code: str, zone: str, kind: str, elsewhere: str = "") -> dict[str, Any]:
    text = f"The zone '{ROOT}/zones/{zone}' does not have enough resources available to fulfill the request."
    facts = {"vmType": kind, "attachment": "", "zone": zone, "zonesAvailable": elsewhere}
    info = {"domain": "compute.googleapis.com", "reason": "resource_availability", "metadatas": facts}
    details = [{"errorInfo": info}, {"localizedMessage": {"locale": "en-US", "message": text}}]
    return {"code": code, "message": text, "errorDetails": details}


def over_quota(metric: str, limit: int, region: str) -> dict[str, Any]:
    where = f"in region {region}" if region else "globally"
    info = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric}-per-project-region",
        "limit": float(limit),
        "dimensions": {"region": region or "global"},
    }
    text = f"Quota '{metric}' exceeded.  Limit: {limit}.0 {where}."
    return {"code": "QUOTA_EXCEEDED", "message": text, "errorDetails": [{"quotaInfo": info}]}


class Instances(Places):
    @answers("instances.insert")
    def _insert(self, call: Call) -> Any:
        zone, body = call.path["zone"], call.body
        self.check_project(call)
        if zone not in ZONES:
            raise not_found(f"zones/{zone}")
        if again := self.replayed(call, body):
            return self.shown_operation(again)
        kind = self._checked(zone, body)
        target = f"instances/{body['name']}"
        if self._named("vm", zone, body["name"]) or self._named("disk", zone, body["name"]):
            path = f"projects/{PROJECT}/zones/{zone}/{target}"
            raise refusal(409, "alreadyExists", f"The resource '{path}' already exists")
        error, status = self._refusal(zone, body, kind)
        if error and kind.name not in self.short:
            failed = self.operation(
                "insert", f"zones/{zone}", target, 0, call=call, sent=body, error=[error], status=status
            )
            return self.shown_operation(failed)
        short = self.short.pop(kind.name, "")
        lasts = 20.0 if short else self.boot / SECOND
        made = [exhausted(short, zone, kind.name)] if short else []
        operation = self.operation(
            "insert", f"zones/{zone}", target, lasts, call=call, sent=body, error=made, status=503 if made else 0
        )
        machine = self._made(zone, body, kind, vanishes=bool(short))
        operation.facts["target_id"] = machine.number
        return self.shown_operation(operation)

    def _made(self, zone: str, body: Any, kind: shop.Type, *, vanishes: bool) -> Resource:
        lag, (boot, *_) = self.script.lag, body["disks"]
        wanted = boot["initializeParams"]
        if vanishes:
            steps: list[tuple[Micros, str | None]] = [
                (0, "PROVISIONING"),
                (10 * SECOND, "STOPPING"),
                (20 * SECOND, GONE),
            ]
        else:
            steps = [(0, "PROVISIONING"), (5 * SECOND, "STAGING"), (self.boot, "RUNNING")]
        counts = {} if vanishes else self._counts(zone, body, kind)
        machine = self.books.add("vm", *steps, lag=lag, counts=counts, zone=zone, name=body["name"], body=body)
        ends = [(0, "READY"), *([(20 * SECOND, GONE)] if vanishes else [])]
        self.books.add(
            "disk",
            *ends,  # type: ignore[arg-type]
            lag=lag,
            zone=zone,
            name=body["name"],
            body={"labels": wanted.get("labels", {}), "sizeGb": wanted["diskSizeGb"], "type": wanted["diskType"]},
            on={machine.number: ("READ_WRITE", boot.get("autoDelete", False), "persistent-disk-0")},
            boot=True,
        )
        return machine

    # --- what is refused at once -------------------------------------------------------------------------------------

    def _checked(self, zone: str, body: Any) -> shop.Type:
        for needed in ("name", "machineType", "disks", "networkInterfaces"):
            if not body.get(needed):
                raise refusal(400, "required", f"Required field 'resource.{needed}' not specified")
        if not NAME.fullmatch(body["name"]):
            raise invalid("name", f"'{body['name']}'. Must be a match of regex '{NAME.pattern}'")
        at, kind = self._type_of(zone, body["machineType"])
        if at != zone:
            raise invalid("machineType", f"'{body['machineType']}'. The machine type is in another zone.")
        check_labels(body.get("labels", {}))
        self._check_disks(zone, body, kind)
        self._check_scheduling(body, kind)
        self._check_network(zone, body)
        self._check_cards(zone, body, kind)
        metadata = body.get("metadata", {}).get("items", ())
        if any(len(each["value"].encode()) > 256 * 1024 for each in metadata):
            raise invalid("metadata.items", "A value is too large: maximum size 262144 bytes.")
        for tag in body.get("tags", {}).get("items", ()):
            if not NAME.fullmatch(tag):
                raise invalid("tags.items", f"'{tag}'. Must be a match of regex '{NAME.pattern}'")
        for policy in body.get("resourcePolicies", ()):
            self.check_policy(policy, zone, kind.name)
        if kind.name.startswith("a4x-") and not body.get("resourcePolicies"):
            raise invalid("resourcePolicies", f"{kind.name} must be created with a placement policy.")
        return kind

    def _type_of(self, zone: str, path: str) -> tuple[str, shop.Type]:
        found = re.fullmatch(r"(?:.*/)?zones/([^/]+)/machineTypes/([^/]+)", path)
        if found is None or found[2] not in shop.TYPES or not self._sold(zone, found[2]):
            name = found[2] if found else path
            raise invalid("machineType", f"'{path}'. Machine type with name '{name}' does not exist in zone '{zone}'.")
        return found[1], shop.TYPES[found[2]]

    def _sold(self, zone: str, name: str) -> bool:
        kinds = self.books.existing("type")
        return any((each.facts["zone"], each.facts["name"]) == (zone, name) for each in kinds)

    def _check_disks(self, zone: str, body: Any, kind: shop.Type) -> None:
        boot = body["disks"][0]
        wanted = boot.get("initializeParams", {})
        if not boot.get("boot") or not wanted:
            raise invalid("disks[0]", "The first disk must be the boot disk.")
        image = self.images.get(str(wanted.get("sourceImage", "")).removeprefix("projects/"))
        if image is None:
            raise refusal(404, "notFound", f"The resource '{wanted.get('sourceImage')}' was not found")
        if image.arm != kind.arm:
            raise invalid("disks[0].initializeParams.sourceImage", "The image's architecture isn't the machine type's.")
        if int(wanted.get("diskSizeGb", image.gib)) < image.gib:
            text = f"Disk cannot be smaller than the image's {image.gib} GB."
            raise invalid("disks[0].initializeParams.diskSizeGb", text)
        if wanted.get("diskType", "").rpartition("/")[2] not in kind.disks or zone not in wanted["diskType"]:
            raise invalid("disks[0].type", f"'{wanted.get('diskType')}' cannot be used with {kind.name}.")
        check_labels(wanted.get("labels", {}))

    def _check_scheduling(self, body: Any, kind: shop.Type) -> None:
        plan = body.get("scheduling", {})
        model = plan.get("provisioningModel", "STANDARD")
        maintained = plan.get("onHostMaintenance", "MIGRATE")
        if (kind.card or body.get("guestAccelerators")) and maintained != "TERMINATE":
            raise invalid(
                "scheduling.onHostMaintenance", "Instances with guest accelerators do not support live migration."
            )
        if model == "SPOT" and (maintained != "TERMINATE" or plan.get("automaticRestart", True)):
            raise invalid("scheduling", "Spot VMs can't restart automatically or migrate.")
        if model not in ("SPOT", "RESERVATION_BOUND") and "instanceTerminationAction" in plan:
            raise invalid("scheduling.instanceTerminationAction", "Only for Spot VMs.")
        reserved = body.get("reservationAffinity", {}).get("consumeReservationType") == "SPECIFIC_RESERVATION"
        if model not in kind.markets and not reserved:
            raise invalid("scheduling.provisioningModel", f"{kind.name} is not sold as {model}.")

    def _check_network(self, zone: str, body: Any) -> None:
        nic, *others = body["networkInterfaces"]
        self._check_cards_of_networks(zone, body, others)
        subnet = nic.get("subnetwork", "")
        found = re.fullmatch(r"projects/([^/]+)/regions/([^/]+)/subnetworks/([^/]+)", subnet)
        if found is None or found[2] not in self.networks.get(found[3], ()):
            raise refusal(404, "notFound", f"The resource '{subnet}' was not found")
        if found[2] != region_of(zone):
            raise invalid("networkInterfaces[0].subnetwork", f"'{subnet}' is not in the region of {zone}.")
        if len(nic.get("accessConfigs", ())) > 1:
            raise invalid("networkInterfaces[0].accessConfigs", "At most one access config.")

    def _check_cards_of_networks(self, zone: str, body: Any, others: list[Any]) -> None:
        kind = body["machineType"].rpartition("/")[2]
        gvnics = [each["subnetwork"] for each in others if each["nicType"] == "GVNIC"]
        rdma = [each["subnetwork"] for each in others if each["nicType"] == "MRDMA"]
        most = {"a3-megagpu-8g": 8, "a3-highgpu-8g": 4}.get(kind, 0)
        if len(others) != len(gvnics) + len(rdma) or any("accessConfigs" in each for each in others):
            raise invalid("networkInterfaces", "Only the first may have a public address.")
        if (len(gvnics), len(rdma)) != (1, RDMA_TYPES[kind]) if kind in RDMA_TYPES else (len(gvnics) > most or rdma):
            raise invalid(
                "networkInterfaces", f"{kind} can't have {len(gvnics)} GVNIC and {len(rdma)} MRDMA interfaces."
            )
        networks = [each.rpartition("/")[2] for each in (body["networkInterfaces"][0]["subnetwork"], *gvnics)]
        if len(set(networks)) != len(networks) or any(name not in self.networks for name in networks):
            raise invalid("networkInterfaces", "GVNIC interfaces must be in networks of their own.")
        for subnet in rdma:
            network = subnet.rpartition("/")[2].rpartition("-")[0]
            if self.rdma.get(network) != zone or rdma.count(subnet) != 1:
                at = self.rdma.get(network)
                raise invalid("networkInterfaces", f"Network profile only allows resource creation in location {at}.")

    def _check_cards(self, zone: str, body: Any, kind: shop.Type) -> None:
        for card in body.get("guestAccelerators", ()):
            name, count = card["acceleratorType"].rpartition("/")[2], card["acceleratorCount"]
            if zone not in shop.T4_ZONES or name != "nvidia-tesla-t4":
                raise not_found(f"zones/{zone}/acceleratorTypes/{name}")
            if not kind.name.startswith("n1-") or kind.cpus > shop.T4_CPUS.get(count, 0):
                raise invalid("guestAccelerators", f"[{kind.name}, {name} x {count}] features are not compatible.")

    def check_policy(self, policy: str, zone: str, kind: str) -> None:
        """It must exist in the region, for a type that can be grouped, and its machines are in one zone."""
        found = re.fullmatch(rf"projects/{PROJECT}/regions/([^/]+)/resourcePolicies/([^/]+)", policy)
        made = next((each for each in self.books.existing("policy") if found and each.facts["name"] == found[2]), None)
        if found is None or made is None or made.facts["region"] != found[1] or found[1] != region_of(zone):
            raise not_found(policy.partition(f"projects/{PROJECT}/")[2])
        if kind.partition("-")[0] not in GROUPABLE:
            raise invalid("resourcePolicies[0]", f"Compact placement policies don't support {kind}.")
        if (made.facts["body"].get("groupPlacementPolicy", {}).get("gpuTopology") == "1x72") != kind.startswith("a4x-"):
            raise invalid("resourcePolicies[0]", f"The policy's GPU topology doesn't fit {kind}.")
        if any(zone != each.facts["zone"] for each in self.in_policy(found[2])):
            raise invalid("resourcePolicies[0]", "All VMs of a compact placement policy must be in one zone.")

    def in_policy(self, name: str) -> list[Resource]:
        machines = self.books.existing("vm")
        return [
            each
            for each in machines
            if any(p.endswith(f"/{name}") for p in each.facts["body"].get("resourcePolicies", ()))
        ]

    def check_reservation(self, zone: str, body: Any) -> dict[str, Any] | None:
        """Why the reservation that it names has no room for it."""
        wanted = body.get("reservationAffinity", {})
        if wanted.get("consumeReservationType") != "SPECIFIC_RESERVATION":
            assert wanted.get("consumeReservationType") == "NO_RESERVATION", "it eats open reservations"
            return None
        (name,) = wanted["values"]
        here = [each for each in self.books.existing("reservation") if each.facts["zone"] == zone]
        found = next((each for each in here if each.facts["name"] == name), None)
        if found is None or found.state(self.now()) != "READY":
            raise not_found(f"zones/{zone}/reservations/{name}")
        has = found.facts["body"]["specificReservation"]["instanceProperties"]
        ssds = [each["interface"] for each in has.get("localSsds", ())]
        given = [each["interface"] for each in body["disks"] if each.get("type") == "SCRATCH"]
        if has["machineType"] != body["machineType"].rpartition("/")[2] or ssds != given:
            raise invalid("reservationAffinity", f"The instance does not match the reservation {name}.")
        if found.facts.get("bound") and body["scheduling"]["provisioningModel"] != "RESERVATION_BOUND":
            return {"code": "INVALID_USAGE", "message": f"Reservation [{name}] needs RESERVATION_BOUND instances."}
        if self.in_use(name) < int(found.facts["body"]["specificReservation"]["count"]):
            return None
        text = f"Specified reservations [{name}] do not have available resources for the request."
        return {"code": "INVALID_USAGE", "message": text}

    def in_use(self, name: str) -> int:
        machines = self.books.existing("vm")
        wanted = [each.facts["body"]["reservationAffinity"] for each in machines]
        return sum(
            name in each.get("values", ()) and each["consumeReservationType"] == "SPECIFIC_RESERVATION"
            for each in wanted
        )

    # --- room --------------------------------------------------------------------------------------------------------

    def _refusal(self, zone: str, body: Any, kind: shop.Type) -> tuple[dict[str, Any] | None, int]:
        """Why the launch fails that was accepted, and the status that its operation shows."""
        if full := self.check_reservation(zone, body):
            return full, 400
        counts, region = self._counts(zone, body, kind), region_of(zone)
        for name, more in counts.items():
            metric, _, where = name.partition(" ")
            if name.startswith("stock of"):
                if self.books.over({name: more}, self.script.limits):
                    return exhausted(EXHAUSTED, zone, kind.name), 503
            elif self.books.used(name) + more > self.limit(metric, where):
                return over_quota(metric, self.limit(metric, where), region if where else ""), 403
        return None, 0

    def _counts(self, zone: str, body: Any, kind: shop.Type) -> dict[str, int]:
        region, spot = region_of(zone), body.get("scheduling", {}).get("provisioningModel") == "SPOT"
        counts = {f"INSTANCES {region}": 1, "CPUS_ALL_REGIONS": kind.cpus, stock(zone, kind.name): 1}
        counts[f"{CPUS.get(kind.name.partition('-')[0], 'OTHER_CPUS')} {region}"] = kind.cpus
        cards = [(kind.card, kind.cards)] if kind.card else []
        attached = body.get("guestAccelerators", ())
        cards += [(each["acceleratorType"].rpartition("/")[2], each["acceleratorCount"]) for each in attached]
        for card, count in cards:
            if card in CARDS:
                counts[f"{'PREEMPTIBLE_' if spot else ''}NVIDIA_{CARDS[card]}_GPUS {region}"] = count
            counts["GPUS_ALL_REGIONS"] = count
        if body["networkInterfaces"][0].get("accessConfigs"):
            counts[f"IN_USE_ADDRESSES {region}"] = 1
        counts[f"SSD_TOTAL_GB {region}"] = int(body["disks"][0]["initializeParams"]["diskSizeGb"])
        return counts

    # --- what there is -----------------------------------------------------------------------------------------------

    def _named(self, kind: str, zone: str, name: str) -> Resource | None:
        """The truth, whether it shows or not."""
        found = (each for each in self.books.existing(kind) if each.facts["name"] == name)
        return next((each for each in found if each.facts["zone"] == zone), None)

    def visible(self, kind: str, call: Call, parameter: str, collection: str) -> Resource:
        zone, name = call.path["zone"], call.path[parameter]
        made = self._named(kind, zone, name)
        if made is None or made.visible > self.now():
            raise not_found(f"zones/{zone}/{collection}/{name}")
        return made

    @answers("instances.get")
    def _get(self, call: Call) -> Any:
        return self.shown_machine(self.visible("vm", call, "instance", "instances"))

    @answers("instances.list")
    def _list(self, call: Call) -> Any:
        here = [each for each in self.books.shown("vm") if each.facts["zone"] == call.path["zone"]]
        return self.listed(call, here, self.shown_machine)

    @answers("instances.aggregatedList")
    def _list_all(self, call: Call) -> Any:
        scopes = [f"zones/{zone}" for zone in ZONES]
        return self.by_scope(call, self.books.shown("vm"), self.shown_machine, "instances", scopes)

    def shown_machine(self, made: Resource) -> dict[str, Any]:
        body, zone = made.facts["body"], made.facts["zone"]
        status = str(made.state(self.now()))
        nic = dict(body["networkInterfaces"][0])
        nic["networkIP"] = f"10.0.{made.number // 256}.{made.number % 256}"
        if status == "RUNNING" and nic.get("accessConfigs"):
            nic["accessConfigs"] = [
                {**nic["accessConfigs"][0], "natIP": f"203.0.{made.number // 256}.{made.number % 256}"}
            ]
        on = [each for each in self.books.existing("disk") if made.number in each.facts["on"]]
        return {
            **{key: body[key] for key in ("name", "labels", "tags", "scheduling") if key in body},
            "id": str(made.number),
            "zone": f"{ROOT}/zones/{zone}",
            "machineType": f"{ROOT}/{body['machineType']}",
            "status": status,
            "creationTimestamp": written(made.born),
            "networkInterfaces": [nic],
            "disks": [self._attached(each, made) for each in on],
            **made.facts.get("shown", {}),
        }

    def _attached(self, disk: Resource, machine: Resource) -> dict[str, Any]:
        mode, auto_delete, device = disk.facts["on"][machine.number]
        source = f"{ROOT}/zones/{disk.facts['zone']}/disks/{disk.facts['name']}"
        boot = bool(disk.facts.get("boot"))
        return {"source": source, "deviceName": device, "mode": mode, "autoDelete": auto_delete, "boot": boot}

    # --- their end ---------------------------------------------------------------------------------------------------

    @answers("instances.delete")
    def _delete(self, call: Call) -> Any:
        machine = self.visible("vm", call, "instance", "instances")
        zone, name = machine.facts["zone"], machine.facts["name"]
        if machine.facts["body"].get("deletionProtection"):
            raise refusal(400, "invalidResourceUsage", "Resource cannot be deleted if it's protected against deletion.")
        if machine.state(self.now()) not in ("STOPPING", GONE):
            self.goes(machine, (0, "STOPPING"), (self.end, GONE))
        made = self.operation("delete", f"zones/{zone}", f"instances/{name}", self.end / SECOND)
        return self.shown_operation(made)

    def goes(self, machine: Resource, *steps: tuple[Micros, str | None]) -> None:
        """And its disks, those that are deleted with it, if it is gone in the end."""
        machine.goes(self.now(), *steps)
        ends = next((at for at, state in steps if state is GONE), None)
        for disk in list(self.books.existing("disk")):
            if ends is not None and machine.number in disk.facts["on"] and disk.facts["on"][machine.number][1]:
                disk.goes(self.now(), (ends, GONE))

    def preempted(self, machine: Resource) -> None:
        """Google takes a spot machine back."""
        stops = machine.facts["body"]["scheduling"].get("instanceTerminationAction", "STOP") == "STOP"
        self.goes(machine, (0, "STOPPING"), (self.notice, "TERMINATED" if stops else GONE))
        at, target = f"zones/{machine.facts['zone']}", f"instances/{machine.facts['name']}"
        self.operation("compute.instances.preempted", at, target, 0, user="system")
