"""The genuine client in each cloud: it adds an account, sees its settings without its secrets, and what it offers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.clouds.cloud import CLOUDS, PRICES, Cloud, cloud_of, price_file
from tests.e2e.peer import Peer, joined
from tests.harness.server import Server, until

JOURNEY = Path(__file__).with_name("genuine_journey.py")


@pytest.fixture(scope="module")
def clouds() -> dict[str, Cloud]:
    return {name: cloud_of(name) for name in CLOUDS}


@pytest.fixture(scope="module")
def server(clouds: dict[str, Cloud], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("genuine")
    with ExitStack() as served:
        places = {name: served.enter_context(cloud.serving()) for name, cloud in clouds.items()}
        env = {
            "DSTACK_BACKEND_ENDPOINTS": ",".join(f"{name}={url}" for name, url in places.items()),
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


@pytest.mark.parametrize("name", list(CLOUDS))
def test_the_genuine_client_adds_an_account_and_sees_its_offers(
    server: Server, peer: Peer, clouds: dict[str, Cloud], name: str
) -> None:
    cloud = clouds[name]
    price_file(server.home.parent, cloud)
    seen = peer.python(JOURNEY, json.dumps(cloud.config))
    assert name in seen["listed"]
    secrets = [str(text) for field, text in cloud.config["creds"].items() if field != "type" and len(str(text)) > 12]
    assert secrets and not [each for each in secrets if each in json.dumps(seen)]
    for field, value in cloud.config.items():
        if field != "creds":
            assert seen["found"][field] == value

    def offered() -> list[object]:
        found: list[object] = peer.json("offer", "-b", name, "--json")["offers"]
        return found

    offers = until("its offers", offered)
    assert {each["backend"] for each in offers} == {name}  # type: ignore[index]
