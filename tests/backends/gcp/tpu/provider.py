"""Cloud TPU's fake, beside that of Compute Engine, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.kit.rest import RestAnswer, RestCall
from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.fakes.books import Resource
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer, Fault
from tests.backends.fakes.script import Call as FakeCall
from tests.backends.fakes.transport import sender
from tests.backends.gcp.fake import Google
from tests.backends.gcp.provider import SECRET, GcpProvider, clients_of
from tests.backends.gcp.tpu import shop
from tests.backends.gcp.tpu.fake import NO_ROOM, TOKEN, Tpus, error, quota, refusal, stock


def clients(fake: Google, tpus: Tpus, base: type[GcpClients] = GcpClients) -> GcpClients:
    """Calls of Cloud TPU lead to its own fake."""
    others, these, found = sender(fake), sender(tpus), clients_of(fake, base=base)

    def send(call: RestCall, deadline: float) -> RestAnswer:
        return (these if urlsplit(call.url).hostname == "tpu.googleapis.com" else others)(call, deadline)

    found._send = send
    return found


def _answer(status: str, *details: Mapping[str, Any]) -> Answer:
    return refusal(status, "so the test wants it", *details).answer


class TpuProvider(ScriptedProvider):
    fake: Tpus
    secrets = (TOKEN, SECRET)
    operations: ClassVar[Mapping[Call, str]] = {
        "check": "locations.list",
        "offers": "acceleratorTypes.list",
        "create": "queuedResources.create",
        "describe": "queuedResources.get",
        "terminate": "queuedResources.get",
        "list": "queuedResources.list",
    }
    errors: ClassVar[Mapping[Fails, Answer]] = {
        "InvalidCredentials": _answer("UNAUTHENTICATED"),
        "MissingPermission": _answer("PERMISSION_DENIED"),
        "Throttled": _answer("RESOURCE_EXHAUSTED", {"reason": "RATE_LIMIT_EXCEEDED"}),
        "Transient": _answer("UNAVAILABLE"),
    }
    kinds = ("vm", "node")
    longest_tags = GcpProvider.longest_tags
    page_token = "pageToken"

    def existing(self) -> set[str]:
        return {str(each.facts["name"]) for each in self.fake.books.existing() if each.kind in self.kinds}

    def machine(self, handles: Sequence[Handle]) -> Resource:
        at = {(each.data.get("zone"), each.id) for each in handles if each.kind == "vm"}
        return next(each for each in self.fake.books.existing("vm") if (each.facts["zone"], each.facts["name"]) in at)

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        """An answer that is lost is that of a request that has room."""
        fits = self._has_room if (call, when) == ("create", "after") else lambda _: True
        self._fault(Fault(self.operations[call], self.errors[error], when, times, fits=fits))

    def _has_room(self, call: FakeCall) -> bool:
        kind = call.body["tpu"]["nodeSpec"][0]["node"]["acceleratorType"]
        return self.fake.books.over({stock(call.path["location"], kind): 1}, self.fake.script.limits) is None

    def lost(self, handles: Sequence[Handle]) -> None:
        self.fake.vanishes(self.machine(handles))

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        zones = [zone] if zone else offer.availability_zones or ()
        return [stock(each, offer.instance.name) for each in zones]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        name, spot = offer.instance.name, offer.instance.resources.spot
        return quota(offer.region, name, spot=spot), shop.chips(name)

    def falls_short(self, offer: Offer) -> None:
        text = NO_ROOM.format(next(iter(offer.availability_zones or ())))
        self.fake.short[offer.instance.name] = error("RESOURCE_EXHAUSTED", text)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self.fake.preempted(self.machine(handles))

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        unreadable = {"dstack-install": "x", "dstack-instance": "y", "dstack-epoch": "-"}
        for name, labels in (("web", {}), ("half", unreadable)):
            made = self.machine(list(backend.create(request_for(offer, name))))
            spec = made.facts["body"]["tpu"]["nodeSpec"][0]
            spec = {**spec, "nodeId": name, "node": {**spec["node"], "labels": labels}}
            node = self.fake.node_of(made)
            made.facts |= {"name": name, "body": {**made.facts["body"], "tpu": {"nodeSpec": [spec]}}}
            node.facts |= {"name": name, "body": spec["node"]}
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def price(self, offer: Offer) -> float:
        has = offer.instance.resources
        if not has.gpus or has.gpus[0].vendor != "google":
            return GcpProvider(Google(self.fake.now)).price(offer)
        return shop.price(offer.instance.name, offer.region, spot=has.spot)

    def user_data(self, handles: Sequence[Handle]) -> str:
        return str(self._node(handles)["metadata"]["startup-script"])

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        assert "dataDisks" not in self._node(handles)
        return 100.0  # of every host

    def tags(self, handle: Handle) -> dict[str, str]:
        labels = self._node([handle])["labels"]
        assert isinstance(labels, dict)
        return labels

    def _node(self, handles: Sequence[Handle]) -> dict[str, Any]:
        node = self.machine(handles).facts["body"]["tpu"]["nodeSpec"][0]["node"]
        assert isinstance(node, dict)
        return node
