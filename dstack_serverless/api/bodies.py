"""Parts of bodies. Generated: `make docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import NotRequired, TypedDict

if TYPE_CHECKING:
    from chalicelib import contract


class Creds(TypedDict):
    clone_url: str
    private_key: NotRequired[str | None]
    oauth_token: NotRequired[str | None]


class CurrentFleet(TypedDict):
    id: str
    spec: dict[str, Any]


class CurrentGateway(TypedDict):
    id: str
    configuration: dict[str, Any]


class CurrentRun(TypedDict):
    id: str
    deployment_num: NotRequired[int]


class FleetPlanBody(TypedDict):
    spec: dict[str, Any]
    current_resource: NotRequired[CurrentFleet | None]


class GatewayPlanBody(TypedDict):
    spec: dict[str, Any]
    current_resource: NotRequired[CurrentGateway | None]


class RunPlanBody(TypedDict):
    run_spec: dict[str, Any]
    current_resource: NotRequired[CurrentRun | None]


class Setting(TypedDict):
    username: str
    project_role: contract.ProjectRole
