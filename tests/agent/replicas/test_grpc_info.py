"""One gRPC call without a library, and how its answer is read. Real servers are in `test_router_real`."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent.replicas.grpc_info import VLLM, call, fields, of_sglang, of_vllm
from tests.harness.examples import many


def frame(kind: int, flags: int, payload: bytes, stream: int = 1) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(body: bytes) -> bytes:
    return struct.pack(">BI", 0, len(body)) + body


SETTINGS, TRAILERS = frame(4, 0, b"", 0), frame(1, 5, b"\x88")


def answered(*parts: bytes, most: int = 100) -> bytes | None:
    """What a call makes of a server that says this, whatever it is asked, and leaves."""
    near, far = socket.socketpair()
    far.sendall(b"".join(parts))
    far.shutdown(socket.SHUT_WR)
    with far:
        near.setblocking(False)
        return asyncio.run(call(near, VLLM, most))


def test_an_answer_may_come_in_parts_and_with_padding() -> None:
    complete = message(b"hello")
    padded = frame(0, 8, b"\x03" + complete[:4] + b"\0\0\0")
    assert (
        answered(
            SETTINGS, frame(1, 4, b"\x88"), padded, frame(6, 0, b"8 octets", 0), frame(0, 0, complete[4:]), TRAILERS
        )
        == b"hello"
    )
    assert answered(SETTINGS, frame(0, 1, complete)) == b"hello", "without trailers"
    assert answered(SETTINGS, frame(1, 4, b"\x88"), frame(0, 0, message(b"")), TRAILERS) == b""


def test_a_server_that_doesnt_know_the_call_says_nothing() -> None:
    assert answered(SETTINGS, TRAILERS) is None


@pytest.mark.parametrize(
    "parts",
    [
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",),
        (SETTINGS,),
        (SETTINGS, frame(3, 0, b"\0\0\0\x08")),
        (SETTINGS, frame(7, 0, bytes(8), 0)),
        (SETTINGS, frame(0, 0, message(b"x" * 200)), TRAILERS),
        (SETTINGS, frame(0, 1, b"\x01" + message(b"zipped")[1:])),
        (SETTINGS, frame(0, 1, message(b"two") + message(b"messages"))),
    ],
)
def test_whatever_else_is_said_is_no_answer(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError):
        answered(*parts)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 129, 300, 2**14, 2**63])
def test_numbers_of_any_size(number: int) -> None:
    digits = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    assert fields(bytes([8, *(digit | 128 for digit in digits[:-1]), digits[-1]])) == [(1, number)]


@settings(max_examples=many(50))
@given(st.binary(max_size=60))
def test_nonsense_ends_a_call_as_no_answer(data: bytes) -> None:
    with suppress(ValueError, OSError):
        answered(SETTINGS, data)


@settings(max_examples=many(200))
@given(st.binary(max_size=60))
def test_nonsense_is_no_message(data: bytes) -> None:
    for read in (fields, of_vllm, of_sglang):
        with suppress(ValueError):
            read(data)


@pytest.mark.parametrize(
    ("role", "mode"), [(b"kv_producer", "prefill"), (b"kv_consumer", "decode"), (b"kv_both", "null"), (b"", "null")]
)
def test_what_vllm_does_with_its_cache_is_its_part(role: bytes, mode: str) -> None:
    info = b"\x08\x05\x11" + bytes(8) + b"\x2a\x04vllm\x3a" + bytes([len(role)]) + role + b"\x5d" + bytes(4)
    assert of_vllm(info) == {"disaggregation_mode": mode}


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def test_of_what_sglang_was_started_with_numbers_and_texts_are_known() -> None:
    port, part = b"\x11" + struct.pack("<d", 8998), b"\x11" + struct.pack("<d", 1.5)
    values = {b"port": port, b"tp": part, b"mode": field(3, b"null"), b"on": b"\x20\x01"}
    arguments = b"".join(field(1, field(1, name) + field(2, value)) for name, value in values.items())
    info = of_sglang(field(2, b"\xff\xff") + field(1, arguments) + b"\x08\x05")
    assert repr(info) == "{'port': 8998, 'tp': 1.5, 'mode': 'null'}"
