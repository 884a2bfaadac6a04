"""What clients send as protobuf alone: what `kubectl auth can-i` asks, the Secrets in which Helm keeps its releases,
and how it deletes them. Their fields have the numbers of Kubernetes' `generated.proto`."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"  # before an envelope: what the object is, and its bytes
TYPE, CONTENT = 1, 2
NUMBER, LENGTH = 0, 2  # the wire types: of numbers, and of texts and messages
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_OF_RESOURCE, _OF_PATH = 1, 2
_SPEC = 2
_METADATA, _DATA, _TYPE = 1, 2, 3  # of a Secret
_POLICY = 4  # of DeleteOptions
_TEXTS = {1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion"}  # of any object's metadata
_MAPS = {11: "labels", 12: "annotations"}
_SERVERS = (4, 7, 8, 9, 10, 17)  # what the server alone says: its generation, its dates, its managed fields


class Unreadable(Exception):
    pass


def decoded(body: bytes) -> dict[str, Any]:
    """In JSON's form. Raises Unreadable."""
    if not body.startswith(MAGIC):
        raise Unreadable("what begins with k8s")
    envelope = dict(_fields(body[len(MAGIC) :]))
    version, kind = (each.decode() for _, each in sorted(_fields(envelope[TYPE])))
    if kind not in _KINDS:
        raise Unreadable(f"{', '.join(_KINDS)}, and no {kind}")
    return {"apiVersion": version, "kind": kind, **_KINDS[kind](envelope[CONTENT])}


def _review(message: bytes) -> Mapping[str, Any]:
    spec = dict(_fields(dict(_fields(message))[_SPEC]))
    found: dict[str, Any] = {}
    if _OF_RESOURCE in spec:
        found["resourceAttributes"] = _named(spec[_OF_RESOURCE], _ATTRIBUTES)
    if _OF_PATH in spec:
        found["nonResourceAttributes"] = _named(spec[_OF_PATH], ("path", "verb"))
    return {"spec": found}


def _secret(message: bytes) -> Mapping[str, Any]:
    found: dict[str, Any] = {"metadata": {}, "data": {}}
    for number, content in _fields(message):
        if number == _METADATA:
            found["metadata"] = _metadata(content)
        elif number == _DATA:
            key, value = _pair(content)
            found["data"][key.decode()] = base64.b64encode(value).decode()
        elif number == _TYPE:
            found["type"] = content.decode()
        else:
            raise Unreadable(f"Secrets without the field {number}")
    return found


def _options(message: bytes) -> Mapping[str, Any]:
    found = dict(_fields(message))
    if unknown := found.keys() - {_POLICY}:
        raise Unreadable(f"DeleteOptions without the fields {sorted(unknown)}")
    return {"propagationPolicy": found[_POLICY].decode()} if found else {}


def _metadata(message: bytes) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for number, content in _fields(message, _SERVERS):
        if number in _TEXTS:
            found |= {_TEXTS[number]: content.decode()} if content else {}
        elif number in _MAPS:
            key, value = _pair(content)
            found.setdefault(_MAPS[number], {})[key.decode()] = value.decode()
        else:
            raise Unreadable(f"metadata without the field {number}")
    return found


def _pair(message: bytes) -> tuple[bytes, bytes]:
    """An entry of a map."""
    found = dict(_fields(message))
    return found[1], found.get(2, b"")


_KINDS = {"SelfSubjectAccessReview": _review, "Secret": _secret, "DeleteOptions": _options}


def _named(message: bytes, names: tuple[str, ...]) -> Mapping[str, str]:
    if unknown := [number for number, _ in _fields(message) if number > len(names)]:
        raise Unreadable(f"reviews without the fields {unknown}")
    return {names[number - 1]: content.decode() for number, content in _fields(message) if content}


def _fields(message: bytes, passed_over: tuple[int, ...] = ()) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of its texts and messages."""
    at = 0
    while at < len(message):
        tag, at = _integer(message, at)
        number = tag >> 3
        if tag & 7 == NUMBER and number in passed_over:
            _, at = _integer(message, at)
            continue
        if tag & 7 != LENGTH:
            raise Unreadable("texts and messages alone")
        size, at = _integer(message, at)
        if number not in passed_over:
            yield number, message[at : at + size]
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
