"""Repos over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


def init(
    project_name: str,
    *,
    repo_id: str,
    repo_info: dict[str, Any],
    repo_creds: bodies.Creds | None = UNSET,
) -> Request[None]:
    """Registers a repository, or changes it, with the caller's credentials for it. A job with `dstack: true` can't
    change what is stored.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/repos/init",
        body=given(
            repo_id=repo_id,
            repo_info=repo_info,
            repo_creds=repo_creds,
        ),
    )


def get(
    project_name: str,
    *,
    repo_id: str,
    include_creds: bool = UNSET,
) -> Request[contract.RepoWithCreds]:
    """The repository of this id, with the caller's credentials for it, if they ask for them with their own token.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/repos/get",
        body=given(
            repo_id=repo_id,
            include_creds=include_creds,
        ),
        safe=True,
    )


def list_repos(
    project_name: str,
    *,
    after: str = UNSET,
    limit: int | None = UNSET,
) -> Request[list[contract.Repo]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/repos/list",
        body=given(
            after=after,
            limit=limit,
        ),
        safe=True,
    )


def delete(
    project_name: str,
    *,
    repos_ids: list[str],
) -> Request[None]:
    """Deletes repositories, with the credentials that users have stored for them. No job with `dstack: true` can.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/repos/delete",
        body=given(
            repos_ids=repos_ids,
        ),
    )


def upload_code(
    project_name: str,
    *,
    repo_id: str,
    file: bytes,
    file_name: str,
) -> Request[None]:
    """Uploads the changes to a repository's commit, or the code itself, named by the SHA-256 of its content.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/repos/upload_code",
        query=given(
            repo_id=repo_id,
        ),
        file=file,
        file_name=file_name,
    )
