"""The codec against a second one, written from the RFC's figure byte by byte; against the RFC's own examples; and
against whatever arrives, in whatever pieces."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chalicelib.agent.streams import websocket
from chalicelib.agent.streams.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    EMPTY_MOST,
    PING,
    PONG,
    TEXT,
    Closed,
    Decoder,
    Peer,
    ProtocolError,
)


@dataclass(frozen=True)
class Frame:
    """RFC 6455, section 5.2: FIN, opcode, mask, payload."""

    opcode: int
    payload: bytes
    fin: bool = True
    key: bytes | None = None

    def bytes(self) -> bytes:
        size = len(self.payload)
        short = size if size < 126 else 126 if size < 65_536 else 127
        found = bytearray([self.fin << 7 | self.opcode, (self.key is not None) << 7 | short])
        found += {126: struct.pack(">H", size % 65_536), 127: struct.pack(">Q", size)}.get(short, b"")
        if self.key is None:
            return bytes(found + self.payload)
        return bytes(found + self.key + bytes(b ^ self.key[i % 4] for i, b in enumerate(self.payload)))


def frames_of(data: bytes) -> list[Frame]:
    """The same the other way, of whole frames."""
    found = []
    while data:
        fin, opcode, masked, short = data[0] >> 7, data[0] & 15, data[1] >> 7, data[1] & 127
        wide = {126: 2, 127: 8}.get(short, 0)
        size = int.from_bytes(data[2 : 2 + wide], "big") if wide else short
        at = 2 + wide
        key = data[at : at + 4] if masked else None
        at += 4 if masked else 0
        payload = data[at : at + size]
        if key is not None:
            payload = bytes(b ^ key[i % 4] for i, b in enumerate(payload))
        found.append(Frame(opcode, payload, bool(fin), key))
        data = data[at + size :]
    return found


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    streams_most = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *streams_most], [*streams_most, len(data)], strict=True)]


payloads = st.one_of(
    st.binary(max_size=300), st.integers(0, 70_000).map(lambda size: bytes(i * 7 & 255 for i in range(size)))
)
keys = st.binary(min_size=4, max_size=4)
cuts = st.lists(st.integers(0, 200_000), max_size=8)


@given(payloads, st.booleans())
@example(b"x" * 125, True)
@example(b"x" * 126, True)
@example(b"x" * 65_535, False)
@example(b"x" * 65_536, True)
def test_what_we_send_the_other_reads(payload: bytes, client: bool) -> None:
    (frame,) = frames_of(Peer(client).message(payload))
    assert (frame.opcode, frame.payload, frame.fin, frame.key is not None) == (BINARY, payload, True, client)


@given(st.lists(st.tuples(payloads, st.sampled_from([BINARY, PING, PONG])), max_size=5), keys, st.booleans(), cuts)
def test_what_the_other_sends_we_read_in_whatever_pieces_it_arrives(
    sent: list[tuple[bytes, int]], key: bytes, client: bool, where: list[int]
) -> None:
    masked = None if client else key
    frames = [Frame(opcode, data if opcode == BINARY else data[:125], key=masked) for data, opcode in sent]
    decoder = Decoder(masked=not client)
    events = [each for piece in pieces(b"".join(f.bytes() for f in frames), where) for each in decoder.feed(piece)]
    assert b"".join(data for opcode, data in events if opcode == BINARY) == b"".join(
        frame.payload for frame in frames if frame.opcode == BINARY
    )
    control = [(frame.opcode, frame.payload) for frame in frames if frame.opcode != BINARY]
    assert [event for event in events if event[0] != BINARY] == control


@given(st.lists(st.binary(max_size=40), min_size=2, max_size=5), keys, cuts)
def test_a_message_in_fragments_with_a_ping_between_them_is_its_bytes(
    parts: list[bytes], key: bytes, where: list[int]
) -> None:
    frames = [Frame(CONTINUATION if at else BINARY, part, at == len(parts) - 1, key) for at, part in enumerate(parts)]
    frames.insert(1, Frame(PING, b"p", key=key))
    decoder = Decoder(masked=True)
    events = [each for piece in pieces(b"".join(f.bytes() for f in frames), where) for each in decoder.feed(piece)]
    assert b"".join(data for opcode, data in events if opcode == BINARY) == b"".join(parts)
    assert (PING, b"p") in events


@given(st.binary(max_size=2000), keys, st.integers(0, 9))
def test_masking_is_its_own_inverse_at_any_offset(data: bytes, key: bytes, offset: int) -> None:
    masked = websocket.xor(data, key, offset)
    assert masked == bytes(b ^ key[(i + offset) % 4] for i, b in enumerate(data))
    assert websocket.xor(masked, key, offset) == data


@given(st.binary(max_size=400), cuts, st.booleans())
def test_noise_ends_the_connection_or_is_read_and_never_more(noise: bytes, where: list[int], client: bool) -> None:
    peer = Peer(client)
    for piece in pieces(noise, where):
        parts, _ = peer.receive(piece)
        assert sum(map(len, parts)) <= len(noise)
    assert len(peer._decoder._head) < 14 + websocket.CONTROL_MOST


RFC = [  # section 5.7
    (True, "82 85 37 fa 21 3d 7f 9f 4d 51 58", (BINARY, b"Hello")),
    (False, "82 05 48 65 6c 6c 6f", (BINARY, b"Hello")),
    (False, "89 05 48 65 6c 6c 6f", (PING, b"Hello")),
    (True, "8a 85 37 fa 21 3d 7f 9f 4d 51 58", (PONG, b"Hello")),
    (False, "82 7e 01 00 " + "41" * 256, (BINARY, b"A" * 256)),
    (False, "82 7f 00 00 00 00 00 01 00 00 " + "41" * 65_536, (BINARY, b"A" * 65_536)),
]  # its text messages are binary ones here


@pytest.mark.parametrize(("masked", "data", "event"), RFC, ids=range(len(RFC)))
def test_the_rfcs_examples(masked: bool, data: str, event: tuple[int, bytes]) -> None:
    assert Decoder(masked).feed(bytes.fromhex(data)) == [event]


def test_the_rfcs_handshake() -> None:
    assert websocket.accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("data", "code", "reason"),
    [
        (Frame(TEXT, b"hi", key=b"abcd").bytes(), 1003, "not text"),
        (Frame(BINARY, b"hi").bytes(), 1002, "must mask"),
        (Frame(3, b"", key=b"abcd").bytes(), 1002, "no opcode 3"),
        (Frame(11, b"", key=b"abcd").bytes(), 1002, "no opcode 11"),
        (Frame(CONTINUATION, b"", key=b"abcd").bytes(), 1002, "after a beginning"),
        (Frame(BINARY, b"", False, b"abcd").bytes() + Frame(BINARY, b"", key=b"abcd").bytes(), 1002, "new message"),
        (Frame(PING, b"", False, b"abcd").bytes(), 1002, "control frame"),
        (Frame(PING, b"x" * 126, key=b"abcd").bytes(), 1002, "control frame"),
        (b"\xc2\x80abcd", 1002, "reserved bit"),
        (b"\x82\xff" + b"\xff" * 8 + b"abcd", 1002, "2^63"),
        (Frame(CLOSE, b"x", key=b"abcd").bytes(), 1002, "code"),
        (Frame(CLOSE, struct.pack("!H", 1005), key=b"abcd").bytes(), 1002, "code"),
        (Frame(CLOSE, struct.pack("!H", 1000) + b"\xff", key=b"abcd").bytes(), 1007, "UTF-8"),
    ],
)
def test_who_breaks_the_protocol_is_told_and_heard_no_more(data: bytes, code: int, reason: str) -> None:
    peer = Peer(client=False)
    _, back = peer.receive(data)
    (frame,) = frames_of(back)
    assert peer.violated and peer.closed is not None and peer.closed.code == code and reason in peer.closed.reason
    assert websocket.read_close(frame.payload) == peer.closed
    assert peer.receive(Peer(client=True).message(b"more")) == ([], b"")


def test_a_close_is_answered_once_with_its_code() -> None:
    server, client = Peer(client=False), Peer(client=True)
    parts, back = server.receive(client.message(b"last") + client.close(1000, "done"))
    assert parts == [b"last"] and server.closed == Closed(1000, "done") and not server.violated
    assert client.receive(back) == ([], b"") and client.closed == Closed(1000)
    assert server.close() == client.close() == b""


def test_a_close_without_a_code_is_answered_without_one() -> None:
    server = Peer(client=False)
    _, back = server.receive(Frame(CLOSE, b"", key=b"abcd").bytes())
    assert server.closed == Closed(1005) and frames_of(back) == [Frame(CLOSE, b"")]


@pytest.mark.parametrize(
    ("code", "exists"),
    [
        *((999, False), (1000, True), (1003, True), (1004, False), (1006, False), (1007, True), (1014, True)),
        *((1015, False), (2999, False), (3000, True), (4999, True), (5000, False)),
    ],
)
def test_only_codes_that_may_be_sent_are_heard(code: int, exists: bool) -> None:
    payload = websocket.close_payload(code)
    if exists:
        assert websocket.read_close(payload) == Closed(code)
        return
    with pytest.raises(websocket.ProtocolError, match="a code that doesn't exist"):
        websocket.read_close(payload)


def test_a_long_reason_is_cut_at_a_character() -> None:
    (frame,) = frames_of(Peer(client=False).close(1011, "é" * 100))
    assert len(frame.payload) <= 125 and websocket.read_close(frame.payload) == Closed(1011, "é" * 61)


def test_many_pings_get_one_pong() -> None:
    server, client = Peer(client=False), Peer(client=True)
    _, back = server.receive(client.ping() * 1000)
    assert frames_of(back) == [Frame(PONG, b"")]


@pytest.mark.parametrize("client", [False, True])
def test_who_sends_frames_without_a_byte_may_send_so_many(client: bool) -> None:
    server, far = Peer(client=not client), Peer(client=client)
    for _ in range(3):
        assert server.receive(far.message(b"") * EMPTY_MOST + far.ping() + far.message(b"x"))[0] == [b"x"]
    server.receive(far.message(b"") * (EMPTY_MOST + 1))
    assert server.violated and server.closed is not None and server.closed.code == 1008


# --- the handshake ----------------------------------------------------------------------------------------------------

GOOD = {
    "connection": "keep-alive, Upgrade",
    "upgrade": "WebSocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_a_request_of_ours_is_one_that_we_accept() -> None:
    key = websocket.new_key()
    first, headers = websocket.parse_head(websocket.request("/x?y=1", key, {"Host": "a:1"}).removesuffix(b"\r\n\r\n"))
    assert first == "GET /x?y=1 HTTP/1.1" and headers["host"] == "a:1"
    assert websocket.key_of(headers) == key
    assert websocket.key_of(GOOD) == "dGhlIHNhbXBsZSBub25jZQ=="


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"connection": "close"}, "speaks WebSocket only"),
        ({"upgrade": "h2c"}, "speaks WebSocket only"),
        ({"sec-websocket-version": "8"}, "version 13"),
        ({"sec-websocket-key": "short"}, "16 bytes"),
        ({"sec-websocket-key": "é"}, "16 bytes"),
        ({"sec-websocket-key": "AAAA"}, "16 bytes"),
        ({"sec-websocket-key": "dGhlIHNhbXBs!ZSBub25jZQ=="}, "16 bytes"),
    ],
)
def test_another_request_isnt(change: dict[str, str], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        websocket.key_of({**GOOD, **change})


def test_a_frame_of_2_to_the_63_bytes_is_none_and_one_of_a_byte_less_may_come() -> None:
    assert Decoder(False).feed(b"\x82\x7f\x7f" + b"\xff" * 7 + b"x") == [(BINARY, b"x")]
    with pytest.raises(websocket.ProtocolError, match=r"a frame claims more than 2\^63 bytes"):
        Decoder(False).feed(b"\x82\x7f\x80" + bytes(7))
