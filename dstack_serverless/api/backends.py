"""Backends of a project over HTTP. Only its admins see or change them.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_types() -> Request[list[str]]:
    """For any active user."""
    return Request(
        "POST",
        "/api/backends/list_types",
        safe=True,
    )


def list_backends(
    project_name: str,
) -> Request[list[contract.Backend]]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/list",
        safe=True,
    )


def create(
    project_name: str,
    *,
    body: dict[str, Any],
) -> Request[dict[str, Any]]:
    """Adds a backend, once its credentials work.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/create",
        body=body,
    )


def update(
    project_name: str,
    *,
    body: dict[str, Any],
) -> Request[dict[str, Any]]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/update",
        body=body,
    )


def create_yaml(
    project_name: str,
    *,
    config_yaml: str,
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/create_yaml",
        body=given(
            config_yaml=config_yaml,
        ),
    )


def update_yaml(
    project_name: str,
    *,
    config_yaml: str,
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/update_yaml",
        body=given(
            config_yaml=config_yaml,
        ),
    )


def delete(
    project_name: str,
    *,
    backends_names: list[str],
) -> Request[None]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/delete",
        body=given(
            backends_names=backends_names,
        ),
    )


def config_info(
    project_name: str,
    backend_name: str,
) -> Request[dict[str, Any]]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/{segment(backend_name)}/config_info",
        safe=True,
    )


def get_yaml(
    project_name: str,
    backend_name: str,
) -> Request[contract.BackendYaml]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/{segment(backend_name)}/get_yaml",
        safe=True,
    )


def check(
    project_name: str,
    backend_name: str,
) -> Request[None]:
    """Whether the backend works. The refusal lists everything that is wrong.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/backends/{segment(backend_name)}/check",
        safe=True,
    )
