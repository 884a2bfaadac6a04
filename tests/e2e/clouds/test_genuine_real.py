"""The genuine client and the genuine console with an account in each cloud: its settings without its secrets, its
offers, and what is bought there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.registry import built
from tests.bench.measure import submit, task
from tests.e2e.clouds.cloud import CLOUDS, PRICES, Cloud, cloud_of, price_file
from tests.e2e.clouds.containers import CONTAINERS
from tests.e2e.onprem.lab import SMALL
from tests.e2e.peer import Peer, joined
from tests.e2e.test_console_real import drive, instances
from tests.harness.server import Server, until

JOURNEY = Path(__file__).with_name("genuine_journey.py")
NAMES = sorted((*CLOUDS, *CONTAINERS))
IN = "/api/project/main"


@pytest.fixture(scope="module")
def clouds() -> dict[str, Cloud]:
    return {name: CONTAINERS[name]() if name in CONTAINERS else cloud_of(name) for name in NAMES}


@pytest.fixture(scope="module")
def server(clouds: dict[str, Cloud], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("genuine")
    price_file(home, *clouds.values())
    with ExitStack() as served:
        places = {name: served.enter_context(cloud.serving()) for name, cloud in clouds.items()}
        env = {
            "DSTACK_BACKEND_ENDPOINTS": ",".join(f"{name}={places[name]}" for name in NAMES if name != "kubernetes"),
            "DSTACK_CATALOG_FILE": str(home / PRICES),
        }
        made = Server(home / "server", flags=("--no-local-fleet",), env=env)
        made.start()
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def peer(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Peer:
    return joined(server, tmp_path_factory.mktemp("peer") / "home")


def test_every_cloud_is_here() -> None:
    assert sorted(built()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_genuine_client_adds_an_account_and_sees_its_offers(
    peer: Peer, clouds: dict[str, Cloud], name: str
) -> None:
    config = clouds[name].config
    seen = peer.python(JOURNEY, json.dumps(config))
    assert name in seen["listed"]
    assert secrets(config) and not [each for each in secrets(config) if each in json.dumps(seen)]
    for field, value in config.items():
        if field not in ("creds", "kubeconfig"):
            assert seen["found"][field] == value

    gpu = clouds[name].fleet.get("resources", {}).get("gpu")
    flags = ("--gpu", gpu) if gpu else ()

    def offered() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = peer.json("offer", "-b", name, *flags, "--json")["offers"]
        return found

    assert {each["backend"] for each in until("its offers", offered)} == {name}


def secrets(config: Mapping[str, Any]) -> list[str]:
    given = config.get("creds") or config["kubeconfig"]
    return [str(text) for field, text in given.items() if field != "type" and len(str(text)) > 12]


def test_the_console_shows_each_account_and_what_is_bought_there(server: Server, clouds: dict[str, Cloud]) -> None:
    """No call and no script fails. Fleets and runs are named by number: a cloud's name is that of its backend."""
    added = {each["name"] for each in server.call("/api/projects/main/get")["backends"]}
    for number, name in enumerate(NAMES):
        if name not in added:  # the genuine client did it
            server.call(f"{IN}/backends/create", dict(clouds[name].config))
        fleet = {"type": "fleet", "name": f"pool-{number}", "nodes": "0..1", "backends": [name], "resources": SMALL}
        spec = {"configuration": {**fleet, **clouds[name].fleet}, "profile": {}}
        server.call(f"{IN}/fleets/apply", {"plan": {"spec": spec}, "force": False})
        wanted = {"resources": SMALL, **clouds[name].fleet, "image": "ubuntu", "fleets": [f"pool-{number}"]}
        submit(server, task(f"job-{number}", "sleep 36000", **wanted))
    found = until("a machine in each", lambda: one_in_each(server), every=0.5)
    lists = {path: NAMES for path in ("/projects/main", "/offers", "/fleets", "/instances", "/runs")}
    settings = {f"/projects/main/backends/{name}": [f"type: {name}", "(hidden)"] for name in NAMES}
    machines = {f"/projects/main/instances/{each['id']}": [each["backend"], each["region"]] for each in found}
    drive(server, "visit.mjs", server.token, pages={**lists, **settings, **machines}, follow=False)


def one_in_each(server: Server) -> list[dict[str, Any]]:
    found = instances(server)
    return found if sorted(each["backend"] for each in found) == NAMES else []
