"""Repos, from which runs get their code.

A repo's credentials belong to the user who provided them and are never shown to anyone else. A run's repo is cloned
with those of the user who submitted it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from chalicelib.domain import keys
from chalicelib.domain.specs.runs import RemoteRunRepoData, RunSpec
from chalicelib.domain.tenants import Archive, Project, Repo, User
from chalicelib.errors import Forbidden, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import page_after
from chalicelib.store.port import MAX_CHANGES, Change, Delete
from chalicelib.usecases.ports import FilePorts, RecordPorts, SealedPorts
from chalicelib.usecases.runs.archives import as_content
from chalicelib.usecases.runs.files import check_upload, store_archive

_ID = re.compile(r"[\w.@+%-]{1,200}", re.ASCII)  # clients write other characters of a name as %20
_TYPES = ("remote", "local", "virtual")
_HOST = r"(?:[^\W_][\w.-]*|\[[0-9A-Fa-f:.]+\])"  # these are as in `agent/runtimes/git.py` (a test compares)
_ADDRESS = re.compile(rf"(?:https|ssh)://(?:\w[\w.~+%-]*@)?{_HOST}(?::[0-9]{{1,5}})?/\S+|\w[\w.-]*@{_HOST}:[^\s-]\S*")
_BRANCH = re.compile(r"[^\s\-~^:?*\[\\\x00-\x1f\x7f][^\s~^:?*\[\\\x00-\x1f\x7f]{0,254}")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,64}")
# In a patch, a line without a sign describes a file: this one is a submodule. Only a submodule with changes that aren't
# committed in it has neither a mode nor an id.
_SUBMODULE = re.compile(
    rb"^(?:index [0-9a-f.]{1,140} 160000|(?:new|deleted) file mode 160000|diff --git [^\n]*\n--- [^\n]*)$", re.MULTILINE
)
_NOT_FROM_A_JOB = "the token of a run's jobs can't change that. Call `dstack init` where you have your own"
MAX_INFO, MAX_CREDS = 4_000, 10_000  # bytes of JSON


@dataclass(frozen=True)
class RepoView:
    repo: Repo
    creds: dict[str, Any] | None = None  # the caller's


def save_repo(
    plane: FilePorts,
    user: User,
    project: Project,
    repo_id: str,
    info: dict[str, Any],
    creds: dict[str, Any] | None,
    *,
    by_job: bool = False,
) -> None:
    """Register or change the repo. Without `creds` the user's earlier credentials are deleted.

    `by_job`: a job calls, which adds what isn't there and changes nothing: later runs of its user would clone from
    where it says."""
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
    stored = {} if known is None else _creds(plane, known)
    given = {name: value for name, value in stored.items() if name != user.id} | ({user.id: creds} if creds else {})
    changed = known is None or known.info != text.decode() or given != stored
    if changed and by_job and known is not None and (user.id in stored or orjson.loads(known.info) != info):
        raise Forbidden(f"The repository {repo_id} is registered already, and {_NOT_FROM_A_JOB}")
    if changed:
        repo = known or Repo(id=plane.random_id(), project_id=project.id, repo_id=repo_id, info="")
        sealed = plane.seal.seal(orjson.dumps(given).decode(), context=_context(repo)) if given else ""
        plane.store.commit([nouns.put(repo.with_(info=text.decode(), creds_sealed=sealed))])


def get_repo(plane: SealedPorts, user: User, project: Project, repo_id: str, *, with_creds: bool) -> RepoView:
    repo = nouns.find(plane.store, Repo, keys.repo(project.id, repo_id)) if _ID.fullmatch(repo_id) else None
    if repo is None:
        # Clients check before each run, and register the repo only on this error code.
        raise NotFound(
            f"The project {project.name} has no repo {repo_id[:80]!r}.",
            hint="Register one with `dstack init -P REPO`.",
        )
    return RepoView(repo, _creds(plane, repo).get(user.id) if with_creds else None)


def list_repos(plane: RecordPorts, project: Project, *, after: str = "", limit: int | None = None) -> list[Repo]:
    """The project's repos in order of ids, after the id `after`."""
    found = page_after(plane.store, f"project/{project.id}", "repo/", after=after, limit=limit)
    return [nouns.read(Repo, record) for record in found]


def delete_repos(
    plane: SealedPorts, user: User, project: Project, repo_ids: Sequence[str], *, by_job: bool = False
) -> None:
    found = [get_repo(plane, user, project, repo_id, with_creds=False).repo for repo_id in dict.fromkeys(repo_ids)]
    if found and by_job:
        raise Forbidden(f"The repository {found[0].repo_id} stays: {_NOT_FROM_A_JOB}")
    if len(found) > MAX_CHANGES:
        raise Refused(f"{len(found)} repos at once; one request can delete {MAX_CHANGES}.")
    changes: list[Change] = [Delete(nouns.key_of(repo), repo.version) for repo in found]
    if changes:
        plane.store.commit(changes)


@dataclass(frozen=True)
class RepoAccess:
    """How a job reads its repository."""

    url: str
    oauth_token: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)


def access(plane: SealedPorts, project_id: str, user_id: str, repo_id: str) -> RepoAccess | None:
    """The user's access to a repo; None if no address is stored."""
    repo = nouns.find(plane.store, Repo, keys.repo(project_id, repo_id)) if _ID.fullmatch(repo_id) else None
    creds = None if repo is None else _creds(plane, repo).get(user_id)
    if not creds or not creds.get("clone_url"):
        return None
    return RepoAccess(creds["clone_url"], creds.get("oauth_token"), creds.get("private_key"))


def refusals(plane: SealedPorts, user: User, project: Project, spec: RunSpec) -> list[Problem]:
    """Known reasons why a run's repository can't be cloned."""
    data, found = spec.repo_data, []
    if not isinstance(data, RemoteRunRepoData):
        return []
    if data.repo_branch and not _BRANCH.fullmatch(data.repo_branch):
        text = f"`{data.repo_branch[:80]}` can't be the name of a branch"
        found.append(Problem(text, path="repo_data.repo_branch", hint="for example `main`"))
    if data.repo_hash and not _COMMIT.fullmatch(data.repo_hash):
        text = f"`{data.repo_hash[:80]}` isn't the hash of a commit"
        found.append(Problem(text, path="repo_data.repo_hash", hint="`git rev-parse HEAD` shows one"))
    if spec.repo_dir and re.match(r"~[^/]|.*\0", spec.repo_dir):
        text = f"`{spec.repo_dir[:80]}` isn't a path for a repository"
        found.append(Problem(text, path="repo_dir", hint="absolute, or below `~/` or the working directory"))
    known = access(plane, project.id, user.id, spec.repo_id or "")
    if known is None:
        text = f"you have registered no repository `{(spec.repo_id or '')[:80]}` in the project {project.name}"
        found.append(Problem(text, path="repo_id", hint="register it with `dstack init -P REPO`"))
    elif not _ADDRESS.fullmatch(known.url) or not known.url.isprintable():
        text = "the registered address of the repository isn't one of https or ssh without a password"
        found.append(Problem(text, path="repo_id", hint="register it again with `dstack init -P REPO`"))
    return found


def save_code(plane: FilePorts, user: User, project: Project, repo_id: str, name: str, content: bytes) -> Archive:
    """Store a repo's uploaded code: a patch for a remote repo, else the files that runs with this hash get in their
    folder."""
    repo = get_repo(plane, user, project, repo_id, with_creds=False).repo
    check_upload(plane, name, content)
    patch = orjson.loads(repo.info)["repo_type"] == "remote"  # for which clients send the changes to a commit
    if patch and (found := _SUBMODULE.search(content)):
        _, _, header = content[: found.end()].rpartition(b"diff --git ")
        name = header.partition(b"\n")[0].rpartition(b" b/")[2].decode(errors="replace")
        raise Refused(
            f"The patch says that the submodule {name[:200]} has changed, and doesn't have the changes.",
            hint="Push its commit and the commit that records it, or undo the change.",
        )
    return store_archive(plane, user, project.id, "code", name, content if patch else as_content(content))


def _creds(plane: SealedPorts, repo: Repo) -> dict[str, Any]:
    if not repo.creds_sealed:
        return {}
    found: dict[str, Any] = orjson.loads(plane.seal.open(repo.creds_sealed, context=_context(repo)))
    return found


def _context(repo: Repo) -> str:
    return f"repo/{repo.project_id}/{repo.repo_id}"
