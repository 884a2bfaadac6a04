"""Nebius's messages, read and written by protobuf from the descriptors of its API.

`descriptors.txt` has these as its SDK carries them. The SDK itself isn't needed: importing it takes most of a second,
and its classes decode in Python, two milliseconds a machine, where protobuf takes forty microseconds.

A process crashed in protobuf while two threads made messages of such a pool. So all classes are made at the start and
kept, or they would be made and freed again for each message, and one thread at a time converts.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from typing import Any

from chalicelib.backends.kit.tables import FOLDER

Body = Mapping[str, Any]  # a message in protobuf's JSON form, under the descriptors' names; empty fields are missing

DESCRIPTORS = FOLDER / "nebius" / "descriptors.txt"

_lock, _made = threading.Lock(), list["Messages"]()


def all_messages() -> Messages:
    """The same for all accounts, made for the first call."""
    with _lock:
        if not _made:
            _made.append(Messages())
        return _made[0]


def descriptors() -> list[str]:
    """Serialized and in base64, each after those that it refers to. Their source and licence stand above them."""
    return [line for line in DESCRIPTORS.read_text().splitlines() if not line.startswith("#")]


class Messages:
    def __init__(self) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._pool, self._classes = DescriptorPool(), dict[str, Any]()
        self._converting = threading.Lock()
        for line in descriptors():
            file = self._pool.AddSerializedFile(base64.b64decode(line))
            for message in file.message_types_by_name.values():
                self._keep(message)

    def _keep(self, message: Any) -> None:
        from google.protobuf.message_factory import GetMessageClass

        self._classes[message.full_name] = GetMessageClass(message)
        for inner in message.nested_types:
            self._keep(inner)

    def of_method(self, service: str, method: str) -> tuple[str, str]:
        """The names of the messages that it takes and returns."""
        found = self._pool.FindServiceByName(service).methods_by_name[method]
        return found.input_type.full_name, found.output_type.full_name

    def encoded(self, name: str, body: Body) -> bytes:
        """Raises ValueError with the field that isn't as the message has it."""
        from google.protobuf.json_format import ParseDict, ParseError

        with self._converting:
            try:
                content: bytes = ParseDict(body, self._new(name), descriptor_pool=self._pool).SerializeToString()
            except ParseError as error:
                raise ValueError(str(error)) from None
        return content

    def decoded(self, name: str, content: bytes) -> dict[str, Any]:
        """Raises ValueError if it isn't that message."""
        from google.protobuf.json_format import MessageToDict, SerializeToJsonError
        from google.protobuf.message import DecodeError

        with self._converting:
            message, pool = self._new(name), self._pool
            try:
                message.ParseFromString(content)
                found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
            except (DecodeError, SerializeToJsonError, TypeError) as error:  # the last two: of an unknown `Any`
                raise ValueError(str(error)) from None
        return found

    def _new(self, name: str) -> Any:
        return self._classes[name]()
