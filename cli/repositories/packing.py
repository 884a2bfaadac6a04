"""`files:` as archives: one tar per mapping, the same bytes for the same content, so that its hash identifies it.

Times, owners and the umask are left out, but not the executable bit. `.gitignore` and `.dstackignore` of the packed
folder and those below it are respected, and `.git` is never included. A link inside the folder stays a link; one that
leads out of it is replaced by its target.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path

from chalicelib.errors import Refused
from cli.repositories.ignore import Pattern, ignored, parse_patterns

IGNORE_FILES = (".gitignore", ".dstackignore")
EPOCH = 315_619_200  # 1980-01-02: the oldest date that every tool accepts


@dataclass(frozen=True)
class PackedArchive:
    hash: str
    data: bytes


def pack(path: Path) -> PackedArchive:
    """The file or folder as a tar whose top-level entry has its name."""
    return _packed(path, path.resolve().name, "files")


def pack_content(folder: Path) -> PackedArchive:
    """The content of a folder, as a tar without an entry for the folder."""
    return _packed(folder, ".", "repos")


def _packed(path: Path, name: str, field: str) -> PackedArchive:
    buffer = io.BytesIO()
    try:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            if path.is_dir():
                _add_folder(tar, path.resolve(), path.resolve(), name, [])
            else:
                _add_file(tar, path, path.name)
    except FileNotFoundError:
        raise Refused(
            f"{field}: {path} doesn't exist.", hint="Paths are relative to the configuration's folder."
        ) from None
    except OSError as error:
        raise Refused(f"{field}: {error.filename or path} can't be read: {error.strerror}.") from error
    data = buffer.getvalue()
    return PackedArchive(hashlib.sha256(data).hexdigest(), data)


def _add_folder(tar: tarfile.TarFile, root: Path, folder: Path, name: str, above: list[Pattern]) -> None:
    entry = _entry(name, tarfile.DIRTYPE, 0o755)
    tar.addfile(entry)
    relative = "" if folder == root else folder.relative_to(root).as_posix()
    patterns = above + _patterns(folder, relative)
    for child in sorted(folder.iterdir(), key=lambda found: os.fsencode(found.name)):
        path = f"{relative}/{child.name}" if relative else child.name
        is_folder = child.is_dir() and not child.is_symlink()
        if child.name == ".git" or ignored(path, is_folder, patterns):
            continue
        _add_child(tar, root, child, f"{name}/{child.name}", patterns)


def _add_child(tar: tarfile.TarFile, root: Path, child: Path, name: str, patterns: list[Pattern]) -> None:
    if child.is_symlink():
        target = child.resolve()
        if target.is_relative_to(root):
            entry = _entry(name, tarfile.SYMTYPE, 0o777)
            entry.linkname = os.path.relpath(target, child.parent.resolve())
            tar.addfile(entry)
        elif target.is_dir():
            _add_folder(tar, target, target, name, [])
        else:
            _add_file(tar, target, name)
    elif child.is_dir():
        _add_folder(tar, root, child, name, patterns)
    elif child.is_file():
        _add_file(tar, child, name)


def _add_file(tar: tarfile.TarFile, path: Path, name: str) -> None:
    data = path.read_bytes()
    entry = _entry(name, tarfile.REGTYPE, 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, EPOCH
    return entry


def _patterns(folder: Path, relative: str) -> list[Pattern]:
    found: list[Pattern] = []
    for name in IGNORE_FILES:
        file = folder / name
        if file.is_file():
            found += parse_patterns(file.read_text(encoding="utf-8", errors="replace").splitlines(), relative)
    return found
