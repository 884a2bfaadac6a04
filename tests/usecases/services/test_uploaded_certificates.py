"""Certificates given in a gateway's configuration: which are accepted or refused, and for which hosts they are used."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.certificates import CertificateStatus
from chalicelib.domain.instants import DAY, SECOND, iso
from chalicelib.errors import Invalid
from chalicelib.usecases.services import certificates
from cli.applying.certificates import with_certificate
from tests.api.rig import Rig, fleet, submit
from tests.api.test_fleets import create
from tests.api.test_gateways import apply_body, listed, made, refused, stored
from tests.harness.pebble import made_certificate
from tests.world.time import NOW

SINCE = datetime.fromtimestamp(NOW / SECOND, UTC) - timedelta(days=1)
CHAIN, KEY = made_certificate("*.example.com", "example.com", since=SINCE)
NEXT_CHAIN, NEXT_KEY = made_certificate("*.example.com", since=SINCE)
HOST = "chat.example.com"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    found = Rig.at(tmp_path)
    create(found, fleet("edge", nodes=None, ssh_config={"hosts": []}))
    return found


def given(chain: str = CHAIN, key: str = KEY) -> dict[str, str]:
    return {"type": "given", "certificate": chain, "key": key}


def shown(rig: Rig, gateway: Any, *hosts: str) -> dict[str, dict[str, str]]:
    return certificates.gateway_certificates(rig.world.plane, stored(rig, gateway), hosts or (HOST,)).certificates


def test_its_hosts_are_shown_it(rig: Rig) -> None:
    gateway = made(rig, certificate=given())
    assert shown(rig, gateway, HOST, "a.b.example.com", "chat.example.org") == {
        HOST: {"certificate": CHAIN, "key": KEY}
    }
    assert certificates.of_gateway(rig.world.plane, gateway["id"]) == []  # nobody is asked for one


def test_it_is_shown_until_it_expires(rig: Rig) -> None:
    gateway = made(rig, certificate=given())
    until = round((SINCE + timedelta(days=90)).timestamp()) * SECOND
    rig.world.at = until - 1
    assert HOST in shown(rig, gateway)
    rig.world.at = until
    assert shown(rig, gateway) == {}


def test_its_key_is_sealed_and_shown_to_nobody(rig: Rig) -> None:
    gateway = made(rig, certificate=given())
    secret = KEY.splitlines()[1]
    plan = rig.ok(
        "P/gateways/get_plan",
        {"spec": {"configuration": apply_body(certificate=given())["plan"]["spec"]["configuration"]}},
    )
    for answer in (gateway, plan, listed(rig), rig.ok("/api/events/list", {})):
        assert secret not in json.dumps(answer)
    assert not any(secret in str(record.body) for record in rig.world.store.scan(limit=10_000))
    assert secret not in repr(certificates.gateway_certificates(rig.world.plane, stored(rig, gateway), [HOST]))


def test_clients_that_have_no_word_for_it_read_it_all_the_same(rig: Rig) -> None:
    assert made(rig, certificate=given())["configuration"]["certificate"] == {"type": "lets-encrypt"}


def test_a_plan_of_a_client_is_applied_as_it_came(rig: Rig) -> None:
    seen = made(rig, certificate=given(), https_port=8443)
    spec = apply_body(certificate=given(NEXT_CHAIN, NEXT_KEY), https_port=8443)["plan"]["spec"]
    plan = rig.ok("P/gateways/get_plan", {"spec": spec})
    assert plan["action"] == "update" and NEXT_KEY.splitlines()[1] not in json.dumps(plan)
    after = rig.ok("P/gateways/apply", {"plan": {"spec": plan["spec"], "current_resource": seen}, "force": False})
    assert after["id"] == seen["id"]
    assert shown(rig, after)[HOST]["certificate"] == NEXT_CHAIN


def test_one_that_is_asked_for_takes_its_place_and_the_other_way_round(rig: Rig) -> None:
    first = made(rig, certificate={"type": "lets-encrypt"})
    assert made(rig, certificate=given())["id"] == first["id"] and HOST in shown(rig, first)
    assert made(rig, certificate={"type": "lets-encrypt"})["id"] == first["id"] and shown(rig, first) == {}


def test_who_applies_it_again_has_mended_what_kept_its_certificates_from_being_issued(rig: Rig) -> None:
    gateway = made(rig, certificate={"type": "lets-encrypt"})
    assert shown(rig, gateway) == {}
    (certificate,) = certificates.of_gateway(rig.world.plane, gateway["id"])
    waits = {"status": CertificateStatus.waiting, "message": "refused", "due_at": rig.world.at + DAY}
    rig.save(certificate.with_(**waits))
    made(rig, certificate={"type": "lets-encrypt"})
    (again,) = certificates.of_gateway(rig.world.plane, gateway["id"])
    assert again.due_at == rig.world.at


def test_secrets_are_read_when_they_are_needed(rig: Rig) -> None:
    by_name = given("${{ secrets.CHAIN }}", "${{ secrets.KEY }}")
    assert "the project has no secret `CHAIN`" in refused(rig, certificate=by_name)
    for name, value in (("CHAIN", CHAIN), ("KEY", KEY)):
        rig.ok("P/secrets/create_or_update", {"name": name, "value": value})
    gateway = made(rig, certificate=by_name)
    assert shown(rig, gateway)[HOST] == {"certificate": CHAIN, "key": KEY}
    rig.ok("P/secrets/create_or_update", {"name": "CHAIN", "value": NEXT_CHAIN})
    assert shown(rig, gateway) == {}  # until both are the new ones
    rig.ok("P/secrets/create_or_update", {"name": "KEY", "value": NEXT_KEY})
    assert shown(rig, gateway)[HOST]["certificate"] == NEXT_CHAIN


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        (given("nonsense"), "certificate.certificate: it isn't a certificate"),
        (given(key="nonsense"), "certificate.key: it isn't a private key"),
        (given(key=NEXT_KEY), "certificate.key: the key doesn't belong to the certificate"),
        (given(*made_certificate("*.example.org", since=SINCE)), "is for *.example.org, not for *.example.com"),
        (given(*made_certificate(since=SINCE)), "is for no host, not for *.example.com"),
        (given(*made_certificate("example.com", since=SINCE)), "is for example.com, not for *.example.com"),
        (
            given(*made_certificate("chat.example.com", "gateway.example.com", since=SINCE)),
            "is for chat.example.com, gateway.example.com, not for *.example.com (give one for "
            "`*.example.com`: each service",
        ),
        (
            given(*made_certificate("*.example.com", since=SINCE + timedelta(days=2))),
            f"the certificate isn't valid before {iso(NOW + DAY)}",
        ),
        (
            given(*made_certificate("*.example.com", since=SINCE - timedelta(days=400))),
            "the certificate has expired: it was valid until",
        ),
        ({"type": "given", "certificate": CHAIN}, "certificate.key"),
    ],
    ids=[
        "chain",
        "key",
        "other-key",
        "other-domain",
        "no-host",
        "no-subdomains",
        "some",
        "tomorrow",
        "expired",
        "no-key",
    ],
)
def test_what_is_no_good_is_refused_by_name(rig: Rig, certificate: dict[str, str], message: str) -> None:
    error = refused(rig, certificate=certificate)
    assert message in error and error.endswith(")"), "it says how to mend it"
    assert listed(rig) == {}


def with_unknown_curve(chain: str) -> str:
    """The same with a public key of a kind that nobody knows."""
    der = base64.b64decode("".join(chain.splitlines()[1:-1]))
    known = bytes.fromhex("06082a8648ce3d030107")
    assert der.count(known) == 1
    text = base64.encodebytes(der.replace(known, known[:-1] + b"\x63")).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"


def test_a_certificate_with_a_key_of_an_unknown_kind_is_refused(rig: Rig) -> None:
    error = refused(rig, certificate=given(with_unknown_curve(CHAIN)))
    assert "certificate.certificate: it isn't a certificate" in error


@pytest.mark.parametrize("bundle", [CHAIN + KEY, KEY + CHAIN])
def test_a_key_that_comes_with_the_certificate_is_refused_and_not_stored(rig: Rig, bundle: str) -> None:
    assert "certificate.certificate: there is a private key in it" in refused(rig, certificate=given(bundle))
    assert not any(KEY.splitlines()[1] in str(record.body) for record in rig.world.store.scan(limit=10_000))


def test_another_domain_that_it_is_not_for_is_refused(rig: Rig) -> None:
    gateway = made(rig, certificate=given())
    error = rig.refused("P/gateways/set_wildcard_domain", {"name": "door", "wildcard_domain": "example.org"})
    assert "not for *.example.org" in error
    assert stored(rig, gateway).domain == "example.com"


def test_no_live_service_loses_its_https(rig: Rig) -> None:
    """Those that were applied under another domain keep their hosts."""
    gateway = made(rig, certificate=given())
    service = {"type": "service", "port": 8000, "commands": ["serve"], "gateway": "door"}
    submit(rig, {"run_name": "web", "configuration": service})
    submit(rig, {"run_name": "open", "configuration": {**service, "https": False}})
    other = given(*made_certificate("*.example.org", since=SINCE))
    error = refused(rig, domain="example.org", certificate=other)
    assert "is for *.example.org, not for gateway.example.com, web.example.com" in error
    assert "give one for `*.example.com`" in error
    both = given(*made_certificate("*.example.org", "*.example.com", since=SINCE))
    assert made(rig, domain="example.org", certificate=both)["id"] == gateway["id"]


def test_what_secrets_have_become_is_shown_host_by_host(rig: Rig) -> None:
    for name, value in (("CHAIN", CHAIN), ("KEY", KEY)):
        rig.ok("P/secrets/create_or_update", {"name": name, "value": value})
    gateway = made(rig, certificate=given("${{ secrets.CHAIN }}", "${{ secrets.KEY }}"))

    def seen(*names: str, since: datetime) -> dict[str, tuple[str, str | None]]:
        chain, key = made_certificate(*names, since=since)
        for name, value in (("CHAIN", chain), ("KEY", key)):
            rig.ok("P/secrets/create_or_update", {"name": name, "value": value})
        found = rig.ok("P/gateways/get", {"name": "door"})["certificates"]
        return {each["host"]: (each["state"], each["message"]) for each in found}

    some = seen("chat.example.com", since=SINCE)
    assert some["chat.example.com"] == ("given", None)
    assert some["*.example.com"] == ("failed", "The certificate that the gateway was given isn't for it.")
    tomorrow = seen("*.example.com", since=SINCE + timedelta(days=2))
    assert tomorrow == {"*.example.com": ("failed", f"It isn't valid before {iso(NOW + DAY)}.")}
    assert shown(rig, gateway) == {}
    rig.world.at += DAY
    assert HOST in shown(rig, gateway)


def test_one_that_has_expired_since_is_not_shown(rig: Rig) -> None:
    gateway = made(rig, certificate=given())
    rig.world.at += 90 * DAY
    assert shown(rig, gateway) == {}


def test_one_is_taken_until_the_moment_at_which_it_expires(rig: Rig) -> None:
    rig.world.at = int(SINCE.timestamp()) * SECOND + 90 * DAY
    assert "the certificate has expired" in refused(rig, certificate=given())
    rig.world.at -= 1
    made(rig, certificate=given())


def test_files_are_read_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "chain.pem").write_text(CHAIN)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key.pem").write_text(KEY)
    read = with_certificate({"certificate": given("chain.pem", "~/key.pem")}, tmp_path, tmp_path / "home")
    assert read["certificate"] == given()
    for stays in ({"certificate": given()}, {"certificate": None}, {"certificate": given("${{ secrets.A }}", KEY)}):
        assert with_certificate(stays, tmp_path, tmp_path) == stays
    with pytest.raises(Invalid) as refusal:
        with_certificate({"certificate": given("none.pem", "none.key")}, tmp_path, tmp_path)
    assert [each.path for each in refusal.value.problems] == ["certificate.certificate", "certificate.key"]


def test_the_same_certificate_is_no_change(rig: Rig) -> None:
    made(rig, certificate=given())

    def changes(**fields: Any) -> list[str]:
        spec = apply_body(**fields)["plan"]["spec"]
        found: list[str] = rig.ok("P/gateways/get_plan", {"spec": spec})["changes"]
        return found

    assert changes(certificate=given()) == []
    assert changes(certificate=given(NEXT_CHAIN, NEXT_KEY)) == ["certificate"]


def test_who_looks_at_the_gateway_sees_what_it_was_given(rig: Rig) -> None:
    made(rig, certificate=given())

    def seen() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = rig.ok("P/gateways/get", {"name": "door"})["certificates"]
        return found

    first, second = seen()
    assert (first["host"], first["state"], first["message"]) == ("*.example.com", "given", None)
    assert second["host"] == "example.com" and first["until"] == second["until"]
    rig.world.clock.pass_(4000 * DAY / SECOND)
    assert [each["state"] for each in seen()] == ["expired", "expired"]
