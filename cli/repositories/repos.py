"""The repository of a run, from flags or the configuration, as it is sent to the server.

The job clones it, so the server gets its address, the commit and, if needed, credentials; for a checkout also a patch
with the changes since that commit. For a folder that isn't a checkout it gets the content. Patch and content are
uploaded only when the run is submitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.errors import Invalid, NotFound, Refused
from cli.connection import calls

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract.bodies import InitBody
    from cli.connection.session import Session
    from cli.repositories.access import GivenCredentials, RemoteAccess
    from cli.repositories.remotes import Remote

RepoData = Mapping[str, str | None]  # as the server stores it, and a run has it
OF_FILE = "repos.0"  # the field's path: a file has at most one
NONE: InitBody = {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None}


@dataclass(frozen=True)
class RepoFlags:
    """The repository flags of a command line."""

    repo: str | None = None  # a path or an address
    branch: str | None = None
    commit: str | None = None
    none: bool = False
    token: str | None = None
    identity: str | None = None
    lfs_pointers: bool = False

    def given(self) -> list[str]:
        """The flags that need a repository."""
        given_flags = {
            "--repo-branch": self.branch,
            "--repo-hash": self.commit,
            "--token": self.token,
            "--git-identity": self.identity,
            "--lfs-pointers": self.lfs_pointers or None,
        }
        return [flag for flag, value in given_flags.items() if value is not None]


@dataclass(frozen=True)
class Brought:
    """The repository fields of a run; the defaults if it has no repository."""

    id: str = "none"
    data: RepoData = field(default_factory=lambda: {"repo_type": "virtual"})
    patch: bytes = b""  # or the content of a folder as a tar
    stored: tuple[str, ...] = ()  # see `Checkout`
    sent: Mapping[str, int] = field(default_factory=dict)

    @property
    def code_hash(self) -> str | None:
        return hashlib.sha256(self.patch).hexdigest() if self.patch else None

    def upload(self, session: Session) -> None:
        """Uploads the patch or the content, if there is one."""
        if self.code_hash:
            try:
                calls.repos_upload_code(session.client, {"repo_id": self.id}, self.code_hash, self.patch)
            except Refused as error:
                hint = f"{error.hint or 'Leave out large files.'}{self._lfs_hint()}"
                raise Refused(f"{self._what()} can't be uploaded. {error.message}", hint=hint) from None

    def _what(self) -> str:
        if self.data["repo_type"] == "local":
            return "The folder"
        from cli.repositories.checkout import largest_parts

        parts = ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in largest_parts(self.patch) if size > 1e5)
        what = f"The patch with {'Git LFS files and ' if self.sent else ''}what changed since the last push or fetch"
        return f"{what}, most of it {parts}," if parts else what

    def _lfs_hint(self) -> str:
        if not self.sent:
            return ""
        from cli.repositories.git_filters import AS_POINTERS, largest

        return f" Instead of {largest(self.sent)}, {AS_POINTERS}."


@dataclass(frozen=True)
class NamedRepo:
    """A repository as it was named, by a flag or a field, and the folder at which relative paths start."""

    named_by: str
    place: str
    is_path: bool
    folder: Path
    branch: str | None = None
    commit: str | None = None
    lfs_pointers: bool = False


def bring(session: Session, flags: RepoFlags, configuration: contract.Configuration, folder: Path) -> Brought:
    """Registers the run's repository with the server, and returns its fields for the run."""
    wanted = _wanted(session, flags, configuration.get("repos") or [], folder)
    if wanted is None:
        calls.repos_init(session.client, NONE)
        return Brought()
    if wanted.is_path and (brought := _read_folder(session, wanted, flags)):
        return brought
    remote, brought = _read(session, wanted)
    if stored := brought.stored:
        more = f" and {len(stored) - 10} more" if len(stored) > 10 else ""
        names = ", ".join(stored[:10])
        session.terminal.warn(f"Jobs get these as the repository stores them, unfiltered: {names}{more}")
    _register_access(session, remote, flags, branch=None if wanted.is_path else wanted.branch)
    return brought


def register(session: Session, flags: RepoFlags) -> Remote:
    """Registers a repository's address and credentials with the server, for later runs."""
    from cli.repositories.access import ANYBODY, own_accesses, working_access

    terminal = session.terminal
    named = _named(flags.repo or ".", "--repo", terminal.cwd)
    remote, _ = _read(session, replace(named, lfs_pointers=True))  # since none of its files are sent
    given = _given(flags).access(terminal)
    candidates = [ANYBODY, *([given] if given else own_accesses(remote, terminal))]
    _store_access(session, remote, working_access(remote, candidates, terminal, branch=None))
    return remote


def _wanted(
    session: Session, flags: RepoFlags, written: list[contract.Configuration], folder: Path
) -> NamedRepo | None:
    """The repository to use: --repo, or the file's."""
    from cli.repositories.remotes import fault

    if flags.none or not (flags.repo or written):
        if given_flags := flags.given():
            why = "--no-repo was given" if flags.none else "none is named"
            raise Refused(f"{given_flags[0]} needs a repository, but {why}.", hint="Add --repo, or leave it out.")
        return None
    if flags.repo:
        wanted = _named(flags.repo, "--repo", session.terminal.cwd)
        branch, commit = flags.branch, flags.commit
    else:
        entry = written[0]
        if entry["local_path"] is not None:
            wanted = NamedRepo(OF_FILE, entry["local_path"], True, folder)
        else:
            wanted = NamedRepo(OF_FILE, entry["url"], False, folder)
        branch = entry["branch"] if flags.branch is None else flags.branch
        commit = entry["hash"] if flags.commit is None else flags.commit
    if wanted.is_path and (branch is not None or commit is not None):
        raise fault(
            wanted.named_by,
            f"{wanted.place} is a checkout, which has its own branch and commit",
            "remove `branch` and `hash` and check out the branch, or use the repository's address",
        )
    if flags.lfs_pointers and not wanted.is_path:
        raise Refused(
            "--lfs-pointers is for a checkout, but the repository is named by its address.",
            hint="Leave it out: jobs that clone an address have the pointers anyway.",
        )
    return replace(wanted, branch=branch, commit=commit, lfs_pointers=flags.lfs_pointers)


def _named(place: str, named_by: str, folder: Path) -> NamedRepo:
    from cli.repositories.remotes import is_address

    return NamedRepo(named_by, place, not is_address(place.strip()), folder)


def _place(session: Session, wanted: NamedRepo) -> Path:
    home = session.terminal.home
    return home / wanted.place[2:] if wanted.place.startswith("~/") else wanted.folder / wanted.place


def _read_folder(session: Session, wanted: NamedRepo, flags: RepoFlags) -> Brought | None:
    """A folder that isn't a checkout, registered with the server; None for anything else."""
    from cli.repositories.folders import data_of, id_of, is_plain
    from cli.repositories.packing import pack_content

    place = _place(session, wanted)
    if not is_plain(place, session.terminal.env):
        return None
    if given_flags := flags.given():
        raise Refused(f"{given_flags[0]} is for a repository, and {place} is a folder.", hint="Leave it out.")
    folder = place.resolve()
    archive = pack_content(folder)
    calls.repos_init(session.client, {"repo_id": id_of(folder), "repo_info": data_of(folder), "repo_creds": None})
    return Brought(id_of(folder), data_of(folder), archive.data)


def _read(session: Session, wanted: NamedRepo) -> tuple[Remote, Brought]:
    from cli.repositories.remotes import parse_remote

    terminal, named_by = session.terminal, wanted.named_by
    if not wanted.is_path:
        remote = parse_remote(wanted.place, terminal.home, named_by=named_by)
        return remote, Brought(remote.id, _data(remote, wanted.branch, wanted.commit))
    from cli.repositories.checkout import read_checkout

    place = _place(session, wanted)
    found = read_checkout(place, terminal.env, named_by=named_by, lfs_pointers=wanted.lfs_pointers)
    remote = parse_remote(found.remote, terminal.home, named_by=named_by)
    data = _data(remote, found.branch, found.commit, found.user_name, found.user_email)
    return remote, Brought(remote.id, data, found.patch, found.stored, found.sent)


def _data(remote: Remote, branch: str | None, commit: str | None, *committer: str | None) -> RepoData:
    name, email = committer or (None, None)
    return {
        "repo_type": "remote",
        "repo_name": remote.name,
        "repo_branch": branch,
        "repo_hash": commit,
        "repo_config_name": name,
        "repo_config_email": email,
    }


def _given(flags: RepoFlags) -> GivenCredentials:
    from cli.repositories.access import GivenCredentials

    return GivenCredentials(flags.token, flags.identity)


def _register_access(session: Session, remote: Remote, flags: RepoFlags, *, branch: str | None) -> None:
    """Finds an access that works. Stored credentials stay unless the command line gives others. With an access token
    they can't be seen, so they aren't tried here."""
    from cli.repositories.access import ANYBODY, own_accesses, stored_access, working_access

    terminal = session.terminal
    given = _given(flags).access(terminal)
    try:
        found = calls.repos_get(session.client, {"repo_id": remote.id, "include_creds": True})
        known, unseen = found["repo_creds"], found["repo_creds"] is None and bool(found.get("has_creds"))
    except NotFound:
        known, unseen = None, False
    if unseen and not given:
        return
    if given or known is None:
        candidates = [ANYBODY, *([given] if given else own_accesses(remote, terminal))]
        _store_access(session, remote, working_access(remote, candidates, terminal, branch=branch))
    else:
        stored = stored_access(known)
        access = working_access(remote, [ANYBODY, *([stored] if stored else [])], terminal, branch=branch)
        if not _is_address_of(known["clone_url"], remote, terminal.home):
            terminal.warn(
                f"The server had another address for this repository, which it replaces: {known['clone_url']!r}"
            )
            _store_access(session, remote, access)


def _is_address_of(address: str, remote: Remote, home: Path) -> bool:
    """Is this the repository, over https or ssh? Jobs clone what is stored, whoever stored it."""
    from cli.repositories.remotes import parse_remote

    try:
        return parse_remote(address, home, named_by="--repo").id == remote.id
    except (Invalid, Refused):
        return False


def _store_access(session: Session, remote: Remote, access: RemoteAccess) -> None:
    from cli.repositories.access import ANYBODY

    credentials = access.credentials(remote)
    info = {"repo_type": "remote", "repo_name": remote.name}
    calls.repos_init(session.client, {"repo_id": remote.id, "repo_info": info, "repo_creds": credentials})
    if access is not ANYBODY:
        session.terminal.warn(f"Jobs will read {remote.https} {access.description}; the server stores it for you.")
