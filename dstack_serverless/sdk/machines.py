"""Fleets and their instances, volumes, gateways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from chalicelib.errors import Refused
from cli.connection.polling import POLL_SECONDS
from dstack_serverless.api import fleets as fleets_api
from dstack_serverless.api import gateways as gateways_api
from dstack_serverless.api import instances as instances_api
from dstack_serverless.api import volumes as volumes_api
from dstack_serverless.sdk.configurations import Configuration, resource_of
from dstack_serverless.sdk.errors import WaitedTooLong
from dstack_serverless.sdk.flow import UNSET, Flow, Items, Pause, Request
from dstack_serverless.sdk.paging import Order, pages
from dstack_serverless.sdk.resource import Mode, Resource, iterated, method

if TYPE_CHECKING:
    from chalicelib import contract

T = TypeVar("T")

READY = ("idle", "busy")
INSTANCES = Order(at="created")


class Fleets(Resource[Mode]):
    """Fleets of the client's project."""

    @method
    def plan(self, configuration: Configuration) -> Flow[contract.FleetPlan]:
        """What `apply` would do. Nothing is changed."""
        spec = yield from resource_of(self.core, configuration)
        return (yield from self.core.ask(fleets_api.get_plan(self.core.in_project(), spec=spec)))

    @method
    def apply(self, configuration: Configuration, *, force: bool = False) -> Flow[contract.Fleet]:
        """Creates the fleet, or changes the one of its name; raises Refused if that takes deleting it first."""
        project = self.core.in_project()
        spec = yield from resource_of(self.core, configuration)
        plan = yield from self.core.ask(fleets_api.get_plan(project, spec=spec))
        current: Any = plan["current_resource"]
        body: Any = {"spec": plan["spec"], "current_resource": current}
        return (yield from self.core.ask(fleets_api.apply(project, plan=body, force=force)))

    @method
    def get(self, name: str) -> Flow[contract.Fleet]:
        """The fleet of this name."""
        return (yield from self.core.ask(fleets_api.get(self.core.in_project(), name=name)))

    @iterated
    def list(self, *, every_project: bool = False, limit: int | None = None) -> Items[contract.Fleet]:
        """Fleets, newest first."""
        project = UNSET if every_project else self.core.in_project()
        return Items(pages(self.core, fleets_api.list_fleets, limit, project_name=project))

    @method
    def delete(self, *names: str, force: bool = False) -> Flow[None]:
        """Deletes fleets and their machines."""
        yield from self.core.ask(fleets_api.delete(self.core.in_project(), names=[*names], force=force))

    @method
    def delete_instances(self, name: str, *numbers: int, force: bool = False) -> Flow[None]:
        """Deletes machines of a fleet, by their numbers."""
        project = self.core.in_project()
        call = fleets_api.delete_instances(project, name=name, instance_nums=[*numbers], force=force)
        yield from self.core.ask(call)

    @method
    def wait(self, name: str, machines: int = 1, *, timeout: float | None = None) -> Flow[contract.Fleet]:
        """Waits until so many of its machines are ready. Raises WaitedTooLong after `timeout` seconds."""
        call = fleets_api.get(self.core.in_project(), name=name)

        def ready(fleet: contract.Fleet) -> bool:
            return sum(one["status"] in READY for one in fleet["instances"]) >= machines

        return (yield from _settled(self, f"The fleet {name}", call, ready, timeout))


class Instances(Resource[Mode]):
    """The machines of fleets."""

    @iterated
    def list(
        self,
        *,
        fleets: Iterable[str] = (),
        only_active: bool = False,
        every_project: bool = False,
        limit: int | None = None,
    ) -> Items[contract.Instance]:
        """Machines, newest first. `fleets`: only those of fleets with these ids."""
        projects = UNSET if every_project else [self.core.in_project()]
        named = {"project_names": projects, "fleet_ids": [*fleets] or UNSET, "only_active": only_active}
        return Items(pages(self.core, instances_api.list_instances, limit, INSTANCES, **named))

    @method
    def get(self, id: str) -> Flow[contract.Instance]:
        """The machine with this id."""
        return (yield from self.core.ask(instances_api.get(self.core.in_project(), id=id)))


class Volumes(Resource[Mode]):
    """Volumes of the client's project."""

    @method
    def create(self, configuration: Configuration) -> Flow[contract.Volume]:
        """Creates a volume, or registers a disk that exists. Raises AlreadyExists if there is one of its name."""
        spec = yield from resource_of(self.core, configuration)
        call = volumes_api.create(self.core.in_project(), configuration=spec["configuration"])
        return (yield from self.core.ask(call))

    @method
    def get(self, name: str) -> Flow[contract.Volume]:
        """The volume of this name."""
        return (yield from self.core.ask(volumes_api.get(self.core.in_project(), name=name)))

    @iterated
    def list(self, *, every_project: bool = False, limit: int | None = None) -> Items[contract.Volume]:
        """Volumes, newest first."""
        project = UNSET if every_project else self.core.in_project()
        return Items(pages(self.core, volumes_api.list_volumes, limit, project_name=project))

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes volumes and their data."""
        yield from self.core.ask(volumes_api.delete(self.core.in_project(), names=[*names]))

    @method
    def wait(self, name: str, *, timeout: float | None = None) -> Flow[contract.Volume]:
        """Waits until it is there. Raises Refused if it has failed, and WaitedTooLong after `timeout` seconds."""
        call = volumes_api.get(self.core.in_project(), name=name)
        return (yield from _settled(self, f"The volume {name}", call, _has("active"), timeout))


class Gateways(Resource[Mode]):
    """Gateways of the client's project."""

    @method
    def plan(self, configuration: Configuration) -> Flow[contract.GatewayPlan]:
        """What `apply` would do. Nothing is changed."""
        spec = yield from resource_of(self.core, configuration)
        return (yield from self.core.ask(gateways_api.get_plan(self.core.in_project(), spec=spec)))

    @method
    def apply(self, configuration: Configuration, *, force: bool = False) -> Flow[contract.Gateway]:
        """Creates the gateway, or changes the one of its name; raises Refused if that takes deleting it first."""
        project = self.core.in_project()
        spec = yield from resource_of(self.core, configuration)
        plan = yield from self.core.ask(gateways_api.get_plan(project, spec=spec))
        body: Any = {"spec": plan["spec"], "current_resource": plan["current_resource"]}
        return (yield from self.core.ask(gateways_api.apply(project, plan=body, force=force)))

    @method
    def get(self, name: str) -> Flow[contract.GatewayWithCertificates]:
        """The gateway of this name, and the certificates that it has."""
        return (yield from self.core.ask(gateways_api.get(self.core.in_project(), name=name)))

    @method
    def list(self) -> Flow[Sequence[contract.Gateway]]:
        """The project's gateways."""
        return (yield from self.core.ask(gateways_api.list_project(self.core.in_project())))

    @method
    def set_default(self, name: str) -> Flow[None]:
        """Services have this gateway from now on, unless they name another."""
        yield from self.core.ask(gateways_api.set_default(self.core.in_project(), name=name))

    @method
    def delete(self, *names: str) -> Flow[None]:
        """Deletes gateways."""
        yield from self.core.ask(gateways_api.delete(self.core.in_project(), names=[*names]))

    @method
    def wait(self, name: str, *, timeout: float | None = None) -> Flow[contract.GatewayWithCertificates]:
        """Waits until it runs. Raises Refused if it has failed, and WaitedTooLong after `timeout` seconds."""
        call = gateways_api.get(self.core.in_project(), name=name)
        return (yield from _settled(self, f"The gateway {name}", call, _has("running"), timeout))


def _has(status: Literal["active", "running"]) -> Callable[[Any], bool]:
    def settled(found: Any) -> bool:
        return bool(found["status"] == status)

    return settled


def _settled(
    noun: Resource[Any], what: str, call: Request[T], settled: Callable[[Any], bool], timeout: float | None
) -> Flow[T]:
    by = None if timeout is None else noun.core.clock() + timeout
    while True:
        found = yield from noun.core.ask(call, by)
        if settled(found):
            return found
        seen: Any = found
        status, why = seen["status"], seen.get("status_message")
        reason = f"{': ' + why if why else ''}."
        if status == "failed":
            raise Refused(f"{what} failed{reason}")
        if timeout is not None and by is not None and noun.core.clock() >= by:
            raise WaitedTooLong(f"{what} is still {status} after {timeout:g} s{reason}")
        yield Pause(POLL_SECONDS)
