"""Uploaded archives: content under its own hash, checked before it is stored (`archives`).

An archive that hasn't been used for a long time is erased (`engine/erase_unused.py`), and one without a run after a
day. Uploading it, looking it up, or submitting a run with it counts as use; that is recorded once a day, so it usually
costs no write. Each archive counts towards the limit on the uploads of the user who stored it.
"""

from __future__ import annotations

import hashlib
import re

from chalicelib.domain import keys
from chalicelib.domain.ids import is_id
from chalicelib.domain.instants import DAY
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.tenants import Archive, User, UserUploads, archive_id
from chalicelib.errors import Conflict, Contended, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.ports import FilePorts, RecordPorts
from chalicelib.usecases.runs.archives import check_tar

UPLOAD_TRIES = 4 * TRIES  # all uploads of a user write one record
_HASH = re.compile(r"[0-9a-f]{64}")


def archive_by_hash(plane: RecordPorts, user: User, hash_: str) -> Archive:
    """One of the user's own archives. Raises NotFound, after which clients upload it."""
    found = _find(plane, archive_id(user.id, hash_))
    if found is None or not _use(plane, found):
        raise NotFound(f"There is no archive with the hash {hash_[:64]!r}.")
    return found


def save_archive(plane: FilePorts, user: User, name: str, content: bytes) -> Archive:
    """Store an uploaded archive of files. The same content is stored once."""
    check_upload(plane, name, content)
    check_tar(content)
    return store_archive(plane, user, user.id, "archives", name, content)


def store_archive(plane: FilePorts, user: User, owner_id: str, folder: str, hash_: str, content: bytes) -> Archive:
    """Store content whose hash was checked. The bytes are written before the record, so no record lacks them."""
    for _ in range(UPLOAD_TRIES):
        known = nouns.find(plane.store, Archive, keys.archive(archive_id(owner_id, hash_)))
        if known is not None and not known.erased:
            if _use(plane, known):
                return known
            continue
        uploads = _charged(plane, user, len(content))
        # The bytes of an erased archive may be deleted at any moment, so the new ones get another name.
        blob = f"{folder}/{owner_id}/{hash_}" + ("" if known is None else f"-{plane.random_id()}")
        version, now = 0 if known is None else known.version, plane.clock.now()
        archive = Archive(id=archive_id(owner_id, hash_), owner_id=owner_id, hash=hash_, blob=blob, size=len(content))
        archive = archive.with_(used_at=now, submitted=False, charged_to=user.id, version=version)
        plane.blobs.put(blob, content)
        try:
            plane.store.commit([nouns.put(archive), nouns.put(uploads)])
        except Conflict:
            continue  # another upload of this user or of the same content, or the old archive was erased: try again
        return archive
    raise Contended("This archive keeps changing.", hint="Try again.")


def _charged(plane: FilePorts, user: User, size: int) -> UserUploads:
    """The user's uploads, with `size` bytes added. Raises Refused if that exceeds the limit."""
    known = nouns.find(plane.store, UserUploads, keys.uploads(user.id)) or UserUploads(id=user.id)
    charged, limit = known.plus(size), plane.limits.uploads
    if charged.size > limit:
        raise Refused(
            f"Your uploads would take {charged.size / 2**20:.1f} MB on the server; "
            f"a user may keep {limit / 2**20:g} MB there.",
            hint="An upload that no run was submitted with is erased after a day, others some time after their last "
            "run. Leave out files you don't need, or ask the server's operator for more room.",
        )
    return charged


def use(plane: RecordPorts, project_id: str, spec: RunSpec) -> None:
    """Record that a run, which is about to be submitted, uses its archives. Raises Refused for one that was just
    erased."""
    ids = [sent.id for sent in spec.file_archives]
    if spec.repo_code_hash:
        ids.append(archive_id(project_id, spec.repo_code_hash))
    wanted = [keys.archive(id_) for id_ in dict.fromkeys(ids)]
    for archive in nouns.find_many(plane.store, Archive, wanted) if wanted else ():
        if archive is not None and (archive.erased or not _use(plane, archive, submitted=True)):
            raise Refused(
                "The files of this run were just erased, because they hadn't been used for long.", hint="Apply again."
            )


def _use(plane: RecordPorts, archive: Archive, submitted: bool = False) -> bool:
    """Record a use of the archive. False if it was erased meanwhile."""
    now, found = plane.clock.now(), archive
    for _ in range(TRIES):
        used = found.with_(used_at=now, submitted=found.submitted or submitted)
        if found.used_at > now - DAY // 2 and used.submitted == found.submitted:
            return True
        try:
            plane.store.commit([nouns.put(used)])
        except Conflict:
            current = _find(plane, archive.id)
            if current is None:
                return False
            found = current
            continue
        return True
    raise Contended("This archive keeps changing.", hint="Try again.")


def _find(plane: RecordPorts, id_: str) -> Archive | None:
    found = nouns.find(plane.store, Archive, keys.archive(id_))
    return None if found is None or found.erased else found


def missing(plane: RecordPorts, user: User, spec: RunSpec) -> list[Problem]:
    """Problems of archives that a run needs and its user hasn't uploaded."""
    hint = "upload one to /api/files/upload_archive and give its id in `file_archives`, as clients do"
    if spec.configuration.files and not spec.file_archives:
        return [Problem("they come without an archive", path="configuration.files", hint=hint)]
    places = {number: sent.id for number, sent in enumerate(spec.file_archives) if is_id(sent.id)}
    found = nouns.find_many(plane.store, Archive, [keys.archive(id_) for id_ in places.values()]) if places else []
    own = {
        number
        for number, archive in zip(places, found, strict=True)
        if archive and archive.owner_id == user.id and not archive.erased
    }
    return [
        Problem(f"you didn't upload an archive `{sent.id[:36]}`", path=f"file_archives.{number}.id", hint=hint)
        for number, sent in enumerate(spec.file_archives)
        if number not in own
    ]


def check_upload(plane: FilePorts, name: str, content: bytes) -> None:
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
