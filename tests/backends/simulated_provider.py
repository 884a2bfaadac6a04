"""The simulated cloud, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from chalicelib.backends.simulated import catalog
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.backends.simulated.script import Fault, Script
from chalicelib.backends.spi import Backend, Container, ContainerMount, RegistryLogin
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for


class SimulatedProvider:
    secrets: Sequence[str] = ()  # it has no credentials

    def __init__(self, cloud: FakeCloud, script: Script) -> None:
        self._cloud, self._script = cloud, script

    def existing(self) -> set[str]:
        return {body["id"] for body in self._cloud.resources()} | {body["id"] for body in self._cloud.disks.all()}

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        covers_call = call in (
            "describe",
            "list",
            "check",
            "offers",
        )  # there is no effect before or after which it could fail
        self._script.faults.append(Fault(call, error, "before" if covers_call else when, times))

    def page_fails(self) -> None:
        """It lists everything in one page."""
        self.fail("list", "Transient")

    def region_down(self, region: str) -> None:
        """It lists all regions with one call."""
        self.fail("list", "Transient")

    def invisible_for(self, seconds: float) -> None:
        self._script.lag = min(round(seconds * SECOND), self._cloud.facts.visibility_lag)

    def pages_of(self, size: int) -> None:
        """It has no pages."""

    def none_left(self, offer: Offer) -> None:
        self._script.capacity[f"{offer.region}/{offer.instance.name}"] = 0

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        """Its regions have capacity, not its zones."""

    def quota(self, offer: Offer, machines: int) -> None:
        self._script.quota[offer.instance.name] = machines

    def falls_short(self, offer: Offer) -> None:
        self._script.short = 1

    def lost(self, handles: Sequence[Handle]) -> None:
        self._cloud.lose(self._vm(handles)["id"])

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self._cloud.interrupt(dict(self._vm(handles)["tags"])["dstack-instance"])

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        nobodys = replace(request_for(offer, "web"), token="web", name="web-1", tags=(("team", "web"),))
        broken = replace(nobodys, token="db", name="db-1", tags=(("dstack-install", INSTALL), ("dstack-instance", "x")))
        for request in (nobodys, broken, request_for(offer, "one", install=OTHER_INSTALL)):
            list(self._cloud.create(request))
        return self.existing() - before

    def price(self, offer: Offer) -> float:
        on_demand = catalog.TYPES[offer.instance.name][-1] * catalog.PLACES[offer.region][0]
        return on_demand * (catalog.SPOT_SHARE if offer.instance.resources.spot else 1.0)

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        return set(self._vm(handles)["open_ports"])

    def user_data(self, handles: Sequence[Handle]) -> str:
        found = self._vm(handles)
        return "".join(found["bundle"]) or str(found["user_data"])

    def container(self, handles: Sequence[Handle]) -> Container:
        found = self._vm(handles)["container"]
        login, mounts = found["login"], found["mounts"]
        return Container(
            image=found["image"],
            command=tuple(found["command"]),
            env=found["env"],
            login=None if login is None else RegistryLogin(*login),
            user=found["user"],
            privileged=found["privileged"],
            shm_mib=found["shm_mib"],
            mounts=tuple(ContainerMount(Handle(kind="volume", id=id), path, ro) for id, path, ro in mounts),
        )

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        body = self._vm(handles)
        if how == "image":
            self._script.bad_images.append(body["container"]["image"])
        else:
            self._cloud.exit(dict(body["tags"])["dstack-instance"], "it exits with status 127 (simulated)")

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self._vm(handles)["disk_mib"]) / 1024

    def tags(self, handle: Handle) -> dict[str, str]:
        (body,) = (body for body in self._cloud.resources() if body["id"] == handle.id)
        return dict(body["tags"])

    def _vm(self, handles: Sequence[Handle]) -> Any:
        ids = {handle.id for handle in handles}
        return next(body for body in self._cloud.machines() if body["id"] in ids)
