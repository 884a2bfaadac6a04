"""AWS."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

from botocore.awsrequest import AWSPreparedRequest, HeadersDict

from chalicelib.backends.aws.catalog import ADDRESS
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from tests.backends.aws.account import Account, Fault, Script
from tests.backends.aws.lines import KEY, SECRET
from tests.backends.aws.provider import AwsProvider
from tests.backends.aws.shop import disk_price, price
from tests.backends.fakes.script import Answer
from tests.backends.fakes.server import Request
from tests.backends.fakes.transport import serving
from tests.e2e.clouds.cloud import Cloud, now

DENIED = {"RunInstances": "ec2:RunInstances", "DescribeVolumes": "ec2:DescribeVolumes"}

NOTICES = """
def answer(method, path, headers, notice):
    if method == "PUT":
        return 200, "token"
    there = notice and headers["X-aws-ec2-metadata-token"] == "token"
    return (200, notice) if there else (404, "")
"""


class OverHttp:
    def __init__(self, account: Account) -> None:
        self._send = account.send

    def answer(self, request: Request) -> Answer:
        url = f"http://{request.headers['host']}{request.target}"
        sent = AWSPreparedRequest(request.method, url, HeadersDict(dict(request.headers)), request.body, False)
        found = self._send(sent)
        return Answer(found.status_code, found.content.decode(), {"content-type": "text/xml"})


class Journey(Cloud):
    config: ClassVar = {
        "type": "aws",
        "creds": {"type": "access_key", "access_key": KEY, "secret_key": SECRET},
        "regions": ["us-east-1"],
    }
    fleet: ClassVar = {"instance_types": ["m7i.large"]}
    running, notices = "running", NOTICES

    def __init__(self) -> None:
        self.fake = Account(now, Script(lag=0, boot=SECOND, end=SECOND))
        self.provider = AwsProvider(self.fake)

    def serving(self, port: int = 0) -> AbstractContextManager[str]:
        return serving(OverHttp(self.fake), port)

    def machines(self) -> Sequence[tuple[str, str | None]]:
        found = self.fake.machines
        return [(each.id, found.state(each)) for each in found.all.values()]

    def boot_script(self, machine: str) -> str:
        script: str = self.provider.user_data([Handle(kind="vm", id=machine)])
        return script

    def billed(self) -> float:
        places, disks = self.fake.places, self.fake.disks
        alive = [each for each in self.fake.machines.all.values() if self.fake.machines.state(each) != "terminated"]
        machines = sum(price(each.params["InstanceType"], each.region) for each in alive)
        stored = sum(disk_price(each.region, each.params["Size"]) for each in disks.all.values())
        return machines + stored + ADDRESS * len(places.addresses)

    def deny(self) -> Sequence[str]:
        code = "UnauthorizedOperation"
        self.fake.script.faults += [Fault(each, code, times=1000, status=403) for each in DENIED]
        return [*DENIED.values()]
