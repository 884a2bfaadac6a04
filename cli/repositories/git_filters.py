"""Files that the repository stores in another form than the user sees: Git LFS, encrypted, stripped files.

A filter named in `.gitattributes` translates between the two forms; a job has no filters, so it clones the stored form.
A changed file is sent to the job as the user sees it. So is an unchanged file of Git LFS, unless the user wants its
pointer, and it is refused by name if it is too large. Any other file stays in its stored form, and is named.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cli.repositories.work_tree import FILES, Entry, WorkTree, joined
from cli.tables.usage import size

POINTER = re.compile(rb"version https?://\S+\n(?:.+\n)*?oid sha256:(?P<id>[0-9a-f]{64})\nsize (?P<size>[0-9]+)\n")
NO_FILTER = ("unspecified", "unset")
LFS = "lfs"
BASE = "index-of-base"
MOST = 8 * 2**20  # bytes; no server takes a larger upload
AS_POINTERS = (
    "let jobs have pointers with `--lfs-pointers`; `git lfs pull` in `commands` fetches the files, if the image has "
    "git-lfs and the job may read the repository"
)


@dataclass(frozen=True)
class Filtered:
    """Unchanged files that the user sees in another form than the stored one."""

    stored: tuple[str, ...] = ()  # files that a job gets in their stored form
    sent: Mapping[str, int] = field(default_factory=dict)  # sizes of the Git LFS files that are sent


def compare_as_seen(
    tree: WorkTree, base: str, before: Mapping[str, Entry], index: Mapping[str, Entry], *, lfs_pointers: bool
) -> Filtered:
    """Makes the patch compare filtered files as the user sees them. `before`: the entries of `base`."""
    filters = _filters(tree, base, before, index)
    present = {name: found for name in filters if (found := _mode(tree.folder / name))}
    if not present:
        return Filtered()
    changed = set(tree.names("diff", "--name-only", "--no-renames", "--ignore-submodules=all", "-z", base))
    pointers = _pointers(tree, [name for name in present if name in changed and filters[name] == LFS], before)
    same = [name for name in present if name not in changed or _fits(tree.folder / name, pointers.get(name))]
    other = _otherwise(tree, {name: before[name] for name in same if name in before})
    sent = {} if lfs_pointers else {name: _size(tree.folder / name) for name in other if filters[name] == LFS}
    if sum(sent.values()) > MOST:
        what = f"Git LFS files of {tree.folder} are too large to go along, {size(sum(sent.values()))} in all"
        raise tree.source.refused(f"{what}: {largest(sent)}", AS_POINTERS)
    unsent = [name for name in same if name not in sent]
    tree.set_entries({name: index[name] for name in present.keys() - unsent})
    overlooked = [name for name in unsent if name in changed]  # only their times differ
    if overlooked:
        tree.set_entries({name: Entry(present[name], before[name].id) for name in overlooked})
        tree.git("update-index", "--assume-unchanged", "-z", "--stdin", given=joined(overlooked))
    stored = tuple(f"{tree.prefix}{name}" for name in other if name not in sent)
    return Filtered(stored, {f"{tree.prefix}{name}": bytes for name, bytes in sent.items()})


def largest(sizes: Mapping[str, int], count: int = 10) -> str:
    """The names of the largest files, and the number of the others."""
    ordered = sorted(sizes.items(), key=lambda each: each[1], reverse=True)
    more = f" and {len(ordered) - count} more" if len(ordered) > count else ""
    return ", ".join(f"{name} ({size(bytes)})" for name, bytes in ordered[:count]) + more


def _size(file: Path) -> int:
    return file.stat().st_size


def _filters(tree: WorkTree, base: str, before: Mapping[str, Entry], index: Mapping[str, Entry]) -> dict[str, str]:
    """The filter of each file that has one, or had one in `base`: Git doesn't read a file again because it lost its
    filter."""
    names = [name for name, entry in index.items() if entry.mode in FILES]
    present = [name for name in names if name in before]
    tree.git("read-tree", base, index=BASE)
    stored = tree.git("check-attr", "--cached", "-z", "--stdin", "filter", given=joined(present), index=BASE)
    now = tree.git("check-attr", "-z", "--stdin", "filter", given=joined(names))
    listed = os.fsdecode(stored + now).split("\0")
    return {name: value for name, value in zip(listed[::3], listed[2::3], strict=False) if value not in NO_FILTER}


def _mode(path: Path) -> str | None:
    """The file's mode in Git; None unless it is a regular file."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return None
    return FILES[bool(found & stat.S_IXUSR)] if stat.S_ISREG(found) else None


def _pointers(tree: WorkTree, names: Iterable[str], before: Mapping[str, Entry]) -> dict[str, bytes]:
    return {name: tree.git("cat-file", "blob", before[name].id) for name in names if name in before}


def _fits(file: Path, pointer: bytes | None) -> bool:
    """Is this the file for which a Git LFS pointer stands?"""
    match = POINTER.fullmatch(pointer) if pointer else None
    if not match or _size(file) != int(match["size"]):
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == match["id"].decode()


def _otherwise(tree: WorkTree, stored: Mapping[str, Entry]) -> list[str]:
    """The files whose content differs from the stored form. Most differ in size, which saves reading them."""
    ids = "".join(f"{entry.id}\n" for entry in stored.values()).encode()
    sizes = tree.git("cat-file", "--batch-check=%(objectsize)", given=ids).split()
    alike = [name for name, bytes in zip(stored, sizes, strict=True) if _size(tree.folder / name) == int(bytes)]
    paths = b"".join(os.fsencode(name) + b"\n" for name in alike if "\n" not in name)
    seen = tree.git("hash-object", "--no-filters", "--stdin-paths", given=paths).decode().split()
    same = {name for name, found in zip(alike, seen, strict=False) if found == stored[name].id}
    return [name for name in stored if name not in same]
