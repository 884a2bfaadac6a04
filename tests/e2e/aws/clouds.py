"""Clouds of every artefact: the deployed function that has a cloud's SDK checks its account, fetches its offers, buys
there, sweeps it and gives everything back."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

from chalicelib.backends.registry import artefacts
from chalicelib.domain.instants import HOUR
from chalicelib.domain.keys import sightings_of
from infra.artefacts import KINDS
from tests.e2e.aws.deployment import PATIENCE, STAGE
from tests.e2e.aws.journey import Journey, installation
from tests.e2e.aws.sold import SOLD
from tests.e2e.onprem.lab import SMALL
from tests.harness.server import HttpError, until
from tests.scenarios.stages import Real

PROJECT = "sold"
SDKS = {"google/cloud/compute_v1/": {"gcp"}, "grpc/": {"gcp", "nebius"}}  # the artefacts that have each
CALLERS = ("api", "sweep_orphans", "refresh_catalog", "reconcile")  # of the providers' functions
ANOTHER = "00000000-0000-4000-8000-000000000000"  # an install that shares the accounts


def clouds(trip: Journey) -> None:
    """In a cloud of each artefact: an account, offers, a machine, an orphan swept, a new price, all given back."""
    assert SOLD.keys() == artefacts().keys()
    artefacts_are_rendered(trip)
    stage, sold = trip.at(PROJECT), trip.sold.values()
    a_wrong_key_is_refused(trip, stage)
    for each in sold:
        stage.ask("backends/create", {**each.cloud.config})
        assert stage.ask(f"backends/{each.cloud.type}/check", {}) is None
    wanted = fleets(trip)
    for name, fleet in wanted.items():
        until(f"the offers of {name}", partial(listed, trip, stage, fleet), every=5, seconds=PATIENCE)
        stage.ask("fleets/apply", {"plan": {"spec": {"configuration": fleet, "profile": {}}}, "force": False})
    until("the machines", lambda: statuses(stage) == ["provisioning"] * len(sold), every=0.5, seconds=PATIENCE)
    assert [len(each.cloud.owned()) for each in sold] == [1] * len(sold)
    an_orphan_is_swept(trip)
    a_new_price_is_seen(trip, stage)
    strangers = [each.cloud.owned() for each in sold]
    stage.ask("fleets/delete", {"names": [*wanted]})
    until("the fleets to be gone", lambda: stage.ask("fleets/list", {}) == [], every=0.5, seconds=PATIENCE)
    for each, before in zip(sold, strangers, strict=True):
        assert each.cloud.owned() < before and len(each.cloud.owned()) == 1, "the stranger's"
        assert len(each.cloud.machines()) == 3, "one was bought"
    stage.ask("backends/delete", {"backends_names": [*wanted]})
    assert stage.ask("backends/list", {}) == []


def artefacts_are_rendered(trip: Journey) -> None:
    """From the rows of the table: an SDK is where it is needed alone, and whoever needs its function may call it."""
    build = trip.one.clone / "build"
    names = {path.name.partition("-")[0]: zipfile.ZipFile(path).namelist() for path in build.glob("*.zip")}
    assert names.keys() == KINDS.keys()
    for sdk, there in SDKS.items():
        assert {name for name, files in names.items() if any(file.startswith(sdk) for file in files)} == there
    functions, iam = trip.one.client("lambda"), trip.one.client("iam")
    for artefact in SOLD:
        found = functions.get_function_configuration(FunctionName=f"dstack-{STAGE}-provider_{artefact}")
        assert found["Handler"] == "functions.provider.handler"
    for caller in CALLERS:
        role = functions.get_function_configuration(FunctionName=f"dstack-{STAGE}-{caller}")["Role"].rpartition("/")[2]
        (policy,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
        document = json.dumps(iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"])
        assert all(f"provider_{artefact}" in document for artefact in SOLD), caller


def a_wrong_key_is_refused(trip: Journey, stage: Real) -> None:
    """By the provider, which the API couldn't ask: it hasn't got the SDK."""
    config = {**trip.sold["nebius"].cloud.config}
    config["creds"] = {**config["creds"], "public_key_id": "publickey-e00another"}
    try:
        stage.ask("backends/create", config)
        raise AssertionError("any key is let in")
    except HttpError as refused:
        (entry,) = json.loads(refused.body)["detail"]
    assert (entry["code"], entry["fields"]) == ("invalid_credentials", ["creds"]), entry
    assert stage.ask("backends/list", {}) == []


def an_orphan_is_swept(trip: Journey) -> None:
    """A machine of this install's, of whose instance nothing is known, and no other, though another install has one."""
    sold = trip.sold.values()
    orphans, others = list[set[str]](), list[set[str]]()
    for each in sold:
        mine = each.cloud.owned()
        orphans.append(each.bought_by(installation(trip)))
        others.append(mine | each.bought_by(ANOTHER))
    sweep_until(trip, "the first sightings", lambda: len(sightings(trip)) == len(sold))
    assert [each.cloud.owned() for each in sold] == [one | rest for one, rest in zip(orphans, others, strict=True)]
    an_hour_passes_since(trip, sightings(trip))
    sweep_until(trip, "the orphans to be swept", lambda: [each.cloud.owned() for each in sold] == others)


def sweep_until(trip: Journey, what: str, done: Callable[[], bool]) -> None:
    """One sweep does, unless it finds an account that may not call just now."""

    def swept() -> bool:
        if done():
            return True
        invoke(trip, "sweep_orphans")
        return False

    until(what, swept, every=3, seconds=PATIENCE)


def sightings(trip: Journey) -> list[dict[str, Any]]:
    """The items of the table. Each is a resource that a sweep found to belong to nobody."""
    items = trip.one.client("dynamodb").scan(TableName=f"dstack-{STAGE}")["Items"]
    return [each for each in items if each["pk"]["S"].startswith(sightings_of(""))]


def an_hour_passes_since(trip: Journey, seen: list[dict[str, Any]]) -> None:
    """Two sweeps must agree, as far apart as a purchase there may take."""
    for each in seen:
        body = json.loads(each["body"]["S"])
        body["first_at"] -= HOUR
        item = {**each, "body": {"S": json.dumps(body)}, "version": {"N": str(int(each["version"]["N"]) + 1)}}
        trip.one.client("dynamodb").put_item(TableName=f"dstack-{STAGE}", Item=item)


def a_new_price_is_seen(trip: Journey, stage: Real) -> None:
    """In `dstack offer`, after the schedule's refresh; at Google, whose price list a process reads once a day, after
    that of a new process; at Lambda, whose types are read once a minute, within one."""
    wanted = fleets(trip)
    before = {name: price(stage, fleet) for name, fleet in wanted.items()}
    for each in trip.sold.values():
        each.cloud.doubles_prices()
    starts_anew(trip, "provider_gcp")

    def dearer() -> bool:
        invoke(trip, "refresh_catalog")
        return all(price(stage, fleet) > 1.5 * before[name] for name, fleet in wanted.items())

    until("the new prices", dearer, every=5, seconds=PATIENCE)
    for name, fleet in wanted.items():
        (kind,) = fleet["instance_types"]
        output, status = stage.dstack(["offer", "-b", name, "--instance-type", kind, "--json"])
        assert status == 0 and json.loads(output)["offers"][0]["price"] == price(stage, fleet), output


def fleets(trip: Journey) -> dict[str, dict[str, Any]]:
    """One in each cloud, by its name, which is the cloud's."""
    bare = {"type": "fleet", "nodes": 1, "idle_duration": "off", "resources": SMALL}
    return {name: {**bare, "name": name, "backends": [name], **each.cloud.fleet} for name, each in trip.sold.items()}


def price(stage: Real, fleet: dict[str, Any]) -> float:
    """Of the first offer of the fleet's backend; 0 while there is none."""
    plan = stage.ask("fleets/get_plan", {"spec": {"configuration": fleet, "profile": {}}})
    return next((float(one["price"]) for one in plan["offers"] if [one["backend"]] == fleet["backends"]), 0.0)


def listed(trip: Journey, stage: Real, fleet: dict[str, Any]) -> float:
    """They are fetched as soon as there is an account, and by the schedule if that failed."""
    found = price(stage, fleet)
    if not found:
        invoke(trip, "refresh_catalog")
    return found


def statuses(stage: Real) -> list[str]:
    return [one["status"] for fleet in stage.ask("fleets/list", {}) for one in fleet["instances"]]


def invoke(trip: Journey, function: str) -> None:
    """As its schedule does."""
    functions = trip.one.client("lambda")
    functions.invoke(FunctionName=f"dstack-{STAGE}-{function}", InvocationType="RequestResponse", Payload=b"{}")


def starts_anew(trip: Journey, function: str) -> None:
    """A change of its settings ends its processes."""
    functions, name = trip.one.client("lambda"), f"dstack-{STAGE}-{function}"
    memory = functions.get_function_configuration(FunctionName=name)["MemorySize"]
    functions.update_function_configuration(FunctionName=name, MemorySize=memory)
