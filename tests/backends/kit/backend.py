"""The backend of Cirrus, complete: what is the provider's own is here, and everything else is the kit's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.delegation import DescribesOne
from chalicelib.backends.kit.errors import ErrorTable
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.limits import TokenBucket
from chalicelib.backends.kit.offers import GIB, machine
from chalicelib.backends.kit.owners import REQUEST_TAG, LabelRule, all_tags, labels, owned
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.regions import by_region, everywhere, outcomes
from chalicelib.backends.kit.rest import RestCall, RestClient, Sender
from chalicelib.backends.kit.scripts import cloud_config, secrets_of
from chalicelib.backends.kit.visibility import check_settled
from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.offers import Offer
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, QuotaExceeded, Unfit
from tests.backends.kit.cirrus import BASE, signature

FACTS = BackendFacts(
    name="cirrus",
    title="Cirrus",
    idempotent_create=False,
    visibility_lag=10 * SECOND,
    describes=100,
    create_timeout=60 * SECOND,
    provisioning_timeout=10 * MINUTE,
)
TABLE = ErrorTable("Cirrus", ((InsufficientCapacity, "no-capacity"), (QuotaExceeded, "quota-exceeded")))
LABELS = LabelRule("[a-z0-9_-]{1,63}", ".{0,256}", 64)
LEAST_DISK = 100  # GiB
Body = Mapping[str, Any]


class CirrusBackend(DescribesOne):
    facts = FACTS

    def __init__(
        self,
        key: str,
        secret: str,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        base: str = BASE,
        burst: int = 1000,
    ) -> None:
        def sign(call: RestCall) -> Mapping[str, str]:
            return {"Authorization": f"Cirrus {key}:{signature(secret, call)}"}

        bucket = TokenBucket("Cirrus", 5.0, burst, now)
        self._rest = RestClient(base, TABLE, sign, secrets=[secret], bucket=bucket, send=send, now=now)
        self._regions, self._now = LookupCache[Sequence[str]](now), now

    def check(self) -> None:
        self._rest.call("GET", "account")

    def offers(self) -> Sequence[Offer]:
        regions = self._all_regions()
        return [offer for body in pages(self._types) for region in regions for offer in _offers(body, region)]

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        """By its tag, what an earlier call made; the oldest, should there be two."""
        region = request.offer.region
        made = sorted(self._listed(region, REQUEST_TAG, request.token), key=lambda body: str(body["id"]))
        yield _handle(made[0] if made else self._launched(request), region)

    def _launched(self, request: CreateRequest) -> Body:
        request_body = {
            "name": request.name,
            "type": request.offer.instance.name,
            "spot": request.offer.instance.resources.spot,
            "tags": labels(all_tags(request), LABELS, "Cirrus"),
            "disk_gib": -(-request.disk_mib // GIB),
            "cloud_init": cloud_config(request.user_data),
        }
        region, secrets = request.offer.region, secrets_of(request)
        body: Body = self._rest.call(
            "POST", region, "instances", body=request_body, region=region, secrets=secrets, meanings={404: Unfit}
        )
        return body

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        return by_region(machines, lambda handles: handles[0].data["region"], self._in_region)

    def _in_region(self, region: str, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        bodies = {body["id"]: body for body in self._listed(region)}  # one list for all
        return outcomes(machines, lambda handles: self._machine(handles, bodies))

    def _machine(self, handles: Sequence[Handle], bodies: Mapping[str, Body]) -> Machine:
        found = [bodies[handle.id] for handle in handles if handle.id in bodies]
        for body in found:
            if body["status"] in ("booting", "active", "preempted"):
                state = "pending" if body["status"] == "booting" else "running"
                return Machine(state, body["ip"], body["ip"], interrupted=body["status"] == "preempted")
        check_settled((each for each in handles if each.id not in bodies), self._now(), FACTS.visibility_lag, "Cirrus")
        short = any(body["status"] == "no-capacity" for body in found)
        raise Gone("The instance has ended.", refused=InsufficientCapacity if short else None)

    def terminate(self, handle: Handle) -> None:
        region = handle.data["region"]
        self._rest.call("DELETE", region, "instances", handle.id, region=region)

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        tag = ("dstack-instance", instance_id) if instance_id else ()
        regions = (region,) if region else self._all_regions()
        found = everywhere(regions, lambda region: [(region, body) for body in self._listed(region, *tag)])
        for there, body in (each for listed in found for each in listed):
            yield from owned(_handle(body, there), body["tags"], only=instance_id)

    def close(self) -> None:
        self._rest.close()

    def _all_regions(self) -> Sequence[str]:
        return self._regions.get("", lambda: self._rest.call("GET", "regions"))

    def _types(self, address: str) -> tuple[Sequence[Body], str]:
        answer = self._rest.follow(address) if address else self._rest.call("GET", "types")
        return answer["items"], answer["next"] or ""

    def _listed(self, region: str, *tag: str) -> Iterator[Body]:
        def page(token: str) -> tuple[Sequence[Body], str]:
            query = ({"tag": ":".join(tag)} if tag else {}) | ({"after": token} if token else {})
            answer = self._rest.call("GET", region, "instances", query=query, region=region)
            return answer["instances"], answer["next_page"]

        return pages(page)


def _handle(body: Body, region: str) -> Handle:
    return located("vm", body["id"], region, created=body["created_at"])


def _offers(body: Body, region: str) -> Iterator[Offer]:
    card = gpu(body["gpu"]) if body["gpu"] else None
    if body["gpu"] and card is None:
        return
    for market, spot in (("cents", False), ("spot_cents", True)):
        if market in body:
            yield machine(
                "cirrus",
                body["id"],
                region,
                body[market] / 100,
                cpus=body["vcpus"],
                memory_mib=body["memory_gib"] * GIB,
                gpus=(card,) * body["gpus"] if card else (),
                spot=spot,
                disk_gib=LEAST_DISK,
            )
