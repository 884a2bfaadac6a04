"""Services whose replicas are rented in markets of containers: each backend calls an API on loopback, and each replica
is a container of an engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.backends.runpod.fake import KEY as RUNPOD_KEY
from tests.backends.vastai.fake import KEY as VASTAI_KEY
from tests.e2e.containers.cloud import ENGINE, SOLD
from tests.e2e.containers.markets import KEY_INSIDE
from tests.e2e.containers.test_containers_real import BRIDGE, apply, nothing_left, resources
from tests.e2e.containers.under_load import COMMANDS, Site, no_request_fails
from tests.e2e.hosts.network import Namespace
from tests.harness.carriers import architecture, carrier
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import applets_image, cards_image
from tests.harness.server import Server
from tests.runtime.live import wait_for

pytestmark = pytest.mark.slow

KEYS = {"runpod": RUNPOD_KEY, "vastai": VASTAI_KEY}
SEES_ITS_CARDS = 'test "$(nvidia-smi --query-gpu=uuid --format=csv,noheader | wc -l)" = "$DSTACK_GPUS_NUM" || exit 8'
HAS_NO_KEY = f'test -z "${{{KEY_INSIDE}-}}" || exit 9'  # with which it could change itself at Vast.ai


@pytest.fixture
def server(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if architecture() != "x86":
        pytest.skip("Runpod's CPUs are x86")
    try:
        carrier()
    except NotHere as problem:
        pytest.skip(str(problem))
    bring(docker_engine, applets_image())
    bring(docker_engine, cards_image())
    place = Namespace(docker_engine.folder.name)
    one = Server(
        tmp_path_factory.mktemp("markets") / "home",
        env={ENGINE: docker_engine.socket, "DSTACK_SERVER_HOST": BRIDGE, "no_proxy": f"{BRIDGE},127.0.0.1"},
        network=place.path,
        opener=place.opener(),
        program="tests.e2e.containers.markets",
    )
    backends = [{"type": kind, "creds": {"type": "api_key", "api_key": key}} for kind, key in KEYS.items()]
    (one.home / "server").mkdir(parents=True)
    (one.home / "server" / "config.yml").write_text(json.dumps({"projects": [{"name": "main", "backends": backends}]}))
    try:
        one.start()
        apply(one, "rented", f"type: fleet\nname: rented\nnodes: 0..8\nbackends: [{', '.join(KEYS)}]\n")
        yield one
    finally:
        one.close()
        for found in docker_engine.api.labelled(SOLD):
            docker_engine.api.remove(found["Id"])


def site(server: Server, kind: str, image: str, checks: Sequence[str] = (), **more: Any) -> Site:
    wanted = {"image": image, "backends": [kind], "resources": {**resources(), **more}}
    return Site(server, kind, commands=[*checks, *COMMANDS], **wanted)


def test_services_lose_no_request_when_a_replica_is_killed_and_versions_change(
    server: Server, docker_engine: DockerEngine
) -> None:
    """Both at once: most of the time goes by until an agent that has been killed counts as silent."""
    sites = (
        site(server, "runpod", applets_image().name),
        site(server, "vastai", cards_image().name, (SEES_ITS_CARDS, HAS_NO_KEY), gpu="1..2"),
    )

    def kill(name: str) -> None:
        docker_engine.api.call("POST", f"/containers/{name}/kill")

    with ThreadPoolExecutor(len(sites)) as pool:
        for each in [pool.submit(no_request_fails, one, kill) for one in sites]:
            each.result()
    server.call("/api/project/main/runs/stop", {"runs_names": [*KEYS], "abort": False})
    for kind in KEYS:
        assert wait_for(server, kind, "done", "failed", "terminated")["status"] == "terminated"
    nothing_left(server, docker_engine)
