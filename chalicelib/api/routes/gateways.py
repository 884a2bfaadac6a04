"""Gateways over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import Id, Name, Names, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.gateways import certificate_json, gateway_json, gateway_plan_json
from chalicelib.domain.gateways import Gateway
from chalicelib.errors import NotSupported
from chalicelib.usecases.services import certificates, gateway_plans, gateways

if TYPE_CHECKING:
    from chalicelib import contract

Domain = Annotated[str, Field(max_length=300)]


class ListGatewaysBody(RequestBody):
    include_imported: bool = False  # gateways can't be shared, so there are none to add


class GetGatewayBody(RequestBody):
    name: Name


class GetGatewayPlanBody(RequestBody):
    spec: Object


class CurrentGateway(RequestBody):
    id: Id
    configuration: Object


class GatewayPlanBody(RequestBody):
    spec: Object
    current_resource: CurrentGateway | None = None


class ApplyGatewayBody(RequestBody):
    plan: GatewayPlanBody
    force: bool = False


class CreateGatewayBody(RequestBody):
    configuration: Object


class DeleteGatewaysBody(RequestBody):
    names: Names


class SetDefaultBody(RequestBody):
    name: Name
    gateway_project: Name | None = None


class SetDomainBody(RequestBody):
    name: Name
    wildcard_domain: Domain | None = None


def list_project(call: Call) -> list[contract.Gateway]:
    default = _default(call)
    return [
        gateway_json(each, call.tenant.name, default=each.id == default)
        for each in gateways.list_all(call.plane, call.tenant)
    ]


@takes(GetGatewayBody)
def get(call: Call, body: GetGatewayBody) -> contract.GatewayWithCertificates:
    """A gateway with its certificates, which the list leaves out."""
    gateway = gateways.get(call.plane, call.tenant, body.name)
    hosts = certificates.shown(call.plane, gateway)
    return {**_shown(call, gateway), "certificates": [certificate_json(each) for each in hosts]}


@takes(GetGatewayPlanBody)
def get_plan(call: Call, body: GetGatewayPlanBody) -> contract.GatewayPlan:
    """What applying the gateway would do. Nothing is stored."""
    plan = gateway_plans.get_plan(call.plane, call.actor, call.tenant, body.spec)
    default = plan.current is not None and plan.current.id == _default(call)
    return gateway_plan_json(plan, call.tenant.name, call.actor.name, default=default)


@takes(ApplyGatewayBody)
def apply(call: Call, body: ApplyGatewayBody) -> contract.Gateway:
    """Creates the gateway, or changes the one of this name in place."""
    current = body.plan.current_resource
    seen = None if body.force or current is None else gateway_plans.SeenGateway(current.id, current.configuration)
    gateway = gateway_plans.apply_plan(call.plane, call.actor, call.tenant, body.plan.spec, seen)
    return _shown(call, gateway)


@takes(CreateGatewayBody)
def create(call: Call, body: CreateGatewayBody) -> contract.Gateway:
    """Creates a gateway; one of this name must not exist."""
    return _shown(call, gateway_plans.create(call.plane, call.actor, call.tenant, body.configuration))


@takes(DeleteGatewaysBody)
def delete(call: Call, body: DeleteGatewaysBody) -> None:
    gateways.delete(call.plane, call.actor, call.tenant, body.names)


@takes(SetDefaultBody)
def set_default(call: Call, body: SetDefaultBody) -> None:
    if body.gateway_project not in (None, call.tenant.name):
        what = "A gateway of another project can't be the default: it serves its own project only."
        raise NotSupported(what, hint=f"Make one for {call.tenant.name}: apply a configuration with `type: gateway`.")
    gateways.set_default(call.plane, call.actor, call.tenant, body.name)


@takes(SetDomainBody)
def set_wildcard_domain(call: Call, body: SetDomainBody) -> contract.Gateway:
    return _shown(call, gateways.set_domain(call.plane, call.actor, call.tenant, body.name, body.wildcard_domain))


def _shown(call: Call, gateway: Gateway) -> contract.Gateway:
    return gateway_json(gateway, call.tenant.name, default=gateway.id == _default(call))


def _default(call: Call) -> str | None:
    """The id of the project's default gateway."""
    found = call.plane.read.default_gateway(call.tenant.id)
    return None if found is None else found.id
