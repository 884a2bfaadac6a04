"""A second artefact, whose SDK no other function has, from its row in the registry to a machine that is given back."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from chalicelib.backends.registry import artefacts
from infra.artefacts import KINDS
from tests.e2e.aws.artefacts import FLEET, SDK, SOLD, TYPE, Stage, provider
from tests.e2e.aws.deployment import PATIENCE, STAGE
from tests.e2e.aws.journey import Journey
from tests.e2e.onprem.lab import SMALL
from tests.harness.server import until


@pytest.fixture(scope="module")
def stage(trip: Journey) -> Iterator[Stage]:
    with provider() as nimbus:
        yield Stage(trip.one, nimbus)


def test_the_sdk_is_in_its_artefact_alone_and_its_function_is_rendered_from_the_row(stage: Stage) -> None:
    build = stage.one.clone / "build"
    names = {path.name.partition("-")[0]: zipfile.ZipFile(path).namelist() for path in build.glob("*.zip")}
    assert {name for name, files in names.items() if f"{SDK}.py" in files} == {"nimbus"}
    assert names.keys() == {*KINDS, "nimbus"}
    found = stage.one.client("lambda").get_function_configuration(FunctionName=f"dstack-{STAGE}-provider_nimbus")
    assert found["Handler"] == "functions.provider.handler"
    iam = stage.one.client("iam")
    for caller in ("api_handler", "sweep_orphans", "refresh_catalog", "reconcile"):
        name = caller.replace("api_handler", "api")
        role = stage.one.client("lambda").get_function_configuration(FunctionName=f"dstack-{STAGE}-{name}")["Role"]
        (policy,) = iam.list_role_policies(RoleName=role.rpartition("/")[2])["PolicyNames"]
        document = iam.get_role_policy(RoleName=role.rpartition("/")[2], PolicyName=policy)["PolicyDocument"]
        assert "provider_nimbus" in json.dumps(document), caller


def test_a_configuration_is_checked_by_whoever_has_the_sdk(stage: Stage) -> None:
    """The API hasn't got it: nobody could ask the provider there."""
    refusal = stage.refused("backends/create", stage.nimbus.key("a-wrong-key"))
    assert refusal["msg"] == "Nimbus doesn't know this key. Copy it from its console."
    assert (refusal["code"], refusal["fields"]) == ("invalid_credentials", ["creds"])
    assert stage.call("backends/list") == [] and stage.nimbus.calls["GET account"] == 1
    stage.call("backends/create", stage.nimbus.key())
    assert stage.nimbus.calls["GET account"] == 2
    assert stage.call(f"backends/{TYPE}/check") is None


def test_its_offers_are_fetched_as_soon_as_it_is_configured(stage: Stage) -> None:
    def offered() -> list[dict[str, Any]]:
        plan = stage.call("fleets/get_plan", {"spec": {"configuration": FLEET, "profile": {}}})
        return [one for one in plan["offers"] if one["backend"] == TYPE]

    (offer,) = until("the offers", offered, every=0.5, seconds=PATIENCE)
    assert (offer["instance"]["name"], offer["price"]) == ("n.4", 0.2)
    calls_before = stage.nimbus.calls["GET types"]
    stage.invoke("refresh_catalog")
    until("the schedule's refresh", lambda: stage.nimbus.calls["GET types"] > calls_before, seconds=PATIENCE)


def test_a_machine_is_bought_an_orphan_is_swept_and_all_is_given_back(stage: Stage) -> None:
    nimbus = stage.nimbus
    stage.call("fleets/apply", {"plan": {"spec": {"configuration": FLEET, "profile": {}}}, "force": False})
    until("the machine to be bought", lambda: stage.statuses() == ["provisioning"], every=0.5, seconds=PATIENCE)
    (id_,) = nimbus.machines
    tags = nimbus.machines[id_]["tags"]
    stranger = {**tags, "dstack-install": "another"}
    orphan = {**tags, "dstack-instance": "00000000-0000-4000-8000-000000000000"}
    for name, owner in (("stray", orphan), ("strangers", stranger)):
        nimbus.machines[name] = {"token": name, "name": name, "tags": owner}

    def swept() -> bool:
        stage.invoke("sweep_orphans")
        return "stray" not in nimbus.machines

    until("the orphan to be swept", swept, every=2, seconds=PATIENCE)
    assert nimbus.machines.keys() == {id_, "strangers"}
    stage.call("fleets/delete", {"names": ["pool"]})
    until("the machine to be given back", lambda: id_ not in nimbus.machines, seconds=PATIENCE)
    until("the fleet to be gone", lambda: stage.call("fleets/list") == [], every=0.5, seconds=PATIENCE)
    assert nimbus.machines.keys() == {"strangers"}
    stage.call("backends/delete", {"backends_names": [TYPE]})
    assert stage.call("backends/list") == []


def test_a_cloud_of_each_artefact_sells_a_machine_and_gets_it_back(stage: Stage, trip: Journey) -> None:
    """Each is checked, lists its offers and is bought from by the function that has its SDK."""
    assert {*SOLD} == {*artefacts()}
    sold, bare = trip.sold, {**FLEET, "resources": SMALL}
    fleets = {name: {**bare, "name": name, "backends": [name], **each.cloud.fleet} for name, each in sold.items()}
    for each in sold.values():
        stage.call("backends/create", each.cloud.config)
    for name, fleet in fleets.items():
        until(f"the offers of {name}", partial(stage.offers, fleet), every=0.5, seconds=PATIENCE)
        stage.call("fleets/apply", {"plan": {"spec": {"configuration": fleet, "profile": {}}}, "force": False})
    bought = ["provisioning"] * len(sold)
    until("the machines to be bought", lambda: stage.statuses() == bought, every=0.5, seconds=PATIENCE)
    assert [len(each.cloud.owned()) for each in sold.values()] == [1] * len(sold)
    stage.call("fleets/delete", {"names": [*fleets]})
    until("all to be given back", lambda: not any(each.cloud.owned() for each in sold.values()), seconds=PATIENCE)
    assert all((each.cloud.billed(), len(each.cloud.machines())) == (0, 1) for each in sold.values())
