"""Vast.ai, as the conformance suite arranges it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar, Literal

from chalicelib.backends.spi import Backend, Container, RegistryLogin
from chalicelib.backends.vastai.client import VastAIClient
from chalicelib.backends.vastai.config import VastAIBackendConfig
from chalicelib.backends.vastai.requests import RUN, START
from chalicelib.domain.container_script import HIDDEN
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import DAY
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer, Fault
from tests.backends.fakes.transport import sender
from tests.backends.vastai.fake import CREDIT, HOSTS, KEY, Vast, stock

CONFIG = VastAIBackendConfig.model_validate({"type": "vastai", "creds": {"type": "api_key", "api_key": KEY}})
NO_IMAGE = "Error response from daemon: manifest for registry.example.com/team/trainer:1 not found: manifest unknown"


def many(fake: Vast) -> Vast:
    """With enough machines, whose offers last, for cases that rent one offer several times."""
    fake.like, fake.listed_for = 100, DAY
    return fake


def client(fake: Vast, clock: Clock, burst: int = 10_000) -> VastAIClient:
    return VastAIClient(KEY, clock.now, send=sender(fake), burst=burst)


def _error(status: int, error: str) -> Answer:
    return Answer(status, {"success": False, "error": error, "msg": "so the test wants it"})


class VastAIProvider(ScriptedProvider):
    fake: Vast
    secrets = (KEY,)
    operations: ClassVar = {
        "check": "showInstances",
        "offers": "searchOffers",
        "create": "createInstance",
        "describe": "showInstances",
        "terminate": "destroyInstance",
        "list": "showInstances",
    }
    errors: ClassVar = {
        "InvalidCredentials": _error(404, "auth_error"),
        "MissingPermission": _error(403, "forbidden"),
        "Throttled": Answer(429, "API requests too frequent", {"content-type": "text/plain"}),
        "Transient": Answer(502, "<html>Bad Gateway</html>", {"content-type": "text/html"}),
    }
    kinds = ("vm",)
    page_token = "after_token"

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        """Both markets are searched at once, and each is refused until time has passed."""
        if (call, error) != ("offers", "Throttled"):
            super().fail(call, error, when=when, times=times)
            return
        now = self.fake.now()
        self._fault(Fault(self.operations[call], self.errors[error], when, 2 * times, fits=lambda each: each.at == now))

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [stock(_machine(offer))]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        host = HOSTS[_machine(offer)]
        return CREDIT, round(host.price * len(offer.instance.resources.gpus) * 10_000)

    def falls_short(self, offer: Offer) -> None:
        self.fake.broken.add(_machine(offer))

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self.fake.outbid(self.machine(handles))

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        """Labels are all that an instance bears."""
        before = self.existing()
        for name in ("web", "db", "none"):
            made = list(backend.create(request_for(offer, name)))
            self.machine(made).facts["request"]["label"] = {"web": "web", "db": "iabcdef0", "none": None}[name]
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def price(self, offer: Offer) -> float:
        host, has = HOSTS[_machine(offer)], offer.instance.resources
        rent = host.bid * 1.1 if has.spot else host.price
        return rent * len(has.gpus) + has.disk.size_mib / 1024 * host.storage / 720

    def user_data(self, handles: Sequence[Handle]) -> str:
        raise NotImplementedError("its machines are containers")

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        env = self.machine(handles).facts["request"]["env"]
        return {int(name.removeprefix("-p ").partition(":")[0]) for name in env if name.startswith("-p ")}

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self.machine(handles).facts["request"]["disk"])

    def tags(self, handle: Handle) -> dict[str, str]:
        raise NotImplementedError("it has no tags")

    def container(self, handles: Sequence[Handle]) -> Container:
        body, login = self.machine(handles).facts["request"], None
        assert body["runtype"] == "args", "other kinds start Vast.ai's own program in place of the image's"
        if "image_login" in body:
            _, user, _, password, registry = shlex.split(body["image_login"])
            assert registry == body["image"].partition("/")[0]
            login = RegistryLogin(user, password)
        env = dict(body["env"])
        hidden = env.pop(HIDDEN).split()
        assert {"CONTAINER_API_KEY", START} <= {*hidden}, "Vast.ai's own key is kept from agent and job"
        option, run = body["args"]
        assert run == RUN
        script = env.pop(START).replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")
        return Container(body["image"], (body["onstart"], option, script), env, login)

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        made = self.machine(handles)
        made.goes(self.fake.now(), (0, "exited" if how == "exits" else "loading"))
        made.facts["message"] = NO_IMAGE if how == "image" else ""


def _machine(offer: Offer) -> int:
    return int(offer.terms.listing) // 10_000
