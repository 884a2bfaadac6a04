"""Machines, disks and GPU clusters of this Nebius, with the operations that everything that changes them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.books import GONE, Books, Resource
from tests.backends.fakes.script import Call, Script
from tests.backends.fakes.server import Refusal, answers
from tests.backends.nebius.shop import (
    ADDRESS_HOUR,
    DISK_MONTH,
    HOURS,
    Platform,
    price,
    quota,
    stock,
)

RUNS = ("CREATING", "STARTING", "RUNNING", "STOPPING")  # is billed as a machine
PREFIXES = {"vm": "computeinstance", "disk": "computedisk", "cluster": "computegpucluster"}


def refusal(code: str, message: str, kind: str = "", **detail: Any) -> Refusal:
    """`kind`: of the service error that comes with it."""
    return Refusal(400, {"code": code, "message": message, "details": [service_error(kind, **detail)] if kind else []})


def service_error(kind: str, **detail: Any) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/nebius.common.v1.ServiceError",
        "service": "compute",
        "code": kind,
        "retry_type": "NOTHING",
        kind: detail,
    }


def stamped(at: Micros) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Compute:
    books: Books
    script: Script
    projects: dict[str, tuple[str, str]]
    platforms: dict[str, Platform]
    now: Callable[[], Micros]
    boot: Micros
    end: Micros
    attach: Micros = 5 * SECOND  # how long it takes; and to create or delete a disk
    short: set[str]  # platforms and presets of which there turn out to be none left
    stuck: set[str]  # likewise, whose machines never get ready
    parallel: int  # creations under way at once, at most; 0: any number
    keys: dict[str, str]  # idempotency keys, and their operations

    def paged(self, call: Call, items: list[Any], key: str = "items") -> dict[str, Any]:
        raise NotImplementedError

    # --- operations --------------------------------------------------------------------------------------------------

    def _operation(self, call: Call, resource: str, takes: Micros, failure: Mapping[str, Any] | None = None) -> Any:
        """`failure`: what comes of it, after that time."""
        made = self.books.add(
            "operation",
            (0, "running"),
            (takes, "done"),
            prefix="computeoperation-",
            resource=resource,
            status=dict(failure or {"code": 0}),
            about=call.operation.name,
        )
        if key := call.headers.get("x-idempotency-key"):
            self.keys[key] = made.id
        return self._shown_operation(made)

    def _shown_operation(self, made: Resource) -> dict[str, Any]:
        found = {
            "id": made.id,
            "description": made.facts["about"],
            "created_at": stamped(made.born),
            "resource_id": made.facts["resource"],
        }
        if made.state(self.now()) == "done":
            ended = made.first("done", self.now())
            assert ended is not None
            found |= {"status": made.facts["status"], "finished_at": stamped(ended)}
        return found

    def _repeated(self, call: Call) -> dict[str, Any] | None:
        """The operation that this key has begun already."""
        known = self.keys.get(call.headers.get("x-idempotency-key", ""))
        made = next((each for each in self.books.existing("operation") if each.id == known), None)
        return self._shown_operation(made) if made else None

    def _free(self, resource: Resource) -> None:
        """No other operation is under way."""
        now = self.now()
        for each in self.books.existing("operation"):
            if each.facts["resource"] == resource.id and each.state(now) == "running":
                detail = {"conflicting_operation_id": each.id, "resource_id": resource.id}
                raise refusal("ABORTED", "another operation is in progress", "operation_conflict", **detail)

    @answers("nebius.common.v1.OperationService.Get")
    def _get_operation(self, call: Call) -> Any:
        made = self.books.find("operation", call.body["id"])
        if made is None:
            raise refusal("NOT_FOUND", f"no operation {call.body['id']}", "resource_not_found")
        return self._shown_operation(made)

    @answers("nebius.common.v1.OperationService.List")
    def _list_operations(self, call: Call) -> Any:
        wanted = call.body["resource_id"]
        found = [each for each in self.books.existing("operation") if each.facts["resource"] == wanted]
        return self.paged(call, [self._shown_operation(each) for each in found], "operations")

    # --- what there is -----------------------------------------------------------------------------------------------

    def _one(self, kind: str, identity: str) -> Resource:
        found = self.books.find(kind, identity)
        if found is None:
            message = f"{PREFIXES[kind]} {identity} isn't there"
            raise refusal("NOT_FOUND", message, "resource_not_found", resource_id=identity)
        return found

    def _named(self, kind: str, parent: str, name: str) -> Resource | None:
        listed = self.books.existing(kind)
        return next((each for each in listed if (each.facts["parent"], each.facts["name"]) == (parent, name)), None)

    def _new_name(self, kind: str, given: Mapping[str, Any]) -> None:
        if given.get("parent_id") not in self.projects:
            raise refusal("PERMISSION_DENIED", "no access to the project", "permission_denied")
        if found := self._named(kind, given["parent_id"], given.get("name", "")):
            message = f"the name {given['name']} is taken"
            raise refusal("ALREADY_EXISTS", message, "resource_already_exists", resource_id=found.id)

    def _shown(self, each: Resource) -> dict[str, Any]:
        return {"vm": self._shown_vm, "disk": self._shown_disk, "cluster": self._shown_cluster}[each.kind](each)

    def _metadata(self, each: Resource) -> dict[str, Any]:
        facts = each.facts
        return {
            "id": each.id,
            "parent_id": facts["parent"],
            "name": facts["name"],
            "labels": facts["labels"],
            "created_at": stamped(each.born),
            "resource_version": str(facts.get("version", 1)),
        }

    @answers(*(f"nebius.compute.v1.{each}Service.Get" for each in ("Instance", "Disk", "GpuCluster")))
    def _get(self, call: Call) -> Any:
        return self._shown(self._one(_kind(call), call.body["id"]))

    @answers(*(f"nebius.compute.v1.{each}Service.GetByName" for each in ("Instance", "Disk", "GpuCluster")))
    def _get_by_name(self, call: Call) -> Any:
        found = self._named(_kind(call), call.body["parent_id"], call.body["name"])
        if found is None or found.visible > self.now():
            raise refusal("NOT_FOUND", f"nothing has the name {call.body['name']}", "resource_not_found")
        return self._shown(found)

    @answers(*(f"nebius.compute.v1.{each}Service.List" for each in ("Instance", "Disk", "GpuCluster")))
    def _list(self, call: Call) -> Any:
        found = [each for each in self.books.shown(_kind(call)) if each.facts["parent"] == call.body.get("parent_id")]
        return self.paged(call, [self._shown(each) for each in found])

    @answers("nebius.compute.v1.InstanceService.BatchGet")
    def _batch(self, call: Call) -> Any:
        items = {}
        for identity in call.body["instance_ids"]:
            found = self.books.find("vm", identity)
            missing = {"code": 5, "message": f"computeinstance {identity} isn't there"}
            items[identity] = {"instance": self._shown(found)} if found else {"error": missing}
        return {"items": items}

    # --- machines ----------------------------------------------------------------------------------------------------

    @answers("nebius.compute.v1.InstanceService.Create")
    def _create_vm(self, call: Call) -> Any:
        if repeated := self._repeated(call):
            return repeated
        given, spec = call.body["metadata"], call.body["spec"]
        self._new_name("vm", given)
        region = self.projects[given["parent_id"]][1]
        counts = self._wanted(region, spec)
        self._check_references(given["parent_id"], region, spec)
        if full := self.books.over(counts, self.script.limits):
            raise self._full(full, counts[full])
        now = self.now()
        begun = [each for each in self.books.existing("vm") if each.state(now) in ("CREATING", "STARTING")]
        if self.parallel and len(begun) >= self.parallel:
            raise refusal("RESOURCE_EXHAUSTED", "Resource exhausted", "not_enough_resources")
        kind = _kind_of(spec)
        made = self.books.add(
            "vm",
            (0, "CREATING"),
            lag=self.script.lag,
            counts=counts,
            prefix="computeinstance-e00",
            parent=given["parent_id"],
            region=region,
            name=given.get("name", ""),
            labels=given.get("labels", {}),
            spec=spec,
        )
        self._managed_disk(made, spec["boot_disk"])
        if kind in self.short:
            made.goes(self.now(), (self.boot, "STOPPED"))
            error = service_error("not_enough_resources", violations=[{"resource_type": kind, "requested": "1"}])
            status = {"code": 8, "message": "Resource exhausted", "details": [error]}
            return self._operation(call, made.id, self.boot, status)
        if kind in self.stuck:
            return self._operation(call, made.id, 10**15)
        made.goes(self.now(), (self.boot // 3, "STARTING"), (self.boot, "RUNNING"))
        return self._operation(call, made.id, self.boot)

    def _wanted(self, region: str, spec: Mapping[str, Any]) -> dict[str, int]:
        """The counters that a machine takes. Raises what is wrong with it."""
        platform, preset = spec["resources"]["platform"], spec["resources"].get("preset", "")
        sold = self.platforms.get(platform)
        if sold is None or region not in sold.regions or preset not in sold.presets:
            raise _bad("spec.resources", f"no {platform} {preset} in {region}")
        spot = "preemptible" in spec
        if spot and not spec.keys() & {"follows_spot_price", "spot_pricing_policy"}:
            raise _bad("spec.pricing_model", "pricing model must be specified for a preemptible instance")
        if spot and not sold.spot:
            raise _bad("spec.preemptible", f"{platform} isn't sold preemptible")
        if spot and spec.get("recovery_policy") != "FAIL":
            raise _bad("spec.recovery_policy", "a preemptible instance needs FAIL")
        cpus, _, gpus = sold.presets[preset]
        if wanted := spec.get("reservation_policy", {}).get("reservation_ids"):
            cluster = spec.get("gpu_cluster", {}).get("id", "")
            return {f"reservation/{self._reserved(wanted[0], region, platform, cluster)}": gpus}
        return {stock(region, platform, preset, spot=spot): 1, quota(region, sold.quota): gpus or cpus}

    def _reserved(self, identity: str, region: str, platform: str, cluster: str) -> str:
        found = self.books.find("reservation", identity)
        if found is None or found.state(self.now()) != "STATE_ACTIVE":
            raise refusal("FAILED_PRECONDITION", f"{identity} isn't active", "bad_resource_state")
        if (found.facts["region"], found.facts["affinity"]["platform"]) != (region, platform):
            raise _bad("spec.reservation_policy.reservation_ids", "it is for another platform")
        fabric = found.facts["affinity"].get("fabric")
        if cluster and fabric and self._one("cluster", cluster).facts["spec"]["infiniband_fabric"] != fabric:
            raise _bad("spec.reservation_policy.reservation_ids", "it is in another fabric than the cluster")
        return identity

    def _check_references(self, parent: str, region: str, spec: Mapping[str, Any]) -> None:
        disk = spec["boot_disk"].get("managed_disk", {}).get("spec", {})
        if disk and int(disk.get("size_gibibytes", 0)) < 40:
            raise _bad("spec.boot_disk.managed_disk.spec.size", "smaller than its image")
        if disk and disk.get("source_image_family", {}).get("image_family") != "ubuntu24.04-cuda13.0":
            raise _bad("spec.boot_disk.managed_disk.spec.source", "no such image family")
        for each in spec["network_interfaces"]:
            if each.get("subnet_id") != f"vpcsubnet-of-{parent}":
                raise refusal("NOT_FOUND", f"no subnet {each.get('subnet_id')}", "resource_not_found")
            for group in each.get("security_groups", ()):
                if self.books.find("group", group["id"]) is None:
                    raise refusal("NOT_FOUND", f"no security group {group['id']}", "resource_not_found")
        if cluster := spec.get("gpu_cluster", {}).get("id"):
            found = self._one("cluster", cluster)
            if found.state(self.now()) != "there":
                raise refusal("FAILED_PRECONDITION", f"{cluster} isn't ready", "bad_resource_state")
            platform, preset = spec["resources"]["platform"], spec["resources"]["preset"]
            if self.platforms[platform].presets[preset][2] != 8:
                raise _bad("spec.gpu_cluster", f"{preset} can't be in a GPU cluster")
            if found.facts["spec"]["infiniband_fabric"] not in self.platforms[platform].fabrics:
                raise _bad("spec.gpu_cluster", f"{platform} isn't in that fabric")
            if found.facts["region"] != region:
                raise _bad("spec.gpu_cluster", "it is in another region")

    def _full(self, counter: str, more: int) -> Refusal:
        region, _, name = counter.partition("/")
        limit = self.script.limits[counter]
        if name.startswith("compute."):
            violation = {"quota": name, "limit": str(limit), "requested": str(self.books.used(counter) + more)}
            return refusal("RESOURCE_EXHAUSTED", "Quota exceeded", "quota_failure", violations=[violation])
        violation = {"resource_type": name, "requested": "1"}
        return refusal("RESOURCE_EXHAUSTED", f"not enough in {region}", "not_enough_resources", violations=[violation])

    def _managed_disk(self, vm: Resource, boot: Mapping[str, Any]) -> None:
        if "managed_disk" in boot:
            managed = boot["managed_disk"]
            self._new_name("disk", {"parent_id": vm.facts["parent"], "name": managed["name"]})
            self._add_disk(vm.facts["parent"], managed["name"], managed.get("labels", {}), managed["spec"], vm.id)
        else:
            self._one("disk", boot["existing_disk"]["id"]).facts["writer"] = vm.id

    def _shown_vm(self, vm: Resource) -> dict[str, Any]:
        now, spec = self.now(), vm.facts["spec"]
        state = vm.state(now)
        shown = {key: value for key, value in spec.items() if key != "cloud_init_user_data"}  # it is sensitive
        interface: dict[str, Any] = {"name": spec["network_interfaces"][0]["name"]}
        if state in ("RUNNING", "STOPPING"):
            given = spec["network_interfaces"][0]
            interface["ip_address"] = {"address": f"10.0.{vm.number // 250}.{vm.number % 250 + 1}/32"}
            if "public_ip_address" in given:
                interface["public_ip_address"] = {"address": f"195.242.{vm.number // 250}.{vm.number % 250 + 1}/32"}
        attached = [each for each in self.books.existing("disk") if vm.id in _users(each)]
        status = {
            "state": state,
            "network_interfaces": [interface],
            "reconciling": state not in ("RUNNING", "STOPPED"),
            "disk_attachments": [
                {"id": each.id, "name": each.facts["name"], "is_managed": each.facts["manager"] == vm.id}
                for each in attached
            ],
        }
        return {"metadata": self._metadata(vm), "spec": shown, "status": status}

    @answers("nebius.compute.v1.InstanceService.Delete")
    def _delete_vm(self, call: Call) -> Any:
        vm = self._one("vm", call.body["id"])
        self._free(vm)
        vm.goes(self.now(), (0, "DELETING"), (self.end, GONE))
        for disk in self.books.existing("disk"):
            if disk.facts["manager"] == vm.id:
                disk.goes(self.now(), (0, "DELETING"), (self.end, GONE))
        return self._operation(call, vm.id, self.end)

    @answers("nebius.compute.v1.InstanceService.Update")
    def _update_vm(self, call: Call) -> Any:
        """Of an instance's disks, which is all that may change here. What isn't in the request stays, unless the mask
        names it."""
        given, spec = call.body["metadata"], call.body["spec"]
        vm = self._one("vm", given["id"])
        for name, value in spec.items():
            if name != "secondary_disks" and value != vm.facts["spec"].get(name):
                raise _bad(f"spec.{name}", "it can't be changed")
        self._free(vm)
        version = vm.facts.get("version", 1)
        if int(given.get("resource_version", version)) != version:
            raise refusal("ABORTED", "it has changed meanwhile", "resource_conflict", resource_id=vm.id)
        if vm.state(self.now()) not in ("RUNNING", "STOPPED"):
            raise refusal("FAILED_PRECONDITION", f"it is {vm.state(self.now())}", "bad_resource_state")
        if "secondary_disks" in spec or "spec.secondary_disks" in _masked(call.headers.get("x-resetmask", "")):
            self._attach(vm, spec.get("secondary_disks", []))
        vm.facts["version"] = version + 1
        return self._operation(call, vm.id, self.attach)

    def _attach(self, vm: Resource, wanted: list[dict[str, Any]]) -> None:
        disks = {each["existing_disk"]["id"]: each for each in wanted}
        if len({each.get("device_id", "") for each in wanted}) < len(wanted):
            raise _bad("spec.secondary_disks", "two have one device id")
        for identity, each in disks.items():
            disk = self._one("disk", identity)
            if disk.facts["parent"] != vm.facts["parent"]:
                raise _bad("spec.secondary_disks", "it is in another project")
            others = (_users(disk) - {vm.id}) & {each.id for each in self.books.existing("vm")}
            if others and (each["attach_mode"] == "READ_WRITE" or disk.facts["writer"] in others):
                raise refusal("FAILED_PRECONDITION", f"the disk is attached to {min(others)}", "bad_resource_state")
            if disk.state(self.now()) != "READY":
                raise refusal("FAILED_PRECONDITION", "the disk isn't ready", "bad_resource_state")
        for disk in self.books.existing("disk"):
            if disk.facts["manager"] != vm.id:
                mode = disks.get(disk.id, {}).get("attach_mode")
                if mode and vm.id not in _users(disk):
                    disk.facts["since"][vm.id] = self.now() + self.attach
                self._let_go(disk, vm.id)
                if mode == "READ_WRITE":
                    disk.facts["writer"] = vm.id
                elif mode:
                    disk.facts["readers"] = [*disk.facts["readers"], vm.id]
        vm.facts["spec"] = {**vm.facts["spec"], "secondary_disks": wanted}

    def _let_go(self, disk: Resource, vm: str) -> None:
        disk.facts["writer"] = "" if disk.facts["writer"] == vm else disk.facts["writer"]
        disk.facts["readers"] = [each for each in disk.facts["readers"] if each != vm]

    # --- disks and clusters ------------------------------------------------------------------------------------------

    @answers("nebius.compute.v1.DiskService.Create")
    def _create_disk(self, call: Call) -> Any:
        if repeated := self._repeated(call):
            return repeated
        given = call.body["metadata"]
        self._new_name("disk", given)
        made = self._add_disk(given["parent_id"], given.get("name", ""), given.get("labels", {}), call.body["spec"], "")
        return self._operation(call, made.id, self.attach)

    def _add_disk(
        self, parent: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any], manager: str
    ) -> Resource:
        return self.books.add(
            "disk",
            (0, "CREATING"),
            (self.attach, "READY"),
            lag=self.script.lag,
            prefix="computedisk-e00",
            parent=parent,
            region=self.projects[parent][1],
            name=name,
            labels=labels,
            spec=spec,
            manager=manager,
            writer=manager,
            readers=[],
            since={},
        )

    def _shown_disk(self, disk: Resource) -> dict[str, Any]:
        now, since = self.now(), disk.facts["since"]
        vms = {each.id for each in self.books.existing("vm") if since.get(each.id, 0) <= now}
        writer = disk.facts["writer"] if disk.facts["writer"] in vms else ""
        status = {
            "state": disk.state(self.now()),
            "size_bytes": str(int(disk.facts["spec"]["size_gibibytes"]) << 30),
            "read_write_attachment": writer,
            "read_only_attachments": [each for each in disk.facts["readers"] if each in vms],
            "managed_by": disk.facts["manager"],
        }
        return {"metadata": self._metadata(disk), "spec": disk.facts["spec"], "status": status}

    @answers("nebius.compute.v1.DiskService.Delete")
    def _delete_disk(self, call: Call) -> Any:
        disk = self._one("disk", call.body["id"])
        self._free(disk)
        vms = {each.id for each in self.books.existing("vm")}
        if used := sorted(_users(disk) & vms):
            raise refusal("FAILED_PRECONDITION", f"the disk is attached to {used[0]}", "bad_resource_state")
        disk.goes(self.now(), (0, "DELETING"), (self.attach, GONE))
        return self._operation(call, disk.id, self.attach)

    @answers("nebius.compute.v1.GpuClusterService.Create")
    def _create_cluster(self, call: Call) -> Any:
        if repeated := self._repeated(call):
            return repeated
        given, spec = call.body["metadata"], call.body["spec"]
        self._new_name("cluster", given)
        region = self.projects[given["parent_id"]][1]
        fabrics = {fabric for each in self.platforms.values() if region in each.regions for fabric in each.fabrics}
        if spec["infiniband_fabric"] not in fabrics:
            raise _bad("spec.infiniband_fabric", f"{region} has no {spec['infiniband_fabric']}")
        made = self.books.add(
            "cluster",
            (0, "there"),
            lag=self.script.lag,
            prefix="computegpucluster-e00",
            parent=given["parent_id"],
            region=region,
            name=given.get("name", ""),
            labels=given.get("labels", {}),
            spec=spec,
        )
        return self._operation(call, made.id, 0)

    def _members(self, cluster: str) -> list[str]:
        return [
            each.id
            for each in self.books.existing("vm")
            if each.facts["spec"].get("gpu_cluster", {}).get("id") == cluster
        ]

    def _shown_cluster(self, each: Resource) -> dict[str, Any]:
        status = {"instances": self._members(each.id), "reconciling": each.state(self.now()) != "there"}
        return {"metadata": self._metadata(each), "spec": each.facts["spec"], "status": status}

    @answers("nebius.compute.v1.GpuClusterService.Delete")
    def _delete_cluster(self, call: Call) -> Any:
        cluster = self._one("cluster", call.body["id"])
        if members := self._members(cluster.id):
            message = f"{len(members)} instances are in the cluster"
            raise refusal("FAILED_PRECONDITION", message, "bad_resource_state", resource_id=cluster.id)
        cluster.goes(self.now(), (0, GONE))
        return self._operation(call, cluster.id, 0)

    # --- what it costs -----------------------------------------------------------------------------------------------

    def billed(self) -> float:
        """Dollars an hour, now."""
        now, total = self.now(), 0.0
        for each in self.books.existing():
            if each.kind == "vm":
                spec = each.facts["spec"]
                sold, preset = self.platforms[spec["resources"]["platform"]], spec["resources"]["preset"]
                total += price(sold, preset, spot="preemptible" in spec) if each.state(now) in RUNS else 0
                static = spec["network_interfaces"][0].get("public_ip_address", {}).get("static")
                total += ADDRESS_HOUR if static else 0
            elif each.kind == "disk":
                total += int(each.facts["spec"]["size_gibibytes"]) * DISK_MONTH / HOURS
        return total


def _kind(call: Call) -> str:
    service = call.operation.name.split(".")[-2]
    return {"InstanceService": "vm", "DiskService": "disk", "GpuClusterService": "cluster"}[service]


def _masked(mask: str) -> set[str]:
    """The fields of a reset mask: `a,b.(c,d)`."""
    found, outer, name = set[str](), [""], ""
    for letter in f"{mask},":
        if letter == "(":
            outer.append(outer[-1] + name)
            name = ""
        elif letter in ",)":
            found |= {outer[-1] + name} if name else set()
            name = ""
            if letter == ")":
                outer.pop()
        else:
            name += letter
    return found


def _kind_of(spec: Mapping[str, Any]) -> str:
    return f"{spec['resources']['platform']} {spec['resources']['preset']}"


def _users(disk: Resource) -> set[str]:
    return {each for each in (disk.facts["writer"], *disk.facts["readers"]) if each}


def _bad(field: str, message: str) -> Refusal:
    text = f"{field} - {message}"
    return refusal("INVALID_ARGUMENT", text, "bad_request", violations=[{"field": field, "message": message}])
