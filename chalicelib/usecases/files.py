"""Uploaded archives: content under its own hash, checked before it is stored (`archives`)."""

from __future__ import annotations

import hashlib
import re

from chalicelib.domain import keys
from chalicelib.domain.ids import derive, is_id
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Archive, User
from chalicelib.errors import Conflict, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.usecases.archives import check_tar
from chalicelib.usecases.context import Plane

_HASH = re.compile(r"[0-9a-f]{64}")


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
