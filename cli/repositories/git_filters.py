"""Files that the repository stores in another form than the user sees them: of Git LFS, encrypted, stripped.

A filter, which `.gitattributes` names, translates between the two; a job has no filters, so it gets what is stored. A
file that was changed goes to the job as the user sees it. One that wasn't stays as it is stored, and is named.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from cli.repositories.work_tree import FILES, Entry, WorkTree, joined

POINTER = re.compile(rb"version https?://\S+\n(?:.+\n)*?oid sha256:(?P<id>[0-9a-f]{64})\nsize (?P<size>[0-9]+)\n")
NO_FILTER = ("unspecified", "unset")
LFS = "lfs"


def compare_as_seen(tree: WorkTree, base: str) -> list[str]:
    """Makes the patch compare filtered files as the user sees them. Returns those that stay in their stored form."""
    index = tree.index()
    filters = _filters(tree, [name for name, entry in index.items() if entry.mode in FILES])
    there = {name: found for name in filters if (found := _mode(tree.folder / name))}
    if not there:
        return []
    changed = set(tree.names("diff", "--name-only", "--no-renames", "--ignore-submodules=all", "-z", base))
    before = tree.tree(base)
    pointers = _pointers(tree, [name for name in there if name in changed and filters[name] == LFS], before)
    same = [name for name in there if name not in changed or _fits(tree.folder / name, pointers.get(name))]
    tree.set_entries({name: index[name] for name in there if name not in same})
    overlooked = [name for name in same if name in changed]  # only the times of the files differ
    if overlooked:
        tree.set_entries({name: Entry(there[name], before[name].id) for name in overlooked})
        tree.git("update-index", "--assume-unchanged", "-z", "--stdin", given=joined(overlooked))
    return _otherwise(tree, {name: before[name] for name in same if name in before})


def _filters(tree: WorkTree, names: Iterable[str]) -> dict[str, str]:
    """The filter of each file that has one."""
    said = os.fsdecode(tree.git("check-attr", "-z", "--stdin", "filter", given=joined(names))).split("\0")
    return {name: value for name, value in zip(said[::3], said[2::3], strict=False) if value not in NO_FILTER}


def _mode(path: Path) -> str | None:
    """As Git has it; None unless it is a regular file."""
    try:
        found = path.lstat().st_mode
    except OSError:
        return None
    return FILES[bool(found & stat.S_IXUSR)] if stat.S_ISREG(found) else None


def _pointers(tree: WorkTree, names: Iterable[str], before: Mapping[str, Entry]) -> dict[str, bytes]:
    return {name: tree.git("cat-file", "blob", before[name].id) for name in names if name in before}


def _fits(file: Path, pointer: bytes | None) -> bool:
    """Whether a file is the one that a Git LFS pointer stands for."""
    said = POINTER.fullmatch(pointer) if pointer else None
    if not said or file.stat().st_size != int(said["size"]):
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == said["id"].decode()


def _otherwise(tree: WorkTree, stored: Mapping[str, Entry]) -> list[str]:
    """Those whose content isn't what is stored. Most differ in size, which saves reading them."""
    ids = "".join(f"{entry.id}\n" for entry in stored.values()).encode()
    sizes = tree.git("cat-file", "--batch-check=%(objectsize)", given=ids).split()
    alike = [name for name, size in zip(stored, sizes, strict=True) if (tree.folder / name).stat().st_size == int(size)]
    paths = b"".join(os.fsencode(name) + b"\n" for name in alike if "\n" not in name)
    seen = tree.git("hash-object", "--no-filters", "--stdin-paths", given=paths).decode().split()
    same = {name for name, found in zip(alike, seen, strict=False) if found == stored[name].id}
    return [name for name in stored if name not in same]
