"""One contract for three clients: Google's library for Compute Engine, its client of discovery documents, and ours,
which the conformance suite plays. Whatever they rely on is as Google has it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.gcp import sdk
from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.domain.instants import SECOND
from tests.backends.conformance.requests import request_for
from tests.backends.fakes.transport import serving
from tests.backends.gcp.fake import PROJECT, TOKEN, Google
from tests.backends.gcp.provider import config

pytestmark = pytest.mark.slow
PYTHON = Path(__file__).parents[3] / ".venvs" / "google" / "bin" / "python"
ZONE = "us-central1-a"


@pytest.fixture
def address() -> Iterator[str]:
    fake = Google(lambda: time.time_ns() // 1000)
    fake.boot = fake.end = SECOND // 5
    with serving(fake) as found:
        yield found


def test_the_client_of_discovery_documents(address: str) -> None:
    if not PYTHON.exists():
        pytest.skip("Google's client isn't installed here; `make test` installs it into .venvs/google")
    command = [str(PYTHON), str(Path(__file__).with_name("discovery_client.py")), address, TOKEN]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "replayed": True,
        "another body": [400, "invalid"],
        "the name again": [409, "alreadyExists"],
        "insert": "",
        "machine": ["RUNNING", "203.0."],
        "labels": [400, "invalid"],
        "type": [400, "invalid"],
        "unknown field": [400, "invalid"],
        "read-only field": [400, "invalid"],
        "scopes": [f"zones/{ZONE}"],
        "empty scopes": ["NO_RESULTS_ON_PAGE"],
        "pages": True,
        "attach": "",
        "delete what is attached": [400, "resourceInUseByAnotherResource"],
        "detach": "",
        "delete": "",
        "gone": [404, "notFound"],
        "prices": True,
        "permissions": 2,
    }


def client(service: str, address: str) -> Any:
    """Google's own, as anybody would make it."""
    from google.oauth2.credentials import Credentials

    creds = Credentials(TOKEN)  # type: ignore[no-untyped-call]
    return sdk.client_class(service)(credentials=creds, transport="rest", client_options={"api_endpoint": address})


def test_googles_library(address: str) -> None:
    """With its own messages, lists in pages, and errors."""
    from google.api_core.exceptions import BadRequest, NotFound

    kind = {name: sdk.message_class(name) for name in ("Instance", "AttachedDisk", "NetworkInterface", "Operation")}
    image = "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
    params = sdk.message_class("AttachedDiskInitializeParams")(
        source_image=image, disk_size_gb=60, disk_type=f"zones/{ZONE}/diskTypes/pd-balanced"
    )
    machine = kind["Instance"](
        name="a-machine",
        machine_type=f"zones/{ZONE}/machineTypes/n2-standard-2",
        disks=[kind["AttachedDisk"](boot=True, auto_delete=True, initialize_params=params)],
        network_interfaces=[
            kind["NetworkInterface"](subnetwork=f"projects/{PROJECT}/regions/us-central1/subnetworks/training")
        ],
        reservation_affinity={"consume_reservation_type": "NO_RESERVATION"},
        labels={"team": "research"},
    )
    machines, operations = client("instances", address), client("zone_operations", address)
    at = {"project": PROJECT, "zone": ZONE}
    made = machines.insert_unary(instance_resource=machine, **at)
    assert made.status in (kind["Operation"].Status.RUNNING, kind["Operation"].Status.DONE) and made.target_id
    while made.status != kind["Operation"].Status.DONE:
        made = operations.wait(operation=made.name, **at)
    assert machines.get(instance="a-machine", **at).status == "RUNNING"
    request = sdk.message_class("AggregatedListInstancesRequest")(project=PROJECT, filter='labels.team = "research"')
    listed = {scope: [each.name for each in found.instances] for scope, found in machines.aggregated_list(request)}
    assert listed[f"zones/{ZONE}"] == ["a-machine"] and set(map(tuple, listed.values())) == {("a-machine",), ()}
    machine.labels = {"A B": "x"}
    machine.name = "b"
    with pytest.raises(BadRequest, match="labels"):
        machines.insert_unary(instance_resource=machine, **at)
    with pytest.raises(NotFound) as refused:
        machines.get(instance="no-such", **at)
    assert refused.value.errors[0]["reason"] == "notFound"
    assert len(list(client("regions", address).list(project=PROJECT))) == 2


def test_our_own_over_loopback(address: str) -> None:
    """As the product makes it, at an endpoint: logged in with a token, which stands for a service account's."""
    backend = _backend(address)
    offer = next(each for each in backend.offers() if each.instance.name == "n2-standard-2")
    backend.check()
    made = list(backend.create(request_for(offer)))
    until = time.monotonic() + 30
    while backend.describe(made).state != "running" and time.monotonic() < until:
        time.sleep(0.05)
    assert [each.handle for each in backend.list_owned()] == made
    backend.close()


def _backend(address: str) -> GcpBackend:
    from chalicelib.backends.gcp.client import GcpClients

    def login() -> Any:
        from google.oauth2.credentials import Credentials

        return Credentials(TOKEN)  # type: ignore[no-untyped-call]

    return GcpBackend(config(), GcpClients(None, PROJECT, endpoint=address, login=login))
