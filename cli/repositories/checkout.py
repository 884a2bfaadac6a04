"""The contents of a checkout: its remote and commit, and everything that changed since.

A job clones the upstream branch with its submodules and applies the difference. So the difference is computed against
the upstream's commit as this machine last fetched it: unpushed commits, staged and unstaged changes, untracked files,
and differences in submodules and other repositories inside. Ignored files are left out.
"""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.repositories.git_filters import Filtered, compare_as_seen
from cli.repositories.submodules import inner_repositories, open_inner
from cli.repositories.work_tree import GitFolder, WorkTree, links_of, open_work_tree

PART = re.compile(rb"^diff --git (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Checkout:
    remote: str  # the address it was cloned from
    branch: str  # its name on the remote
    commit: str
    user_name: str | None
    user_email: str | None
    patch: bytes
    stored: tuple[str, ...] = ()  # files that jobs get in the form in which a filter stores them
    sent: Mapping[str, int] = field(default_factory=dict)  # sizes of the unchanged Git LFS files in the patch


def read_checkout(folder: Path, env: Mapping[str, str], *, named_by: str, lfs_pointers: bool = False) -> Checkout:
    """Reads a checkout. `lfs_pointers`: jobs should get the pointers of unchanged Git LFS files."""
    source = GitFolder(folder, env, named_by)
    _check_root(source)
    branch, remote, upstream = _upstream(source)
    settings = source.settings(r"user\.(name|email)|remote\..*\.url")
    address = settings.get(f"remote.{remote}.url")
    if not address:
        raise source.refused(f"the branch {branch} follows {remote}, which has no address", "see `git remote -v`")
    commit = source.git("rev-parse", "--verify", "--quiet", upstream.reference)
    with tempfile.TemporaryDirectory(prefix="dstack-") as scratch:
        tree = open_work_tree(source, Path(scratch) / "top")
        if commit.status or not tree.has(commit.text):
            raise source.refused(
                f"the branch {branch} follows {upstream.branch} at {remote}, which isn't known here",
                f"push it with `git push -u {remote} {branch}`, or fetch it with `git fetch {remote}`",
            )
        free = (Path(scratch) / str(number) for number in itertools.count())
        patch, filtered = _difference(tree, commit.text, free, lfs_pointers)
    name, email = settings.get("user.name"), settings.get("user.email")
    return Checkout(address, upstream.branch, commit.text, name, email, patch, filtered.stored, filtered.sent)


def largest_parts(patch: bytes, count: int = 3) -> list[tuple[str, int]]:
    """The files that take most of a patch, with their bytes in it."""
    starts = [(found.start(), _name(found[1])) for found in PART.finditer(patch)]
    ends = [start for start, _ in starts[1:]] + [len(patch)]
    sized = [(name, end - start) for (start, name), end in zip(starts, ends, strict=True)]
    return sorted(sized, key=lambda part: part[1], reverse=True)[:count]


def _name(pair: bytes) -> str:
    """The file in `a/NAME b/NAME`, the beginning of a patch; odd names are quoted as in C."""
    second = pair[len(pair) // 2 + 1 :]
    if second.startswith(b'"'):
        second = second.strip(b'"').decode("unicode_escape").encode("latin-1")
    if not second.startswith(b"b/"):  # it was renamed
        second = pair.rpartition(b" b/")[2]
    return os.fsdecode(second.removeprefix(b"b/"))


def _difference(tree: WorkTree, base: str | None, free: Iterator[Path], lfs_pointers: bool) -> tuple[bytes, Filtered]:
    """The patch, and the files in it that filters affect. `free`: unused folders for the repositories inside."""
    tree.notice_everything()
    fresh, untracked = tree.unknown()
    index, stored = tree.index(), tree.tree(base) if base else {}
    inside = list(inner_repositories(tree, base, stored, index, untracked))
    before = base or tree.empty()
    filtered = compare_as_seen(tree, before, stored, index, lfs_pointers=lfs_pointers)
    patch = tree.patch(before, fresh, links_of(index))
    for one in inside:
        more, found = _difference(open_inner(tree, one, next(free)), one.base, free, lfs_pointers)
        patch += more
        filtered = Filtered(filtered.stored + found.stored, {**filtered.sent, **found.sent})
    return patch, filtered


def _check_root(source: GitFolder) -> None:
    folder = source.folder
    if not folder.exists():
        raise source.refused(f"{folder} doesn't exist", "name the folder of a checkout, or the address of a repository")
    if not folder.is_dir():
        raise source.refused(f"{folder} is a file", "name the folder of a checkout; single files go into `files`")
    top = source.top()
    if not folder.samefile(top):
        raise source.refused(
            f"{folder} is within the checkout {top}",
            "name that folder to use all of it, or upload part of it with `files`",
        )


@dataclass(frozen=True)
class UpstreamBranch:
    reference: str  # the local ref that tracks it
    branch: str


def _upstream(source: GitFolder) -> tuple[str, str, UpstreamBranch]:
    """The checked-out branch, the remote it follows, and the branch it follows there."""
    head = source.git("symbolic-ref", "--quiet", "--short", "HEAD")
    if head.status:
        raise source.refused("no branch is checked out (a detached HEAD)", "check one out with `git switch BRANCH`")
    branch = head.text
    fields = "%(upstream)%00%(upstream:remotename)%00%(upstream:remoteref)"
    line = source.must("for-each-ref", f"--format={fields}", f"refs/heads/{branch}")
    reference, remote, followed = [*line.rstrip("\n").split("\0"), "", ""][:3]
    if remote == ".":
        raise source.refused(
            f"the branch {branch} follows another branch here, not one of a remote",
            f"push it with `git push -u origin {branch}`",
        )
    if not reference or not remote:
        raise source.refused(
            f"the branch {branch} follows no branch of a remote, so there is nothing to clone",
            f"push it with `git push -u origin {branch}`",
        )
    return branch, remote, UpstreamBranch(reference, followed.removeprefix("refs/heads/"))
