"""History over HTTP, across the projects that the caller may see.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_events(
    *,
    target_projects: list[str] | None = UNSET,
    target_users: list[str] | None = UNSET,
    target_fleets: list[str] | None = UNSET,
    target_instances: list[str] | None = UNSET,
    target_runs: list[str] | None = UNSET,
    target_jobs: list[str] | None = UNSET,
    target_volumes: list[str] | None = UNSET,
    target_gateways: list[str] | None = UNSET,
    target_gateway_replicas: list[str] | None = UNSET,
    target_secrets: list[str] | None = UNSET,
    target_presets: list[str] | None = UNSET,
    target_workflows: list[str] | None = UNSET,
    target_gangs: list[str] | None = UNSET,
    target_backends: list[str] | None = UNSET,
    target_automations: list[str] | None = UNSET,
    target_certificates: list[str] | None = UNSET,
    within_projects: list[str] | None = UNSET,
    within_fleets: list[str] | None = UNSET,
    within_runs: list[str] | None = UNSET,
    within_gateways: list[str] | None = UNSET,
    include_target_types: list[contract.AnyTarget] | None = UNSET,
    actors: list[str | None] | None = UNSET,
    prev_recorded_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Event]]:
    """Events that the caller may see, newest first unless `ascending`.

    For any active user.
    """
    return Request(
        "POST",
        "/api/events/list",
        body=given(
            target_projects=target_projects,
            target_users=target_users,
            target_fleets=target_fleets,
            target_instances=target_instances,
            target_runs=target_runs,
            target_jobs=target_jobs,
            target_volumes=target_volumes,
            target_gateways=target_gateways,
            target_gateway_replicas=target_gateway_replicas,
            target_secrets=target_secrets,
            target_presets=target_presets,
            target_workflows=target_workflows,
            target_gangs=target_gangs,
            target_backends=target_backends,
            target_automations=target_automations,
            target_certificates=target_certificates,
            within_projects=within_projects,
            within_fleets=within_fleets,
            within_runs=within_runs,
            within_gateways=within_gateways,
            include_target_types=include_target_types,
            actors=actors,
            prev_recorded_at=prev_recorded_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def list_changes(
    project_name: str,
    *,
    prev_recorded_at: str,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
) -> Request[list[contract.StateChange]]:
    """The project's state changes after the given one, oldest first, in the form in which webhooks send them.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/events/changes",
        body=given(
            prev_recorded_at=prev_recorded_at,
            prev_id=prev_id,
            limit=limit,
        ),
        safe=True,
    )
