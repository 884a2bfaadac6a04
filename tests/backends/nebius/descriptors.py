"""Makes two files from the descriptors that Nebius's SDK carries: `api.json`, the data of the fake, with the rules in
their options, and `descriptors.txt`, the messages that the backend reads and writes, without these.

    python -m tests.backends.nebius.descriptors
"""

from __future__ import annotations

import ast
import base64
from collections.abc import Iterator
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from chalicelib.backends.nebius.messages import DESCRIPTORS
from tests.backends.fakes import forms
from tests.backends.fakes.extract import written

OPERATIONS = {
    "billing.v1.CalculatorService": ("EstimateBatch",),
    "capacity.v1.CapacityBlockGroupService": ("List",),
    "capacity.v1.ResourceAdviceService": ("List",),
    "common.v1.OperationService": ("Get", "List"),
    "compute.v1.DiskService": ("Get", "GetByName", "List", "Create", "Delete"),
    "compute.v1.GpuClusterService": ("Get", "GetByName", "List", "Create", "Delete"),
    "compute.v1.InstanceService": ("Get", "GetByName", "BatchGet", "List", "Create", "Update", "Delete"),
    "compute.v1.PlatformService": ("List",),
    "iam.v1.ProjectService": ("List",),
    "iam.v1.TenantService": ("List",),
    "iam.v1.TokenExchangeService": ("Exchange",),
    "quotas.v1.QuotaAllowanceService": ("List",),
    "vpc.v1.SecurityGroupService": ("Get", "GetByName", "List", "Create"),
    "vpc.v1.SecurityRuleService": ("List", "Create"),
    "vpc.v1.SubnetService": ("List",),
}
FIELD_OPTIONS = {"nebius.field_behavior": "field_behavior", "buf.validate.field": "validate.field", "nebius.nid": "nid"}
KINDS = {
    number: name.removeprefix("TYPE_").lower() for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
}


API = Path(__file__).with_name("api.json")
ALSO = ("nebius/common/v1/error.proto", "google/rpc/status.proto")  # which no service's file names
RULES = ("buf/validate/validate.proto", "google/protobuf/descriptor.proto", "nebius/annotations.proto")  # for options


def main() -> None:
    source = f"serialized FileDescriptorProtos inside the PyPI wheel nebius {version('nebius')} (MIT)"
    wanted = [f"nebius.{service}.{method}" for service, methods in OPERATIONS.items() for method in methods]
    API.write_text(written(forms.read(document(), wanted, source, also=["nebius.common.v1.ServiceError"])))
    licence = distribution("nebius").read_text("licenses/LICENSE") or ""
    head = [f"{source}, one a line", "", *licence.strip().splitlines()]
    DESCRIPTORS.write_text("".join(f"{line}\n" for line in [*(f"# {line}".rstrip() for line in head), *messages()]))


def messages() -> Iterator[str]:
    """The files that declare the services and all that they refer to, each after those that it refers to."""
    protos = {name: descriptor_pb2.FileDescriptorProto.FromString(content) for name, content in _files().items()}
    declared = {f"{each.package}.{one.name}": name for name, each in protos.items() for one in each.service}
    done = set(RULES)

    def needed(name: str) -> Iterator[str]:
        if name not in done:
            done.add(name)
            for each in protos[name].dependency:
                yield from needed(each)
            yield base64.b64encode(_plain(protos[name]).SerializeToString(deterministic=True)).decode()

    for name in (*(declared[f"nebius.{service}"] for service in OPERATIONS), *ALSO):
        yield from needed(name)


def _plain(proto: Any) -> Any:
    """Without options, but for those that say what is a map."""
    proto.ClearField("extension")
    for at in reversed(range(len(proto.dependency))):
        if proto.dependency[at] in RULES:
            del proto.dependency[at]
    _without_options(proto)
    return proto


def _without_options(part: Any) -> None:
    is_map = part.DESCRIPTOR.name == "DescriptorProto" and part.options.map_entry
    part.ClearField("options")
    if is_map:
        part.options.map_entry = True
    for field, value in part.ListFields():
        if field.message_type is not None and field.name != "options":
            for each in [value] if isinstance(value, Message) else value:
                if "options" in each.DESCRIPTOR.fields_by_name:
                    _without_options(each)


def document() -> dict[str, Any]:
    """Services, messages and enums, as `forms` reads them."""
    found = _Document(_files())
    return {"services": found.services, "messages": found.messages, "enums": found.enums}


def _files() -> dict[str, bytes]:
    """The descriptors by file name. They stand in the text of the SDK's modules, so none of its code runs."""
    spec = find_spec("nebius")
    assert spec is not None and spec.submodule_search_locations
    found = {}
    for module in Path(spec.submodule_search_locations[0]).glob("api/**/__init__.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_register_file":
                name, content = (ast.literal_eval(each) for each in node.args)
                found[name] = content
    return found


class _Document:
    def __init__(self, files: dict[str, bytes]) -> None:
        self.services: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        self.enums: dict[str, Any] = {}
        self._pool = DescriptorPool()
        protos = {name: descriptor_pb2.FileDescriptorProto.FromString(content) for name, content in files.items()}
        added: set[str] = set()

        def add(name: str) -> None:
            if name not in added:
                added.add(name)
                for each in protos[name].dependency:
                    add(each)
                self._pool.AddSerializedFile(files[name])

        for name in protos:
            add(name)
        self._options = GetMessageClass(self._pool.FindMessageTypeByName("google.protobuf.FieldOptions"))
        for name, proto in protos.items():
            if name.startswith("nebius/"):
                self._read(proto)

    def _read(self, proto: Any) -> None:
        for service in proto.service:
            methods = {
                each.name: {"in": each.input_type.lstrip("."), "out": each.output_type.lstrip(".")}
                for each in service.method
            }
            self.services[f"{proto.package}.{service.name}"] = {"methods": methods}
        for enum in proto.enum_type:
            self._enum(proto.package, enum)
        for message in proto.message_type:
            self._message(proto.package, message)

    def _enum(self, outer: str, enum: Any) -> None:
        self.enums[f"{outer}.{enum.name}"] = {each.name: each.number for each in enum.value}

    def _message(self, outer: str, message: Any) -> None:
        name = f"{outer}.{message.name}"
        for enum in message.enum_type:
            self._enum(name, enum)
        entries = {f".{name}.{each.name}": each for each in message.nested_type if each.options.map_entry}
        for nested in message.nested_type:
            if not nested.options.map_entry:
                self._message(name, nested)
        self.messages[name] = {"fields": {each.name: self._field(message, each, entries) for each in message.field}}

    def _field(self, message: Any, field: Any, entries: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"n": field.number, "type": _kind(field)}
        if entry := entries.get(field.type_name):
            found["type"] = f"map<{','.join(_kind(each) for each in entry.field)}>"
        elif field.label == field.LABEL_REPEATED:
            found["repeated"] = True
        if field.HasField("oneof_index") and not field.proto3_optional:
            found["oneof"] = message.oneof_decl[field.oneof_index].name
        return {**found, **dict(self._rules(field))}

    def _rules(self, field: Any) -> Iterator[tuple[str, Any]]:
        options = self._options.FromString(field.options.SerializeToString())
        for descriptor, value in options.ListFields():
            name = FIELD_OPTIONS.get(descriptor.full_name)
            if name == "field_behavior":
                yield name, [descriptor.enum_type.values_by_number[each].name for each in value]
            elif name:
                yield name, json_format.MessageToDict(value, preserving_proto_field_name=True)


def _kind(field: Any) -> str:
    return field.type_name.lstrip(".") or KINDS[field.type]


if __name__ == "__main__":
    main()
