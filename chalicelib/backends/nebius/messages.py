"""Nebius's messages: from the descriptors that its SDK carries, read and written by protobuf.

The SDK's own classes decode in Python. That takes two milliseconds for a machine, and protobuf forty microseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any

Body = Mapping[str, Any]  # a message in protobuf's JSON form, under the descriptors' names; empty fields are missing

# The SDK's modules that are imported, and the files that declare what is called; these name all others.
_MODULES = ("billing.v1", "capacity.v1", "common.v1", "compute.v1", "iam.v1", "quotas.v1", "vpc.v1")
_FILES = (
    "billing/v1/calculator_service",
    "capacity/v1/capacity_block_group_service",
    "capacity/v1/resource_advice_service",
    "common/v1/error",
    "common/v1/operation_service",
    "compute/v1/disk_service",
    "compute/v1/gpu_cluster_service",
    "compute/v1/instance_service",
    "compute/v1/platform_service",
    "iam/v1/project_service",
    "iam/v1/tenant_service",
    "iam/v1/token_exchange_service",
    "quotas/v1/quota_allowance_service",
    "vpc/v1/security_group_service",
    "vpc/v1/security_rule_service",
    "vpc/v1/subnet_service",
)


_lock, _made = threading.Lock(), list["Messages"]()


def all_messages() -> Messages:
    """The same for all accounts. Importing the SDK takes most of a second, so this is for the first call."""
    with _lock:
        if not _made:
            _made.append(Messages())
        return _made[0]


class Messages:
    def __init__(self) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        for module in _MODULES:
            import_module(f"nebius.api.nebius.{module}")
        from nebius.base.protos.dynamic import REGISTRY

        self._pool, self._added = DescriptorPool(), set[str]()
        for file in _FILES:
            self._add(REGISTRY.file_descriptor(f"nebius/{file}.proto"))

    def _add(self, file: Any) -> None:
        if file.name not in self._added:
            self._added.add(file.name)
            for each in file.dependencies:
                self._add(each)
            self._pool.AddSerializedFile(file.serialized_pb)

    def of_method(self, service: str, method: str) -> tuple[str, str]:
        """The names of the messages that it takes and returns."""
        found = self._pool.FindServiceByName(service).methods_by_name[method]
        return found.input_type.full_name, found.output_type.full_name

    def encoded(self, name: str, body: Body) -> bytes:
        """Raises ValueError with the field that isn't as the message has it."""
        from google.protobuf.json_format import ParseDict, ParseError

        try:
            content: bytes = ParseDict(body, self._new(name), descriptor_pool=self._pool).SerializeToString()
        except ParseError as error:
            raise ValueError(str(error)) from None
        return content

    def decoded(self, name: str, content: bytes) -> dict[str, Any]:
        """Raises ValueError if it isn't that message."""
        from google.protobuf.json_format import MessageToDict, SerializeToJsonError
        from google.protobuf.message import DecodeError

        message = self._new(name)
        try:
            message.ParseFromString(content)
            found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except (DecodeError, SerializeToJsonError, TypeError) as error:  # the last two: of an unknown `Any`
            raise ValueError(str(error)) from None
        return found

    def _new(self, name: str) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self._pool.FindMessageTypeByName(name))()
