"""TensorDock's API v2: locations with GPUs, parts with prices, an account with a balance, and answers in many forms.

`api.json` is made by `extract` from a document that was written by hand, because TensorDock publishes none; each of its
operations is known from a page, from another's document or from what clients send and get. The rules below are of the
same kind: sizes and steps, the balance, refusals with the status 200, statuses in any case of letters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.books import GONE, Resource
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Answer, Call, Script
from tests.backends.fakes.server import Fake, Refusal, Request, Why, answers

TOKEN = "token-0123456789abcdef0123456789abcdef"
BALANCE = "balance"  # the counter of what all instances cost in an hour, in ten thousandths of a dollar
IMAGES = {"ubuntu2404", "ubuntu2204", "ubuntu2404_ml_pytorch", "ubuntu2404_ml_everything", "windows10"}
MEMORIES = {2, 4, 6, 8, 10, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 512}
SMALLEST_DISK, DISK_STEP = 100, 50


@dataclass(frozen=True)
class Card:
    """GPUs of a kind in a location. Prices are dollars an hour."""

    most: int
    price: float
    cpus: int = 64
    memory: int = 256
    disk: int = 2000
    vcpu: float = 0.003
    gb: float = 0.002
    disk_gb: float = 0.00005
    forwards: bool = True  # ports
    dedicated: bool = True  # addresses


@dataclass(frozen=True)
class Place:
    city: str
    country: str
    tier: int
    cards: Mapping[str, Card]


PLACES: Mapping[str, Place] = {
    "5b0c7a0e-1111-4000-8000-000000000001": Place(
        "Chubbuck",
        "United States",
        3,
        {"geforcertx4090-pcie-24gb": Card(4, 0.35), "h100-sxm5-80gb": Card(8, 2.25, 192, 512)},
    ),
    "5b0c7a0e-2222-4000-8000-000000000002": Place(
        "Winnipeg", "Canada", 2, {"l40s-pcie-48gb": Card(2, 1.0, 16, 64), "geforcertx4090-pcie-24gb": Card(1, 0.4)}
    ),
    "5b0c7a0e-3333-4000-8000-000000000003": Place(
        "Paris", "France", 0, {"rtxa4000-pcie-16gb": Card(1, 0.11, 8, 32, forwards=False)}
    ),
}


def stock(place: str, card: str) -> str:
    return f"{card} in {place}"


def _api() -> Api:
    """Statuses in any case of letters."""
    document = json.loads(Path(__file__).with_name("api.json").read_text(encoding="utf-8"))

    def loosened(node: Any) -> Any:
        if isinstance(node, list):
            return [loosened(each) for each in node]
        if not isinstance(node, dict):
            return node
        return {
            name: {"type": "string"} if name == "status" and "enum" in each else loosened(each)
            for name, each in node.items()
        }

    return Api(loosened(document))


class TensorDock(Fake):
    api = _api()

    def __init__(self, now: Callable[[], Micros], script: Script | None = None) -> None:
        super().__init__(now, script)
        self.build, self.addressed, self.end = 20 * SECOND, 40 * SECOND, 10 * SECOND
        self.form = 0  # of lists and instances: the documented one, and two others that clients have met
        self.ok_refusals = False  # with the status 200, and the true one in the body
        self.short: set[str] = set()  # GPUs whose next instance fails on its host
        self.dearer = 1.0  # than at first, by this factor
        self.unpriced: set[str] = set()  # parts of prices that are missing
        self.hidden: set[str] = set()  # GPUs that locations show although there are none

    def authenticate(self, request: Request) -> None:
        """Anybody may see the locations."""
        right = request.headers.get("authorization") == f"Bearer {TOKEN}"
        if not right and not request.target.endswith("/locations"):
            raise _error(401, "Unauthorized", "the token is wrong")

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        if why == "throttled":
            return _error(429, "Too Many Requests", message)
        return _error(404, "Not Found", message) if why == "no-route" else self._bad(message)

    def _bad(self, message: str) -> Refusal:
        if self.ok_refusals:
            return Refusal(200, {"status": 400, "error": message})
        return Refusal(400, {"error": message})

    # --- what is sold -------------------------------------------------------------------------------------------------

    @answers("listLocations")
    def _locations(self, call: Call) -> Any:
        rows = []
        for id, place in PLACES.items():
            cards = [self._card(id, name, card) for name, card in place.cards.items()]
            row = {"id": id, "city": place.city, "stateprovince": "", "country": place.country, "tier": place.tier}
            rows.append({**row, "gpus": [each for each in cards if each["max_count"]]})
        return {"data": {"locations": rows}}

    def _card(self, place: str, name: str, card: Card) -> Any:
        parts = {"per_vcpu_hr": card.vcpu, "per_gb_ram_hr": card.gb, "per_gb_storage_hr": card.disk_gb}
        return {
            "v0Name": name,
            "displayName": name.upper(),
            "max_count": card.most if name in self.hidden else min(card.most, self._left(place, name)),
            "price_per_hr": card.price * self.dearer,
            "resources": {"max_vcpus": card.cpus, "max_ram_gb": card.memory, "max_storage_gb": card.disk},
            "pricing": {part: price for part, price in parts.items() if part not in self.unpriced},
            "network_features": {
                "dedicated_ip_available": card.dedicated,
                "port_forwarding_available": card.forwards,
                "network_storage_available": False,
            },
        }

    def _left(self, place: str, card: str) -> int:
        counter = stock(place, card)
        return max(0, self.script.limits.get(counter, 1000) - self.books.used(counter))

    # --- instances ----------------------------------------------------------------------------------------------------

    @answers("createInstance")
    def _create(self, call: Call) -> Any:
        body = call.body["data"]["attributes"]
        wanted = body["resources"]
        if "location_id" not in body or body["location_id"] not in PLACES:
            raise _error(404, "Not Found", "no such location")
        if len(wanted.get("gpus", {})) != 1:
            raise self._bad("a location needs one kind of GPU")
        ((name, gpus),) = wanted["gpus"].items()
        card, count = PLACES[body["location_id"]].cards.get(name), gpus["count"]
        if card is None:
            raise self._bad(f"gpu {name} is not available in this location")
        self._check_sizes(body, wanted, card)
        hourly = self._hourly(wanted, card, count)
        if self.books.over({BALANCE: round(hourly * 10_000)}, self.script.limits):
            raise self._bad(f"Insufficient balance: you need at least ${hourly:.2f} to deploy this")
        if count > min(card.most, self._left(body["location_id"], name)):
            raise self._bad(f"No available nodes found with {count} {name}")
        steps = [(0, "starting"), (self.build, "Running")]
        if name in self.short:
            steps = [(0, "starting"), (5 * SECOND, "Error")]
        counts = {BALANCE: round(hourly * 10_000), stock(body["location_id"], name): count}
        made = self.books.add("vm", *steps, lag=self.script.lag, counts=counts, request=body, hourly=hourly)
        if self.form == 2:
            return {"instance_id": made.id, "location_id": body["location_id"]}
        shown = {"type": "virtualmachine", "id": made.id, "name": body["name"], "status": "running"}
        return Answer(201, {"data": shown})

    def _check_sizes(self, body: Any, wanted: Any, card: Card) -> None:
        disk = wanted["storage_gb"]
        rules = {
            f"unknown image {body['image']}": body["image"] in IMAGES,
            f"ram_gb can't be {wanted['ram_gb']}": wanted["ram_gb"] in MEMORIES,
            f"storage_gb can't be {disk}": disk >= SMALLEST_DISK and disk % DISK_STEP == 0,
            "vcpu_count exceeds the maximum": wanted["vcpu_count"] <= card.cpus,
            "ram_gb exceeds the maximum": wanted["ram_gb"] <= card.memory,
            "storage_gb exceeds the maximum": disk <= card.disk,
            "this location can't forward ports": card.forwards or body.get("useDedicatedIp", False),
            "the name is too long": len(body["name"]) <= 63,
        }
        if broken := [rule for rule, kept in rules.items() if not kept]:
            raise self._bad("; ".join(broken))

    def _hourly(self, wanted: Any, card: Card, count: int) -> float:
        parts = (card.price * self.dearer * count, card.vcpu * wanted["vcpu_count"], card.gb * wanted["ram_gb"])
        return sum(parts) + card.disk_gb * wanted["storage_gb"]

    @answers("listInstances")
    def _list(self, call: Call) -> Any:
        rows = [self._item(each) for each in self.books.shown("vm")]
        if self.form == 0:
            return {"data": {"instances": rows}}
        if self.form == 1:
            return {"data": rows}
        return {"data": {"type": "instances", "id": "all", "attributes": {"instances": rows}}}

    @answers("getInstance")
    def _get(self, call: Call) -> Any:
        made = self._found(call.path["id"])
        whole = {"type": "virtualmachine", "id": made.id, "name": made.facts["request"]["name"]}
        whole |= {"status": self._status(made), "ipAddress": self._address(made), "portForwards": []}
        whole |= {"resources": made.facts["request"]["resources"], "rateHourly": made.facts["hourly"]}
        if self.form == 0:
            return whole
        if self.form == 1:
            return {"data": whole}
        item = self._item(made)
        return {"data": {**item, "attributes": {**item["attributes"], "ipAddress": self._address(made)}}}

    @answers("deleteInstance")
    def _delete(self, call: Call) -> Any:
        made = self._found(call.path["id"])
        made.goes(self.now(), (0, "deleting"), (self.end, GONE))
        return {"data": {"type": "success", "attributes": {"message": "the instance is being deleted"}}}

    @answers("stopInstance")
    def _stop(self, call: Call) -> Any:
        """Its GPUs are billed on."""
        made = self._found(call.path["id"])
        made.goes(self.now(), (0, "stopping"), (self.end, "Stopped"))
        return {"data": {"type": "virtualmachine", "id": made.id, "attributes": {"status": "stopping"}}}

    def _found(self, id: str) -> Resource:
        found = self.books.find("vm", id)
        if found is None:
            raise _error(404, "Not Found", f"Instance {id} not found")
        return found

    def _item(self, made: Resource) -> Any:
        return {
            "type": "virtualmachine",
            "id": made.id,
            "attributes": {"name": made.facts["request"]["name"], "status": self._status(made)},
        }

    def _status(self, made: Resource) -> str:
        return str(made.state(self.now()))

    def _address(self, made: Resource) -> str | None:
        up = made.first("Running", self.now())
        return None if up is None or self.now() < up + self.addressed else f"198.51.100.{made.number}"

    def billed(self) -> float:
        """Dollars an hour, of all that exists: GPUs also of what has stopped, and disks of what has lost its GPUs."""
        total = 0.0
        for made in self.books.existing("vm"):
            place = PLACES[made.facts["request"]["location_id"]]
            wanted = made.facts["request"]["resources"]
            (name,) = wanted["gpus"]
            taken = self._status(made).lower() == "stoppeddisassociated"
            disk = place.cards[name].disk_gb * wanted["storage_gb"]
            total += 0.0 if self._status(made) == "deleting" else disk if taken else made.facts["hourly"]
        return round(total, 6)


def _error(status: int, title: str, detail: str) -> Refusal:
    return Refusal(status, {"errors": [{"status": str(status), "title": title, "detail": detail}]})
