"""A service whose replicas are pods of Runpod: the backend calls an API on loopback, and each pod is a container of an
engine."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.backends.runpod.fake import KEY
from tests.e2e.containers.cloud import ENGINE, SOLD
from tests.e2e.containers.test_containers_real import BRIDGE, IMAGE, apply, nothing_left, resources
from tests.e2e.containers.under_load import NAME, Site, no_request_fails
from tests.e2e.hosts.network import Namespace
from tests.harness.carriers import architecture, carrier
from tests.harness.debian import NotHere
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import applets_image
from tests.harness.server import Server
from tests.runtime.live import wait_for

pytestmark = pytest.mark.slow

FLEET = "type: fleet\nname: pods\nnodes: 0..4\nbackends: [runpod]\n"


@pytest.fixture
def server(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if architecture() != "x86":
        pytest.skip("Runpod's CPUs are x86")
    try:
        carrier()
    except NotHere as problem:
        pytest.skip(str(problem))
    bring(docker_engine, applets_image())
    place = Namespace(docker_engine.folder.name)
    one = Server(
        tmp_path_factory.mktemp("runpod") / "home",
        env={ENGINE: docker_engine.socket, "DSTACK_SERVER_HOST": BRIDGE, "no_proxy": f"{BRIDGE},127.0.0.1"},
        network=place.path,
        opener=place.opener(),
        program="tests.e2e.containers.runpod",
    )
    backend = {"type": "runpod", "creds": {"type": "api_key", "api_key": KEY}}
    (one.home / "server").mkdir(parents=True)
    config = {"projects": [{"name": "main", "backends": [backend]}]}
    (one.home / "server" / "config.yml").write_text(json.dumps(config))
    try:
        one.start()
        apply(one, "pods", FLEET)
        yield one
    finally:
        one.close()
        for found in docker_engine.api.labelled(SOLD):
            docker_engine.api.remove(found["Id"])


def test_a_service_in_pods_loses_no_request_when_one_is_killed_and_versions_change(
    server: Server, docker_engine: DockerEngine
) -> None:
    site = Site(server, image=IMAGE, resources=resources(), backends=["runpod"])
    no_request_fails(site, lambda name: docker_engine.api.call("POST", f"/containers/{name}/kill"))
    server.call("/api/project/main/runs/stop", {"runs_names": [NAME], "abort": False})
    assert wait_for(server, NAME, "done", "failed", "terminated")["status"] == "terminated"
    nothing_left(server, docker_engine)
