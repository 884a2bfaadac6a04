"""Uploaded archives: content under its own hash, checked before it is stored.

An archive is unpacked on a host next to other users' work, so a member that would land outside its folder is refused
here, where the user sees why. The agent checks again.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import PurePosixPath

from chalicelib.domain import keys
from chalicelib.domain.ids import derive, is_id
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Archive, User
from chalicelib.errors import Conflict, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane

_HASH = re.compile(r"[0-9a-f]{64}")
MAX_ENTRIES = 20_000


def archive_by_hash(plane: Plane, user: User, hash_: str) -> Archive:
    """One of the user's own archives. Raises NotFound, after which clients upload it."""
    found = nouns.find(plane.store, Archive, keys.archive(archive_id(user.id, hash_)))
    if found is None:
        raise NotFound(f"There is no archive with the hash {hash_[:64]!r}.")
    return found


def save_archive(plane: Plane, user: User, name: str, content: bytes) -> Archive:
    """Stores an uploaded archive of files; the same content again is the same archive."""
    check_upload(plane, name, content)
    check_tar(content)
    return keep(plane, user.id, "archives", name, content)


def keep(plane: Plane, owner_id: str, folder: str, hash_: str, content: bytes) -> Archive:
    """Store content whose hash was checked. The bytes come first, so no record lacks them."""
    blob = f"{folder}/{owner_id}/{hash_}"
    archive = Archive(id=archive_id(owner_id, hash_), owner_id=owner_id, hash=hash_, blob=blob, size=len(content))
    known = nouns.find(plane.store, Archive, keys.archive(archive.id))
    if known is not None:
        return known
    plane.blobs.put(blob, content)
    try:
        plane.store.commit([nouns.put(archive)])
    except Conflict:
        return archive  # the same content came twice at once
    return archive


def archive_id(owner_id: str, hash_: str) -> str:
    """The same content of the same owner is the same archive."""
    return derive(owner_id, "archive", hash_)


def missing(plane: Plane, user: User, spec: RunSpec) -> list[Problem]:
    """The archives that a run lacks. An archive of another user counts as missing."""
    hint = "upload one to /api/files/upload_archive and give its id in `file_archives`, as clients do"
    if spec.configuration.files and not spec.file_archives:
        return [Problem("they come without an archive", path="configuration.files", hint=hint)]
    places = {number: sent.id for number, sent in enumerate(spec.file_archives) if is_id(sent.id)}
    found = nouns.find_many(plane.store, Archive, [keys.archive(id_) for id_ in places.values()]) if places else []
    mine = {number for number, archive in zip(places, found, strict=True) if archive and archive.owner_id == user.id}
    return [
        Problem(f"you didn't upload an archive `{sent.id[:36]}`", path=f"file_archives.{number}.id", hint=hint)
        for number, sent in enumerate(spec.file_archives)
        if number not in mine
    ]


def check_upload(plane: Plane, name: str, content: bytes) -> None:
    limit = plane.limits.upload
    if len(content) > limit:
        size = len(content) / 2**20
        raise Refused(
            f"The upload has {size:.1f} MB; the limit is {limit / 2**20:g} MB.",
            hint="Leave out files you don't need, or download large ones in `commands`.",
        )
    if not _HASH.fullmatch(name):
        raise Invalid("The file name of an upload is the SHA-256 of its content, as 64 hexadecimal digits.")
    if hashlib.sha256(content).hexdigest() != name:
        raise Invalid(
            "The upload's content doesn't have the hash in its file name.", hint="It was damaged; send it again."
        )


def check_tar(content: bytes) -> None:
    """Refuse an archive that isn't a plain tar, or has a member that would land outside its folder."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_ENTRIES:
                    raise Invalid(f"The archive has more than {MAX_ENTRIES} entries.", hint="Send fewer files.")
                _check_member(member)
    except (tarfile.TarError, UnicodeError, ValueError, EOFError) as error:
        raise Invalid(f"The upload isn't a tar archive: {error}.", hint="Send an uncompressed tar.") from None


def as_content(content: bytes) -> bytes:
    """A checked tar with names that begin with `./`, which tells an agent that it is the content of a folder, not one
    entry; empty if the tar is."""
    check_tar(content)
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = archive.getmembers()
        with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as packed:
            for member in members:
                data = archive.extractfile(member) if member.isfile() else None
                member.name = f"./{member.name.removeprefix('./')}"
                if member.islnk():
                    member.linkname = f"./{member.linkname.removeprefix('./')}"
                member.pax_headers = {}
                packed.addfile(member, data)
    return out.getvalue() if members else b""


def _check_member(member: tarfile.TarInfo) -> None:
    name = member.name[:200]
    if _leaves(member.name):
        raise Invalid(f"The archive's entry {name!r} lies outside its folder.", hint="Use names relative to it.")
    if member.issym() or member.islnk():
        start = PurePosixPath(member.name).parent if member.issym() else PurePosixPath()
        if member.linkname.startswith("/") or _leaves(str(start / member.linkname)):
            raise Invalid(
                f"The archive's entry {name!r} is a link to {member.linkname[:200]!r}, outside its folder.",
                hint="Send the file itself instead of the link.",
            )
    elif not (member.isfile() or member.isdir()):
        raise Invalid(f"The archive's entry {name!r} is neither a file, a folder nor a link.", hint="Leave it out.")


def _leaves(path: str) -> bool:
    """Does this path ever leave the archive's folder?"""
    if path.startswith("/") or "\0" in path or "\\" in path:
        return True
    depth = 0
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False
