"""A small SFTP server of version 3 (draft-ietf-secsh-filexfer-02), for jobs whose image or machine has none.

It runs with the job's rights where the job's files are, which may be in a container; so after its start it imports no
module and follows no path outside. Paths are bytes, because they need not be text.

Rule 1. Only regular files are opened. A container's user may create device nodes, and this process isn't subject to the
        container's device rules; so a path is checked first, and exactly the file that was checked is opened.
Rule 2. Reading never waits for writing, nor writing for reading: a client sends many requests before it reads a reply.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import struct
import time
from itertools import chain
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

(INIT, VERSION, OPEN, CLOSE, READ, WRITE, LSTAT, FSTAT, SETSTAT, FSETSTAT, OPENDIR, READDIR, REMOVE, MKDIR, RMDIR) = (
    range(1, 16)
)
REALPATH, STAT, RENAME, READLINK, SYMLINK = range(16, 21)
STATUS, HANDLE, DATA, NAME, ATTRS = range(101, 106)
EXTENDED = 200
OK, EOF, NO_SUCH_FILE, PERMISSION_DENIED, FAILURE, BAD_MESSAGE, _, _, UNSUPPORTED = range(9)
FXF_READ, FXF_WRITE, FXF_APPEND, FXF_CREAT, FXF_TRUNC, FXF_EXCL = 1, 2, 4, 8, 16, 32
HAS_SIZE, HAS_OWNER, HAS_MODE, HAS_TIMES, HAS_MORE = 1, 2, 4, 8, 0x80000000
EXTENSIONS = ((b"posix-rename@openssh.com", b"1"), (b"hardlink@openssh.com", b"1"), (b"fsync@openssh.com", b"1"))

PACKET_MOST = 256 * 1024
READ_MOST = 128 * 1024
WAITING_MOST = 512 * 1024  # bytes of replies, beyond which requests wait
HANDLES_MOST = 512
NAMES_A_REPLY = 100


class Malformed(Exception):
    """The client doesn't speak SFTP."""


class Fields:
    """The fields of a request, read one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise Malformed("a request ends too early")
        self._at += size
        return found

    def u32(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self._take(8), "big")

    def text(self) -> bytes:
        return self._take(self.u32())

    def path(self) -> bytes:
        return self.text() or b"."

    def attributes(self) -> Dict[str, Any]:
        flags, found = self.u32(), {}  # type: int, Dict[str, Any]
        if flags & HAS_SIZE:
            found["size"] = self.u64()
        if flags & HAS_OWNER:
            found["owner"] = (self.u32(), self.u32())
        if flags & HAS_MODE:
            found["mode"] = self.u32()
        if flags & HAS_TIMES:
            found["times"] = (self.u32(), self.u32())
        for _ in range(self.u32() if flags & HAS_MORE else 0):
            self.text(), self.text()
        return found


def text(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def attributes(found: os.stat_result) -> bytes:
    flags = HAS_SIZE | HAS_OWNER | HAS_MODE | HAS_TIMES
    times = (int(found.st_atime) & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)
    return struct.pack(">IQIIIII", flags, found.st_size, found.st_uid, found.st_gid, found.st_mode, *times)


def long_name(name: bytes, found: os.stat_result) -> bytes:
    """A line in the form of `ls -l`, which clients show."""
    day = time.strftime(
        "%b %d  %Y" if abs(time.time() - found.st_mtime) > 180 * 86400 else "%b %d %H:%M",
        time.localtime(found.st_mtime),
    )
    line = "%s %3d %-8d %-8d %8d %s " % (
        stat.filemode(found.st_mode),
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
        day,
    )
    return line.encode("ascii", "replace") + name


class FolderListing:
    """An open folder with the names that haven't been sent yet. It is read on demand, because it may be very large."""

    def __init__(self, path: bytes) -> None:
        self.path, self._entries = path, os.scandir(path)
        self.names: Iterator[bytes] = chain((b".", b".."), (entry.name for entry in self._entries))

    def close(self) -> None:
        self._entries.close()


def close_handle(what: Union[int, FolderListing]) -> None:
    if isinstance(what, int):
        os.close(what)
    else:
        what.close()


class SftpServer:
    """Replies to one request after another."""

    def __init__(self, proc: Optional[int] = None) -> None:
        """`proc`: a descriptor of this process's own /proc, opened before it changed its mounts."""
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if proc is None else proc
        self._open: Dict[bytes, Union[int, FolderListing]] = {}
        self._count = 0
        self._does: Dict[int, Callable[[Fields], Tuple[int, bytes]]] = {
            OPEN: self._open_file,
            CLOSE: self._close,
            READ: self._read,
            WRITE: self._write,
            LSTAT: lambda fields: (ATTRS, attributes(os.lstat(fields.path()))),
            FSTAT: lambda fields: (ATTRS, attributes(os.fstat(self._file(fields)))),
            STAT: lambda fields: (ATTRS, attributes(os.stat(fields.path()))),
            SETSTAT: self._set,
            FSETSTAT: self._set_open,
            OPENDIR: lambda fields: self._handle(FolderListing(fields.path())),
            READDIR: self._list,
            REMOVE: lambda fields: completed(os.unlink, fields.path()),
            MKDIR: lambda fields: completed(os.mkdir, fields.path(), fields.attributes().get("mode", 0o777) & 0o7777),
            RMDIR: lambda fields: completed(os.rmdir, fields.path()),
            REALPATH: lambda fields: name_reply([(os.path.realpath(fields.path()), None)]),
            RENAME: self._rename,
            READLINK: lambda fields: name_reply([(os.readlink(fields.path()), None)]),
            SYMLINK: self._symlink,  # as in OpenSSH, the target comes first, unlike in the draft
            EXTENDED: self._extended,
        }

    def reply(self, packet: bytes) -> bytes:
        """The reply to a request, both without their length. Raises Malformed."""
        if packet[:1] == bytes([INIT]):
            extensions = b"".join(text(name) + text(version) for name, version in EXTENSIONS)
            return bytes([VERSION]) + struct.pack(">I", 3) + extensions
        fields = Fields(packet[1:])
        number = fields.u32()
        try:
            if not packet or packet[0] not in self._does:
                kind, body = status(UNSUPPORTED, "not supported")
            else:
                kind, body = self._does[packet[0]](fields)
        except OSError as problem:
            kind, body = refusal(problem)
        except (ValueError, OverflowError) as problem:  # a NUL in a path, a size beyond what the kernel takes
            kind, body = status(FAILURE, str(problem))
        return bytes([kind]) + struct.pack(">I", number) + body

    def _handle(self, what: Union[int, FolderListing]) -> Tuple[int, bytes]:
        if len(self._open) >= HANDLES_MOST:
            close_handle(what)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._count += 1
        name = b"%d" % self._count
        self._open[name] = what
        return HANDLE, text(name)

    def _file(self, fields: Fields) -> int:
        found = self._open.get(fields.text())
        if not isinstance(found, int):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def _open_file(self, fields: Fields) -> Tuple[int, bytes]:
        path, access, attributes_ = fields.path(), fields.u32(), fields.attributes()
        read_write = access & (FXF_READ | FXF_WRITE) == FXF_READ | FXF_WRITE
        flags = os.O_RDWR if read_write else os.O_WRONLY if access & FXF_WRITE else os.O_RDONLY
        flags |= os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        flags |= os.O_APPEND if access & FXF_APPEND else 0
        if access & FXF_CREAT and not os.path.exists(path):
            mode = attributes_.get("mode", 0o666) & 0o7777
            return self._handle(os.open(path, flags | os.O_CREAT | os.O_EXCL, mode))
        if access & FXF_CREAT and access & FXF_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return self._handle(self._regular(path, flags | (os.O_TRUNC if access & FXF_TRUNC else 0)))

    def _regular(self, path: bytes, flags: int) -> int:
        checked = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(checked).st_mode):
                raise OSError(errno.EPERM, "not a regular file")
            return os.open("self/fd/%d" % checked, flags, dir_fd=self._proc)
        finally:
            os.close(checked)

    def _close(self, fields: Fields) -> Tuple[int, bytes]:
        found = self._open.pop(fields.text(), None)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        close_handle(found)
        return status(OK, "")

    def _read(self, fields: Fields) -> Tuple[int, bytes]:
        file, offset, size = self._file(fields), fields.u64(), fields.u32()
        data = os.pread(file, min(size, READ_MOST), offset)
        return (DATA, text(data)) if data or not size else status(EOF, "end of file")

    def _write(self, fields: Fields) -> Tuple[int, bytes]:
        file, offset, data = self._file(fields), fields.u64(), fields.text()
        while data:
            count = os.pwrite(file, data, offset)
            data, offset = data[count:], offset + count
        return status(OK, "")

    def _set(self, fields: Fields) -> Tuple[int, bytes]:
        path, changes = fields.path(), fields.attributes()
        if "size" in changes:
            os.truncate(path, changes["size"])
        return change(path, changes)

    def _set_open(self, fields: Fields) -> Tuple[int, bytes]:
        file, changes = self._file(fields), fields.attributes()
        if "size" in changes:
            os.ftruncate(file, changes["size"])
        return change(file, changes)

    def _list(self, fields: Fields) -> Tuple[int, bytes]:
        listing = self._open.get(fields.text())
        if not isinstance(listing, FolderListing):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        found: List[Tuple[bytes, Optional[os.stat_result]]] = []
        for name in listing.names:
            try:
                found.append((name, os.lstat(os.path.join(listing.path, name))))
            except OSError:
                continue  # deleted since the folder was read
            if len(found) == NAMES_A_REPLY:
                break
        return name_reply(found) if found else status(EOF, "no more names")

    def _rename(self, fields: Fields) -> Tuple[int, bytes]:
        source, target = fields.path(), fields.path()
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        return completed(os.rename, source, target)

    def _symlink(self, fields: Fields) -> Tuple[int, bytes]:
        target, link = fields.path(), fields.path()
        return completed(os.symlink, target, link)

    def _extended(self, fields: Fields) -> Tuple[int, bytes]:
        name = fields.text()
        if name == b"posix-rename@openssh.com":
            source, target = fields.path(), fields.path()
            return completed(os.rename, source, target)
        if name == b"hardlink@openssh.com":
            source, target = fields.path(), fields.path()
            os.link(source, target, follow_symlinks=False)
            return status(OK, "")
        if name == b"fsync@openssh.com":
            return completed(os.fsync, self._file(fields))
        return status(UNSUPPORTED, "not supported")


def change(what: Union[bytes, int], changes: Dict[str, Any]) -> Tuple[int, bytes]:
    if "mode" in changes:
        os.chmod(what, changes["mode"] & 0o7777)
    if "times" in changes:
        os.utime(what, changes["times"])
    if "owner" in changes:
        os.chown(what, *changes["owner"])
    return status(OK, "")


def name_reply(found: List[Tuple[bytes, Optional[os.stat_result]]]) -> Tuple[int, bytes]:
    parts = [struct.pack(">I", len(found))]
    for name, result in found:
        parts += [text(name), text(name if result is None else long_name(name, result))]
        parts.append(struct.pack(">I", 0) if result is None else attributes(result))
    return NAME, b"".join(parts)


def status(code: int, message: str) -> Tuple[int, bytes]:
    return STATUS, struct.pack(">I", code) + text(message.encode("utf-8", "replace")) + text(b"en")


def completed(action: Callable[..., None], *arguments: Any) -> Tuple[int, bytes]:
    action(*arguments)
    return status(OK, "")


def refusal(problem: OSError) -> Tuple[int, bytes]:
    codes = {errno.ENOENT: NO_SUCH_FILE, errno.ENOTDIR: NO_SUCH_FILE}
    codes.update({errno.EACCES: PERMISSION_DENIED, errno.EPERM: PERMISSION_DENIED})
    return status(codes.get(problem.errno or 0, FAILURE), problem.strerror or str(problem))


def serve(server: SftpServer, source: int, target: int) -> None:
    """Serve until the client disconnects. Raises Malformed."""
    for fd in (source, target):
        os.set_blocking(fd, False)
    requests, replies = bytearray(), bytearray()
    ended = False
    while not ended or replies:
        interests = {target: select.POLLOUT if replies else 0}
        if not ended and len(requests) <= PACKET_MOST + 4:
            interests[source] = interests.get(source, 0) | select.POLLIN
        poll = select.poll()
        for fd, events in interests.items():
            poll.register(fd, events)
        ready = dict(poll.poll())
        if ready.get(target, 0) & (select.POLLERR | select.POLLHUP) or not _send(target, replies):
            return
        if ready.get(source, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
            part = _receive(source)
            ended = part == b""
            requests += part or b""
        while len(replies) < WAITING_MOST:
            packet = next_packet(requests)
            if packet is None:
                break
            reply = server.reply(packet)
            replies += struct.pack(">I", len(reply)) + reply


def _send(target: int, replies: bytearray) -> bool:
    """Send as much as possible; False if the client doesn't read any more."""
    try:
        if replies:
            del replies[: os.write(target, replies)]
    except BlockingIOError:
        return True
    except BrokenPipeError:
        return False
    return True


def _receive(source: int) -> Optional[bytes]:
    try:
        return os.read(source, 65536)
    except BlockingIOError:
        return None


def next_packet(requests: bytearray) -> Optional[bytes]:
    """Remove the first complete packet from the buffer; None if there is none yet."""
    if len(requests) < 4:
        return None
    size = int.from_bytes(requests[:4], "big")
    if not 1 <= size <= PACKET_MOST:
        raise Malformed("a packet of %d bytes" % size)
    if len(requests) < 4 + size:
        return None
    packet = bytes(requests[4 : 4 + size])
    del requests[: 4 + size]
    return packet
