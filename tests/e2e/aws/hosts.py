"""An SSH fleet: the deployed functions log in to a host, as the deployed state machines ask them to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from chalicelib.planning.kernel.workflows import Definition
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from tests.e2e.aws.journey import Journey
from tests.e2e.aws.starts import entered, executions
from tests.e2e.hosts import snapshot
from tests.e2e.hosts.host import PORT, Host
from tests.e2e.hosts.network import HEAD
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.onprem.lab import SMALL
from tests.e2e.onprem.test_ssh_fleet_real import as_it_was
from tests.harness.images import BUSYBOX, busybox_image
from tests.harness.server import until
from tests.scenarios.stages import Real

LAB, HERE = "lab", "127.0.0.1"
TASK = {"type": "task", "name": "far", "image": BUSYBOX, "shell": "sh", "commands": ["echo from afar"], "fleets": [LAB]}


def hosts(trip: Journey) -> None:
    """A host that goes while it is set up is as it was; then an execution sets it up, it works, and is cleared."""
    stage = trip.at("onprem")
    with or_skipped([], head=HostSpec("head")) as site:
        host, login = site.head, socket.create_server((HERE, 0))
        host.import_image(busybox_image())
        before = snapshot.take(host)
        with passing_on(login, lambda: site.control.connect((HEAD, PORT))):
            configuration = fleet(site, login.getsockname()[1])
            goes_meanwhile(trip, stage, host, configuration)
            as_it_was(host, before)
            works(trip, stage, host, configuration)
            as_it_was(host, before)
    trip.cleared.append(stage)


def goes_meanwhile(trip: Journey, stage: Real, host: Host, configuration: dict[str, Any]) -> None:
    """It can't report, and before that is noticed somebody deletes its fleet."""
    apply(stage, configuration, "-d")
    with route_to_plane(trip, host):
        until("the host to be looked at", lambda: "install" in path(trip, ADD_HOST, 1), every=0.2)
    until("its report to be waited for", lambda: "report" in path(trip, ADD_HOST, 1), every=0.5)
    gone(stage)
    assert ended(trip, ADD_HOST, 1) == "FAILED"
    assert path(trip, ADD_HOST, 1) == ["look", "install", "start", "report", "undo start", "undo install"]


def works(trip: Journey, stage: Real, host: Host, configuration: dict[str, Any]) -> None:
    with route_to_plane(trip, host):
        apply(stage, configuration)
        assert ended(trip, ADD_HOST, 2) == "SUCCEEDED"
        assert path(trip, ADD_HOST, 2) == ["look", "install", "start", "report"]
        assert "from afar" in apply(stage, {**TASK, "resources": SMALL})
        gone(stage)
        assert (ended(trip, REMOVE_HOST, 1), path(trip, REMOVE_HOST, 1)) == ("SUCCEEDED", ["stop", "clear"])


@contextmanager
def route_to_plane(trip: Journey, host: Host) -> Iterator[None]:
    """The control plane's address leads there from the host, too."""
    assert trip.one.front is not None
    front = (HERE, int(trip.one.front.server_address[1]))
    with passing_on(host.namespace.listen(front), lambda: socket.create_connection(front)):
        yield


def fleet(site: Site, port: int) -> dict[str, Any]:
    login = {"user": "ubuntu", "identity_file": str(site.key.path), "port": port, "hosts": [HERE]}
    return {"type": "fleet", "name": LAB, "ssh_config": login}


def apply(stage: Real, configuration: dict[str, Any], *flags: str) -> str:
    name = f"{configuration['name']}.dstack.yml"
    (stage.home / name).write_text(json.dumps(configuration))
    output, status = stage.dstack(["apply", "-y", "-f", name, *flags])
    assert status == 0, output
    return output


def gone(stage: Real) -> None:
    output, status = stage.dstack(["fleet", "delete", "-y", LAB])
    assert status == 0, output
    stage.until("the fleet to be gone", lambda: stage.ask("fleets/list", {}) == [])


def path(trip: Journey, definition: Definition, number: int) -> list[str]:
    """The steps that the execution of this number has entered; none while it isn't there."""
    return entered(trip, of(trip, definition, number))


def ended(trip: Journey, definition: Definition, number: int) -> str:
    def status() -> str:
        found = of(trip, definition, number)
        return found["status"] if found and found["status"] != "RUNNING" else ""

    return str(until("the execution to end", status, every=0.5))


def of(trip: Journey, definition: Definition, number: int) -> dict[str, Any] | None:
    found = sorted(executions(trip, definition.name), key=lambda one: one["startDate"])
    assert len(found) <= number, "an execution is a workflow"
    return found[number - 1] if len(found) == number else None


@contextmanager
def passing_on(listener: socket.socket, connect: Callable[[], socket.socket]) -> Iterator[None]:
    """Whoever calls this listener talks with what `connect` connects to. Each may be in a network of its own."""
    thread = threading.Thread(target=_accept, args=(listener, connect))
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def _accept(listener: socket.socket, connect: Callable[[], socket.socket]) -> None:
    with suppress(OSError):  # it was closed
        while True:
            near, _ = listener.accept()
            far = connect()
            far.settimeout(None)
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)
