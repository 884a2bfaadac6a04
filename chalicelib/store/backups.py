"""Backups of a server in a folder, a file or a bucket: moments, each of which is whole, made of parts that they share.

    format              what this is, and what tells a wrong key from a right one
    moments/<time>      one backup: its numbers, and which parts it is made of
    parts/<ab>/<name>   a part: up to some megabytes, compressed and sealed, named by its content

So a backup after another stores only the parts that are new. A moment is written last: what was interrupted before has
none, and its parts serve the next. A part is found in the records or in a file by its content, so that a record that is
added changes one part and not all that follow (`cut`).
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

import orjson

from chalicelib.domain.instants import DAY, Micros, from_iso, iso
from chalicelib.errors import Refused
from chalicelib.store.backup_key import BackupKey, of_passphrase
from chalicelib.store.blobs import Blobs

FORMAT = 1
LARGEST = 4 * 2**20  # bytes of a part before it is compressed
_ONE_IN = 512  # lines: how long a part is on average
_FORMAT, _MOMENTS, _PARTS = "format", "moments/", "parts/"
_EVERY = 10**9  # names
UNUSED_LASTS: Micros = DAY  # for which a part without a moment is kept: its backup may still be under way
_STAMP = "%Y-%m-%dT%H-%M-%S.%fZ"
_NAMED = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}Z")


@dataclass(frozen=True)
class FileEntry:
    """A file of the data folder, and its content in parts."""

    path: str
    size: int
    changed: int  # ns, by the file system
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Moment:
    """One backup."""

    at: Micros  # of the commit up to which its records go
    program: str  # the version that made it
    store: int  # the format of the store's file
    install: str  # which installation it is of
    counts: dict[str, int]  # what there is of: records, files, bytes
    feed_end: int
    records: tuple[str, ...]  # the parts with their lines
    feed: tuple[str, ...]
    files: tuple[str, ...]  # the parts with a line for each file
    added: int = field(default=0, compare=False)  # bytes that this backup stored

    @property
    def name(self) -> str:
        return stamp(self.at)


def stamp(at: Micros) -> str:
    """Sorts as the times do, and is good for a file's name."""
    return datetime.fromisoformat(iso(at)).strftime(_STAMP)


def moment_at(name: str) -> Micros:
    return from_iso(datetime.strptime(name, _STAMP).replace(tzinfo=UTC).isoformat())


class Backups:
    """The backups in one place. `blobs`: that place."""

    def __init__(self, blobs: Blobs, key: BackupKey, known: Iterable[str]) -> None:
        self._blobs, self._key, self._known = blobs, key, set(known)
        self.stored = 0  # bytes that were written

    # --- parts --------------------------------------------------------------------------------------------------------

    def put(self, content: bytes) -> str:
        """The name of the part with this content, which is written unless it is there."""
        name = self._key.name(content)
        if name not in self._known:
            sealed = self._key.seal(zlib.compress(content, 6), name)
            self._blobs.put(part_place(name), sealed)
            self.stored += len(sealed)
            self._known.add(name)
        return name

    def has(self, names: Iterable[str]) -> bool:
        return self._known.issuperset(names)

    def get(self, name: str) -> bytes:
        """A part's content. Raises Refused if it isn't what was put."""
        sealed = self._blobs.get(part_place(name))
        if sealed is None:
            raise Refused(
                f"The part {name[:12]} of the backup is missing.",
                hint="Use another copy of the backup, or an earlier moment with --at.",
            )
        return zlib.decompress(self._key.open(sealed, name))

    def put_lines(self, lines: Iterable[tuple[str, bytes]]) -> tuple[str, ...]:
        """The parts of these lines, each with its key."""
        return tuple(self.put(part) for part in cut(lines))

    def lines(self, parts: Iterable[str]) -> Iterator[bytes]:
        for name in parts:
            yield from self.get(name).splitlines()

    def files(self, moment: Moment) -> Iterator[FileEntry]:
        return self._entries(moment.files)

    def _entries(self, parts: Iterable[str]) -> Iterator[FileEntry]:
        for line in self.lines(parts):
            path, size, changed, parts = orjson.loads(line)
            yield FileEntry(path, size, changed, tuple(parts))

    # --- moments ------------------------------------------------------------------------------------------------------

    def add(self, moment: Moment) -> None:
        content = zlib.compress(orjson.dumps({"shape": FORMAT, **asdict(moment)}))
        self._blobs.put(_MOMENTS + moment.name, self._key.seal(content, moment.name))

    def moments(self) -> list[str]:
        """Their names, oldest first. Other files, such as a file manager's, aren't backups."""
        names = (name.removeprefix(_MOMENTS) for name in self._blobs.list(_MOMENTS, limit=_EVERY))
        return [name for name in names if _NAMED.fullmatch(name)]

    def moment(self, name: str) -> Moment:
        sealed = self._blobs.get(_MOMENTS + name)
        if sealed is None:
            raise Refused(f"There is no backup of {name}.", hint="`dstack server backups` lists those there are.")
        found = orjson.loads(zlib.decompress(self._key.open(sealed, name)))
        if found.pop("shape") > FORMAT:
            raise Refused(f"The backup of {name} is of a newer version.", hint="Restore it with that version.")
        return Moment(**{**found, **{name: tuple(found[name]) for name in ("records", "feed", "files")}})

    def latest(self, until: Micros | None = None) -> Moment | None:
        """The last backup, of those up to this time."""
        names = [name for name in self.moments() if until is None or moment_at(name) <= until]
        return self.moment(names[-1]) if names else None

    def prune(self, before: Micros, now: Micros, *, unused: Micros = UNUSED_LASTS) -> int:
        """Delete the backups of before this time, but never the last one, with all parts that no other has and that
        are older than `unused`. Returns how many backups."""
        names = self.moments()
        old = [name for name in names[:-1] if moment_at(name) < before]
        if not old:
            return 0
        self._blobs.delete(*(_MOMENTS + name for name in old))
        dated = self._blobs.dated(_PARTS, limit=_EVERY)  # before the moments, which may get more meanwhile
        used: set[str] = set()
        listing: set[str] = set()  # the parts that name files: most are of many moments, and each is read once
        for moment in map(self.moment, self.moments()):
            used.update(moment.records, moment.feed, moment.files)
            listing.update(moment.files)
        used.update(part for entry in self._entries(listing) for part in entry.parts)
        stale = [name for name, at in dated if name.rpartition("/")[2] not in used and at < now - unused]
        self._blobs.delete(*stale)
        self._known -= {name.rpartition("/")[2] for name in stale}
        return len(old)


def part_place(name: str) -> str:
    """The blob with this part."""
    return f"{_PARTS}{name[:2]}/{name}"


def cut(lines: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """The lines in parts. Where one ends is decided by the key of its last line, so lines elsewhere don't move it."""
    part: list[bytes] = []
    size = 0
    for key, line in lines:
        if part and size + len(line) > LARGEST:
            yield b"".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line)
        if zlib.crc32(key.encode()) % _ONE_IN == 0:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


@dataclass(frozen=True)
class KeySource:
    """Where the key comes from: 32 bytes of a file, or a passphrase."""

    secret: bytes = field(default=b"", repr=False)
    passphrase: str = field(default="", repr=False)

    def key(self, salt: bytes) -> BackupKey:
        return BackupKey(self.secret) if self.secret else of_passphrase(self.passphrase, salt)


def opened(blobs: Blobs, source: KeySource, *, create: bool) -> Backups:
    """The backups in this place. Raises Refused for another key than theirs, and if there are none unless these are to
    be the first (`create`)."""
    raw = blobs.get(_FORMAT)
    if raw is None:
        if not create or blobs.list(_MOMENTS, limit=1):
            raise Refused("There are no backups.", hint="Name the folder, file or bucket that `backup` wrote to.")
        salt = secrets.token_bytes(16)
        key = source.key(salt)
        sealed = key.seal(b"dstack", _FORMAT)
        blobs.put(_FORMAT, orjson.dumps({"dstack_backups": FORMAT, "salt": salt.hex(), "check": sealed.hex()}))
        return Backups(blobs, key, ())
    try:
        found = orjson.loads(raw)
        version, salt, check = found["dstack_backups"], bytes.fromhex(found["salt"]), bytes.fromhex(found["check"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("These aren't backups of a server: their `format` can't be read.") from error
    if version > FORMAT:
        raise Refused("These backups are of a newer version of this program.", hint="Use that version.")
    key = source.key(salt)
    try:
        key.open(check, _FORMAT)
    except Refused as error:
        raise Refused(
            "The backups don't open with this key.", hint="Use the key, or the passphrase, that they were made with."
        ) from error
    names: Sequence[str] = blobs.list(_PARTS, limit=_EVERY)
    return Backups(blobs, key, (name.rpartition("/")[2] for name in names))
