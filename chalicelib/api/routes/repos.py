"""Repos over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.listing import NamedPageBody
from chalicelib.api.multipart import UploadedFile
from chalicelib.api.requests import Object, RequestBody
from chalicelib.api.route import Call, takes, takes_file
from chalicelib.api.wire.spliced import spliced
from chalicelib.domain.tenants import Repo
from chalicelib.usecases.runs import repos

if TYPE_CHECKING:
    from chalicelib import contract


class Creds(RequestBody):
    clone_url: str
    private_key: str | None = Field(default=None, repr=False)
    oauth_token: str | None = Field(default=None, repr=False)


class InitBody(RequestBody):
    repo_id: str
    repo_info: Object
    repo_creds: Creds | None = None


class GetRepoBody(RequestBody):
    repo_id: str
    include_creds: bool = False


class CodeQuery(RequestBody):
    repo_id: Annotated[str, Field(min_length=1)]


class DeleteReposBody(RequestBody):
    repos_ids: list[str] = Field(max_length=100)


@takes(InitBody)
def init(call: Call, body: InitBody) -> None:
    """Registers a repository, or changes it, with the caller's credentials for it. A job with `dstack: true` can't
    change what is stored."""
    creds = None if body.repo_creds is None else body.repo_creds.model_dump()
    repos.save_repo(call.plane, call.actor, call.tenant, body.repo_id, body.repo_info, creds, by_job=_by_job(call))


@takes(GetRepoBody)
def get(call: Call, body: GetRepoBody) -> contract.RepoWithCreds:
    """The repository of this id, with the caller's credentials for it, if they ask for them with their own token."""
    seen = repos.get_repo(call.plane, call.actor, call.tenant, body.repo_id, with_creds=True)
    creds = seen.creds if body.include_creds and call.token is None else None
    shown = None if creds is None else _creds_json(creds)
    return {**_repo_json(seen.repo), "repo_creds": shown, "has_creds": seen.creds is not None}


@takes(NamedPageBody)
def list_repos(call: Call, body: NamedPageBody) -> list[contract.Repo]:
    found = repos.list_repos(call.plane, call.tenant, after=body.after, limit=body.limit)
    return [_repo_json(repo) for repo in found]


@takes(DeleteReposBody)
def delete(call: Call, body: DeleteReposBody) -> None:
    """Deletes repositories, with the credentials that users have stored for them. No job with `dstack: true` can."""
    repos.delete_repos(call.plane, call.actor, call.tenant, body.repos_ids, by_job=_by_job(call))


@takes_file(CodeQuery)
def upload_code(call: Call, query: CodeQuery, upload: UploadedFile) -> None:
    """Uploads the changes to a repository's commit, or the code itself, named by the SHA-256 of its content."""
    repos.save_code(call.plane, call.actor, call.tenant, query.repo_id, upload.name, upload.content)


def _by_job(call: Call) -> bool:
    return call.token is not None and bool(call.token.run_id)


def _creds_json(creds: Mapping[str, str | None]) -> contract.RepoCreds:
    return {
        "clone_url": creds.get("clone_url") or "",
        "private_key": creds.get("private_key"),
        "oauth_token": creds.get("oauth_token"),
    }


def _repo_json(repo: Repo) -> contract.Repo:
    return {"repo_id": repo.repo_id, "repo_info": spliced(repo.info)}
