"""`infra.carriers`: what is made for a stage, and not made again."""

from __future__ import annotations

import io
from typing import Any

from chalicelib.usecases.agents.carriers import publish
from infra import carriers
from tests.world.ports import Blobs


class Services:
    """CloudFormation that knows one stack, and S3 that keeps objects."""

    class exceptions:
        class NoSuchKey(Exception): ...

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def describe_stack_resource(self, **params: Any) -> Any:
        assert params["StackName"] == "dstack-dev-data" and params["LogicalResourceId"] == "Bucket"
        return {"StackResourceDetail": {"PhysicalResourceId": "the-bucket"}}

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[Key] = Body

    def get_object(self, Bucket: str, Key: str) -> Any:
        from botocore.exceptions import ClientError

        if Key not in self.objects:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": io.BytesIO(self.objects[Key])}


def test_both_architectures_are_put_there_once() -> None:
    services, made = Services(), list[str]()

    def make(architecture: str) -> bytes:
        made.append(architecture)
        return architecture.encode()

    def run() -> carriers.CarrierReport:
        return carriers.put("dev", print, make, lambda name: services, poll=0.0)

    first = run()
    assert sorted(first.digests) == ["arm", "x86"] == sorted(made)
    assert {f"agent/carrier-{digest}.tar.gz" for digest in first.digests.values()} <= set(services.objects)
    assert run().digests == first.digests and len(made) == 2


def test_a_deployment_mentions_carriers_of_an_earlier_version() -> None:
    blobs = Blobs()
    assert carriers.advice(blobs, "dev") == "", "whoever buys no containers needs none"
    publish(blobs, "x86", "earlier", b"old")
    assert "`make carriers STAGE=dev`" in carriers.advice(blobs, "dev")
    publish(blobs, "x86", carriers.release(), b"new")
    assert carriers.advice(blobs, "dev") == ""
