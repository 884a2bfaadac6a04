"""Every field of an AWS account's configuration reaches AWS: what is asked of it differs, or the field is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.client import Clients
from chalicelib.backends.aws.config import AWSBackendConfig, AWSKeyCreds
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Disk, Gpu, InstanceType, Offer, Resources
from chalicelib.domain.specs.credentials import DefaultCreds
from chalicelib.errors import BackendError
from tests.backends.aws.account import Account
from tests.backends.aws.provider import config
from tests.backends.conformance.requests import request_for

HERE = "us-east-1"
NOW: Micros = 1_795_000_000 * SECOND
IDS = re.compile(r"\b(vpc|subnet|sg|sgr|i|vol|eni|rtb|igw|r)-[0-9a-f]{8,}")  # that moto makes up
IMAGE = {"name": "ours-*", "owner": "self", "user": "ubuntu"}
CHANGES: dict[str, Any] = {
    "regions": ["eu-west-1"],
    "vpc_name": "research",
    "vpc_ids": {HERE: "vpc-0123456789abcdef0"},
    "default_vpcs": False,
    "security_group_ids": {HERE: "sg-0123456789abcdef0"},
    "public_ips": False,
    "iam_instance_profile": "training",
    "tags": {"team": "ml"},
    "os_images.cpu": IMAGE,
    "os_images.nvidia": IMAGE,
    "experimental_instance_types": ["m5.large"],
}
ELSEWHERE = {"type", "creds"}  # which model reads it; see below


def offer(name: str, *, gpu: bool) -> Offer:
    gpus = (Gpu(name="A10G", memory_mib=24_576, vendor="nvidia"),) if gpu else ()
    has = Resources(cpus=4, memory_mib=16_384, gpus=gpus, disk=Disk(size_mib=102_400), cpu_arch="x86")
    zones = (f"{HERE}a",)
    return Offer(
        backend="aws",
        instance=InstanceType(name=name, resources=has),
        region=HERE,
        price=1.0,
        availability_zones=zones,
    )


class Few(Clients):
    """Asks for the types by name alone, since each of hundreds would be a call."""

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "describe_instance_types":
            [wanted] = params["Filters"]
            exact = [name for name in wanted["Values"] if "*" not in name]
            params["Filters"] = [{"Name": "instance-type", "Values": ["g5.xlarge", *exact]}]
        return super().call(service, region, operation, **params)


def calls(**changes: Any) -> list[str]:
    """Everything that AWS is asked, for a machine with a GPU, one without, and the offers; and what was refused."""
    account = Account(lambda: NOW)
    given = config(**{"regions": [HERE], "vpc_ids": None, **changes})
    backend = AwsBackend(given, Few(given.creds, session=account.session), lambda: NOW)
    results = []
    for one in (offer("g5.xlarge", gpu=True), offer("m7i.xlarge", gpu=False)):
        try:
            list(backend.create(request_for(one, one.instance.name)))
        except BackendError as error:
            results.append(f"refused: {error}")
    try:
        results += [each.key for each in backend.offers()]
    except BackendError as error:
        results.append(f"no offers: {error}")
    results += [
        IDS.sub(r"\1-x", f"{call.operation} {call.region} {sorted(call.params.items())}") for call in account.calls
    ]
    account.close()
    return sorted(results)


def fields() -> set[str]:
    """The fields, those of the images one by one."""
    found = set()
    for name in AWSBackendConfig.model_fields:
        found |= {"os_images.cpu", "os_images.nvidia"} if name == "os_images" else {name}
    return found


@pytest.fixture(scope="module")
def plain() -> list[str]:
    return calls()


def test_every_field_has_a_case() -> None:
    assert fields() == CHANGES.keys() | ELSEWHERE


def test_the_same_configuration_asks_the_same(plain: list[str]) -> None:
    assert calls() == plain
    assert any(line.startswith("RunInstances") for line in plain) and not any("refused" in line for line in plain)


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_makes_a_difference(plain: list[str], field: str) -> None:
    name, _, part = field.partition(".")
    value = {part: CHANGES[field]} if part else CHANGES[field]
    assert calls(**{name: value}) != plain


def test_credentials_are_those_that_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush2")
    keys = {"type": "access_key", "access_key": "AKIA1", "secret_key": "hush"}
    given = [AWSKeyCreds(**keys), AWSKeyCreds(**keys, session_token="for an hour"), DefaultCreds(type="default")]
    logged_in = [Clients(creds)._logged_in().get_credentials() for creds in given]
    found = [(each.access_key, each.secret_key, each.token) for each in logged_in]
    assert found == [("AKIA1", "hush", None), ("AKIA1", "hush", "for an hour"), ("AKIA2", "hush2", None)]
