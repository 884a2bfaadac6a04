"""Repos: where a run's code comes from.

A repo's credentials belong to the user who provided them and are never shown to anyone else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from chalicelib.domain import keys
from chalicelib.domain.tenants import Archive, Project, Repo, User
from chalicelib.errors import Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import page_after
from chalicelib.store.port import MAX_CHANGES, Change, Delete
from chalicelib.usecases.archives import as_content
from chalicelib.usecases.context import Plane
from chalicelib.usecases.files import check_upload, keep

_ID = re.compile(r"[\w.@+%-]{1,200}", re.ASCII)  # clients write other characters of a name as %20
_TYPES = ("remote", "local", "virtual")
MAX_INFO, MAX_CREDS = 4_000, 10_000  # bytes of JSON


@dataclass(frozen=True)
class RepoView:
    repo: Repo
    creds: dict[str, Any] | None = None  # the caller's


def save_repo(
    plane: Plane, user: User, project: Project, repo_id: str, info: dict[str, Any], creds: dict[str, Any] | None
) -> None:
    """Registers the repo, or changes it. Without `creds` the user's earlier credentials are deleted."""
    problems = []
    if not _ID.fullmatch(repo_id):
        problems.append(Problem("should be 1 to 200 letters, digits, or one of _.@+%-", path="repo_id"))
    if info.get("repo_type") not in _TYPES:
        problems.append(Problem(f"should be one of {', '.join(_TYPES)}", path="repo_info.repo_type"))
    text = orjson.dumps(info)
    if len(text) > MAX_INFO:
        problems.append(Problem(f"has {len(text)} bytes of JSON; at most {MAX_INFO} are kept", path="repo_info"))
    if creds is not None and len(orjson.dumps(creds)) > MAX_CREDS:
        problems.append(Problem(f"has more than {MAX_CREDS} bytes of JSON", path="repo_creds"))
    if problems:
        raise Invalid(problems)
    known = nouns.find(plane.store, Repo, keys.repo(project.id, repo_id))
    kept = {} if known is None else _creds(plane, known)
    given = {name: value for name, value in kept.items() if name != user.id} | ({user.id: creds} if creds else {})
    changed = known is None or known.info != text.decode() or given != kept
    if changed:
        repo = known or Repo(id=plane.random_id(), project_id=project.id, repo_id=repo_id, info="")
        sealed = plane.seal.seal(orjson.dumps(given).decode(), context=_context(repo)) if given else ""
        plane.store.commit([nouns.put(repo.with_(info=text.decode(), creds_sealed=sealed))])


def get_repo(plane: Plane, user: User, project: Project, repo_id: str, *, with_creds: bool) -> RepoView:
    repo = nouns.find(plane.store, Repo, keys.repo(project.id, repo_id)) if _ID.fullmatch(repo_id) else None
    if repo is None:
        # Clients check before each run, and register the repo only on this error code.
        raise NotFound(
            f"The project {project.name} has no repo {repo_id[:80]!r}.",
            hint="Register one with `dstack init -P REPO`.",
        )
    return RepoView(repo, _creds(plane, repo).get(user.id) if with_creds else None)


def list_repos(plane: Plane, project: Project, *, after: str = "", limit: int | None = None) -> list[Repo]:
    """The project's repos in order of ids, after the id `after`."""
    found = page_after(plane.store, f"project/{project.id}", "repo/", after=after, limit=limit)
    return [nouns.read(Repo, record) for record in found]


def delete_repos(plane: Plane, user: User, project: Project, repo_ids: Sequence[str]) -> None:
    found = [get_repo(plane, user, project, repo_id, with_creds=False).repo for repo_id in dict.fromkeys(repo_ids)]
    if len(found) > MAX_CHANGES:
        raise Refused(f"{len(found)} repos at once; one request can delete {MAX_CHANGES}.")
    changes: list[Change] = [Delete(nouns.key_of(repo), repo.version) for repo in found]
    if changes:
        plane.store.commit(changes)


def save_code(plane: Plane, user: User, project: Project, repo_id: str, name: str, content: bytes) -> Archive:
    """Stores a repo's uploaded code, which runs with its hash find in their working folder."""
    get_repo(plane, user, project, repo_id, with_creds=False)
    check_upload(plane, name, content)
    return keep(plane, project.id, "code", name, as_content(content))


def _creds(plane: Plane, repo: Repo) -> dict[str, Any]:
    if not repo.creds_sealed:
        return {}
    found: dict[str, Any] = orjson.loads(plane.seal.open(repo.creds_sealed, context=_context(repo)))
    return found


def _context(repo: Repo) -> str:
    return f"repo/{repo.project_id}/{repo.repo_id}"
