"""Gateways."""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from chalicelib.api.route import Answer, Call, DryRun, Settling, asks, takes_both
from chalicelib.api.v1 import answers, specs
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.conditions import Condition
from chalicelib.api.v1.configurations import Written, takes_configuration
from chalicelib.api.v1.writes import Nothing, WriteQuery, created, creates, going, still, write
from chalicelib.api.wire.v1.gateways import gateway_json, gateway_path, gateway_spec_json, gateway_summary_json
from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.services import certificates, gateway_plans, gateways

if TYPE_CHECKING:
    from chalicelib import contract


@asks(PageQuery)
def list_project(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1GatewayPage]:
    """Gateways of the project, newest first."""
    rows, default = [*reversed(gateways.list_all(call.plane, call.tenant))], _default(call)

    def item(gateway: Gateway) -> contract.V1GatewaySummary:
        shown = certificates.shown(call.plane, gateway)
        return gateway_summary_json(gateway, call.tenant.name, shown, default=gateway.id == default)

    return answers.cut(call, query, rows, lambda gateway: (gateway.created_at, gateway.id), item)


def get(call: Call) -> Annotated[Answer, contract.V1Gateway]:
    """The gateway of this name, with the certificates of its services' hosts."""
    gateway = _named(call)
    return answers.resource(call, _shown(call, gateway), settling=_settling(call, gateway))


@takes_configuration
def create(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Gateway, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a gateway. The body is its configuration; one without a `name` gets one. Its machines come after the
    answer."""

    def act(plane: Plane, gateway_id: str) -> Gateway:
        return gateway_plans.create(plane, call.actor, call.tenant, body.root, new=gateway_id)

    def made(gateway_id: str) -> Gateway:
        found = nouns.find(call.plane.store, Gateway, keys.gateway(gateway_id))
        return still(None if found is None or found.deleted else found, "gateway")

    def answer(gateway: Gateway) -> Answer:
        path = gateway_path(call.tenant.name, gateway.name)
        return created(call, _shown(call, gateway), path, _settling(call, gateway))

    return write(call, query, "create", act, lambda done: answer(done.result or made(done.subject_id)))


def get_spec(call: Call) -> Annotated[Answer, contract.Configuration]:
    """The gateway's configuration. Its `ETag` is that of the spec alone."""
    gateway = _named(call)
    return answers.resource(call, gateway_spec_json(gateway), tag=_tag(gateway))


@takes_configuration
def apply(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.Configuration, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates the gateway, or changes it in place, where that is possible. With `If-Match` only if the spec has this
    tag, with `If-None-Match: *` only if there is no such gateway."""
    name, condition = call.params["gateway_name"], Condition.of(call)
    spec = {"configuration": specs.named(body.root, name)}

    def seen(plane: Plane) -> gateway_plans.SeenGateway | None:
        """The gateway that the change is for, if it must be this one."""
        if not condition:
            return None
        current = gateways.holder(plane, call.tenant, name)[0]
        condition.check(None if current is None else _tag(current))
        return None if current is None else gateway_plans.SeenGateway(current.id, gateway_spec_json(current))

    def act(plane: Plane, gateway_id: str) -> Gateway:
        return gateway_plans.apply_plan(
            plane, call.actor, call.tenant, spec, seen(plane), new=gateway_id, or_change=not condition.new
        )

    def answer(gateway: Gateway, made_id: str) -> Answer:
        return specs.applied(call, gateway_spec_json(gateway), _tag(gateway), made=gateway.id == made_id)

    verb = creates(lambda: gateways.holder(call.plane, call.tenant, name)[0])
    return write(
        call, query, verb, act, lambda done: answer(done.result or _named(call), done.subject_id), conditional=True
    )


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Deletes a gateway. It is gone some time after the answer."""
    name = call.params["gateway_name"]

    def act(plane: Plane, _: str) -> None:
        gateways.delete(plane, call.actor, call.tenant, [name])

    return write(call, query, "delete", act, going)


def _named(call: Call) -> Gateway:
    return gateways.get(call.plane, call.tenant, call.params["gateway_name"])


def _shown(call: Call, gateway: Gateway) -> contract.V1Gateway:
    hosts = certificates.shown(call.plane, gateway)
    return gateway_json(gateway, call.tenant.name, hosts, default=gateway.id == _default(call))


def _settling(call: Call, gateway: Gateway) -> Settling | None:
    moves = gateway.status in (GatewayStatus.submitted, GatewayStatus.provisioning, GatewayStatus.deleting)
    return Settling(gateway.unit, gateway_path(call.tenant.name, gateway.name)) if moves else None


def _default(call: Call) -> str | None:
    """The id of the project's default gateway."""
    found = call.plane.read.default_gateway(call.tenant.id)
    return None if found is None else found.id


def _tag(gateway: Gateway) -> str:
    return f'"{gateway.id}.{hashlib.sha256(gateway.configuration.encode()).hexdigest()[:16]}"'
