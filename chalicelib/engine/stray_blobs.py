"""Deletes unneeded blobs: uploads whose record was never written, and agent programs and carriers that no machine can
request.

An upload stores its bytes before its record, so a crash in between leaves bytes that no record names. No index shows
them, so once a day a round goes through the blob store, one page per step. A stray under an archive's own name is first
claimed by a record that marks it as erased, and deleted with that record in a later step: a new upload of the same
content sees the claim and uses another name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import DAY, Micros
from chalicelib.domain.programs import (
    ARCHITECTURES,
    FOLDER,
    NEWEST,
    Program,
    digest_of,
    newest_carrier,
    newest_of,
)
from chalicelib.domain.rounds import Round
from chalicelib.domain.tenants import Archive, archive_id
from chalicelib.engine.ports import Clock
from chalicelib.engine.read import Reader, owners
from chalicelib.planning.projects import erasure
from chalicelib.store import nouns
from chalicelib.store.port import Delete, Store

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs

FOLDERS = ("archives/", "code/")
BATCH = 500  # blobs per step
_UPLOAD = re.compile(r"(?:archives|code)/([^/]+)/([0-9a-f]{64})(-[^/]+)?")  # owner, hash, and a unique suffix


class StrayBlobs:
    def __init__(self, store: Store, blobs: Blobs, clock: Clock, projects: Callable[[], Iterable[str]]) -> None:
        """`projects`: the ids of all projects that may have machines."""
        self._store, self._blobs, self._clock, self._projects = store, blobs, clock, projects
        self._read = Reader(store)

    def run(self) -> list[str]:
        """Do one step of the round. Returns the names of the deleted blobs."""
        at, now = nouns.find(self._store, Round, keys.ROUND) or Round(), self._clock.now()
        if now < at.next_at:
            return []
        gone = self._begin(now) if (at.folder, at.after) == (0, "") else []
        page = self._blobs.dated(FOLDERS[at.folder], at.after, BATCH)
        gone += self._strays([name for name, written_at in page if erasure.is_settled(written_at, now)])
        self._store.commit([nouns.put(_next(at, page[-1][0] if len(page) == BATCH else "", now))])
        return gone

    # --- uploads -----------------------------------------------------------------------------------------------------

    def _strays(self, blobs: Iterable[str]) -> list[str]:
        uploads = [(blob, found) for blob in blobs if (found := _UPLOAD.fullmatch(blob))]
        wanted = [keys.archive(archive_id(found[1], found[2])) for _, found in uploads]
        known = nouns.find_many(self._store, Archive, wanted) if wanted else []
        gone = []
        for (blob, found), archive in zip(uploads, known, strict=True):
            if archive is not None and archive.blob == blob:
                continue
            if found[3]:  # the name is unique, so it is never written again
                self._blobs.delete(blob)
                gone.append(blob)
            elif archive is None:
                id_ = archive_id(found[1], found[2])
                claim = Archive(id=id_, owner_id=found[1], hash=found[2], blob=blob, size=0, erased=True)
                self._store.commit([nouns.put(claim)])
        return gone

    # --- programs and carriers ----------------------------------------------------------------------------------------

    def _begin(self, now: Micros) -> list[str]:
        self._blobs.tidy(now - erasure.RECORD_DELAY)
        newest = self._newest()
        seen = {
            name: self._record_program(digest, written_at, digest in newest, now)
            for name, written_at in self._blobs.dated(FOLDER)
            if (digest := digest_of(name))
        }
        return self._programs({name: each for name, each in seen.items() if each.digest not in newest}, now)

    def _newest(self) -> set[str]:
        """The digests of the newest program and of the newest carriers."""
        program = self._blobs.get(NEWEST)
        carriers = {newest_of(self._blobs.get(newest_carrier(each)))[1] for each in ARCHITECTURES}
        return carriers if program is None else {hashlib.sha256(program).hexdigest(), *carriers}

    def _record_program(self, digest: str, written_at: Micros, newest: bool, now: Micros) -> Program:
        """The program's record, updated. A program without a record may have been the newest until now."""
        known = nouns.find(self._store, Program, keys.program(digest))
        program = known or Program(digest=digest, first_at=min(written_at, now), last_at=now)
        if newest:
            program = program.with_(last_at=now)
        if program != known:
            self._store.commit([nouns.put(program)])
            program = program.with_(version=program.version + 1)
        return program

    def _programs(self, old: Mapping[str, Program], now: Micros) -> list[str]:
        """Of these, by blob, deletes those that no machine can request."""
        idle = {name: program for name, program in old.items() if erasure.program_erasable(program, (), now)}
        live = list(self._live()) if idle else []
        gone = []
        for name, program in idle.items():
            if erasure.program_erasable(program, live, now):
                self._store.commit([Delete(nouns.key_of(program), program.version)])
                self._blobs.delete(name)
                gone.append(name)
        return gone

    def _live(self) -> Iterator[Instance]:
        """Every machine that was bought and isn't terminated."""
        for project_id in self._projects():
            for owner in owners(self._store, project_id):
                for instance in self._read.instances(owner):
                    if instance.bought and instance.status is not InstanceStatus.terminated:
                        yield instance


def _next(at: Round, after: str, now: Micros) -> Round:
    """Where the next step continues; after the last folder, a day later."""
    if after:
        return at.with_(after=after)
    if at.folder + 1 < len(FOLDERS):
        return at.with_(folder=at.folder + 1, after="")
    return at.with_(folder=0, after="", next_at=now + DAY)
