"""A fake whose provider speaks gRPC: the same requests and answers, on the wire of protobuf.

The messages are built from the fake's data, so that server and client share no code: what a client sends and the
schema doesn't know is seen, and refused. An error's body is `{"code": "NOT_FOUND", "message": …}`, and may have
`details`: a list of messages, each with its `@type`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import grpc
from google.protobuf import any_pb2, duration_pb2, json_format, timestamp_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Cut
from tests.backends.fakes.server import Fake, Request, WrongFake

WELL_KNOWN = (any_pb2, duration_pb2, timestamp_pb2)


class Messages:
    """The message classes of an API that was read from descriptors. All are kept, and one thread at a time converts: a
    process crashed in protobuf while two did so with classes that were freed and made again."""

    def __init__(self, api: Api) -> None:
        self.pool = DescriptorPool()
        self._classes: dict[str, type[Message]] = {}
        file = FileDescriptorProto(name="fake.proto", syntax="proto3")
        for known in WELL_KNOWN:
            self.pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
            file.dependency.append(known.DESCRIPTOR.name)
        self._packages: dict[str, DescriptorProto] = {}
        self._api = api
        for name, schema in api.schemas.items():
            self._add(file, name, schema)
        self.pool.Add(file)
        for name in file.name, *file.dependency:
            for message in self.pool.FindFileByName(name).message_types_by_name.values():
                self._keep(message)

    def of(self, reference: str) -> type[Message]:
        return self._classes[reference.rpartition("/")[2]]

    def _keep(self, message: Descriptor) -> None:
        self._classes[message.full_name] = GetMessageClass(message)
        for inner in message.nested_types:
            self._keep(inner)

    def _add(self, file: FileDescriptorProto, name: str, schema: Any) -> None:
        outer, _, own = name.rpartition(".")
        if "x-numbers" in schema:
            enum = (self._package(file, outer).enum_type if outer else file.enum_type).add(name=own)
            for value, number in schema["x-numbers"].items():
                enum.value.add(name=value, number=number)
            return
        message = self._package(file, name)
        for field, each in schema["properties"].items():
            self._field(name, message, field, *each["x-field"])

    def _package(self, file: FileDescriptorProto, name: str) -> DescriptorProto:
        """A message of this name. Packages are messages as well: on the wire there is no difference, and so one file
        has them all, however they refer to each other."""
        if name not in self._packages:
            outer, _, own = name.rpartition(".")
            inside = self._package(file, outer).nested_type if outer else file.message_type
            self._packages[name] = inside.add(name=own)
        return self._packages[name]

    def _field(self, owner: str, message: DescriptorProto, name: str, number: int, kind: str, repeated: bool) -> None:
        label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if kind.startswith("map<"):
            entry = message.nested_type.add(name="".join(part.capitalize() for part in name.split("_")) + "Entry")
            entry.options.map_entry = True
            for at, (part, of) in enumerate(zip(("key", "value"), kind[4:-1].split(",", 1), strict=True), start=1):
                self._field("", entry, part, at, of, False)
            label, kind = FieldDescriptorProto.LABEL_REPEATED, f"{owner}.{entry.name}"
        field = message.field.add(name=name, number=number, label=label)
        scalar = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}", None)
        if scalar is not None:
            field.type = scalar
        else:
            is_enum = "x-numbers" in self._api.schemas.get(kind, {})
            field.type = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{kind}"


class RefusedCall(Exception):
    """The answer is an error. `details`: an encoded google.rpc.Status; empty if it says nothing more."""

    def __init__(self, code: str, message: str, details: bytes = b"") -> None:
        super().__init__(code, message)
        self.code, self.message, self.details = code, message, details


_converting = threading.Lock()
_known: WeakKeyDictionary[Api, Messages] = WeakKeyDictionary()  # to build them takes time


class Procedures:
    """What the fake answers to encoded messages."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        if fake.api not in _known:
            _known[fake.api] = Messages(fake.api)
        self._messages = _known[fake.api]

    def has(self, path: str) -> bool:
        return self._fake.api.route("GRPC", path) is not None

    def answered(self, path: str, content: bytes, headers: Mapping[str, str]) -> bytes:
        """Raises RefusedCall."""
        found = self._fake.api.route("GRPC", path)
        if found is None:
            raise RefusedCall("UNIMPLEMENTED", "Method not found!")
        sent, returned = found[0].body, found[0].responses["200"]
        assert sent is not None
        into, out, pool = self._messages.of(sent["$ref"]), self._messages.of(returned["$ref"]), self._messages.pool
        try:
            message = into.FromString(content)
        except DecodeError as error:
            raise RefusedCall("INVALID_ARGUMENT", str(error)) from error
        if unknown := sorted(_unknown(message)):
            raise RefusedCall("INVALID_ARGUMENT", f"unknown fields: {', '.join(unknown)}")
        with _converting:
            body = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        try:
            answer = self._fake.answer(Request("GRPC", path, headers, json.dumps(body).encode()))
        except Cut:
            raise RefusedCall("UNAVAILABLE", "the connection was cut") from None
        if answer.status != 200:
            raise self._refused(answer.body)
        with _converting:
            made: bytes = json_format.ParseDict(answer.body, out(), descriptor_pool=pool).SerializeToString()
        return made

    def _refused(self, body: Any) -> RefusedCall:
        code, message, details = body["code"], body["message"], body.get("details", ())
        if not details:
            return RefusedCall(code, message)
        status = {"code": grpc.StatusCode[code].value[0], "message": message, "details": details}
        with _converting:
            found = self._messages.of("google.rpc.Status")()
            content = json_format.ParseDict(status, found, descriptor_pool=self._messages.pool).SerializeToString()
        return RefusedCall(code, message, content)


class _Served(grpc.GenericRpcHandler):  # type: ignore[misc]  # it has no types
    def __init__(self, fake: Fake, wrong: list[Exception]) -> None:
        self._procedures, self._wrong = Procedures(fake), wrong

    def service(self, details: Any) -> Any:
        if not self._procedures.has(details.method):
            return None  # grpc says UNIMPLEMENTED

        def call(content: bytes, context: Any) -> bytes:
            headers = {each.key: each.value for each in context.invocation_metadata()}
            try:
                return self._procedures.answered(details.method, content, headers)
            except RefusedCall as refused:
                if refused.details:
                    context.set_trailing_metadata((("grpc-status-details-bin", refused.details),))
                context.abort(grpc.StatusCode[refused.code], refused.message)
                raise AssertionError("it raises") from None
            except WrongFake as error:
                self._wrong.append(error)
                raise

        return grpc.unary_unary_rpc_method_handler(call)


def _unknown(message: Message, where: str = "") -> Iterator[str]:
    """What no field of the message is, at any depth."""
    for each in UnknownFieldSet(message):
        yield f"{where}{each.field_number}"
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            inner = value.values() if field.message_type.GetOptions().map_entry else value
            for each in inner if field.is_repeated else [inner]:
                if isinstance(each, Message):
                    yield from _unknown(each, f"{where}{field.name}.")


@contextmanager
def serving_procedures(fake: Fake, port: int = 0) -> Iterator[str]:
    """Where it listens: host and port. What the fake did wrong is raised at the end."""
    wrong: list[Exception] = []
    server = grpc.server(ThreadPoolExecutor(4), handlers=[_Served(fake, wrong)])
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=1).wait()
    if wrong:
        raise wrong[0]
