"""A fake over gRPC, called by a client that has its own descriptors."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import grpc
import pytest
from google.protobuf import json_format

from chalicelib.domain.instants import SECOND
from tests.backends.clock import Clock
from tests.backends.fakes import forms
from tests.backends.fakes.procedures import Messages, serving_procedures
from tests.backends.fakes.schema import Api
from tests.backends.fakes.script import Call, Cut, Fault, Rate
from tests.backends.fakes.server import Fake, Refusal, Request, Why, WrongFake, answers

DOCUMENT: Any = {
    "services": {"cloud.v1.Machines": {"methods": {"Create": {"in": "cloud.v1.Spec", "out": "common.Operation"}}}},
    "messages": {
        "common.Operation": {
            "fields": {
                "id": {"n": 1, "type": "string"},
                "created_at": {"n": 2, "type": "google.protobuf.Timestamp"},
                "status": {"n": 3, "type": "google.rpc.Status"},
                "spec": {"n": 4, "type": "cloud.v1.Spec"},
            }
        },
        "cloud.v1.Spec": {
            "fields": {
                "name": {"n": 1, "type": "string", "validate.field": {"required": True}},
                "bytes": {"n": 2, "type": "int64"},
                "labels": {"n": 3, "type": "map<string,string>"},
                "disks": {"n": 4, "type": "cloud.v1.Spec.Disk", "repeated": True},
                "kind": {"n": 5, "type": "cloud.v1.Spec.Kind"},
            }
        },
        "cloud.v1.Spec.Disk": {"fields": {"gib": {"n": 1, "type": "int32"}}},
    },
    "enums": {"cloud.v1.Spec.Kind": {"UNKNOWN": 0, "LARGE": 1}},
}
CREATE = "cloud.v1.Machines.Create"


class Cloud(Fake):
    api = Api(forms.read(DOCUMENT, [CREATE], "a test"))
    reply: Any = None

    def authenticate(self, request: Request) -> None:
        if request.headers.get("authorization") != "Bearer key":
            raise Refusal(401, {"code": "UNAUTHENTICATED", "message": "who are you?"})

    def refused(self, why: Why, message: str, wait: float = 0.0) -> Refusal:
        codes = {"no-route": "UNIMPLEMENTED", "invalid": "INVALID_ARGUMENT", "throttled": "RESOURCE_EXHAUSTED"}
        return Refusal(400, {"code": codes[why], "message": message})

    @answers(CREATE)
    def _create(self, call: Call) -> Any:
        made = self.books.add("vm", (0, "there"), spec=call.body)
        return self.reply or {"id": made.id, "created_at": "2026-11-27T00:00:00Z", "spec": call.body}


class Client:
    """Its messages are those of a document."""

    def __init__(self, address: str, document: Any = DOCUMENT) -> None:
        messages = Messages(Api(forms.read(document, [CREATE], "a client")))
        self._channel = grpc.insecure_channel(address)
        self._spec, out = messages.of("cloud.v1.Spec"), messages.of("common.Operation")
        self._create = self._channel.unary_unary("/cloud.v1.Machines/Create", None, out.FromString)

    def __call__(self, spec: Any, key: str = "key") -> Any:
        sent = json_format.ParseDict(spec, self._spec()).SerializeToString()
        answer = self._create(sent, metadata=[("authorization", f"Bearer {key}")], timeout=120)
        return json_format.MessageToDict(answer, preserving_proto_field_name=True)

    def code(self, spec: Any, key: str = "key") -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self(spec, key)
        return caught.value.code().name, caught.value.details()

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(Clock().now)


@pytest.fixture
def address(cloud: Cloud) -> Iterator[str]:
    with serving_procedures(cloud) as address:
        yield address


@pytest.fixture
def create(address: str) -> Iterator[Client]:
    client = Client(address)
    yield client
    client.close()


def test_a_message_arrives_as_it_was_sent(create: Client, cloud: Cloud) -> None:
    spec = {"name": "a", "bytes": "7", "labels": {"a": "b"}, "disks": [{"gib": 1}, {"gib": 2}], "kind": "LARGE"}
    answer = create(spec)
    assert answer["spec"] == spec == cloud.calls[0].body and answer["created_at"] == "2026-11-27T00:00:00Z"
    assert [each.id for each in cloud.books.existing("vm")] == [answer["id"]]


def test_what_is_wrong_is_refused(create: Client, cloud: Cloud) -> None:
    assert create.code({"name": "a"}, key="x") == ("UNAUTHENTICATED", "who are you?")
    assert create.code({"kind": "LARGE"}) == ("INVALID_ARGUMENT", "body.name: name is required")
    cloud.script.rates["*"] = Rate(1, within=SECOND)
    create({"name": "a"})
    assert create.code({"name": "a"})[0] == "RESOURCE_EXHAUSTED"


def test_what_the_schema_doesnt_know_is_refused_at_any_depth(address: str, cloud: Cloud) -> None:
    newer = deepcopy(DOCUMENT)
    newer["messages"]["cloud.v1.Spec"]["fields"]["colour"] = {"n": 9, "type": "string"}
    newer["messages"]["cloud.v1.Spec.Disk"]["fields"]["fast"] = {"n": 2, "type": "bool"}
    client = Client(address, newer)
    wrong = {"name": "a", "colour": "red", "disks": [{"gib": 1}, {"fast": True}]}
    assert client.code(wrong) == ("INVALID_ARGUMENT", "unknown fields: 9, disks.2")
    client.close()
    assert cloud.calls == []


def test_an_answer_is_lost_after_the_effect(create: Client, cloud: Cloud) -> None:
    cloud.script.faults.append(Fault(CREATE, Cut, when="after"))
    assert create.code({"name": "a"})[0] == "UNAVAILABLE"
    assert len(list(cloud.books.existing("vm"))) == 1


def test_a_procedure_that_isnt_there(address: str) -> None:
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/cloud.v1.Machines/Stop")(b"", timeout=120)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_an_answer_that_the_schema_doesnt_have_is_the_fakes_mistake(cloud: Cloud) -> None:
    cloud.reply = {"identity": "7"}
    with pytest.raises(WrongFake), serving_procedures(cloud) as address:
        client = Client(address)
        assert client.code({"name": "a"})[0] == "UNKNOWN"
        client.close()
