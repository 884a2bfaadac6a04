"""Repos over HTTP."""

from __future__ import annotations

from typing import Any

import orjson
from pydantic import Field

from chalicelib.api.listing import NamedPageBody
from chalicelib.api.multipart import uploaded_file
from chalicelib.api.requests import Object, RequestBody
from chalicelib.api.route import Call
from chalicelib.domain.tenants import Repo
from chalicelib.errors import Invalid, Problem
from chalicelib.usecases.runs import repos


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


class DeleteReposBody(RequestBody):
    repos_ids: list[str] = Field(max_length=100)


def init(call: Call) -> None:
    body = call.parse(InitBody)
    creds = None if body.repo_creds is None else body.repo_creds.model_dump()
    repos.save_repo(call.plane, call.actor, call.tenant, body.repo_id, body.repo_info, creds)


def get(call: Call) -> Any:
    body = call.parse(GetRepoBody)
    seen = repos.get_repo(call.plane, call.actor, call.tenant, body.repo_id, with_creds=body.include_creds)
    return {**_repo_json(seen.repo), "repo_creds": seen.creds}


def list_repos(call: Call) -> Any:
    body = call.parse(NamedPageBody)
    found = repos.list_repos(call.plane, call.tenant, after=body.after, limit=body.limit)
    return [_repo_json(repo) for repo in found]


def delete(call: Call) -> None:
    repos.delete_repos(call.plane, call.actor, call.tenant, call.parse(DeleteReposBody).repos_ids)


def upload_code(call: Call) -> None:
    repo_id = call.query.get("repo_id", "")
    if not repo_id:
        raise Invalid([Problem("give the repo in the query: ?repo_id=none", path="repo_id")])
    upload = uploaded_file(call.headers.get("content-type", ""), call.body)
    repos.save_code(call.plane, call.actor, call.tenant, repo_id, upload.name, upload.content)


def _repo_json(repo: Repo) -> dict[str, Any]:
    return {"repo_id": repo.repo_id, "repo_info": orjson.Fragment(repo.info)}
