"""Gateways over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


def list_project(
    project_name: str,
) -> Request[list[contract.Gateway]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/list",
        safe=True,
    )


def get(
    project_name: str,
    *,
    name: str,
) -> Request[contract.GatewayWithCertificates]:
    """A gateway with its certificates, which the list leaves out.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/get",
        body=given(
            name=name,
        ),
        safe=True,
    )


def get_plan(
    project_name: str,
    *,
    spec: dict[str, Any],
) -> Request[contract.GatewayPlan]:
    """What applying the gateway would do. Nothing is stored.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/get_plan",
        body=given(
            spec=spec,
        ),
        safe=True,
    )


def apply(
    project_name: str,
    *,
    plan: bodies.GatewayPlanBody,
    force: bool = UNSET,
) -> Request[contract.Gateway]:
    """Creates the gateway, or changes the one of this name in place.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/apply",
        body=given(
            plan=plan,
            force=force,
        ),
    )


def create(
    project_name: str,
    *,
    configuration: dict[str, Any],
) -> Request[contract.Gateway]:
    """Creates a gateway; one of this name must not exist.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/create",
        body=given(
            configuration=configuration,
        ),
    )


def delete(
    project_name: str,
    *,
    names: list[str],
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/delete",
        body=given(
            names=names,
        ),
    )


def set_default(
    project_name: str,
    *,
    name: str,
    gateway_project: str | None = UNSET,
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/set_default",
        body=given(
            name=name,
            gateway_project=gateway_project,
        ),
    )


def set_wildcard_domain(
    project_name: str,
    *,
    name: str,
    wildcard_domain: str | None = UNSET,
) -> Request[contract.Gateway]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gateways/set_wildcard_domain",
        body=given(
            name=name,
            wildcard_domain=wildcard_domain,
        ),
    )
