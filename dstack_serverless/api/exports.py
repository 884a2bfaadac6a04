"""Exports and imports over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_exports(
    project_name: str,
) -> Request[list[contract.Export]]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/exports/list",
        safe=True,
    )


def create(
    project_name: str,
    *,
    name: str,
    is_global: bool = UNSET,
    importer_projects: list[str] = UNSET,
    exported_fleets: list[str] = UNSET,
    exported_gateways: list[str] = UNSET,
) -> Request[contract.Export]:
    """Shares fleets with other projects.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/exports/create",
        body=given(
            name=name,
            is_global=is_global,
            importer_projects=importer_projects,
            exported_fleets=exported_fleets,
            exported_gateways=exported_gateways,
        ),
    )


def update(
    project_name: str,
    *,
    name: str,
    set_global: bool = UNSET,
    unset_global: bool = UNSET,
    add_importer_projects: list[str] = UNSET,
    remove_importer_projects: list[str] = UNSET,
    add_exported_fleets: list[str] = UNSET,
    remove_exported_fleets: list[str] = UNSET,
    add_exported_gateways: list[str] = UNSET,
    remove_exported_gateways: list[str] = UNSET,
) -> Request[contract.Export]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/exports/update",
        body=given(
            name=name,
            set_global=set_global,
            unset_global=unset_global,
            add_importer_projects=add_importer_projects,
            remove_importer_projects=remove_importer_projects,
            add_exported_fleets=add_exported_fleets,
            remove_exported_fleets=remove_exported_fleets,
            add_exported_gateways=add_exported_gateways,
            remove_exported_gateways=remove_exported_gateways,
        ),
    )


def delete(
    project_name: str,
    *,
    name: str,
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/exports/delete",
        body=given(
            name=name,
        ),
    )


def list_imports(
    project_name: str,
) -> Request[list[contract.Import]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/imports/list",
        safe=True,
    )


def delete_import(
    project_name: str,
    *,
    export_name: str,
    export_project_name: str,
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/imports/delete",
        body=given(
            export_name=export_name,
            export_project_name=export_project_name,
        ),
    )
