"""Runpod, as the conformance suite arranges it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from chalicelib.backends.runpod.client import Client
from chalicelib.backends.runpod.config import RunpodBackendConfig
from chalicelib.backends.runpod.pods import BOUGHT
from chalicelib.backends.spi import Backend, Container, ContainerMount, RegistryLogin
from chalicelib.domain.container_script import HIDDEN
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer
from tests.backends.fakes.transport import sender
from tests.backends.runpod.fake import CPUS, CREDIT, GPUS, KEY, Runpod, stock

CONFIG = RunpodBackendConfig.model_validate({"type": "runpod", "creds": {"type": "api_key", "api_key": KEY}})
NO_IMAGE = "error pulling image: manifest for registry.example.com/team/trainer:1 not found: manifest unknown"


def client(fake: Runpod, clock: Clock, burst: int = 10_000) -> Client:
    return Client(KEY, clock.now, send=sender(fake), listen=sender(fake), burst=burst)


def _error(status: int, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, {"title": "Failed", "status": status, "detail": "so the test wants it"}, headers or {})


class RunpodProvider(ScriptedProvider):
    fake: Runpod
    secrets = (KEY,)
    operations: ClassVar[Mapping[Call, str]] = {
        "check": "listPods",
        "offers": "listGpuTypes",
        "create": "createPod",
        "describe": "listPods",
        "terminate": "deletePod",
        "list": "listPods",
    }
    errors: ClassVar[Mapping[Fails, Answer]] = {
        "InvalidCredentials": _error(401),
        "MissingPermission": _error(403),
        "Throttled": _error(429, {"retry-after": "7"}),
        "Transient": _error(500),
    }
    kinds = ("vm", "registry", "template", "cluster")
    page_token = "cursor"

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [stock(self._kind(offer), offer.region)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        return CREDIT, round(self.price(offer) * 10_000)

    def falls_short(self, offer: Offer) -> None:
        self.fake.short.add(self._kind(offer))

    def reclaim(self, handles: Sequence[Handle]) -> None:
        """It gives no notice."""
        self.machine(handles).goes(self.fake.now(), (0, "EXITED"))

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        """Names are all that a pod bears."""
        before = self.existing()
        for name in ("web", "db"):
            made = list(backend.create(request_for(offer, name)))
            self.machine(made).facts["name"] = {"web": "web", "db": "iabcdef0"}[name]
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def price(self, offer: Offer) -> float:
        has, kind = offer.instance.resources, self._kind(offer)
        if has.spot:
            return self.fake.bid(kind, offer.region, GPUS[kind][1]) * len(has.gpus)
        return GPUS[kind][1] * len(has.gpus) if has.gpus else CPUS[kind][3] * has.cpus

    def user_data(self, handles: Sequence[Handle]) -> str:
        raise NotImplementedError("its machines are containers")

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        return {int(port.partition("/")[0]) for port in self.machine(handles).facts["request"]["ports"]}

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self.machine(handles).facts["request"]["disk"])

    def tags(self, handle: Handle) -> dict[str, str]:
        raise NotImplementedError("it has no tags")

    def container(self, handles: Sequence[Handle]) -> Container:
        body = self.machine(handles).facts["request"]
        args, login = json.loads(body["args"]), None
        if "registry" in body:
            found = self.fake.books.find("registry", body["registry"])
            assert found is not None
            login = RegistryLogin(found.facts["username"], found.facts["password"])
        network = body.get("mounts", {}).get("network", ())
        mounts = tuple(ContainerMount(Handle(kind="volume", id=each["volumeId"]), each["path"]) for each in network)
        env = dict(body["env"])
        hidden = {name: env.pop(name, None) for name in env.pop(HIDDEN).split()}
        assert hidden.keys() == {"RUNPOD_API_KEY", BOUGHT}, "Runpod's own key is kept from agent and job"
        return Container(body["image"], (*args["entrypoint"], *args["cmd"]), env, login, mounts=mounts)

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        pod, now = self.machine(handles), self.fake.now()
        pod.goes(now, (0, "EXITED" if how == "exits" else "STARTING"))
        pod.facts["log"] += [NO_IMAGE] if how == "image" else []
        pod.facts["change"] = "Rented by User: now"

    @staticmethod
    def _kind(offer: Offer) -> str:
        name = offer.instance.name
        return name if offer.instance.resources.gpus else name.partition("-")[0]
