"""The REST client against a provider's fake that is made from its published schema, over HTTP: signed anew each time,
refused in our words, and read page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from chalicelib.backends.kit.errors import ErrorTable
from chalicelib.backends.kit.gpus import gpu
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import RestCall, RestClient
from chalicelib.domain.instants import SECOND
from chalicelib.errors import Gone, InvalidCredentials, Throttled, Transient, Unfit
from tests.backends.clock import Clock
from tests.backends.crusoe.fake import KEY, PROJECT, SECRET, TYPES, Crusoe, signature
from tests.backends.crusoe.plain import machine
from tests.backends.fakes.script import Cut, Fault, Rate, Script
from tests.backends.fakes.transport import serving

INSTANCES = ("projects", PROJECT, "compute", "vms", "instances")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def address(clock: Clock, script: Script) -> Iterator[str]:
    with serving(Crusoe(clock.now, script)) as address:
        yield address


def client(clock: Clock, address: str, secret: str = SECRET) -> RestClient:
    def sign(call: RestCall) -> Mapping[str, str]:
        now = datetime.fromtimestamp(clock.at // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        proof = signature(secret, call.method, call.url.removeprefix(call.origin), now)
        return {"X-Crusoe-Timestamp": now, "Authorization": f"Bearer 1.0:{KEY}:{proof}"}

    return RestClient(f"{address}/v1", ErrorTable("Crusoe"), sign, secrets=[secret], now=clock.now)


def listed(calls: RestClient, **query: str | int) -> list[str]:
    def page(token: str) -> tuple[Sequence[Any], str]:
        answer = calls.call("GET", *INSTANCES, query=query | ({"next_token": token} if token else {}))
        return answer["items"], answer.get("next_page_token") or ""

    return [body["name"] for body in pages(page)]


def test_a_machines_life(clock: Clock, address: str) -> None:
    calls = client(clock, address)
    created = calls.call("POST", *INSTANCES, body=machine())
    id = created["operation"]["metadata"]["id"]
    clock.passes(60)
    assert calls.call("GET", *INSTANCES, id)["state"] == "STATE_RUNNING"
    calls.call("DELETE", *INSTANCES, id)
    clock.passes(60)
    with pytest.raises(Gone):  # which Crusoe says by a 403
        calls.call("GET", *INSTANCES, id, meanings={403: Gone})
    calls.close()


def test_every_page_is_signed_and_read(clock: Clock, address: str) -> None:
    calls = client(clock, address)
    for name in ("a", "b", "c", "d", "e"):
        calls.call("POST", *INSTANCES, body=machine(name))
    assert sorted(listed(calls, limit=2)) == ["a", "b", "c", "d", "e"]
    assert listed(calls, names="b") == ["b"]
    calls.close()


def test_refusals_are_in_our_words(clock: Clock, script: Script, address: str) -> None:
    calls, stranger = client(clock, address), client(clock, address, SECRET[::-1])
    with pytest.raises(InvalidCredentials, match=r"Crusoe refused the credentials \(bad_credential\)"):
        stranger.call("GET", "locations")
    with pytest.raises(Unfit, match="bad_request"):
        calls.call("POST", *INSTANCES, body=machine(no_such_field=1))
    script.rates = {"*": Rate(1, 10 * SECOND)}
    calls.call("GET", "locations")
    with pytest.raises(Throttled) as found:
        calls.call("GET", "locations")
    assert 1 <= found.value.retry_after <= 11
    calls.close(), stranger.close()


def test_an_answer_that_is_lost_leaves_what_was_made(clock: Clock, script: Script, address: str) -> None:
    calls = client(clock, address)
    script.faults.append(Fault("createInstance", Cut, when="after"))
    with pytest.raises(Transient, match="has no answer"):
        calls.call("POST", *INSTANCES, body=machine())
    assert listed(calls, names="one") == ["one"]
    calls.close()


def test_its_cards_have_our_names() -> None:
    cards = {kind: gpu(kind) for kind in (row[5] for row in TYPES) if kind}
    assert {kind: card and (card.name, card.memory_mib // 1024) for kind, card in cards.items()} == {
        "L40S-48GB": ("L40S", 48),
        "A100-PCIe-80GB": ("A100", 80),
        "H100-SXM-80GB": ("H100", 80),
        "MI300X-192GB": ("MI300X", 192),
        "GB200-NVL-186GB": ("GB200", 186),
    }
