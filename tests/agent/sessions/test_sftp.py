"""The SFTP server, asked by hand. Real clients have it in `test_sessions_real`."""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.sessions import sftp
from chalicelib.agent.sessions.sftp import Fields, Malformed, SftpServer, text
from tests.harness.descriptors import descriptors, open_under, opened_since

NOTHING = struct.pack(">I", 0)  # no attributes


class Client:
    def __init__(self, server: SftpServer) -> None:
        self.server, self._number = server, 0

    def ask(self, kind: int, *parts: bytes) -> tuple[int, Fields]:
        self._number += 1
        reply = self.server.reply(bytes([kind]) + struct.pack(">I", self._number) + b"".join(parts))
        fields = Fields(reply[1:])
        assert fields.u32() == self._number
        return reply[0], fields

    def code(self, kind: int, *parts: bytes) -> int:
        kind_of_reply, fields = self.ask(kind, *parts)
        assert kind_of_reply == sftp.STATUS, kind_of_reply
        return fields.u32()

    def handle(self, kind: int, *parts: bytes) -> bytes:
        kind_of_reply, fields = self.ask(kind, *parts)
        assert kind_of_reply == sftp.HANDLE, fields.u32()
        return text(fields.text())

    def open(self, path: Path, flags: int) -> bytes:
        return self.handle(sftp.OPEN, named(path), struct.pack(">I", flags), NOTHING)


def named(path: Path | str) -> bytes:
    return text(os.fsencode(path))


def u64(number: int) -> bytes:
    return struct.pack(">Q", number)


@pytest.fixture
def client() -> Client:
    return Client(SftpServer())


def test_it_says_what_it_speaks(client: Client) -> None:
    reply = client.server.reply(bytes([sftp.INIT]) + struct.pack(">I", 6))
    assert reply[:5] == bytes([sftp.VERSION]) + struct.pack(">I", 3) and b"posix-rename@openssh.com" in reply


def test_a_file_is_written_and_read_at_any_place(client: Client, tmp_path: Path) -> None:
    handle = client.open(tmp_path / "f", sftp.FXF_WRITE | sftp.FXF_READ | sftp.FXF_CREAT)
    assert client.code(sftp.WRITE, handle, u64(4), text(b"world")) == sftp.OK
    assert client.code(sftp.WRITE, handle, u64(0), text(b"the ")) == sftp.OK
    kind, fields = client.ask(sftp.READ, handle, u64(2), struct.pack(">I", 100))
    assert (kind, fields.text()) == (sftp.DATA, b"e world")
    assert client.code(sftp.READ, handle, u64(9), struct.pack(">I", 1)) == sftp.EOF
    assert client.code(sftp.CLOSE, handle) == sftp.OK
    assert client.code(sftp.CLOSE, handle) == sftp.FAILURE
    assert (tmp_path / "f").read_bytes() == b"the world"


@pytest.mark.parametrize("flags", [sftp.FXF_READ, sftp.FXF_WRITE, sftp.FXF_WRITE | sftp.FXF_CREAT | sftp.FXF_TRUNC])
def test_only_regular_files_are_opened(client: Client, tmp_path: Path, flags: int) -> None:
    """Opening a device can do things, and opening a pipe waits."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), tmp_path):
        assert client.code(sftp.OPEN, named(path), struct.pack(">I", flags), NOTHING) == sftp.PERMISSION_DENIED


def test_links_to_files_are_followed_and_new_files_have_their_mode(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "link").symlink_to("f")
    handle = client.open(tmp_path / "link", sftp.FXF_WRITE | sftp.FXF_CREAT | sftp.FXF_TRUNC)
    client.code(sftp.WRITE, handle, u64(0), text(b"n"))
    assert (tmp_path / "f").read_text() == "n"
    mode = struct.pack(">II", sftp.HAS_MODE, 0o640)
    client.handle(sftp.OPEN, named(tmp_path / "new"), struct.pack(">I", sftp.FXF_WRITE | sftp.FXF_CREAT), mode)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    exclusive = struct.pack(">I", sftp.FXF_WRITE | sftp.FXF_CREAT | sftp.FXF_EXCL)
    assert client.code(sftp.OPEN, named(tmp_path / "new"), exclusive, NOTHING) == sftp.FAILURE


def test_folders_are_listed_whole(client: Client, tmp_path: Path) -> None:
    expected = {b".", b".."}
    for number in range(250):
        name = b"f%d\xff" % number
        (tmp_path / os.fsdecode(name)).touch()
        expected.add(name)
    handle, found = client.handle(sftp.OPENDIR, named(tmp_path)), set()
    while True:
        kind, fields = client.ask(sftp.READDIR, handle)
        if kind == sftp.STATUS:
            assert fields.u32() == sftp.EOF
            break
        for _ in range(fields.u32()):
            found.add(fields.text())
            assert fields.text()[:1] in b"-d"
            assert fields.attributes()["mode"]
    assert found == expected


def test_what_can_be_done_to_a_path(client: Client, tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    one.write_text("1")
    assert client.code(sftp.MKDIR, named(tmp_path / "d"), NOTHING) == sftp.OK
    assert client.code(sftp.RENAME, named(one), named(two)) == sftp.OK
    one.write_text("again")
    assert client.code(sftp.RENAME, named(one), named(two)) == sftp.FAILURE, "version 3 never replaces"
    replaced = (text(b"posix-rename@openssh.com"), named(one), named(two))
    assert client.code(sftp.EXTENDED, *replaced) == sftp.OK and two.read_text() == "again"
    assert client.code(sftp.SYMLINK, text(b"two"), named(three)) == sftp.OK
    kind, fields = client.ask(sftp.READLINK, named(three))
    assert (kind, fields.u32(), fields.text()) == (sftp.NAME, 1, b"two")
    kind, fields = client.ask(sftp.REALPATH, named(three))
    assert (kind, fields.u32(), fields.text()) == (sftp.NAME, 1, os.fsencode(two))
    changes = struct.pack(">IQIII", sftp.HAS_SIZE | sftp.HAS_MODE | sftp.HAS_TIMES, 3, 0o600, 5, 7)
    assert client.code(sftp.SETSTAT, named(two), changes) == sftp.OK
    kind, fields = client.ask(sftp.STAT, named(three))
    found = fields.attributes()
    assert (found["size"], found["mode"] & 0o777, found["times"]) == (3, 0o600, (5, 7))
    kind, fields = client.ask(sftp.LSTAT, named(three))
    assert stat.S_ISLNK(fields.attributes()["mode"])
    for kind, path in ((sftp.REMOVE, two), (sftp.REMOVE, three), (sftp.RMDIR, tmp_path / "d")):
        assert client.code(kind, named(path)) == sftp.OK
    assert list(tmp_path.iterdir()) == []


def test_refusals(client: Client, tmp_path: Path) -> None:
    assert client.code(sftp.STAT, named(tmp_path / "none")) == sftp.NO_SUCH_FILE
    assert client.code(sftp.STAT, text(b"a\0b")) == sftp.FAILURE
    assert client.code(sftp.READ, text(b"99"), u64(0), struct.pack(">I", 1)) == sftp.FAILURE
    assert client.code(sftp.EXTENDED, text(b"statvfs@openssh.com"), named("/")) == sftp.UNSUPPORTED
    assert client.code(99) == sftp.UNSUPPORTED
    with pytest.raises(Malformed):
        client.server.reply(bytes([sftp.OPEN]) + b"\0\0")


@pytest.mark.slow
def test_an_open_folder_costs_the_same_however_long_it_is(client: Client, tmp_path: Path) -> None:
    """The session isn't under the container's limits."""
    for number in range(2000):
        (tmp_path / f"{number:0200}").touch()
    tracemalloc.start()
    try:
        handles = [client.handle(sftp.OPENDIR, named(tmp_path)) for _ in range(5)]
        assert [client.ask(sftp.READDIR, handle)[1].u32() for handle in handles] == [sftp.NAMES_A_REPLY] * 5
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000, "2,000 names take as much once"
    assert open_under(tmp_path) == [str(tmp_path)] * 5
    assert [client.code(sftp.CLOSE, handle) for handle in handles] == [sftp.OK] * 5
    assert open_under(tmp_path) == []


def test_it_has_only_so_many_files_open(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    handles = [client.open(tmp_path / "f", sftp.FXF_READ) for _ in range(sftp.HANDLES_MOST)]
    before = descriptors()
    flags = struct.pack(">I", sftp.FXF_READ)
    assert client.code(sftp.OPEN, named(tmp_path / "f"), flags, NOTHING) == sftp.FAILURE
    assert not opened_since(before)
    for handle in handles:
        client.code(sftp.CLOSE, handle)


# The stream -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def line() -> Iterator[Any]:
    """A connection to a served session; `ended` says how it ended."""
    near, far = socket.socketpair()
    near.settimeout(120)
    ended: list[Exception | None] = []

    def work() -> None:
        try:
            sftp.serve(SftpServer(), far.fileno(), far.fileno())
            ended.append(None)
        except Malformed as problem:
            ended.append(problem)
        far.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield near, ended, thread
    near.close()
    thread.join(120)
    assert not thread.is_alive()


def request(kind: int, *parts: bytes) -> bytes:
    return text(bytes([kind]) + struct.pack(">I", 1) + b"".join(parts))


@pytest.mark.slow
def test_many_requests_before_the_first_reply_is_read(line: Any, tmp_path: Path) -> None:
    """More of either than the buffers of a socket hold."""
    near, _, _ = line
    size, count = 100_000, 100
    (tmp_path / "big").write_bytes(os.urandom(size))
    flags = struct.pack(">I", sftp.FXF_READ)
    near.sendall(request(sftp.OPEN, named(tmp_path / "big"), flags, NOTHING))
    one_request = request(sftp.READ, text(b"1"), u64(0), struct.pack(">I", size))
    near.sendall(one_request * count)
    near.shutdown(socket.SHUT_WR)
    received = b""
    while part := near.recv(1 << 20):
        received += part
    assert len(received) == len(request(sftp.HANDLE, text(b"1"))) + count * len(request(sftp.DATA, text(b"x" * size)))


def test_a_request_in_pieces(line: Any) -> None:
    near, _, _ = line
    for byte in request(sftp.REALPATH, text(b"/")):
        near.sendall(bytes([byte]))
    assert b"/" in near.recv(1000)


def test_what_isnt_sftp_ends_it(line: Any) -> None:
    near, ended, thread = line
    near.sendall(b"SSH-2.0-what\r\n")
    thread.join(120)
    assert isinstance(ended[0], Malformed)


# What the draft says, in its own numbers ------------------------------------------------------------------------------


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def test_opening_as_a_client_writes_it(client: Client, tmp_path: Path) -> None:
    """Reading is 1, writing 2, at the end 4, making 8, emptying 16, only if new 32."""
    path = tmp_path / "f"
    path.write_text("old")
    reads, writes, both, ends, _ = (
        text(client.ask(3, named(path), u32(flags, 0))[1].text()) for flags in (1, 2, 3, 6, 26)
    )
    assert path.read_text() == "", "the last one emptied it"
    assert client.code(6, reads, u64(0), text(b"x")) == 4, "it may only read"
    assert client.code(6, writes, u64(1), text(b"one")) == 0
    assert client.code(6, ends, u64(0), text(b"!")) == 0
    assert client.code(6, both, u64(0), text(b"t")) == 0
    kind, fields = client.ask(5, both, u64(0), u32(9))
    assert (kind, fields.text()) == (103, b"tone!")
    assert client.code(5, writes, u64(0), u32(9)) == 4, "it may only write"
    assert client.ask(5, reads, u64(9), u32(0))[0] == 103, "nothing was asked for, and nothing comes"
    assert client.code(3, named(path), u32(2 | 8 | 32, 0)) == 4
    assert client.ask(3, named(path), u32(2 | 32, 0))[0] == 102, "what isn't to be made may be there"
    assert client.code(3, named(tmp_path / "none"), u32(1, 0)) == 2
    opened = [int(number) for number, target in descriptors() if target == str(path)]
    assert len(opened) == 6 and not any(os.get_inheritable(each) for each in opened)


def test_what_is_new_has_the_usual_mode(client: Client, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        client.handle(sftp.OPEN, named(tmp_path / "f"), u32(sftp.FXF_WRITE | sftp.FXF_CREAT), NOTHING)
        assert client.code(sftp.MKDIR, named(tmp_path / "d"), NOTHING) == sftp.OK
        assert client.code(sftp.MKDIR, named(tmp_path / "own"), u32(4, 0o170_1750)) == sftp.OK
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("f", "d", "own")]
    assert modes == [0o666, 0o777, 0o1750]


def test_attributes_as_a_client_writes_and_reads_them(client: Client, tmp_path: Path) -> None:
    """A size is 1, an owner 2, a mode 4, times 8; what a client adds of its own is passed over."""
    path = tmp_path / "f"
    path.write_text("12345")
    here = path.stat()
    assert client.code(9, named(path), u32(1 | 2 | 4 | 8), u64(2), u32(here.st_uid, here.st_gid, 0o604, 5, 7)) == 0
    kind, fields = client.ask(17, named(path))
    assert (kind, fields.u32(), fields.u64()) == (105, 1 | 2 | 4 | 8, 2)
    assert [fields.u32() for _ in range(5)] == [here.st_uid, here.st_gid, stat.S_IFREG | 0o604, 5, 7]
    added = u32(0x80000000 | 4, 0o600, 2) + text(b"a") + text(b"b") + text(b"c") + text(b"d")
    assert client.code(9, named(path), added) == 0 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert client.code(9, named(tmp_path / "none"), NOTHING) == 0, "nothing was to be changed"


def test_what_is_open_can_be_changed_and_asked(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("12345")
    handle = client.open(path, sftp.FXF_READ | sftp.FXF_WRITE)
    assert client.code(10, handle, u32(1 | 4), u64(3), u32(0o600)) == 0
    kind, fields = client.ask(8, handle)
    found = fields.attributes()
    assert (kind, found["size"], found["mode"]) == (105, 3, stat.S_IFREG | 0o600)
    assert client.code(200, text(b"fsync@openssh.com"), handle) == 0
    folder = client.handle(sftp.OPENDIR, named(tmp_path))
    assert client.code(8, folder) == client.code(200, text(b"fsync@openssh.com"), folder) == 4, "that is no file"
    assert client.code(12, handle) == 4, "and that is no folder"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_is_given_to_somebody(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert client.code(9, named(tmp_path / "f"), u32(2, 4321, 5432)) == 0
    found = (tmp_path / "f").stat()
    assert (found.st_uid, found.st_gid) == (4321, 5432)


def test_a_second_name_is_that_of_the_link_itself(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("f")
    (tmp_path / "link").symlink_to("f")
    for name in ("f", "link"):
        assert (
            client.code(200, text(b"hardlink@openssh.com"), named(tmp_path / name), named(tmp_path / f"{name}2")) == 0
        )
        assert (tmp_path / name).lstat().st_ino == (tmp_path / f"{name}2").lstat().st_ino


def test_refusals_in_numbers(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert client.code(17, named(tmp_path / "f" / "below")) == 2, "no such file"
    reply, fields = client.ask(13, named(tmp_path))
    assert (reply, fields.u32(), fields.text(), fields.text()) == (101, 4, b"Is a directory", b"en")
    assert sftp.refusal(OSError("only words")) == sftp.status(4, "only words")
    assert [sftp.refusal(OSError(number, "no"))[1][3] for number in (1, 13, 2, 20, 5)] == [3, 3, 2, 2, 4]


def test_a_listing_goes_on_where_something_was_deleted(client: Client, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    handle = client.handle(sftp.OPENDIR, named(tmp_path))
    (tmp_path / "a").unlink()
    kind, fields = client.ask(sftp.READDIR, handle)
    found = [(fields.text(), fields.text(), fields.attributes())[0] for _ in range(fields.u32())]
    assert kind == sftp.NAME and sorted(found) == [b".", b"..", b"b"]


def test_a_line_of_a_listing(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("12345")
    path.chmod(0o640)
    os.utime(path, (0, 40 * 365 * 86400))
    line = sftp.long_name(b"f\xff", path.stat()).split()
    assert (line[0], line[1], line[4], line[-1], line[-2]) == (b"-rw-r-----", b"1", b"5", b"f\xff", b"2009")
    path.touch()
    assert b":" in sftp.long_name(b"f", path.stat()).split()[-2], "what is new has a time, not a year"


def test_a_read_is_of_so_much_at_most(client: Client, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(200 * 1024))
    handle = client.open(tmp_path / "f", sftp.FXF_READ)
    assert len(client.ask(sftp.READ, handle, u64(0), u32(150 * 1024))[1].text()) == 128 * 1024


def test_a_packet_has_a_size_from_one_to_256_kib() -> None:
    most = 256 * 1024
    assert sftp.next_packet(bytearray(u32(most) + bytes(most) + b"more")) == bytes(most)
    assert sftp.next_packet(bytearray(u32(most) + bytes(most - 1))) is None
    packet = bytearray(u32(1) + b"ab")
    assert (sftp.next_packet(packet), packet) == (b"a", b"b") and sftp.next_packet(packet) is None
    for size in (0, most + 1):
        with pytest.raises(Malformed, match=f"a packet of {size} bytes"):
            sftp.next_packet(bytearray(u32(size)))


def test_a_client_that_leaves_without_a_word_ends_it(line: Any) -> None:
    near, ended, thread = line
    near.sendall(request(sftp.REALPATH, text(b"/")) * 3)
    near.close()
    thread.join(120)
    assert ended == [None]
