"""Repositories inside a checkout: submodules, and others that it doesn't track.

A job clones each submodule at the commit that its repository records. Differences from that are sent: another commit,
changes, new files. A submodule that was added since then and an untracked repository are sent as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from chalicelib.errors import DstackError
from cli.repositories.work_tree import Entry, GitFolder, WorkTree, links_of, open_work_tree

NOT_CLONED = "none"  # of `update` in .gitmodules


@dataclass(frozen=True)
class Inner:
    """A repository inside a checkout, and the commit of it that a job clones; None: the job clones nothing of it."""

    name: str
    base: str | None


def inner_repositories(
    tree: WorkTree, base: str | None, before: Mapping[str, Entry], index: Mapping[str, Entry], untracked: list[str]
) -> Iterator[Inner]:
    """The inner repositories whose files are here. Raises Refused if a job couldn't get the same files. `before`: the
    entries of `base`."""
    cloned = _cloned(tree, base, before)
    here = links_of(index)
    for name, commit in here.items():
        if os.path.lexists(tree.folder / name / ".git"):
            yield Inner(name, cloned.get(name))
        else:
            _check_absent(tree, name, commit, cloned.get(name))
    for name in sorted(cloned.keys() - here.keys()):
        raise _removed(tree, name)
    yield from (Inner(name, None) for name in untracked)


def open_inner(tree: WorkTree, inner: Inner, private: Path) -> WorkTree:
    source = GitFolder(tree.folder / inner.name, tree.source.env, tree.source.named_by)
    top = source.top()
    if not source.folder.samefile(top):
        raise _refused(tree, inner.name, f"has its files in {top}", "check it out again where it belongs")
    found = open_work_tree(source, private, f"{tree.prefix}{inner.name}/")
    if inner.base and not found.has(inner.base):
        what = f"is cloned by jobs at {inner.base}, which isn't known here"
        raise _refused(tree, inner.name, what, f"fetch it: `git -C {quote(str(source.folder))} fetch --all`")
    return found


def _cloned(tree: WorkTree, base: str | None, before: Mapping[str, Entry]) -> dict[str, str]:
    """The submodules that a job clones, whose addresses are in `.gitmodules`."""
    if ".gitmodules" not in before:
        return {}
    pattern = r"^submodule\..*\.(path|update)$"
    listed = tree.try_git("config", "--blob", f"{base}:.gitmodules", "--null", "--get-regexp", pattern)
    settings = dict(entry.partition("\n")[::2] for entry in os.fsdecode(listed.out).split("\0") if entry)
    paths = {key.removesuffix(".path"): value for key, value in settings.items() if key.endswith(".path")}
    wanted = {path for name, path in paths.items() if settings.get(f"{name}.update") != NOT_CLONED}
    return {path: commit for path, commit in links_of(before).items() if path in wanted}


def _check_absent(tree: WorkTree, name: str, commit: str, cloned: str | None) -> None:
    """Refuses a submodule that isn't checked out, unless jobs clone the commit that is recorded here, or nothing."""
    folder, command = tree.folder / name, f"git submodule update --init {quote(name)}"
    if folder.is_symlink() or not folder.is_dir():
        if cloned or os.path.lexists(folder):
            raise _removed(tree, name)
    elif any(folder.iterdir()):
        what = "has files here, but isn't a checkout any more"
        raise _refused(tree, name, what, f"move them away and run `{command}`")
    if cloned not in (commit, None):
        what = f"is recorded at {commit} here, and isn't checked out, so its files can't go along"
        raise _refused(tree, name, what, f"run `{command}`, or push the commit that changes it")


def _removed(tree: WorkTree, name: str) -> DstackError:
    what = "was removed or moved here, but jobs still clone it where it was"
    return _refused(tree, name, what, "push the commit that does so, or check it out again")


def _refused(tree: WorkTree, name: str, what: str, hint: str) -> DstackError:
    return tree.source.refused(f"the submodule {tree.folder / name} {what}", hint)
