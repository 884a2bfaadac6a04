"""What a checkout contains: where it was cloned from, at which commit, and everything that changed since.

A job clones the upstream branch and applies the difference. So the difference is taken against the upstream's commit as
this machine last saw it: unpushed commits, staged and unstaged changes, and untracked files. Ignored files are left
out. The patch must apply anywhere, so the user's own diff settings are ignored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from chalicelib.errors import DstackError
from cli.git import GitResult, git
from cli.remotes import fault

FITTING = (
    "--binary",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--inter-hunk-context=0",
    "--submodule=short",
    "--find-renames",
)


@dataclass(frozen=True)
class Checkout:
    remote: str  # the address it was cloned from
    branch: str  # its name on the remote
    commit: str
    user_name: str | None
    user_email: str | None
    patch: bytes
    left_out: tuple[str, ...] = ()  # folders that are separate repositories


@dataclass(frozen=True)
class Asking:
    """One folder under examination."""

    folder: Path
    env: Mapping[str, str]
    said_by: str  # the flag or field that named it

    def git(self, *words: str, given: bytes = b"", index: Path | None = None) -> GitResult:
        also = {"GIT_INDEX_FILE": str(index), "GIT_LITERAL_PATHSPECS": "1"} if index else {"GIT_OPTIONAL_LOCKS": "0"}
        return git(*words, env=self.env, folder=self.folder, given=given, also=also)

    def must(self, *words: str, given: bytes = b"", index: Path | None = None) -> bytes:
        said = self.git(*words, given=given, index=index)
        if said.status:
            raise self.refused(f"git {words[0]} failed: {said.why}", "see whether `git status` works there")
        return said.out

    def refused(self, what: str, hint: str) -> DstackError:
        return fault(self.said_by, what, hint)


def read_checkout(folder: Path, env: Mapping[str, str], *, said_by: str) -> Checkout:
    asking = Asking(folder, env, said_by)
    _check_root(asking)
    branch, remote, upstream = _upstream(asking)
    settings = _settings(asking)
    address = settings.get(f"remote.{remote}.url")
    if not address:
        raise asking.refused(f"the branch {branch} follows {remote}, which has no address", "see `git remote -v`")
    commit = asking.git("rev-parse", "--verify", "--quiet", f"{upstream.reference}^{{commit}}")
    if commit.status:
        raise asking.refused(
            f"the branch {branch} follows {upstream.branch} at {remote}, which isn't known here",
            f"push it with `git push -u {remote} {branch}`, or fetch it with `git fetch {remote}`",
        )
    patch, left_out = _patch(asking, commit.text)
    return Checkout(
        address, upstream.branch, commit.text, settings.get("user.name"), settings.get("user.email"), patch, left_out
    )


def _check_root(asking: Asking) -> None:
    folder = asking.folder
    if not folder.exists():
        raise asking.refused(f"{folder} doesn't exist", "name the folder of a checkout, or the address of a repository")
    if not folder.is_dir():
        raise asking.refused(f"{folder} is a file", "name the folder of a checkout; single files go into `files`")
    found = asking.git("rev-parse", "--show-toplevel")
    if found.status and "work tree" in found.err:
        raise asking.refused(f"{folder} is a bare repository", "name a checkout of it")
    if found.status:
        raise asking.refused(
            f"{folder} isn't a checkout of a Git repository ({found.why})",
            "upload other folders with `files`",
        )
    if not folder.samefile(found.text):
        raise asking.refused(
            f"{folder} is within the checkout {found.text}",
            "name that folder to use all of it, or upload part of it with `files`",
        )


@dataclass(frozen=True)
class UpstreamBranch:
    reference: str  # the local ref that tracks it
    branch: str


def _upstream(asking: Asking) -> tuple[str, str, UpstreamBranch]:
    """The checked-out branch, the remote it follows, and the branch it follows there."""
    head = asking.git("symbolic-ref", "--quiet", "--short", "HEAD")
    if head.status:
        raise asking.refused("no branch is checked out (a detached HEAD)", "check one out with `git switch BRANCH`")
    branch = head.text
    fields = "%(upstream)%00%(upstream:remotename)%00%(upstream:remoteref)"
    said = asking.must("for-each-ref", f"--format={fields}", f"refs/heads/{branch}").decode(errors="surrogateescape")
    reference, remote, followed = [*said.rstrip("\n").split("\0"), "", ""][:3]
    if remote == ".":
        raise asking.refused(
            f"the branch {branch} follows another branch here, not one of a remote",
            f"push it with `git push -u origin {branch}`",
        )
    if not reference or not remote:
        raise asking.refused(
            f"the branch {branch} follows no branch of a remote, so there is nothing to clone",
            f"push it with `git push -u origin {branch}`",
        )
    return branch, remote, UpstreamBranch(reference, followed.removeprefix("refs/heads/"))


def _settings(asking: Asking) -> dict[str, str]:
    """The addresses of the remotes as written, and the committer."""
    said = asking.git("config", "--null", "--get-regexp", r"^(user\.(name|email)|remote\..*\.url)$")
    found = {}
    for entry in said.out.decode(errors="surrogateescape").split("\0"):
        name, _, value = entry.partition("\n")
        if name.startswith("user.") or name not in found:  # the most specific name wins, and the first address
            found[name] = value
    return found


def _patch(asking: Asking, commit: str) -> tuple[bytes, tuple[str, ...]]:
    known = asking.must("diff", *FITTING, commit)
    listed = asking.must("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    fresh = [name for name in listed if name and not name.endswith(b"/")]
    nested = tuple(name.decode(errors="replace") for name in listed if name.endswith(b"/"))
    if not fresh:
        return known, nested
    with tempfile.TemporaryDirectory(prefix="dstack-") as scratch:  # a separate index, so the user's stays unchanged
        index = Path(scratch) / "index"
        names = b"\0".join(fresh)
        asking.must("add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul", given=names, index=index)
        return known + asking.must("diff", *FITTING, index=index), nested
