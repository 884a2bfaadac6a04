"""Specs at rest hold no secret in clear, and open for their own thing alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.specs.secrecy import HIDDEN, Leaf, replaced, secrets_of
from chalicelib.errors import Refused
from chalicelib.store import sealed_specs
from chalicelib.store.seal import Sealer

OLD, NEW = b"o" * 32, b"n" * 32
SEAL = Sealer(OLD)


def key(name: str) -> dict[str, str]:
    return {"public": f"ssh-ed25519 {name}", "private": f"-----BEGIN {name}-----\nhush\n"}


def jump(name: str) -> dict[str, Any]:
    return {"hostname": name, "user": "root", "identity_file": "~/.ssh/id", "ssh_key": key(name)}


FLEET = {
    "configuration": {
        "type": "fleet",
        "name": "lab",
        "ssh_config": {
            "user": "root",
            "identity_file": "~/.ssh/id",
            "ssh_key": key("all"),
            "proxy_jump": jump("door"),
            "hosts": ["10.0.0.1", {"hostname": "10.0.0.2", "ssh_key": key("two"), "proxy_jump": jump("back-door")}],
        },
    },
    "profile": {},
}
RUN = {"configuration": {"type": "task", "commands": ["true"], "registry_auth": {"username": "u", "password": "hush"}}}
JOB = {
    "job_name": "a-0-0",
    "commands": ["true"],
    "env": {},
    "image_name": "i",
    "requirements": {"resources": {}},
    "registry_auth": {"username": "u", "password": "hush"},
    "ssh_key": key("job"),
}
ALL: list[tuple[Any, dict[str, Any]]] = [(FleetSpec, FLEET), (RunSpec, RUN), (JobSpec, JOB)]
KINDS = pytest.mark.parametrize(("model", "raw"), ALL, ids=["fleet", "run", "job"])


def opened(seal: Sealer, model: Any, text: str, thing: str = "one") -> Any:
    if model is JobSpec:  # planning reads it as it is; its parts are opened when they are sent
        return JobSpec.model_validate(
            sealed_specs.opened(seal, JobSpec, orjson.loads(text), sealed_specs.of_run(thing))
        )
    return (sealed_specs.fleet_spec if model is FleetSpec else sealed_specs.run_spec)(seal, thing, text)


def stored(model: Any, raw: dict[str, Any], seal: Sealer = SEAL, thing: str = "one") -> str:
    context = sealed_specs.of_fleet(thing) if model is FleetSpec else sealed_specs.of_run(thing)
    return sealed_specs.sealed_text(seal, model, orjson.dumps(raw).decode(), context)


def secrets_in(model: Any, raw: Any) -> list[str]:
    found: list[str] = []
    replaced(secrets_of(model), raw, lambda text, _: found.append(text))
    return found


@KINDS
def test_every_secret_is_sealed_and_nothing_else_is_touched(model: Any, raw: dict[str, Any]) -> None:
    text = stored(model, raw)
    assert "hush" not in text and "BEGIN" not in text
    was = orjson.loads(text)
    counts = {FleetSpec: 4, RunSpec: 1, JobSpec: 2}
    assert len(secrets_in(model, raw)) == len(secrets_in(model, was)) == counts[model]
    blank = [replaced(secrets_of(model), one, lambda *_: "") for one in (raw, was)]
    assert blank[0] == blank[1]
    model.model_validate(was)  # what planning reads


@KINDS
def test_it_opens_for_its_own_thing(model: Any, raw: dict[str, Any]) -> None:
    assert opened(SEAL, model, stored(model, raw)) == model.model_validate(raw)


@KINDS
def test_a_seal_copied_into_another_spec_doesnt_open_there(model: Any, raw: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="doesn't open"):
        opened(SEAL, model, stored(model, raw, thing="another"))


@KINDS
def test_a_new_first_key_opens_what_an_older_one_sealed(model: Any, raw: dict[str, Any]) -> None:
    text = stored(model, raw)
    assert opened(Sealer(NEW, OLD), model, text) == model.model_validate(raw)
    with pytest.raises(Refused, match="key that was in use"):
        opened(Sealer(NEW), model, text)


@KINDS
def test_what_was_stored_in_clear_is_read_and_hidden(model: Any, raw: dict[str, Any]) -> None:
    """Before secrets were sealed, a password was stored as it came."""
    text = orjson.dumps(raw).decode()
    assert opened(SEAL, model, text) == model.model_validate(raw)
    assert "hush" not in sealed_specs.shown(model, text)


@KINDS
def test_what_is_shown_has_no_secret_and_is_a_spec(model: Any, raw: dict[str, Any]) -> None:
    shown = sealed_specs.shown(model, stored(model, raw))
    assert "hush" not in shown and "sealed" not in shown
    assert model.model_validate_json(shown) == model.model_validate_json(
        orjson.dumps(replaced(secrets_of(model), raw, lambda _, leaf: leaf.shown))
    )


@KINDS
def test_two_seals_of_one_secret_differ(model: Any, raw: dict[str, Any]) -> None:
    assert stored(model, raw) != stored(model, raw)


@pytest.mark.parametrize("reference", ["${{ secrets.PASS }}", " ${{secrets.a-b.c}}", "${{ env.PASS }}"])
def test_a_reference_is_stored_and_shown_as_it_is(reference: str) -> None:
    raw = {"configuration": {**RUN["configuration"], "registry_auth": {"username": "u", "password": reference}}}
    text = stored(RunSpec, raw)
    assert orjson.loads(text) == raw == orjson.loads(sealed_specs.shown(RunSpec, text))
    half = {"configuration": {**RUN["configuration"], "registry_auth": {"username": "u", "password": f"x{reference}y"}}}
    assert reference not in stored(RunSpec, half)


def test_a_number_for_a_password_is_a_secret_too() -> None:
    raw = {"configuration": {**RUN["configuration"], "registry_auth": {"username": "u", "password": 12345}}}
    text = stored(RunSpec, raw)
    assert "12345" not in text and opened(SEAL, RunSpec, text).configuration.registry_auth.password == "12345"


def test_a_spec_without_secrets_is_the_same_text() -> None:
    text = '{"configuration": {"type": "task", "commands": ["echo"]}}'
    assert stored(RunSpec, orjson.loads(text)) == orjson.dumps(orjson.loads(text)).decode()
    assert sealed_specs.shown(RunSpec, text) is text


# --- plans that go to a client and come back ------------------------------------------------------------------------


@KINDS
def test_a_plan_comes_back_from_who_got_it_and_from_nobody_else(model: Any, raw: dict[str, Any]) -> None:
    sent = sealed_specs.to_client(SEAL, model, raw, "project", "ann")
    assert b"hush" not in orjson.dumps(sent)
    assert sealed_specs.from_client(SEAL, model, sent, "project", "ann") == raw
    for project, user in (("project", "bob"), ("other", "ann")):
        with pytest.raises(Refused, match="Plan it again"):
            sealed_specs.from_client(SEAL, model, sent, project, user)


@KINDS
def test_what_is_stored_isnt_taken_for_a_plan(model: Any, raw: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="Plan it again"):
        sealed_specs.from_client(SEAL, model, orjson.loads(stored(model, raw)), "project", "ann")


@KINDS
def test_a_spec_as_it_was_written_comes_in_as_it_is(model: Any, raw: dict[str, Any]) -> None:
    assert sealed_specs.from_client(SEAL, model, raw, "project", "ann") == raw
    for odd in ({}, {"configuration": None}, {"configuration": [{"registry_auth": 5}]}, {"registry_auth": "x"}):
        assert sealed_specs.from_client(SEAL, model, odd, "project", "ann") == odd


def test_what_was_hidden_isnt_stored_for_a_password() -> None:
    hidden = replaced(secrets_of(RunSpec), RUN, lambda _, leaf: leaf.shown)
    assert hidden["configuration"]["registry_auth"]["password"] == HIDDEN == Leaf(HIDDEN).shown
    with pytest.raises(Refused, match="in place of a secret"):
        sealed_specs.from_client(SEAL, RunSpec, hidden, "project", "ann")
