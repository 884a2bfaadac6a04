"""What an agent may download: the archives of its own jobs, and the agent program itself."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.programs import NEWEST, blob_of, is_digest
from chalicelib.domain.tenants import Archive
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.usecases.agents.credentials import instance_holding
from chalicelib.usecases.agents.tasks import archives_of
from chalicelib.usecases.ports import FilePorts

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs


def archive_content(plane: FilePorts, credential: str, archive_id: str) -> bytes:
    """The bytes of an archive of one of the instance's jobs. Any other archive is treated as unknown."""
    instance = instance_holding(plane, credential)
    wanted = [keys.job(c.run_id, c.replica_num, c.job_num, c.submission_num) for c in instance.claims]
    jobs = [job for job in nouns.find_many(plane.store, Job, wanted) if job is not None and not job.finished]
    if any(archive_id in archives_of(plane, job) for job in jobs):
        archive = nouns.find(plane.store, Archive, keys.archive(archive_id))
        content = None if archive is None else plane.blobs.get(archive.blob)
        if content is not None:
            return content
    raise NotFound("No job of this instance has that archive.")


def publish(blobs: Blobs, content: bytes) -> str:
    """Serve this program from now on. Returns its SHA-256, under which it remains available after newer ones."""
    digest = hashlib.sha256(content).hexdigest()
    for name in (blob_of(digest), NEWEST):
        if blobs.get(name) != content:
            blobs.put(name, content)
    return digest


def served(blobs: Blobs) -> str:
    """The SHA-256 of the newest program that is served."""
    content = blobs.get(NEWEST)
    if content is None:
        hint = "The admin of this control plane has to deploy it again: that puts the program there."
        raise NotFound("This control plane has no agent program.", hint=hint)
    return hashlib.sha256(content).hexdigest()


def program(plane: FilePorts, digest: str = "") -> bytes:
    """The agent program with this SHA-256, or the newest."""
    named = is_digest(digest)
    content = plane.blobs.get(blob_of(digest)) if named else None
    if content is None:
        content = plane.blobs.get(NEWEST)
        if content is None or (named and hashlib.sha256(content).hexdigest() != digest):
            raise NotFound("This control plane has no such agent program.")
    return content
