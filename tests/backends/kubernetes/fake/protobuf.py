"""The one object that kubectl sends as protobuf alone: what `kubectl auth can-i` asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"  # before an envelope: what the object is, and its bytes
TYPE, CONTENT = 1, 2
LENGTH = 2  # the wire type of texts and messages
KIND = "SelfSubjectAccessReview"
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_OF_RESOURCE, _OF_PATH = 1, 2
_SPEC = 2


class Unreadable(Exception):
    pass


def decoded(body: bytes) -> dict[str, Any]:
    """In JSON's form: a review's `spec`. Raises Unreadable."""
    if not body.startswith(MAGIC):
        raise Unreadable("what begins with k8s")
    envelope = dict(_fields(body[len(MAGIC) :]))
    version, kind = (each.decode() for _, each in sorted(_fields(envelope[TYPE])))
    if kind != KIND:
        raise Unreadable(f"a {KIND}, and no {kind}")
    spec = dict(_fields(dict(_fields(envelope[CONTENT]))[_SPEC]))
    found: dict[str, Any] = {}
    if _OF_RESOURCE in spec:
        found["resourceAttributes"] = _named(spec[_OF_RESOURCE], _ATTRIBUTES)
    if _OF_PATH in spec:
        found["nonResourceAttributes"] = _named(spec[_OF_PATH], ("path", "verb"))
    return {"apiVersion": version, "kind": kind, "spec": found}


def _named(message: bytes, names: tuple[str, ...]) -> Mapping[str, str]:
    if unknown := [number for number, _ in _fields(message) if number > len(names)]:
        raise Unreadable(f"reviews without the fields {unknown}")
    return {names[number - 1]: content.decode() for number, content in _fields(message) if content}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of its texts and messages."""
    at = 0
    while at < len(message):
        tag, at = _integer(message, at)
        if tag & 7 != LENGTH:
            raise Unreadable("texts and messages alone")
        size, at = _integer(message, at)
        yield tag >> 3, message[at : at + size]
        at += size


def _integer(message: bytes, at: int) -> tuple[int, int]:
    """Also where the next thing begins. Seven bits a byte, the lowest first."""
    value = shift = 0
    while True:
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
